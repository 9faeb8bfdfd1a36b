"""DeleteRecords (key 21): move the start of partitions' logs up (KIP-107).

Behaviour: -1 is the high watermark. An offset below the log start offset changes nothing and is no error. The response has the low
watermark. Disk space is freed when the next retention check deletes whole segments.
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
    """Advances the log start offset of partitions that this broker leads."""

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
                raise BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is internal; its records cannot be deleted")
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
