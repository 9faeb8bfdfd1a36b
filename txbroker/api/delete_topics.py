"""DeleteTopics (key 20): by name, and from v6 on by id (KIP-516).

Behaviour: the deletion is durable as soon as it is in the metadata tree. The response is sent when the topics are removed from the cluster
image and the controller has finished, so that their names can be used again; at the latest after timeout.ms.
Version notes: with delete.topic.enable=false the error is TOPIC_DELETION_DISABLED from v3 on, INVALID_REQUEST before; from v5 on a topic
above the quota of changes fails (KIP-599).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from twisted.internet.defer import Deferred

from txbroker.api.admin_log import topic_deleted
from txbroker.api.request_context import RequestContext
from txbroker.api.resources import AclOperation, AclResource, Need, Rights
from txbroker.api.topic_waiting import TopicWaiting
from txbroker.client_quotas.mutations import Mutations
from txbroker.client_quotas.quotas import ClientQuotas
from txbroker.cluster.image import ClusterImage, TopicImage
from txbroker.cluster.topics import TopicAdmin
from txbroker.errors import BrokerError, ErrorCode
from txbroker.names import NULL_TOPIC_ID
from txbroker.wire.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from txbroker.wire.schema import Request

BY_ID_VERSION = 6
DELETION_DISABLED_VERSION = 3
STRICT_QUOTA_VERSION = 5


class DeleteTopicsHandler:
    """Writes deletions into the tree and waits for the controller."""

    request: type[Request] = DeleteTopicsRequest
    rights: Rights = ((AclOperation.DELETE, AclResource.TOPIC), (AclOperation.DELETE, AclResource.CLUSTER))
    refused: Sequence[AclResource] = (AclResource.TOPIC,)

    def __init__(
        self,
        admin: TopicAdmin,
        waiting: TopicWaiting,
        image: ClusterImage,
        quotas: ClientQuotas,
        check_controller: Callable[[], None],
        enabled: Callable[[], bool],
    ) -> None:
        self._admin = admin
        self._waiting = waiting
        self._image = image
        self._quotas = quotas
        self._check_controller = check_controller
        self._enabled = enabled

    def __call__(self, request: DeleteTopicsRequest, context: RequestContext) -> Deferred[DeleteTopicsResponse]:
        self._check_controller()
        if not self._enabled():
            by_code = context.api_version >= DELETION_DISABLED_VERSION
            code = ErrorCode.TOPIC_DELETION_DISABLED if by_code else ErrorCode.INVALID_REQUEST
            raise BrokerError(code, "delete.topic.enable is false on this broker")
        mutations = self._quotas.mutations(context.principal, context.client_id, strict=context.api_version >= STRICT_QUOTA_VERSION)
        return Deferred.fromCoroutine(self._delete(_wanted(request, context), request.timeout_ms, mutations, context))

    async def _delete(
        self, wanted: list[DeleteTopicState], timeout_ms: int, mutations: Mutations, context: RequestContext
    ) -> DeleteTopicsResponse:
        named = Counter((state.name, state.topic_id) for state in wanted)
        results = []
        going: dict[str, tuple[bytes, DeletableTopicResult]] = {}
        for state in wanted:
            result = DeletableTopicResult(name=state.name, topic_id=state.topic_id, error_code=ErrorCode.NONE)
            results.append(result)
            try:
                if named[state.name, state.topic_id] > 1 or (state.name is None) == (state.topic_id == NULL_TOPIC_ID):
                    raise BrokerError(ErrorCode.INVALID_REQUEST, "Name each topic once, either by its name or by its id.")
                topic = self._find(state)
                name, topic_id = result.name, result.topic_id = topic.name, topic.topic_id
                mutations.spend(len(topic.partitions))
                await self._admin.delete(name)
                topic_deleted(name, context)
                going[name] = topic_id, result
            except BrokerError as error:
                result.error_code, result.error_message = error.code, error.message
        gone = await self._waiting.gone({name: topic_id for name, (topic_id, _) in going.items()}, timeout_ms) if going else True
        if not gone:
            for _, result in going.values():
                result.error_code = ErrorCode.REQUEST_TIMED_OUT
        return DeleteTopicsResponse(throttle_time_ms=mutations.throttle_ms(), responses=results)

    def _find(self, state: DeleteTopicState) -> TopicImage:
        if state.name is None:
            topic = self._image.topic_by_id(state.topic_id)
            if topic is None:
                raise BrokerError(ErrorCode.UNKNOWN_TOPIC_ID)
        else:
            topic = self._image.topic(state.name)
            if topic is None:
                raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return topic

    def resources(self, request: DeleteTopicsRequest, context: RequestContext) -> Sequence[Need]:
        """DELETE on each topic, or on the cluster. An unknown id is no topic's."""
        names: list[str | None] = list(request.topic_names)
        items = "topic_names"
        if context.api_version >= BY_ID_VERSION:
            found = [state.name or self._image.topic_by_id(state.topic_id) for state in request.topics]
            names, items = [each.name if isinstance(each, TopicImage) else each for each in found], "topics"
        return (Need(AclOperation.DELETE, AclResource.TOPIC, names, items, "responses", instead=AclOperation.DELETE),)

    def failed(self, request: DeleteTopicsRequest, context: RequestContext, error: BrokerError) -> DeleteTopicsResponse:
        """Every topic with the same error."""
        return DeleteTopicsResponse(
            responses=[
                DeletableTopicResult(name=s.name, topic_id=s.topic_id, error_code=error.code, error_message=error.message)
                for s in _wanted(request, context)
            ]
        )


def _wanted(request: DeleteTopicsRequest, context: RequestContext) -> list[DeleteTopicState]:
    if context.api_version >= BY_ID_VERSION:
        return request.topics
    return [DeleteTopicState(name=name) for name in request.topic_names]
