"""One world: a cluster of real brokers, its clients and its faults, on one simulated clock, from one plan.

A run has three parts. First the cluster starts, and topics are created. Then clients work while faults happen. At `duration_s` the faults
end: everything is repaired, the clients finish what they have begun, and the cluster must converge within `CONVERGE_S`. The invariants are
checked after every step, and at the end.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from simulation.chance import stream
from simulation.clients.administrator import Administrator
from simulation.clients.cluster_client import PASSING, ClusterClient
from simulation.clients.committer import Committer
from simulation.clients.consumer import Consumer
from simulation.clients.member import Member, Members
from simulation.clients.producer import Producer
from simulation.clients.transactional import TransactionalClient
from simulation.ensemble import Ensemble
from simulation.faults import Faults
from simulation.hosts import PORT, START_MS, BrokerHost
from simulation.invariants.cluster_state import ClusterState
from simulation.invariants.convergence import Convergence
from simulation.ledger import Ledger
from simulation.log_watch import LogWatch
from simulation.network import Network
from simulation.plan import Plan, TopicPlan
from simulation.process import Process
from simulation.scheduler import Scheduler
from simulation.trace import Trace
from txbroker.errors import ErrorCode
from txbroker.names import TopicPartition
from txbroker.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest

START_S = 30.0  # until all topics exist
REQUEST_TIMEOUT_S = 4.0
CONVERGE_S = 60.0
CHECK_S = 0.25  # how often convergence is looked for


@dataclass(frozen=True, slots=True)
class Violation:
    """What must not happen. `at_s`: simulated seconds."""

    invariant: str
    text: str
    at_s: float


@dataclass(frozen=True, slots=True)
class Result:
    """A run. `digest`: of its trace. `converged_s`: how long after the end of the faults the cluster was whole again."""

    violation: Violation | None
    digest: int
    simulated_s: float
    converged_s: float
    events: int
    counts: Counter[str]


class Client(Protocol):
    """Works from `start` until `finish`. `busy`: what it waits for after that."""

    finishing: bool

    def start(self) -> None: ...

    def finish(self) -> None: ...

    @property
    def busy(self) -> list[str]: ...


class World:
    """`run` runs it, once."""

    def __init__(self, plan: Plan, *, keep_trace: bool = False) -> None:
        self.plan = plan
        self.scheduler = Scheduler()
        self.trace = Trace(self.scheduler.seconds, keep_all=keep_trace)
        self.violation: Violation | None = None
        self.counts: Counter[str] = Counter()
        self.current: list[Process | None] = [None]
        self.network = Network(self.scheduler, stream(plan.seed, "network"), latency_s=plan.latency_s)
        self.ensemble = Ensemble(self.scheduler, self.network, stream(plan.seed, "tree"))
        self.ledger = Ledger(self.violate, lambda: START_MS + int(self.scheduler.now_s * 1000), self.scheduler.seconds)
        self.ledger.exactly_once = all(producer.idempotent for producer in plan.producers)
        self.processes: list[Process] = []
        self.hosts = {number + 1: BrokerHost(self, number + 1, plan.settings) for number in range(plan.brokers)}
        self.state = ClusterState(self)
        self.ledger.committed = self.state.acknowledged
        self.ledger.acting_coordinator = self.state.acting_coordinator
        self.ledger.leads = self.state.leads
        self.convergence = Convergence(self)
        self.faults = Faults(self)
        self.producers: list[Producer] = []
        self.consumers: list[Consumer] = []
        self.committers: list[Committer] = []
        self.transactional: list[TransactionalClient] = []
        self.members: list[Member] = []
        self.administrators: list[Administrator] = []
        self._connected: list[ClusterClient] = []
        self._ready = False

    def process(self, name: str, host: str, *, on_step: Callable[[], None] = lambda: None) -> Process:
        """A new process on a host."""
        process = Process(
            name, host, self.scheduler, self.network, stream(self.plan.seed, f"process {name}"), on_step=on_step, on_crash=self._crashed
        )
        process.current = self.current
        self.processes.append(process)
        return process

    def violate(self, invariant: str, text: str) -> None:
        """An invariant does not hold: the run ends."""
        if self.violation is None:
            self.violation = Violation(invariant, text, self.scheduler.now_s)
            self.trace.add("VIOLATED", f"{invariant}: {text}")
            self.scheduler.stop()

    def run(self) -> Result:
        """Run the plan."""
        with LogWatch(self) as watch:
            converged_s = self._run()
            events, digest = self.scheduler.events, self.trace.digest
            self.counts.update(self.ledger.transactions.counts())
            self._end_processes()
            watch.collect()
        return Result(self.violation, digest, self.scheduler.now_s, converged_s, events, self.counts)

    def _end_processes(self) -> None:
        """End all processes, and keep nothing of them: what no code has handled is garbage."""
        for process in self.processes:
            process.alive = False
        for host in self.hosts.values():
            host.forget()
        for client in self._connected:
            client.forget()
        self.scheduler.clear()
        self.network.clear()
        self.ensemble.clear()
        self.state.forget()

    def _run(self) -> float:
        for host in self.hosts.values():
            host.start()
        starting = self.client("admin")
        self.ledger.run("creation of topics", self._create_topics(starting))
        if not self._until(lambda: self._ready, START_S, "the cluster does not start"):
            return 0.0
        begun_s = self.scheduler.now_s
        self._start_clients()
        self.faults.schedule(begun_s)
        self.scheduler.run(begun_s + self.plan.duration_s)
        problem = self.convergence.problem
        if self.plan.left_out is not None and self.violation is None:
            out = self.faults.leave_out(self.plan.left_out)
            self._finish_clients()
            self._until(lambda: problem(out) is None, CONVERGE_S, f"without b{out} the cluster does not converge", lambda: problem(out))
        self.heal()
        healed_s = self.scheduler.now_s
        if self._until(lambda: problem() is None, CONVERGE_S, "the cluster does not converge"):
            for consumer in self.consumers:
                consumer.finish()
            if self._until(lambda: problem() is None, CONVERGE_S, "the consumers do not come to the end"):
                self._finish()
        return self.scheduler.now_s - healed_s

    def _until(
        self, condition: Callable[[], bool], at_most_s: float, otherwise: str, problem: Callable[[], str | None] | None = None
    ) -> bool:
        """Run until a condition holds; a violation of I11 if it does not in time, which names what waits."""
        deadline_s = self.scheduler.now_s + at_most_s
        while self.violation is None and self.scheduler.now_s < deadline_s:
            self.scheduler.run(self.scheduler.now_s + CHECK_S)
            if self.violation is None and condition():
                return True
        if self.violation is None:
            self.violate("I11", f"{otherwise} within {at_most_s:.0f} s: {(problem or self.convergence.problem)() or 'topics are missing'}")
        return False

    @property
    def clients(self) -> list[Client]:
        """All clients that work."""
        return [*self.producers, *self.consumers, *self.committers, *self.transactional, *self.members, *self.administrators]

    # The parts of a run

    def client(self, name: str, *, request_timeout_s: float = REQUEST_TIMEOUT_S) -> ClusterClient:
        """A client on a host of its own."""
        addresses = {host.id: (host.name, PORT) for host in self.hosts.values()}
        chance = stream(self.plan.seed, f"client {name}")
        client = ClusterClient(self.process(name, name), chance, addresses, request_timeout_s=request_timeout_s)
        self._connected.append(client)
        return client

    async def _create_topics(self, client: ClusterClient) -> None:
        for topic in self.plan.topics:
            while not await self._create_topic(client, topic):
                await client.sleep(0.2)
        self._ready = True

    async def _create_topic(self, client: ClusterClient, topic: TopicPlan) -> bool:
        configs = {"min.insync.replicas": str(topic.min_in_sync), **topic.configs}
        creatable = CreatableTopic(
            name=topic.name,
            num_partitions=topic.partitions,
            replication_factor=topic.replicas,
            assignments=[],
            configs=[CreatableTopicConfig(name=name, value=value) for name, value in configs.items()],
        )
        try:
            await client.refresh([])
            response = await client.send(client.controller_id, CreateTopicsRequest(topics=[creatable], timeout_ms=3000))
        except PASSING:
            return False
        (answer,) = response.topics
        return answer.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)

    def _start_clients(self) -> None:
        for topic in self.plan.topics:
            for index in range(topic.partitions):
                self.ledger.of(TopicPartition(topic.name, index)).compacted = "compact" in topic.configs.get("cleanup.policy", "")
        for number, producing in enumerate(self.plan.producers):
            name = f"p{number}"
            # Some wait for a silent leader longer than the cluster needs to elect another one.
            timeout_s = stream(self.plan.seed, f"timeout {name}").choice((REQUEST_TIMEOUT_S, 3 * REQUEST_TIMEOUT_S))
            self.producers.append(Producer(name, self.client(name, request_timeout_s=timeout_s), producing, self.ledger))
        for number, consuming in enumerate(self.plan.consumers):
            name = f"c{number}"
            self.consumers.append(Consumer(name, self.client(name), consuming, self.ledger))
        for number, committing in enumerate(self.plan.committers):
            name = f"g{number}"
            self.committers.append(Committer(name, self.client(name), committing, self.ledger))
        for number, plan in enumerate(self.plan.transactional):
            for rival in range(plan.rivals):
                name = f"x{number}{'ab'[rival]}"
                self.transactional.append(TransactionalClient(name, self.client(name), plan, self.ledger))
        for grouping in self.plan.groups:
            members = Members(grouping)
            for number in range(grouping.members):
                name = f"{grouping.group}m{number}"
                self.members.append(Member(name, self.client(name), members, self.ledger))
        for managing in self.plan.administrators:
            self.administrators.append(Administrator(managing.name, self.client(managing.name), managing, self.ledger))
        for client in self.clients:
            client.start()

    def heal(self) -> None:
        """The faults end: everything is repaired, and the clients finish, the consumers last."""
        self.trace.add("world", "healed")
        self.faults.heal()
        self._finish_clients()

    def _finish_clients(self) -> None:
        for client in self.clients:
            if not isinstance(client, Consumer):  # these finish when there are no new records
                client.finish()

    def _finish(self) -> None:
        """After convergence: read everything once more, from the beginning."""
        reader = self.client("reader")
        done: list[Any] = []
        Deferred.fromCoroutine(self.convergence.read_all(reader)).addBoth(done.append)
        if self._until(lambda: bool(done), CONVERGE_S, "the final read does not end") and isinstance(done[0], Failure):
            self.violate("I12", f"the final read failed: {done[0].getTraceback()}")
        waits = reader.unanswered or self.convergence.overdue()
        if self.violation is None and waits:
            self.violate("I11", f"the cluster is whole, and some requests are not answered: {'; '.join(waits)}")
        if self.violation is None:
            self.state.check_all()
        if self.violation is None:
            self.ledger.check_history()

    # Events of hosts

    def ended(self, host: BrokerHost) -> None:
        """The process of a host has ended."""
        self.state.ended(host)

    def process_failed(self, host: BrokerHost, what: str, failure: Failure) -> None:
        """A broker cannot start, cannot stop, or ends itself."""
        self.trace.add(host.name, f"{what}: {failure.getErrorMessage()}")
        if not self.faults.explain(host, failure.value):
            self.violate("I12", f"{host.name} {what}: {failure.getTraceback()}")

    def _crashed(self, error: Exception) -> None:
        process = self.current[0]
        text = "".join(Failure(error).getTraceback())
        self.violate("I12", f"{process.name if process else '?'}: a step failed: {text}")

    def log_line(self, record: logging.LogRecord) -> None:
        """A line of the log of the process that runs."""
        process = self.current[0]
        if process is not None and not process.alive:
            return  # it was killed in the middle of this step
        who = process.name if process is not None else "-"
        self.trace.add(who, f"{record.levelname[0]} {record.getMessage()}")
        if record.levelno >= logging.ERROR and not any(
            host.process is process and self.faults.excuses(host, record) for host in self.hosts.values()
        ):
            text = record.getMessage()
            if record.exc_info and record.exc_info[1] is not None:
                text += "\n" + Failure(record.exc_info[1]).getTraceback()
            self.violate("I12", f"{who} logs an error: {text}")
