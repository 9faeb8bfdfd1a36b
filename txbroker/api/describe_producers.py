"""DescribeProducers (key 61): the producer state of partitions (KIP-664).

Behaviour: any replica answers, the leader and its followers, so that their states can be compared.
"""

from __future__ import annotations

from txbroker.api.request_context import RequestContext
from txbroker.api.resources import AclOperation, AclResource, on_each
from txbroker.cluster.replicas import Replicas
from txbroker.errors import BrokerError, ErrorCode
from txbroker.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from txbroker.wire.schema import Request


class DescribeProducersHandler:
    """Reads the producer state of the partitions that are on this broker."""

    request: type[Request] = DescribeProducersRequest
    resources = on_each(AclOperation.READ, AclResource.TOPIC, "topics", "topics", "name")

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas

    def __call__(self, request: DescribeProducersRequest, context: RequestContext) -> DescribeProducersResponse:
        wanted: dict[str, dict[int, None]] = {}  # each partition once, however often it is named
        for topic in request.topics:
            wanted.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
        topics = [TopicResponse(name=name, partitions=[self._answer(name, i) for i in indexes]) for name, indexes in wanted.items()]
        return DescribeProducersResponse(throttle_time_ms=0, topics=topics)

    def _answer(self, topic: str, index: int) -> PartitionResponse:
        try:
            partition = self._replicas.get(topic, index)
        except BrokerError as error:
            return PartitionResponse(partition_index=index, error_code=error.code, error_message=error.message, active_producers=[])
        producers = [
            ProducerState(
                producer_id=state.producer_id,
                producer_epoch=state.epoch,
                last_sequence=state.last_sequence,
                last_timestamp=state.last_timestamp,
                coordinator_epoch=state.coordinator_epoch,
                current_txn_start_offset=state.txn_first_offset,
            )
            for state in partition.log.producers
        ]
        return PartitionResponse(partition_index=index, error_code=ErrorCode.NONE, active_producers=producers)

    def failed(self, request: DescribeProducersRequest, context: RequestContext, error: BrokerError) -> DescribeProducersResponse:
        """Every partition with the same error."""
        topics = [
            TopicResponse(
                name=t.name,
                partitions=[
                    PartitionResponse(partition_index=i, error_code=error.code, error_message=error.message, active_producers=[])
                    for i in t.partition_indexes
                ],
            )
            for t in request.topics
        ]
        return DescribeProducersResponse(throttle_time_ms=0, topics=topics)
