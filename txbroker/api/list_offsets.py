"""ListOffsets (key 2): earliest, latest, by timestamp, of the largest timestamp.

Behaviour: a timestamp finds the first record, by offset, that is as late or later; nothing found is offset -1 without an error.
Consumers see up to the high watermark, read_committed ones up to the last stable offset. Nothing is tiered: earliest local is
earliest, latest tiered (KIP-1005) is -1.
Version notes: v0 answers with a list of segment starts; v2 isolation level; v4 leader epochs; v7 largest timestamp (KIP-734);
v8, v9 and v11 more names. A negative timestamp that names nothing in its version is UNSUPPORTED_VERSION, as in Kafka's ReplicaManager.
"""

from __future__ import annotations

from txbroker.api.request_context import RequestContext
from txbroker.cluster.partition import (
    CONSUMER,
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    Partition,
)
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
DEBUGGING_REPLICA = -2  # a reader that sees like a consumer, at any replica
_NAMED_SINCE = {  # the first version of each negative timestamp that names an offset
    LATEST_TIMESTAMP: 1, EARLIEST_TIMESTAMP: 1, MAX_TIMESTAMP: 7, EARLIEST_LOCAL_TIMESTAMP: 8, LATEST_TIERED_TIMESTAMP: 9,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP: 11,
}  # fmt: skip


class ListOffsetsHandler:
    """Looks offsets up in the logs that this broker leads."""

    request: type[Request] = ListOffsetsRequest

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas

    def __call__(self, request: ListOffsetsRequest, context: RequestContext) -> ListOffsetsResponse:
        isolation = request.isolation_level if request.replica_id in (CONSUMER, DEBUGGING_REPLICA) else None
        seen: set[tuple[str, int]] = set()
        topics = []
        for topic in request.topics:
            answers = []
            for wanted in topic.partitions:
                key = (topic.name, wanted.partition_index)
                try:
                    if key in seen:
                        raise BrokerError(ErrorCode.INVALID_REQUEST)
                    seen.add(key)
                    partition = self._replicas.get(*key)
                    if request.replica_id != DEBUGGING_REPLICA:
                        partition.check_leader(wanted.current_leader_epoch)
                    if context.api_version == OLD_STYLE_VERSION:
                        answers.append(_old_style(partition, wanted, isolation))
                    else:
                        answers.append(_answer(partition, wanted, isolation, context.api_version))
                except BrokerError as error:
                    answers.append(ListOffsetsPartitionResponse(partition_index=wanted.partition_index, error_code=error.code))
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
    if wanted.timestamp < 0 and version < _NAMED_SINCE.get(wanted.timestamp, version + 1):
        raise BrokerError(ErrorCode.UNSUPPORTED_VERSION, f"timestamp {wanted.timestamp} names no offset in version {version}")
    found = partition.list_offset(wanted.timestamp, isolation)
    answer = ListOffsetsPartitionResponse(partition_index=wanted.partition_index, error_code=0)
    if found is not None:
        answer.timestamp, answer.offset, leader_epoch = found
        if version >= LEADER_EPOCH_VERSION:
            answer.leader_epoch = leader_epoch
    return answer


def _old_style(partition: Partition, wanted: ListOffsetsPartition, isolation: int | None) -> ListOffsetsPartitionResponse:
    """At most max_num_offsets segment starts."""
    newest_first = partition.segment_offsets(wanted.timestamp, isolation)
    return ListOffsetsPartitionResponse(
        partition_index=wanted.partition_index, error_code=0, old_style_offsets=newest_first[: max(wanted.max_num_offsets, 0)]
    )
