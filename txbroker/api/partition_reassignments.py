"""AlterPartitionReassignments (key 45) and ListPartitionReassignments (key 46): moving replicas between brokers (KIP-455).

Behaviour: served by the controller. AlterPartitionReassignments is answered when a reassignment has begun;
ListPartitionReassignments shows it until it is complete.
Version notes: AlterPartitionReassignments v1 can refuse a change of the replication factor (KIP-860).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from twisted.internet.defer import Deferred

from txbroker.api.admin_log import partition_changed
from txbroker.api.controller_services import OwnController
from txbroker.api.request_context import RequestContext
from txbroker.api.resources import AclOperation, on_cluster
from txbroker.cluster.node_data import ReplicaAssignment
from txbroker.errors import BrokerError, ErrorCode
from txbroker.names import TopicPartition
from txbroker.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from txbroker.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from txbroker.wire.schema import Request


class AlterPartitionReassignmentsHandler:
    """Passes reassignments to the controller of this broker."""

    request: type[Request] = AlterPartitionReassignmentsRequest
    resources = on_cluster(AclOperation.ALTER)

    def __init__(self, controller: OwnController) -> None:
        self._controller = controller

    def __call__(
        self, request: AlterPartitionReassignmentsRequest, context: RequestContext
    ) -> Deferred[AlterPartitionReassignmentsResponse]:
        targets = {
            TopicPartition(topic.name, partition.partition_index): partition.replicas
            for topic in request.topics
            for partition in topic.partitions
        }
        altered = self._controller().reassign(targets, factor_may_change=request.allow_replication_factor_change)

        def respond(outcomes: Mapping[TopicPartition, BrokerError | None]) -> AlterPartitionReassignmentsResponse:
            for topic_partition, outcome in outcomes.items():
                if outcome is None:
                    partition_changed("reassignment", topic_partition, {"replicas": targets[topic_partition]}, context)
            return _altered(request, outcomes)

        return altered.addCallback(respond)

    def failed(
        self, request: AlterPartitionReassignmentsRequest, context: RequestContext, error: BrokerError
    ) -> AlterPartitionReassignmentsResponse:
        """The error of the request and of each partition."""
        partitions = {TopicPartition(topic.name, each.partition_index): error for topic in request.topics for each in topic.partitions}
        return _altered(request, partitions, error)


def _altered(
    request: AlterPartitionReassignmentsRequest, outcomes: Mapping[TopicPartition, BrokerError | None], error: BrokerError | None = None
) -> AlterPartitionReassignmentsResponse:
    topics: dict[str, list[ReassignablePartitionResponse]] = defaultdict(list)
    for topic_partition, outcome in outcomes.items():
        code, message = _error(outcome)
        answer = ReassignablePartitionResponse(partition_index=topic_partition.partition, error_code=code, error_message=message)
        topics[topic_partition.topic].append(answer)
    code, message = _error(error)
    return AlterPartitionReassignmentsResponse(
        throttle_time_ms=0,
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=code,
        error_message=message,
        responses=[ReassignableTopicResponse(name=name, partitions=answers) for name, answers in topics.items()],
    )


def _error(error: BrokerError | None) -> tuple[ErrorCode, str | None]:
    return (ErrorCode.NONE, None) if error is None else (error.code, error.message)


class ListPartitionReassignmentsHandler:
    """Lists the reassignments in progress of the controller of this broker."""

    request: type[Request] = ListPartitionReassignmentsRequest
    resources = on_cluster(AclOperation.DESCRIBE)

    def __init__(self, controller: OwnController) -> None:
        self._controller = controller

    def __call__(self, request: ListPartitionReassignmentsRequest, context: RequestContext) -> ListPartitionReassignmentsResponse:
        found = self._controller().reassignments()
        if request.topics is not None:
            asked = {TopicPartition(topic.name, number) for topic in request.topics for number in topic.partition_indexes}
            found = {topic_partition: assignment for topic_partition, assignment in found.items() if topic_partition in asked}
        return _listed(found)

    def failed(
        self, request: ListPartitionReassignmentsRequest, context: RequestContext, error: BrokerError
    ) -> ListPartitionReassignmentsResponse:
        """The error of the request, and the partitions that were asked for, without replicas."""
        asked = {TopicPartition(topic.name, number) for topic in request.topics or () for number in topic.partition_indexes}
        return _listed(dict.fromkeys(sorted(asked), ReplicaAssignment(())), error)


def _listed(found: Mapping[TopicPartition, ReplicaAssignment], error: BrokerError | None = None) -> ListPartitionReassignmentsResponse:
    topics: dict[str, list[OngoingPartitionReassignment]] = defaultdict(list)
    for topic_partition, assignment in found.items():
        ongoing = OngoingPartitionReassignment(
            partition_index=topic_partition.partition,
            replicas=list(assignment.replicas),
            adding_replicas=list(assignment.adding),
            removing_replicas=list(assignment.removing),
        )
        topics[topic_partition.topic].append(ongoing)
    code, message = _error(error)
    listed = [OngoingTopicReassignment(name=name, partitions=partitions) for name, partitions in topics.items()]
    return ListPartitionReassignmentsResponse(throttle_time_ms=0, error_code=code, error_message=message, topics=listed)
