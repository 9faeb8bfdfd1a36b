"""The markers of prepared transactions on their way to the leaders of their partitions (Kafka's TransactionMarkerChannelManager).

Each leader has a queue with one request in flight, which carries all markers that were waiting. A marker is sent until its partition has it
or no longer exists; after an error, or when the leader changes, the leader is looked up again. A partition without a leader waits. A
response that says that the coordinator or its producer epoch is replaced stops the transaction's markers here: a newer coordinator sends
them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import field
from enum import Enum, auto
from typing import NamedTuple, Protocol, TypeAlias

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from txbroker.clock import Clock, DelayedCall
from txbroker.errors import ErrorCode
from txbroker.lazy_dataclass import lazy_dataclass
from txbroker.names import TopicPartition
from txbroker.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

log = logging.getLogger("txbroker.transactions")

RETRY_S = 0.1  # Kafka retries at each turn of its sender; between brokers a new leader is known within about this time
MARKERS_MAX = 2_000  # transactions in a request

# A newer coordinator has ended the transaction, or will.
_FENCED = frozenset({ErrorCode.TRANSACTION_COORDINATOR_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})
# The partition cannot have transactions at all.
_IMPOSSIBLE = frozenset({ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION})


class Destination(NamedTuple):
    """A live broker and where it listens."""

    broker_id: int
    host: str
    port: int


class Unroutable(Enum):
    """Why a marker cannot be sent."""

    NO_LEADER = auto()  # at the moment
    NO_PARTITION = auto()  # it was deleted


class Channel(Protocol):
    """A way to one broker."""

    def send(self, request: WriteTxnMarkersRequest) -> Deferred[WriteTxnMarkersResponse]:
        """Fires with the response, however often the request has to be sent. Fails once the channel is closed."""

    def close(self) -> None:
        """Send no more."""


@lazy_dataclass(slots=True, eq=False)
class Markers:
    """The markers of one prepared transaction.

    `marked` is called with partitions that have their marker or no longer exist. `fenced`: a newer coordinator was seen.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int
    version: int
    marked: Callable[[Iterable[TopicPartition]], None]
    is_stopped: bool = False


_Batch: TypeAlias = dict[Markers, set[TopicPartition]]


@lazy_dataclass(slots=True, eq=False)
class _Queue:
    """What one broker is to be sent. `in_flight` is what its request carries, without what has another leader by now."""

    channel: Channel
    waiting: _Batch = field(default_factory=dict)
    in_flight: _Batch | None = None


