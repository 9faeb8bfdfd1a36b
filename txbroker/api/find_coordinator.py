"""FindCoordinator (key 10): which broker coordinates a group or a transactional id.

Behaviour: the hash of the group id selects a partition of `__consumer_offsets`, that of a transactional id one of `__transaction_state`;
its leader is the coordinator. If the topic is missing it is created, and the response is sent when it has leaders. Share groups (key type
2) are refused with UNSUPPORTED_VERSION.
Version notes: v1 key types; v4 several keys (KIP-699).
"""

from __future__ import annotations

from collections.abc import Sequence

from twisted.internet.defer import Deferred

from txbroker.api.endpoints import NO_NODE, Endpoints
from txbroker.api.request_context import RequestContext
from txbroker.api.resources import AclOperation, AclResource, Need, Rights
from txbroker.api.topic_creation import TopicCreation
from txbroker.cluster.image import ClusterImage
from txbroker.errors import DENIALS, BrokerError, ErrorCode
from txbroker.names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, coordinator_partition
from txbroker.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from txbroker.wire.schema import Request

GROUP = 0
TRANSACTION = 1
SHARE = 2
SEVERAL_KEYS_VERSION = 4

_TOPICS = {GROUP: OFFSETS_TOPIC, TRANSACTION: TRANSACTIONS_TOPIC}
_RESOURCES = {GROUP: AclResource.GROUP, TRANSACTION: AclResource.TRANSACTIONAL_ID}


class FindCoordinatorHandler:
    """Looks up the leader of the key's partition."""

    request: type[Request] = FindCoordinatorRequest
    rights: Rights = ((AclOperation.DESCRIBE, AclResource.GROUP), (AclOperation.DESCRIBE, AclResource.TRANSACTIONAL_ID))

    def __init__(self, image: ClusterImage, endpoints: Endpoints, creation: TopicCreation) -> None:
        self._image = image
        self._endpoints = endpoints
        self._creation = creation

    def __call__(
        self, request: FindCoordinatorRequest, context: RequestContext
    ) -> FindCoordinatorResponse | Deferred[FindCoordinatorResponse]:
        topic = _TOPICS.get(request.key_type)
        if topic is not None and self._image.topic(topic) is None:
            return self._creation.internal(topic).addCallback(lambda _: self._answer(request, context))
        return self._answer(request, context)

    def _answer(self, request: FindCoordinatorRequest, context: RequestContext) -> FindCoordinatorResponse:
        if context.api_version >= SEVERAL_KEYS_VERSION:
            return FindCoordinatorResponse(coordinators=[self._find(key, request.key_type, context) for key in request.coordinator_keys])
        return _single(self._find(request.key, request.key_type, context))

    def _find(self, key: str, key_type: int, context: RequestContext) -> Coordinator:
        if key_type == SHARE:
            return _no_coordinator(key, ErrorCode.UNSUPPORTED_VERSION, "share groups are not supported by this broker")
        name = _TOPICS.get(key_type)
        if name is None:
            return _no_coordinator(key, ErrorCode.INVALID_REQUEST, f"there is no coordinator of type {key_type}")
        topic = self._image.topic(name)
        if topic is None:
            return _no_coordinator(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{name} does not exist yet")
        partition = topic.partitions.get(coordinator_partition(key, len(topic.partitions)))
        node = NO_NODE if partition is None else self._endpoints.node(partition.leader, context)
        if node is NO_NODE:
            return _no_coordinator(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the partition of {name} has no leader")
        return Coordinator(key=key, node_id=node.id, host=node.host, port=node.port, error_code=ErrorCode.NONE, error_message=None)

    @staticmethod
    def resources(request: FindCoordinatorRequest, context: RequestContext) -> Sequence[Need]:
        """DESCRIBE on each group or transactional id."""
        resource = _RESOURCES.get(request.key_type)
        if resource is None:
            return ()
        if context.api_version >= SEVERAL_KEYS_VERSION:
            return (Need(AclOperation.DESCRIBE, resource, request.coordinator_keys, "coordinator_keys", "coordinators"),)
        return (Need(AclOperation.DESCRIBE, resource, (request.key,)),)

    def failed(self, request: FindCoordinatorRequest, context: RequestContext, error: BrokerError) -> FindCoordinatorResponse:
        """No coordinator. While the topic cannot be created, clients retry."""
        code = error.code if error.code in DENIALS else ErrorCode.COORDINATOR_NOT_AVAILABLE
        if context.api_version >= SEVERAL_KEYS_VERSION:
            keys = request.coordinator_keys
            return FindCoordinatorResponse(coordinators=[_no_coordinator(key, code, error.shown_message or "") for key in keys])
        return _single(_no_coordinator(request.key, code, error.message))


def _no_coordinator(key: str, code: ErrorCode, message: str | None) -> Coordinator:
    return Coordinator(key=key, node_id=NO_NODE.id, host=NO_NODE.host, port=NO_NODE.port, error_code=code, error_message=message)


def _single(found: Coordinator) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(
        error_code=found.error_code, error_message=found.error_message, node_id=found.node_id, host=found.host, port=found.port
    )
