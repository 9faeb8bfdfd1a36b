"""DeleteRecords (key 21): move the start of partitions' logs up (KIP-107).

Behaviour: -1 stands for the high watermark; an offset below the log's start changes nothing and is no error; the answer is the low
watermark. The bytes go with whole segments at the next retention check.
"""

from __future__ import annotations

from txbroker.api.request_context import RequestContext
from txbroker.cluster.replicas import Replicas
from txbroker.errors import BrokerError, ErrorCode
from txbroker.names import INTERNAL_TOPICS
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
    """Advances log starts on the partitions that this broker leads."""

    request: type[Request] = DeleteRecordsRequest

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas

    def __call__(self, request: DeleteRecordsRequest, context: RequestContext) -> DeleteRecordsResponse:
        topics = [
            DeleteRecordsTopicResult(name=topic.name, partitions=[self._delete(topic.name, wanted) for wanted in topic.partitions])
            for topic in request.topics
        ]
        return DeleteRecordsResponse(throttle_time_ms=0, topics=topics)

    def _delete(self, topic: str, wanted: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
        try:
            if topic in INTERNAL_TOPICS:
                raise BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"records of {topic} are the broker's own")
            partition = self._replicas.get(topic, wanted.partition_index)
            partition.check_leader()
            low_watermark = partition.delete_records(wanted.offset)
        except BrokerError as error:
            return _result(wanted, NO_LOW_WATERMARK, error.code)
        return _result(wanted, low_watermark, ErrorCode.NONE)

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
