"""DescribeTopicPartitions (key 75): topics with their partitions, a page at a time (KIP-966).

Behaviour: a request without topics is for all topics. Topics are sorted by name and start at the cursor; a page has at most
response_partition_limit (and at most max.request.partition.size.limit) partitions. A leader that is not alive, or lacks the client's
listener, is an error as in Metadata. Eligible leader replicas do not exist without KRaft: the lists are empty.
"""

from __future__ import annotations

from collections.abc import Mapping

from txbroker.api.authorized_operations import TOPIC_OPERATIONS, authorized_operations
from txbroker.api.endpoints import Endpoints
from txbroker.api.request_context import RequestContext
from txbroker.api.resources import AclOperation, AclResource, Rights, in_place
from txbroker.cluster.image import ClusterImage, PartitionImage, TopicImage
from txbroker.cluster.node_data import NO_LEADER
from txbroker.errors import BrokerError, ErrorCode
from txbroker.names import INTERNAL_TOPICS, NULL_TOPIC_ID, check_topic_name
from txbroker.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from txbroker.wire.schema import Request


class DescribeTopicPartitionsHandler:
    """Answers from the cluster image, page by page."""

    request: type[Request] = DescribeTopicPartitionsRequest
    rights: Rights = ((AclOperation.DESCRIBE, AclResource.TOPIC),)
    resources = staticmethod(in_place)

    def __init__(self, image: ClusterImage, endpoints: Endpoints, partitions_max: int) -> None:
        self._image = image
        self._endpoints = endpoints
        self._partitions_max = partitions_max

    def __call__(self, request: DescribeTopicPartitionsRequest, context: RequestContext) -> DescribeTopicPartitionsResponse:
        if request.response_partition_limit <= 0:
            raise BrokerError(ErrorCode.INVALID_REQUEST, "response_partition_limit must be positive")
        left = min(request.response_partition_limit, self._partitions_max)
        cursor = request.cursor
        start = "" if cursor is None else cursor.topic_name
        names = sorted({t.name for t in request.topics} if request.topics else self._image.topics)
        errors = self._endpoints.leader_errors(context)
        topics: list[DescribeTopicPartitionsResponseTopic] = []
        for name in names:
            if name < start:
                continue
            if not context.may(AclOperation.DESCRIBE, AclResource.TOPIC, name, logged=bool(request.topics)):
                if request.topics:
                    topics.append(_failure(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
                continue
            found = self._image.topic(name)
            if found is None:
                if request.topics:  # in a request for all topics, one that was just deleted is left out
                    topics.append(_missing(name))
                continue
            first = cursor.partition_index if cursor is not None and name == cursor.topic_name else 0
            wanted = [index for index in found.partitions if index >= first]
            if len(wanted) > left:
                if left > 0:
                    topics.append(_topic(found, wanted[:left], errors, context))
                next_cursor = Cursor(topic_name=name, partition_index=wanted[left])
                return DescribeTopicPartitionsResponse(throttle_time_ms=0, topics=topics, next_cursor=next_cursor)
            topics.append(_topic(found, wanted, errors, context))
            left -= len(wanted)
        return DescribeTopicPartitionsResponse(throttle_time_ms=0, topics=topics)

    def failed(
        self, request: DescribeTopicPartitionsRequest, context: RequestContext, error: BrokerError
    ) -> DescribeTopicPartitionsResponse:
        """Every topic with the same error."""
        return DescribeTopicPartitionsResponse(throttle_time_ms=0, topics=[_failure(t.name, error.code) for t in request.topics])


def _missing(name: str) -> DescribeTopicPartitionsResponseTopic:
    try:
        check_topic_name(name)
    except BrokerError as error:
        return _failure(name, error.code)
    return _failure(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _failure(name: str, code: ErrorCode) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(error_code=code, name=name, topic_id=NULL_TOPIC_ID, partitions=[])


def _topic(
    topic: TopicImage, indexes: list[int], errors: Mapping[int, ErrorCode], context: RequestContext
) -> DescribeTopicPartitionsResponseTopic:
    partitions = [(index, topic.partitions[index]) for index in indexes]
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[_partition(i, found, errors.get(found.leader, ErrorCode.LEADER_NOT_AVAILABLE)) for i, found in partitions],
        topic_authorized_operations=authorized_operations(True, TOPIC_OPERATIONS, context, AclResource.TOPIC, topic.name),
    )


def _partition(index: int, partition: PartitionImage, error: ErrorCode) -> DescribeTopicPartitionsResponsePartition:
    return DescribeTopicPartitionsResponsePartition(
        error_code=error,
        partition_index=index,
        leader_id=NO_LEADER if error else partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        eligible_leader_replicas=[],
        last_known_elr=[],
        offline_replicas=list(partition.offline_replicas),
    )
