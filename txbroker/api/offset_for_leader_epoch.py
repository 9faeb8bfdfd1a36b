"""OffsetForLeaderEpoch (key 23): the end offset of a leader epoch (KIP-101, KIP-279, KIP-320).

Behaviour: returns the largest epoch that is not above the requested one, and its end offset; -1 and -1 when there is none.
Version notes: v1 leader epoch in the response; v2 the client's current epoch, which is fenced; v3 replica id.
"""

from __future__ import annotations

from txbroker.api.request_context import RequestContext
from txbroker.api.resources import AclOperation, AclResource, on_each
from txbroker.cluster.replicas import Replicas
from txbroker.errors import BrokerError
from txbroker.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from txbroker.wire.schema import Request


class OffsetForLeaderEpochHandler:
    """Looks up epochs in the logs that this broker leads."""

    request: type[Request] = OffsetForLeaderEpochRequest
    resources = on_each(AclOperation.DESCRIBE, AclResource.TOPIC, "topics", "topics", "topic", instead=AclOperation.CLUSTER_ACTION)

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas

    def __call__(self, request: OffsetForLeaderEpochRequest, context: RequestContext) -> OffsetForLeaderEpochResponse:
        return OffsetForLeaderEpochResponse(
            topics=[
                OffsetForLeaderTopicResult(topic=topic.topic, partitions=[self._answer(topic.topic, wanted) for wanted in topic.partitions])
                for topic in request.topics
            ]
        )

    def _answer(self, topic: str, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
        try:
            partition = self._replicas.get(topic, wanted.partition)
            partition.check_leader(wanted.current_leader_epoch)
            end = partition.log.end_offset_for_epoch(wanted.leader_epoch)
        except BrokerError as error:
            return EpochEndOffset(error_code=error.code, partition=wanted.partition)
        return EpochEndOffset(error_code=0, partition=wanted.partition, leader_epoch=end.epoch, end_offset=end.end_offset)

    def failed(
        self, request: OffsetForLeaderEpochRequest, context: RequestContext, error: BrokerError
    ) -> OffsetForLeaderEpochResponse:
        """Every partition with the same error."""
        return OffsetForLeaderEpochResponse(
            topics=[
                OffsetForLeaderTopicResult(
                    topic=topic.topic, partitions=[EpochEndOffset(error_code=error.code, partition=p.partition) for p in topic.partitions]
                )
                for topic in request.topics
            ]
        )
