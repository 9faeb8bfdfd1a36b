"""A transaction coordinator with a simulated clock, `__transaction_state` in memory, and leaders that answer as a test says."""

from __future__ import annotations

import itertools
from collections.abc import Coroutine
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock

from tests.coordinators.memory_log import MemoryLog
from txbroker.client.client_errors import Closed
from txbroker.errors import BrokerError, ErrorCode
from txbroker.names import TopicPartition
from txbroker.transactions.coordinator import TransactionCoordinator
from txbroker.transactions.marker_queues import Destination, MarkerQueues, Unroutable
from txbroker.transactions.transaction import Producer
from txbroker.transactions.transaction_config import TransactionConfig
from txbroker.transactions.transaction_record import TransactionRecord, read_key, read_value
from txbroker.transactions.transaction_states import TransactionState
from txbroker.wire.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

E = ErrorCode
S = TransactionState
P0, P1, Q0 = TopicPartition("p", 0), TopicPartition("p", 1), TopicPartition("q", 0)
ONE, TWO = Destination(1, "one", 9092), Destination(2, "two", 9092)
TIMEOUT_MS = 60_000


class Leaders:
    """The leaders of all partitions. `sent`: every request, with its destination; `codes`: what a partition answers."""

    def __init__(self) -> None:
        self.of: dict[TopicPartition, Destination | Unroutable] = {P0: ONE, P1: ONE, Q0: TWO}
        self.sent: list[tuple[Destination, WriteTxnMarkersRequest]] = []
        self.codes: dict[TopicPartition, ErrorCode] = {}
        self.hold = False
        self.held: list[tuple[Deferred[WriteTxnMarkersResponse], WriteTxnMarkersRequest]] = []
        self.open: list[Destination] = []

    def leader(self, partition: TopicPartition) -> Destination | Unroutable:
        return self.of.get(partition, Unroutable.NO_PARTITION)

    def channel(self, destination: Destination) -> _Channel:
        self.open.append(destination)
        return _Channel(self, destination)

    def markers(self, partition: TopicPartition) -> list[tuple[int, int, bool]]:
        """Producer id, epoch and result of every marker that was sent to a partition."""
        return [
            (marker.producer_id, marker.producer_epoch, marker.transaction_result)
            for _, request in self.sent
            for marker in request.markers
            for topic in marker.topics
            if topic.name == partition.topic and partition.partition in topic.partition_indexes
        ]

    def answer(self, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        return WriteTxnMarkersResponse(
            markers=[
                WritableTxnMarkerResult(
                    producer_id=marker.producer_id,
                    topics=[
                        WritableTxnMarkerTopicResult(
                            name=topic.name,
                            partitions=[
                                WritableTxnMarkerPartitionResult(
                                    partition_index=index, error_code=self.codes.get(TopicPartition(topic.name, index), E.NONE)
                                )
                                for index in topic.partition_indexes
                            ],
                        )
                        for topic in marker.topics
                    ],
                )
                for marker in request.markers
            ]
        )

    def release(self) -> None:
        """Answer the oldest request that is held."""
        deferred, request = self.held.pop(0)
        deferred.callback(self.answer(request))


class _Channel:
    def __init__(self, leaders: Leaders, destination: Destination) -> None:
        self._leaders = leaders
        self._destination = destination
        self._in_flight: list[Deferred[WriteTxnMarkersResponse]] = []

    def send(self, request: WriteTxnMarkersRequest) -> Deferred[WriteTxnMarkersResponse]:
        assert all(deferred.called for deferred in self._in_flight), "one request at a time"
        self._leaders.sent.append((self._destination, request))
        if not self._leaders.hold:
            return succeed(self._leaders.answer(request))
        deferred: Deferred[WriteTxnMarkersResponse] = Deferred()
        self._in_flight.append(deferred)
        self._leaders.held.append((deferred, request))
        return deferred

    def close(self) -> None:
        self._leaders.open.remove(self._destination)
        for deferred in self._in_flight:
            if not deferred.called:
                deferred.errback(Closed("closed"))


class TransactionHarness:
    """A coordinator; its log, clock and leaders outlive it."""

    def __init__(self, partitions: int = 1, **settings: Any) -> None:
        self.clock = Clock()
        self.clock.advance(1_000)
        self.ahead_ms = 1_800_000_000_000
        self.log = MemoryLog()
        self.leaders = Leaders()
        self.partitions = partitions
        self.config = TransactionConfig(**settings)
        self.ids = itertools.count(4_000)
        self.replace()

    def replace(self) -> None:
        """A new coordinator on the same log, as after a restart."""
        self.leaders.open.clear()
        self.queues = MarkerQueues(self.clock, self.leaders.leader, self.leaders.channel)
        self.coordinator = TransactionCoordinator(
            self.clock, lambda: self.now_ms, self.log, self.config, lambda: self.partitions, self._next_id, self.queues
        )

    def _next_id(self) -> Deferred[int]:
        return succeed(next(self.ids))

    def loaded(self, epoch: int = 0) -> TransactionHarness:
        for index in range(self.partitions):
            self.coordinator.load(index, epoch)
        self.clock.advance(0)
        return self

    @property
    def now_ms(self) -> int:
        return self.ahead_ms + round(self.clock.seconds() * 1000)

    def initialize(self, expected: Producer | None = None, name: str = "t", timeout_ms: int = TIMEOUT_MS) -> Any:
        return outcome(self.coordinator.initialize(name, timeout_ms, expected))

    def add(self, producer: Producer, *partitions: TopicPartition, version: int = 0, name: str = "t") -> Any:
        return outcome(self.coordinator.add_partitions(name, producer, partitions, version))

    def end(self, producer: Producer, commit: bool = True, version: int = 0, name: str = "t") -> Any:
        return outcome(self.coordinator.end(name, producer, commit=commit, version=version))

    def ongoing(self, *partitions: TopicPartition, version: int = 0, name: str = "t") -> Producer:
        """A producer with an open transaction."""
        producer: Producer = self.initialize(name=name)
        assert self.add(producer, *(partitions or (P0,)), version=version, name=name) is None
        return producer

    def record(self, name: str = "t") -> TransactionRecord:
        return self.coordinator.describe(name)

    def state(self) -> TransactionState:
        return self.record().state

    def written(self) -> list[tuple[str, TransactionState | None]]:
        """The states that were appended, None for a tombstone."""
        return [
            (str(read_key(key)), None if value is None else read_value(value).state)
            for _, pairs in self.log.appends
            for key, value in pairs
        ]


class Waiting:
    """A request that is not answered yet."""

    def __init__(self, deferred: Deferred[Any]) -> None:
        self.deferred = deferred

    def result(self) -> Any:
        found = _now(self.deferred)
        assert not isinstance(found, Waiting), "it is not answered yet"
        return found


def outcome(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """The result of a request, the ErrorCode that it fails with, or Waiting."""
    return _now(Deferred.fromCoroutine(coroutine))


def _now(deferred: Deferred[Any]) -> Any:
    results: list[Any] = []
    deferred.addBoth(results.append)
    if not results:
        again: Deferred[Any] = Deferred()
        deferred.addBoth(lambda _: again.callback(results[0]))
        return Waiting(again)
    failure = results[0]
    if hasattr(failure, "value"):
        assert isinstance(failure.value, BrokerError), failure
        return failure.value.code
    return failure
