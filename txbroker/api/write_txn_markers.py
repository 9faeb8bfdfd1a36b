"""WriteTxnMarkers (key 27): a transaction coordinator ends transactions in the partitions that this broker leads (KIP-98).

Behaviour: a marker is appended with acks=all, and answered when all in-sync replicas have it. One on `__consumer_offsets` is answered when
the group coordinator has also committed or dropped the offsets of the transaction (KAFKA-17507); while it is not active, the answer is
NOT_LEADER_OR_FOLLOWER, with which a transaction coordinator sends the marker again.
Version notes: v2 has the transaction version (KIP-1228). A marker of transactions v2 raises the producer's epoch. One that does not is
late: it is not appended again, and refused if the producer has begun its next transaction.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.defer import Deferred

from txbroker.api.registry import between_brokers
from txbroker.api.request_context import RequestContext
from txbroker.api.resources import AclOperation, on_cluster
from txbroker.cluster.partition import Partition
from txbroker.cluster.pending_append import PendingAppend
from txbroker.cluster.replicas import Replicas
from txbroker.errors import BrokerError, ErrorCode
from txbroker.groups.coordinator import GroupCoordinator
from txbroker.lazy_dataclass import lazy_dataclass
from txbroker.log.log_results import Origin
from txbroker.names import OFFSETS_TOPIC
from txbroker.purgatory import Purgatory
from txbroker.wire.control import Marker, build_marker
from txbroker.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from txbroker.wire.schema import Request

EPOCH_BUMP_VERSION = 2  # the transaction version since which each transaction has its own epoch


class WriteTxnMarkersHandler:
    """Appends markers and waits for the in-sync replicas; the transaction coordinator of this broker calls `write`."""

    request: type[Request] = WriteTxnMarkersRequest
    resources = on_cluster(AclOperation.CLUSTER_ACTION, instead=AclOperation.ALTER)
    is_exempt = staticmethod(between_brokers)

    def __init__(
        self, replicas: Replicas, groups: GroupCoordinator, purgatory: Purgatory, now_ms: Callable[[], int], timeout_ms: int
    ) -> None:
        """`timeout_ms`: request.timeout.ms, after which a partition is answered with REQUEST_TIMED_OUT."""
        self._replicas = replicas
        self._groups = groups
        self._purgatory = purgatory
        self._now_ms = now_ms
        self._timeout_ms = timeout_ms

    def __call__(self, request: WriteTxnMarkersRequest, context: RequestContext) -> Deferred[WriteTxnMarkersResponse]:
        return self.write(request)

    def write(self, request: WriteTxnMarkersRequest) -> Deferred[WriteTxnMarkersResponse]:
        """Append each marker to each of its partitions. Fires with the response; never fails.

        It may be cancelled, as when a client disconnects: markers in the log take effect.
        """
        appended: list[_AppendedMarker] = []
        results = []
        for marker in request.markers:
            topics = []
            for topic in marker.topics:
                partitions = [self._append(marker, topic.name, index, appended) for index in topic.partition_indexes]
                topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=partitions))
            results.append(WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics))
        done: Deferred[WriteTxnMarkersResponse] = Deferred()
        waiting = _Waiting(WriteTxnMarkersResponse(markers=results), appended, self._groups, done)
        keys = [marker.append.partition.topic_partition for marker in appended]
        self._purgatory.park(waiting, keys, self._timeout_ms, internal=True)
        return done

    def _append(
        self, marker: WritableTxnMarker, topic: str, index: int, appended: list[_AppendedMarker]
    ) -> WritableTxnMarkerPartitionResult:
        """Append to one partition; the result is complete if it is an error, otherwise the append is added to `appended`."""
        result = WritableTxnMarkerPartitionResult(partition_index=index, error_code=ErrorCode.NONE)
        try:
            partition = self._replicas.get(topic, index)
            if topic == OFFSETS_TOPIC and self._groups.check_coordinates(index):
                raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            last_offset = self._write(marker, partition)
        except BrokerError as error:
            result.error_code = error.code
        else:
            append = PendingAppend(partition, partition.leadership, last_offset)
            appended.append(_AppendedMarker(append, result, marker.producer_id, marker.transaction_result))
        return result

    def _write(self, marker: WritableTxnMarker, partition: Partition) -> int:
        """Append a marker, unless it is in the log already; returns the last offset that has to be replicated."""
        partition.check_leader()
        log = partition.log
        if marker.transaction_version >= EPOCH_BUMP_VERSION and log.producers.has_ended(marker.producer_id, marker.producer_epoch):
            return log.log_end_offset - 1
        now_ms = self._now_ms()
        batch = build_marker(
            Marker(marker.transaction_result, marker.coordinator_epoch),
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            timestamp=now_ms,
        )
        return partition.append(memoryview(bytearray(batch)), now_ms, all_in_sync=True, origin=Origin.COORDINATOR).last_offset

    def failed(self, request: WriteTxnMarkersRequest, context: RequestContext, error: BrokerError) -> WriteTxnMarkersResponse:
        """Every partition with the same error."""
        return WriteTxnMarkersResponse(
            markers=[
                WritableTxnMarkerResult(
                    producer_id=marker.producer_id,
                    topics=[
                        WritableTxnMarkerTopicResult(
                            name=topic.name,
                            partitions=[
                                WritableTxnMarkerPartitionResult(partition_index=index, error_code=error.code)
                                for index in topic.partition_indexes
                            ],
                        )
                        for topic in marker.topics
                    ],
                )
                for marker in request.markers
            ]
        )


@lazy_dataclass(slots=True)
class _AppendedMarker:
    """A marker in the log, and its result in the response."""

    append: PendingAppend
    result: WritableTxnMarkerPartitionResult
    producer_id: int
    committed: bool


class _Waiting:
    """Markers that wait for the in-sync replicas."""

    def __init__(
        self,
        response: WriteTxnMarkersResponse,
        waiting: list[_AppendedMarker],
        groups: GroupCoordinator,
        done: Deferred[WriteTxnMarkersResponse],
    ) -> None:
        self._response = response
        self._waiting = waiting
        self._groups = groups
        self._done = done

    def try_complete(self) -> bool:
        """Respond if every partition is done."""
        self._waiting = [marker for marker in self._waiting if not self._is_done(marker)]
        if self._waiting:
            return False
        self._done.callback(self._response)
        return True

    def _is_done(self, marker: _AppendedMarker) -> bool:
        outcome = marker.append.outcome()
        if outcome is None:
            return False
        topic, index = marker.append.partition.topic_partition
        if not outcome and topic == OFFSETS_TOPIC and self._groups.end_transaction(index, marker.producer_id, marker.committed):
            outcome = ErrorCode.NOT_LEADER_OR_FOLLOWER
        marker.result.error_code = outcome
        return True

    def on_expired(self) -> None:
        """request.timeout.ms is over."""
        for marker in self._waiting:
            marker.result.error_code = ErrorCode.REQUEST_TIMED_OUT
        self._done.callback(self._response)
