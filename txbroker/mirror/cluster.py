"""One cluster as a client sees it: its brokers, its topics, and connections to them that are made when they are needed."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.python.failure import Failure

from txbroker.client.advertised import TRIED_MAX, needs_check, unreachable
from txbroker.client.blocking_connection import new_nonce
from txbroker.client.client_errors import ClientError, Closed, ConnectionFailed, RequestFailed, Unreachable, address_text
from txbroker.client.client_machine import ClientSettings
from txbroker.client.client_security import ClientSecurity
from txbroker.client.offset_requests import NO_REPLICA
from txbroker.client.topic_leaders import RETRIABLE, Broker, TopicLeaders, all_leaders
from txbroker.client.twisted_connection import TwistedConnection
from txbroker.names import MIRROR_CLIENT_ID, TopicPartition
from txbroker.tls.contexts import client_context
from txbroker.tls.settings import TlsProblem, TlsSettings
from txbroker.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from txbroker.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic
from txbroker.wire.messages.metadata import MetadataRequest, MetadataResponse
from txbroker.wire.schema import Request

log = logging.getLogger("txbroker.mirror")

# A broker serves the requests of one connection in order: requests that wait, and those with data, have connections of their own.
CONTROL, DATA = "control", "data"
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
RETRY_S, RETRIES = 0.2, 150
_GROUP = 0  # a coordinator's key type
_COORDINATORS_VERSION = 4

T = TypeVar("T")


class Cluster:
    """`label` names it in messages. `chance` returns numbers from 0 to 1. Brokers and topics are those of the last `refresh`.

    `unavailable`: topics that exist and cannot be used now, with their error codes.
    """

    def __init__(
        self, label: str, addresses: Sequence[tuple[str, int]], reactor: Any, chance: Callable[[], float],
        security: ClientSecurity | None = None,
    ) -> None:  # fmt: skip
        """`security`: TLS and SASL of all connections. TlsProblem."""
        self.label = label
        self.cluster_id = ""
        self.brokers: dict[int, tuple[str, int]] = {}
        self.controller = -1
        self.topics: Mapping[str, TopicLeaders] = {}
        self.unavailable: Mapping[str, int] = {}
        self._addresses = addresses
        self._reactor = reactor
        self._chance = chance
        self._settings = ClientSettings(client_id=MIRROR_CLIENT_ID, security=security)
        self._tls = None if security is None or security.tls is None else _Tls(label, security.tls)
        self._links: dict[tuple[tuple[str, int], str], _Link] = {}

    def close(self) -> None:
        """Close all connections."""
        for link in list(self._links.values()):
            link.connection.close()

    async def refresh(self) -> None:
        """Ask for brokers and topics again; ClientError."""
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        response: MetadataResponse = await self.ask(request)
        self.cluster_id = response.cluster_id or ""
        self.controller = response.controller_id
        self.brokers = {broker.node_id: (broker.host, broker.port) for broker in response.brokers}
        found = all_leaders(response)
        self.topics = {name: leaders for name, leaders in found.items() if not isinstance(leaders, int)}
        self.unavailable = {name: code for name, code in found.items() if isinstance(code, int)}

    async def begin(self) -> None:
        """The first `refresh`; AdvertisedUnreachable if no broker can be reached at the address that it advertises, ClientError."""
        await self.refresh()
        brokers = [Broker(node, *address) for node, address in sorted(self.brokers.items())]
        if not all(needs_check(brokers, address_text(*address)) for address in self._addresses):
            return
        problems: list[ConnectionFailed] = []
        for broker in brokers[:TRIED_MAX]:
            try:
                await self._link((broker.host, broker.port), CONTROL).connect()
            except Unreachable as error:
                problems.append(unreachable(broker, error))
            else:
                return
        if problems:
            raise problems[0]

    async def ask(self, request: Request, node: int | None = None, purpose: str = CONTROL, version_max: int | None = None) -> Any:
        """The response of this broker, or of any; ClientError."""
        if node is not None:
            address = self.brokers.get(node)
            if address is None:
                raise Closed(f"the {self.label} has no broker {node} now")
            try:
                return await self._link(address, purpose).send(request, version_max)
            except Unreachable as error:
                raise unreachable(Broker(node, *address), error) from None
        problems: list[str] = []
        for address in dict.fromkeys([*self.brokers.values(), *self._addresses]):
            try:
                return await self._link(address, purpose).send(request, version_max)
            except ConnectionFailed as failed:
                problems.append(str(failed))
        advice = f"check that it runs, or correct the address of the {self.label}"
        raise Closed(f"no broker of the {self.label} answers: {'; '.join(problems)}; {advice}")

    async def patiently(self, ask: Callable[[], Awaitable[T]]) -> T:
        """What `ask` returns, which is called again for half a minute after errors that pass; ClientError.

        Kafka shows the leader of a new partition in its metadata before that broker leads it, and its coordinators load after a start.
        """
        for _ in range(RETRIES):
            try:
                return await ask()
            except RequestFailed as failed:
                if failed.code not in RETRIABLE:
                    raise
            await deferLater(self._reactor, RETRY_S)
            await self.refresh()
        return await ask()

    def version_of(self, node: int, request: type[Request], purpose: str = CONTROL) -> int | None:
        """The version in which this broker would receive a request; None before the first connection to it."""
        link = self._links.get((self.brokers.get(node, ("", 0)), purpose))
        return None if link is None else link.connection.machine.version_of(request)

    async def ask_controller(self, request: Request) -> Any:
        """The response of the controller; ClientError."""
        return await self.ask(request, self.controller if self.controller in self.brokers else None)

    async def offsets(
        self, timestamp: int, partitions: Mapping[TopicPartition, int], isolation: int = READ_UNCOMMITTED
    ) -> dict[TopicPartition, int]:
        """The offsets of partitions for ListOffsets' `timestamp`, EARLIEST or LATEST; `partitions` with their leaders. ClientError."""
        by_leader: dict[int, dict[str, list[int]]] = {}
        for (topic, index), leader in partitions.items():
            by_leader.setdefault(leader, {}).setdefault(topic, []).append(index)
        found: dict[TopicPartition, int] = {}
        for leader, topics in by_leader.items():
            asked = [
                ListOffsetsTopic(name=name, partitions=[ListOffsetsPartition(partition_index=index, timestamp=timestamp) for index in own])
                for name, own in topics.items()
            ]
            request = ListOffsetsRequest(replica_id=NO_REPLICA, isolation_level=isolation, topics=asked)
            response: ListOffsetsResponse = await self.ask(request, leader)
            for answer in response.topics:
                for each in answer.partitions:
                    if each.error_code:
                        what = f"the offsets of {answer.name}-{each.partition_index} at the {self.label}"
                        raise RequestFailed(what, each.error_code)
                    found[TopicPartition(answer.name, each.partition_index)] = each.offset
        missing = partitions.keys() - found.keys()
        if missing:
            raise ClientError(f"the {self.label} does not return the offsets of {min(missing)}")
        return found

    async def coordinator(self, group: str) -> int:
        """The broker that coordinates this group; ClientError."""
        node = next(iter(self.brokers), None)
        version = None if node is None else self.version_of(node, FindCoordinatorRequest)
        old = version is not None and version < _COORDINATORS_VERSION
        request = FindCoordinatorRequest(key=group if old else "", key_type=_GROUP, coordinator_keys=[] if old else [group])
        response: FindCoordinatorResponse = await self.ask(request, node, version_max=3 if old else None)
        found: Any = response.coordinators[0] if response.coordinators else response
        if found.error_code:
            raise RequestFailed(f"the coordinator of group {group} at the {self.label}", found.error_code)
        self.brokers.setdefault(found.node_id, (found.host, found.port))
        return int(found.node_id)

    def _link(self, address: tuple[str, int], purpose: str) -> _Link:
        link = self._links.get((address, purpose))
        if link is None:
            connection = TwistedConnection(
                *address, self._reactor, self._chance, self._settings, nonce=new_nonce, tls=None if self._tls is None else self._tls.context
            )
            link = self._links[address, purpose] = _Link(connection)
        return link


