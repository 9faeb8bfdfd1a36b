"""ListOffsets (key 2): the earliest and latest offset, the first offset of a timestamp, the offset of the largest timestamp.

Behaviour: a timestamp finds the first record, by offset, with this timestamp or a later one; if there is none the offset is -1, without an
error. Consumers see up to the high watermark, read_committed ones up to the last stable offset. There is no tiered storage: earliest local
is earliest, latest tiered (KIP-1005) is -1. A new leader answers OFFSET_NOT_AVAILABLE until its high watermark has reached its first
offset (KIP-207). Only leaders answer, but for the debugging replica id.
Version notes: v0 returns a list of segment base offsets; v2 isolation level; v4 leader epochs; v5 OFFSET_NOT_AVAILABLE, which older
versions get as LEADER_NOT_AVAILABLE; v7 largest timestamp (KIP-734);
v8, v9 and v11 more special timestamps. A negative timestamp without a meaning in its version is UNSUPPORTED_VERSION, as in Kafka's
ReplicaManager.
"""

from __future__ import annotations

from collections import Counter

from txbroker.api.request_context import RequestContext
from txbroker.api.resources import AclOperation, AclResource, on_each
from txbroker.cluster.local_replica import CONSUMER
from txbroker.cluster.offset_lookup import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    list_offset,
    segment_offsets,
)
from txbroker.cluster.partition import Partition
from txbroker.cluster.replicas import Replicas
from txbroker.errors import BrokerError, ErrorCode
from txbroker.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from txbroker.wire.schema import Request

OLD_STYLE_VERSION = 0
LEADER_EPOCH_VERSION = 4
NOT_AVAILABLE_VERSION = 5
DEBUGGING_REPLICA = -2  # gets the end of any replica's log
_SPECIAL_SINCE = {  # the first version of each special timestamp
    LATEST_TIMESTAMP: 1, EARLIEST_TIMESTAMP: 1, MAX_TIMESTAMP: 7, EARLIEST_LOCAL_TIMESTAMP: 8, LATEST_TIERED_TIMESTAMP: 9,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP: 11,
}  # fmt: skip


class ListOffsetsHandler:
    """Looks up offsets in the logs that this broker leads."""

    request: type[Request] = ListOffsetsRequest
    resources = on_each(AclOperation.DESCRIBE, AclResource.TOPIC, "topics", "topics", "name")

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas

    def __call__(self, request: ListOffsetsRequest, context: RequestContext) -> ListOffsetsResponse:
        isolation = request.isolation_level if request.replica_id == CONSUMER else None
        named = Counter((topic.name, wanted.partition_index) for topic in request.topics for wanted in topic.partitions)
        topics = []
        for topic in request.topics:
            answers = []
            for wanted in topic.partitions:
                key = (topic.name, wanted.partition_index)
                try:
                    if named[key] > 1:
                        raise BrokerError(ErrorCode.INVALID_REQUEST)
                    partition = self._replicas.get(*key)
                    if request.replica_id == DEBUGGING_REPLICA:
                        partition.check_epoch(wanted.current_leader_epoch)
                    else:
                        partition.check_leader(wanted.current_leader_epoch)
                    if context.api_version == OLD_STYLE_VERSION:
                        answers.append(_old_style(partition, wanted, isolation))
                    else:
                        answers.append(_answer(partition, wanted, isolation, context.api_version))
                except BrokerError as error:
                    code = error.code
                    if code == ErrorCode.OFFSET_NOT_AVAILABLE and context.api_version < NOT_AVAILABLE_VERSION:
                        code = ErrorCode.LEADER_NOT_AVAILABLE
                    answers.append(ListOffsetsPartitionResponse(partition_index=wanted.partition_index, error_code=code))
            topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
        return ListOffsetsResponse(topics=topics)

    def failed(self, request: ListOffsetsRequest, context: RequestContext, error: BrokerError) -> ListOffsetsResponse:
        """Every partition with the same error."""
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        ListOffsetsPartitionResponse(partition_index=p.partition_index, error_code=error.code) for p in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )


def _answer(partition: Partition, wanted: ListOffsetsPartition, isolation: int | None, version: int) -> ListOffsetsPartitionResponse:
    if wanted.timestamp < 0 and version < _SPECIAL_SINCE.get(wanted.timestamp, version + 1):
        raise BrokerError(ErrorCode.UNSUPPORTED_VERSION, f"timestamp {wanted.timestamp} has no meaning in ListOffsets v{version}")
    found = list_offset(partition, wanted.timestamp, isolation)
    answer = ListOffsetsPartitionResponse(partition_index=wanted.partition_index, error_code=0)
    if found is not None:
        answer.timestamp, answer.offset, leader_epoch = found
        if version >= LEADER_EPOCH_VERSION:
            answer.leader_epoch = leader_epoch
    return answer


def _old_style(partition: Partition, wanted: ListOffsetsPartition, isolation: int | None) -> ListOffsetsPartitionResponse:
    """At most max_num_offsets base offsets of segments."""
    newest_first = segment_offsets(partition, wanted.timestamp, isolation)
    return ListOffsetsPartitionResponse(
        partition_index=wanted.partition_index, error_code=0, old_style_offsets=newest_first[: max(wanted.max_num_offsets, 0)]
    )
