"""A client of the whole cluster: connections to its brokers, and the leaders of partitions."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from random import Random
from typing import Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from simulation.process import Process
from txbroker.client.client_errors import ClientError, ConnectionFailed, Silent
from txbroker.client.client_machine import ClientSettings
from txbroker.client.twisted_connection import TwistedConnection
from txbroker.errors import ErrorCode
from txbroker.names import TopicPartition
from txbroker.wire.messages.find_coordinator import FindCoordinatorRequest
from txbroker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from txbroker.wire.schema import Request

T = TypeVar("T")
Address = tuple[str, int]

GROUP, TRANSACTION = 0, 1  # the kinds of coordinators


class NotAvailable(Exception):
    """No broker serves it at the moment: try again later."""


class Refused(Exception):
    """A request has failed with an error that no fault explains. It ends the client, which violates I12."""


def check(request: str, code: int, passing: Collection[ErrorCode]) -> None:
    """Return if there is no error. NotAvailable if it is one of `passing`, else Refused."""
    if code in passing:
        raise NotAvailable(f"{request}: {ErrorCode(code).name}")
    if code:
        raise Refused(f"{request} failed with {ErrorCode(code).name}")


class ClusterClient:
    """`brokers`: addresses to begin with, by broker id."""

    def __init__(self, process: Process, chance: Random, brokers: Mapping[int, Address], *, request_timeout_s: float) -> None:
        self.process = process
        self.chance = chance
        self.leaders: dict[TopicPartition, tuple[int, int]] = {}  # leader and its epoch
        self.controller_id = -1
        self.unanswered: list[str] = []  # requests without an answer in time
        self._epochs: dict[TopicPartition, int] = {}  # the newest seen: older metadata is ignored, as Kafka's clients do
        self._bootstrap = dict(brokers)
        self._brokers = dict(brokers)
        self._settings = ClientSettings(process.host, request_timeout_s=request_timeout_s, connect_timeout_s=2.0)
        self._connections: dict[int, TwistedConnection] = {}
        self._connecting: dict[int, list[Deferred[None]]] = {}

    def sleep(self, seconds: float) -> Deferred[None]:
        """Wait."""
        return deferLater(self.process, seconds)  # type: ignore[arg-type]

    async def send(self, broker_id: int, request: Request, *, version_max: int | None = None, timeout_s: float | None = None) -> Any:
        """The response of a broker; ClientError, NotAvailable."""
        connection = await self._connection(broker_id)
        try:
            return await connection.send(request, version_max=version_max, timeout_s=timeout_s)
        except Silent:
            self.unanswered.append(f"{type(request).__name__} to b{broker_id}")
            raise

    async def _connection(self, broker_id: int) -> TwistedConnection:
        connection = self._connections.get(broker_id)
        if connection is not None and connection.ready:
            return connection
        waiting = self._connecting.get(broker_id)
        if waiting is not None:
            turn: Deferred[None] = Deferred()
            waiting.append(turn)
            await turn
            return await self._connection(broker_id)
        address = self._brokers.get(broker_id)
        if address is None:
            raise NotAvailable(f"the address of broker {broker_id} is not known")
        self._connecting[broker_id] = []
        try:
            if connection is None or connection.address != f"{address[0]}:{address[1]}":
                connection = self._connections[broker_id] = TwistedConnection(*address, self.process, self.chance.random, self._settings)
            await connection.connect()
            return connection
        finally:
            for one in self._connecting.pop(broker_id):
                self.process.callLater(0, one.callback, None)

    def is_connected(self, broker_id: int) -> bool:
        """Whether a request to this broker is sent at once."""
        connection = self._connections.get(broker_id)
        return connection is not None and connection.ready

    def close(self, broker_id: int) -> None:
        """End the connection to a broker."""
        connection = self._connections.get(broker_id)
        if connection is not None and connection.ready:
            connection.close()

    def forget(self) -> None:
        """The end of the run: keep no connection."""
        self._connections.clear()

    @property
    def broker_ids(self) -> list[int]:
        """The known brokers."""
        return sorted(self._brokers)

    async def refresh(self, topics: list[str]) -> None:
        """Ask some broker for the leaders of these topics; NotAvailable."""
        broker_id = self.chance.choice(sorted({*self._brokers, *self._bootstrap}))
        self._brokers = {**self._bootstrap, **self._brokers}
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in topics], allow_auto_topic_creation=False)
        try:
            response = await self.send(broker_id, request, version_max=12)
        except ClientError as error:
            raise NotAvailable(f"no metadata: {error}") from error
        if response.brokers:
            self._brokers = {broker.node_id: (broker.host, broker.port) for broker in response.brokers}
            self.controller_id = response.controller_id
        for topic in response.topics:
            for partition in topic.partitions:
                name = TopicPartition(topic.name, partition.partition_index)
                if not partition.error_code and partition.leader_id >= 0:
                    if partition.leader_epoch >= self._epochs.get(name, -1):
                        self._epochs[name] = partition.leader_epoch
                        self.leaders[name] = partition.leader_id, partition.leader_epoch
                else:
                    self.leaders.pop(name, None)

    async def leader(self, name: TopicPartition) -> tuple[int, int]:
        """The leader of a partition and its epoch; NotAvailable."""
        if name not in self.leaders:
            await self.refresh([name.topic])
        found = self.leaders.get(name)
        if found is None:
            raise NotAvailable(f"{name} has no leader")
        return found

    def forget_leader(self, name: TopicPartition) -> None:
        """Ask again next time."""
        self.leaders.pop(name, None)

    async def coordinator(self, key: str, kind: int = GROUP) -> int:
        """The coordinator of a group or a transactional id; NotAvailable, Refused."""
        broker_id = self.chance.choice(self.broker_ids)
        try:
            response = await self.send(broker_id, FindCoordinatorRequest(coordinator_keys=[key], key_type=kind), version_max=4)
        except ClientError as error:
            raise NotAvailable(f"no coordinator: {error}") from error
        (found,) = response.coordinators
        check("FindCoordinator", found.error_code, (ErrorCode.COORDINATOR_NOT_AVAILABLE,))
        self._brokers.setdefault(found.node_id, (found.host, found.port))
        node: int = found.node_id
        return node


PASSING = (ConnectionFailed, ClientError, NotAvailable)