class _Tls:
    """The context of new connections: the files are read again for each, and are allowed to be damaged later."""

    def __init__(self, label: str, settings: TlsSettings) -> None:
        """TlsProblem."""
        self._label = label
        self._settings = settings
        self._context = client_context(settings)

    def context(self) -> ssl.SSLContext:
        try:
            self._context = client_context(self._settings)
        except TlsProblem as problem:
            log.warning("connecting to the %s with the certificates of before: %s", self._label, problem)
        return self._context


class _Link:
    """A connection that is made again when it was lost."""

    def __init__(self, connection: TwistedConnection) -> None:
        self.connection = connection
        self._waiting: list[Deferred[None]] | None = None

    async def send(self, request: Request, version_max: int | None) -> Any:
        await self.connect()
        return await self.connection.send(request, version_max=version_max)

    async def connect(self) -> None:
        """Connect, unless it is connected; ClientError."""
        if not self.connection.ready:
            await self._connected()

    async def _connected(self) -> None:
        """Wait for the connection, in the order of the requests."""
        waiting: Deferred[None] = Deferred()
        if self._waiting is not None:
            self._waiting.append(waiting)
        else:
            self._waiting = [waiting]
            self.connection.connect().addCallbacks(self._ready, self._failed)
        await waiting

    def _ready(self, _: None) -> None:
        waiting, self._waiting = self._waiting or [], None
        for each in waiting:
            each.callback(None)

    def _failed(self, failure: Failure) -> None:
        waiting, self._waiting = self._waiting or [], None
        for each in waiting:
            each.errback(failure)
