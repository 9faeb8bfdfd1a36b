"""DeleteRecords (key 21): move the start of partitions' logs up (KIP-107).

Behaviour: -1 is the high watermark. An offset below the log start offset changes nothing and is no error. The response has the low
watermark: the request waits until the logs of all live replicas begin at the offset, at most for its timeout, and then fails with
REQUEST_TIMED_OUT. Disk space is freed when the next retention check deletes whole segments.
"""

from __future__ import annotations

from twisted.internet.defer import Deferred

from txbroker.api.admin_log import records_deleted
from txbroker.api.parking import park
from txbroker.api.request_context import RequestContext
from txbroker.api.resources import AclOperation, AclResource, on_each
from txbroker.cluster.partition import Partition
from txbroker.cluster.replicas import Replicas
from txbroker.errors import BrokerError, ErrorCode
from txbroker.lazy_dataclass import lazy_dataclass
from txbroker.names import INTERNAL_TOPICS
from txbroker.purgatory import Purgatory
from txbroker.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from txbroker.wire.schema import Request

NO_LOW_WATERMARK = -1


class DeleteRecordsHandler:
    """Advances the log start offset of partitions that this broker leads, and waits for their followers."""

    request: type[Request] = DeleteRecordsRequest
    resources = on_each(AclOperation.DELETE, AclResource.TOPIC, "topics", "topics", "name")

    def __init__(self, replicas: Replicas, purgatory: Purgatory) -> None:
        self._replicas = replicas
        self._purgatory = purgatory

    def __call__(self, request: DeleteRecordsRequest, context: RequestContext) -> DeleteRecordsResponse | Deferred[DeleteRecordsResponse]:
        deletions: list[_Deletion] = []
        # As in Kafka, the last offset of a partition counts, and a partition has one result.
        asked: dict[str, dict[int, DeleteRecordsPartition]] = {}
        for topic in request.topics:
            asked.setdefault(topic.name, {}).update({wanted.partition_index: wanted for wanted in topic.partitions})
        topics = [
            DeleteRecordsTopicResult(name=name, partitions=[self._delete(name, each, deletions, context) for each in partitions.values()])
            for name, partitions in asked.items()
        ]
        response = DeleteRecordsResponse(throttle_time_ms=0, topics=topics)
        waiting = [deletion for deletion in deletions if not deletion.is_done()]
        if not waiting:
            return response
        keys = [deletion.partition.topic_partition for deletion in waiting]
        return park(self._purgatory, keys, request.timeout_ms, lambda done: _Waiting(response, waiting, done), tried=True)

    def _delete(
        self, topic: str, wanted: DeleteRecordsPartition, deletions: list[_Deletion], context: RequestContext
    ) -> DeleteRecordsPartitionResult:
        try:
            if topic in INTERNAL_TOPICS:
                raise BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is internal; its records cannot be deleted")
            partition = self._replicas.get(topic, wanted.partition_index)
            partition.check_leader()
            offset = partition.delete_records(wanted.offset)
            records_deleted(partition.topic_partition, offset, context)
        except BrokerError as error:
            return _result(wanted, NO_LOW_WATERMARK, error.code)
        result = _result(wanted, NO_LOW_WATERMARK, ErrorCode.NONE)
        deletions.append(_Deletion(partition, offset, result))
        return result

    def failed(self, request: DeleteRecordsRequest, context: RequestContext, error: BrokerError) -> DeleteRecordsResponse:
        """Every partition with the same error."""
        return DeleteRecordsResponse(
            throttle_time_ms=0,
            topics=[
                DeleteRecordsTopicResult(name=t.name, partitions=[_result(p, NO_LOW_WATERMARK, error.code) for p in t.partitions])
                for t in request.topics
            ],
        )


def _result(wanted: DeleteRecordsPartition, low_watermark: int, code: ErrorCode) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(partition_index=wanted.partition_index, low_watermark=low_watermark, error_code=code)


@lazy_dataclass(slots=True)
class _Deletion:
    """A partition whose low watermark has to reach `offset`, and its result in the response."""

    partition: Partition
    offset: int
    result: DeleteRecordsPartitionResult

    def is_done(self) -> bool:
        """Whether the low watermark has reached the offset, or this broker leads the partition no longer; sets the result."""
        if not self.partition.is_leader:
            self.result.low_watermark, self.result.error_code = NO_LOW_WATERMARK, ErrorCode.NOT_LEADER_OR_FOLLOWER
            return True
        self.result.low_watermark = self.partition.low_watermark
        return self.result.low_watermark >= self.offset


class _Waiting:
    """A request that waits for followers (Kafka's DelayedDeleteRecords)."""

    def __init__(self, response: DeleteRecordsResponse, waiting: list[_Deletion], done: Deferred[DeleteRecordsResponse]) -> None:
        self._response = response
        self._waiting = waiting
        self._done = done

    def try_complete(self) -> bool:
        """Respond if every partition is done."""
        self._waiting = [deletion for deletion in self._waiting if not deletion.is_done()]
        if self._waiting:
            return False
        self._done.callback(self._response)
        return True

    def on_expired(self) -> None:
        """timeout_ms of the request is over. A broker may have stopped meanwhile, for which nothing waits then."""
        for deletion in self._waiting:
            if not deletion.is_done():
                deletion.result.error_code = ErrorCode.REQUEST_TIMED_OUT
        self._done.callback(self._response)
