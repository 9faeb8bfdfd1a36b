"""LeaderAndIsr (key 4), StopReplica (key 5) and UpdateMetadata (key 6): what the controller sends to brokers.

Behaviour: served in a cluster only. A request that is refused as a whole has the same error for each of its partitions (KIP-380, KIP-570).
When it cannot be carried out now, because this broker stops or has no connection to ZooKeeper, the connection is closed: the controller
sends the request again, and an error would be its last answer.
Version notes: LeaderAndIsr v5 and UpdateMetadata v7 topic ids; older versions than those served here lack the grouping by topics, and
StopReplica the leader epochs, and were sent before Kafka 2.6. A response to LeaderAndIsr has topic names before v5.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from twisted.internet.defer import Deferred

from txbroker.api.registry import between_brokers
from txbroker.api.request_context import RequestContext
from txbroker.api.resources import AclOperation, on_cluster
from txbroker.cluster.controller.request_batch import ControllerRequest
from txbroker.cluster.deferreds import uncancelled
from txbroker.cluster.own_broker import OwnBroker
from txbroker.errors import BrokerError, ErrorCode
from txbroker.wire.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from txbroker.wire.messages.stop_replica import StopReplicaPartitionError, StopReplicaRequest, StopReplicaResponse
from txbroker.wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from txbroker.wire.schema import Request, VersionRange

# A new controller sends the state of every partition in one request: 100,000 partitions with three replicas fit.
ELEMENTS_MAX = 1_000_000

TOPIC_IDS_VERSION = 5  # of LeaderAndIsr


class _ControllerRequestHandler:
    in_cluster = True
    elements_max = ELEMENTS_MAX
    is_exempt = staticmethod(between_brokers)
    resources = on_cluster(AclOperation.CLUSTER_ACTION)

    def __init__(self, own: OwnBroker) -> None:
        self._own = own

    def _send(self, request: ControllerRequest) -> Deferred[Any]:
        return uncancelled(self._own.send(request))


class LeaderAndIsrHandler(_ControllerRequestHandler):
    """Makes this broker leader or follower of partitions."""

    request: type[Request] = LeaderAndIsrRequest
    versions = VersionRange(2, 7)

    def __call__(self, request: LeaderAndIsrRequest, context: RequestContext) -> Deferred[Any]:
        answer = self._send(request)
        if context.api_version < TOPIC_IDS_VERSION:
            # Its topics are those with partitions, in the order in which the request first names them.
            names = dict.fromkeys(topic.topic_name for topic in request.topic_states if topic.partition_states)
            answer.addCallback(lambda response: _with_names(names, response))
        return answer

    def failed(self, request: LeaderAndIsrRequest, context: RequestContext, error: BrokerError) -> LeaderAndIsrResponse | None:
        """Every partition with the same error."""
        if _is_passing(error):
            return None
        topics = [
            LeaderAndIsrTopicError(
                topic_id=topic.topic_id,
                partition_errors=[
                    LeaderAndIsrPartitionError(partition_index=state.partition_index, error_code=error.code)
                    for state in topic.partition_states
                ],
            )
            for topic in request.topic_states
        ]
        response = LeaderAndIsrResponse(error_code=error.code, topics=topics)
        if context.api_version < TOPIC_IDS_VERSION:
            response = _with_names([topic.topic_name for topic in request.topic_states], response)
        return response


class StopReplicaHandler(_ControllerRequestHandler):
    """Stops replicas, and deletes them."""

    request: type[Request] = StopReplicaRequest
    versions = VersionRange(3, 4)

    def __call__(self, request: StopReplicaRequest, context: RequestContext) -> Deferred[Any]:
        return self._send(request)

    def failed(self, request: StopReplicaRequest, context: RequestContext, error: BrokerError) -> StopReplicaResponse | None:
        """Every partition with the same error."""
        if _is_passing(error):
            return None
        errors = [
            StopReplicaPartitionError(topic_name=topic.topic_name, partition_index=state.partition_index, error_code=error.code)
            for topic in request.topic_states
            for state in topic.partition_states
        ]
        return StopReplicaResponse(error_code=error.code, partition_errors=errors)


class UpdateMetadataHandler(_ControllerRequestHandler):
    """Updates the cluster image."""

    request: type[Request] = UpdateMetadataRequest
    versions = VersionRange(5, 8)

    def __call__(self, request: UpdateMetadataRequest, context: RequestContext) -> Deferred[Any]:
        return self._send(request)

    def failed(self, request: UpdateMetadataRequest, context: RequestContext, error: BrokerError) -> UpdateMetadataResponse | None:
        """The error of the request."""
        return None if _is_passing(error) else UpdateMetadataResponse(error_code=error.code)


def _is_passing(error: BrokerError) -> bool:
    return error.code == ErrorCode.BROKER_NOT_AVAILABLE


def _with_names(names: Iterable[str], response: LeaderAndIsrResponse) -> LeaderAndIsrResponse:
    """The response with a flat list of partitions; `names` are those of its topics."""
    return LeaderAndIsrResponse(error_code=response.error_code, partition_errors=list(_flat(names, response.topics)))


def _flat(names: Iterable[str], topics: list[LeaderAndIsrTopicError]) -> Iterator[LeaderAndIsrPartitionError]:
    for name, topic in zip(names, topics, strict=True):
        for error in topic.partition_errors:
            yield LeaderAndIsrPartitionError(topic_name=name, partition_index=error.partition_index, error_code=error.error_code)