class MarkerQueues:
    """All markers of this coordinator."""

    def __init__(
        self, clock: Clock, leader: Callable[[TopicPartition], Destination | Unroutable], open_channel: Callable[[Destination], Channel]
    ) -> None:
        self._clock = clock
        self._leader = leader
        self._open_channel = open_channel
        self._queues: dict[Destination, _Queue] = {}
        self._unsent: _Batch = {}  # without a leader, or to be sent again after a pause
        self._retry: DelayedCall | None = None
        self._is_stopped = False

    def __len__(self) -> int:
        """The number of transactions with markers here."""
        batches = [self._unsent, *(q.waiting for q in self._queues.values()), *(q.in_flight or {} for q in self._queues.values())]
        return len({markers for batch in batches for markers in batch})

    @property
    def unsent_count(self) -> int:
        """The number of transactions with markers for partitions without a leader, or that are sent again after a pause."""
        return len(self._unsent)

    def send(self, markers: Markers, partitions: Iterable[TopicPartition]) -> None:
        """Send the markers of a transaction to these partitions."""
        self._route({markers: set(partitions)})

    def cancel(self, markers: Markers) -> None:
        """This broker no longer coordinates the transaction: send no more, and ignore the response of a request in flight."""
        markers.is_stopped = True
        self._unsent.pop(markers, None)
        for queue in self._queues.values():
            queue.waiting.pop(markers, None)
            if queue.in_flight is not None:
                queue.in_flight.pop(markers, None)

    def leaders_changed(self, live: Container[Destination]) -> None:
        """The cluster's metadata has changed: send again what has another leader now, and close the channels to brokers that are gone."""
        batch = self._take_unsent()
        for destination, queue in list(self._queues.items()):
            for present in (queue.waiting, queue.in_flight or {}):
                for markers, partitions in list(present.items()):
                    moved = {partition for partition in partitions if self._leader(partition) != destination}
                    if moved:
                        batch.setdefault(markers, set()).update(moved)
                        _remove(present, markers, moved)
            if destination not in live and not queue.waiting and not queue.in_flight:
                del self._queues[destination]
                queue.channel.close()
        self._route(batch)

    def stop(self) -> None:
        """Close all channels."""
        self._is_stopped = True
        self._take_unsent()
        for queue in list(self._queues.values()):
            queue.waiting.clear()
            queue.channel.close()

    def _route(self, batch: _Batch) -> None:
        """Put markers into the queues of the leaders."""
        touched: dict[Destination, None] = {}
        for markers, partitions in batch.items():
            gone = set()
            for partition in partitions:
                leader = self._leader(partition)
                if leader is Unroutable.NO_PARTITION:
                    gone.add(partition)
                elif leader is Unroutable.NO_LEADER:
                    self._postpone(markers, {partition})
                elif isinstance(leader, Destination):
                    queue = self._queues.get(leader)
                    if queue is None:
                        queue = self._queues[leader] = _Queue(self._open_channel(leader))
                    queue.waiting.setdefault(markers, set()).add(partition)
                    touched[leader] = None
            if gone:
                log.info("transactional id %s: no marker for partitions that are deleted: %s", markers.transactional_id, _listed(gone))
                markers.marked(gone)
        for destination in touched:
            self._pump(destination)

    def _postpone(self, markers: Markers, partitions: set[TopicPartition]) -> None:
        if self._is_stopped or markers.is_stopped or not partitions:
            return
        self._unsent.setdefault(markers, set()).update(partitions)
        if self._retry is None:
            self._retry = self._clock.callLater(RETRY_S, self._send_again)

    def _send_again(self) -> None:
        self._retry = None
        self._route(self._take_unsent())

    def _take_unsent(self) -> _Batch:
        if self._retry is not None and self._retry.active():
            self._retry.cancel()
        self._retry = None
        batch, self._unsent = self._unsent, {}
        return batch

    def _pump(self, destination: Destination) -> None:
        queue = self._queues.get(destination)
        if queue is None or queue.in_flight is not None or not queue.waiting or self._is_stopped:
            return
        flight: _Batch = {}
        for markers in list(queue.waiting)[:MARKERS_MAX]:
            flight[markers] = queue.waiting.pop(markers)
        queue.in_flight = flight
        sent = queue.channel.send(WriteTxnMarkersRequest(markers=[_marker(markers, flight[markers]) for markers in flight]))
        sent.addCallbacks(lambda response: self._answered(response, queue, flight), lambda failure: self._failed(failure, queue, flight))
        sent.addErrback(lambda failure: log.error("internal error while writing markers: %s", failure.getTraceback()))
        sent.addCallback(lambda _: self._pump(destination))

    def _failed(self, failure: Failure, queue: _Queue, flight: _Batch) -> None:
        queue.in_flight = None
        if not self._is_stopped:
            log.debug("markers are sent again: %s", failure.getErrorMessage())
        for markers, partitions in flight.items():
            self._postpone(markers, partitions)

    def _answered(self, response: WriteTxnMarkersResponse, queue: _Queue, flight: _Batch) -> None:
        queue.in_flight = None
        results: dict[tuple[int, str, int], int] = {
            (result.producer_id, topic.name, partition.partition_index): partition.error_code
            for result in response.markers
            for topic in result.topics
            for partition in topic.partitions
        }
        for markers, partitions in flight.items():
            try:
                self._settle(markers, partitions, results)
            except Exception:  # the markers of other transactions have their own answers
                log.exception(
                    "transactional id %s: internal error after its markers were written; they are sent again", markers.transactional_id
                )
                self._postpone(markers, partitions)

    def _settle(self, markers: Markers, partitions: set[TopicPartition], results: Mapping[tuple[int, str, int], int]) -> None:
        """One transaction's markers were sent: `results` has the error code of each by producer id, topic and partition."""
        codes = {p: results.get((markers.producer_id, *p), ErrorCode.UNKNOWN_SERVER_ERROR) for p in partitions}
        fenced = next((p for p, code in codes.items() if code in _FENCED), None)
        if fenced is not None:
            log.warning(
                "transactional id %s: the leader of %s refuses markers of producer %d with epoch %d and coordinator epoch %d: %s; "
                "a newer coordinator or producer exists",
                markers.transactional_id,
                fenced,
                markers.producer_id,
                markers.producer_epoch,
                markers.coordinator_epoch,
                ErrorCode(codes[fenced]).name,
            )
            self.cancel(markers)
            return
        done = {p for p, code in codes.items() if not code or code in _IMPOSSIBLE}
        self._postpone(markers, partitions - done)
        if done:
            markers.marked(done)


def _remove(batch: _Batch, markers: Markers, partitions: set[TopicPartition]) -> None:
    batch[markers] -= partitions
    if not batch[markers]:
        del batch[markers]


def _marker(markers: Markers, partitions: set[TopicPartition]) -> WritableTxnMarker:
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        topics.setdefault(topic, []).append(index)
    return WritableTxnMarker(
        producer_id=markers.producer_id,
        producer_epoch=markers.producer_epoch,
        transaction_result=markers.committed,
        topics=[WritableTxnMarkerTopic(name=name, partition_indexes=indexes) for name, indexes in topics.items()],
        coordinator_epoch=markers.coordinator_epoch,
        transaction_version=markers.version,
    )


def _listed(partitions: set[TopicPartition]) -> str:
    shown = sorted(map(str, partitions))
    return ", ".join(shown[:5]) + (f" and {len(shown) - 5} more" if len(shown) > 5 else "")
