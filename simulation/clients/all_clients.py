"""All clients of a run, each on a host of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from simulation.access_ledger import AccessLedger
from simulation.chance import stream
from simulation.clients.administrator import Administrator
from simulation.clients.cluster_client import ClusterClient
from simulation.clients.committer import Committer
from simulation.clients.consumer import Consumer
from simulation.clients.member import Member, Members
from simulation.clients.producer import Producer
from simulation.clients.restricted import AclAdministrator, RestrictedClient
from simulation.clients.transactional import TransactionalClient
from simulation.environment import Environment

REQUEST_TIMEOUT_S = 4.0


class Client(Protocol):
    """Works from `start` until `finish`. `busy`: what it waits for after that."""

    finishing: bool

    def start(self) -> None: ...

    def finish(self) -> None: ...

    @property
    def busy(self) -> list[str]: ...


class AllClients:
    """`start` has those of the plan work. `addresses`: (host, port) by broker id."""

    def __init__(self, environment: Environment, addresses: Mapping[int, tuple[str, int]]) -> None:
        self.producers: list[Producer] = []
        self.consumers: list[Consumer] = []
        self.committers: list[Committer] = []
        self.transactional: list[TransactionalClient] = []
        self.members: list[Member] = []
        self.administrators: list[Administrator] = []
        self.restricted: list[AclAdministrator | RestrictedClient] = []
        self.access: AccessLedger | None = None  # if the plan has access
        self._environment = environment
        self._addresses = dict(addresses)
        self._connected: list[ClusterClient] = []

    def connect(self, name: str, *, request_timeout_s: float = REQUEST_TIMEOUT_S) -> ClusterClient:
        """A new connection to the cluster, on the host `name`."""
        environment = self._environment
        chance = stream(environment.plan.seed, f"client {name}")
        client = ClusterClient(environment.process(name, name), chance, self._addresses, request_timeout_s=request_timeout_s)
        self._connected.append(client)
        return client

    def start(self) -> None:
        """Begin."""
        plan, ledger = self._environment.plan, self._environment.ledger
        for number, producing in enumerate(plan.producers):
            name = f"p{number}"
            # Some wait for a silent leader longer than the cluster needs to elect another one.
            timeout_s = stream(plan.seed, f"timeout {name}").choice((REQUEST_TIMEOUT_S, 3 * REQUEST_TIMEOUT_S))
            self.producers.append(Producer(name, self.connect(name, request_timeout_s=timeout_s), producing, ledger))
        for number, consuming in enumerate(plan.consumers):
            name = f"c{number}"
            self.consumers.append(Consumer(name, self.connect(name), consuming, ledger))
        for number, committing in enumerate(plan.committers):
            name = f"g{number}"
            self.committers.append(Committer(name, self.connect(name), committing, ledger))
        for number, transacting in enumerate(plan.transactional):
            for rival in range(transacting.rivals):
                name = f"x{number}{'ab'[rival]}"
                self.transactional.append(TransactionalClient(name, self.connect(name), transacting, ledger))
        for grouping in plan.groups:
            members = Members(grouping)
            for number in range(grouping.members):
                name = f"{grouping.group}m{number}"
                self.members.append(Member(name, self.connect(name), members, ledger))
        for managing in plan.administrators:
            self.administrators.append(Administrator(managing.name, self.connect(managing.name), managing, ledger))
        if plan.access is not None and self.access is not None:
            acls = AclAdministrator("acls", self.connect("acls"), plan.access, self.access, ledger)
            clients = [RestrictedClient(name, self.connect(name), plan.access, self.access, ledger) for name in plan.access.principals]
            self.restricted = [acls, *clients]
        for client in self.working:
            client.start()

    @property
    def working(self) -> list[Client]:
        """All clients that work."""
        return [*self.producers, *self.consumers, *self.committers, *self.transactional, *self.members, *self.administrators,
                *self.restricted]  # fmt: skip

    def finish(self) -> None:
        """Have all but the consumers finish: these do when there are no new records."""
        for client in self.working:
            if not isinstance(client, Consumer):
                client.finish()

    def finish_consumers(self) -> None:
        """Have the consumers finish."""
        for consumer in self.consumers:
            consumer.finish()

    def forget(self) -> None:
        """The end of the run: keep nothing of connections."""
        for client in self._connected:
            client.forget()
