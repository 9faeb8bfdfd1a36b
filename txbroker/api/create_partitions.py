"""CreatePartitions (key 37): add partitions to topics (KIP-195).

Behaviour: the response is sent when the new partitions have leaders, at the latest after timeout.ms.
Version notes: from v3 on a topic above the quota of changes fails (KIP-599).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from twisted.internet.defer import Deferred

from txbroker.api.admin_log import partitions_added
from txbroker.api.request_context import RequestContext
from txbroker.api.resources import AclOperation, AclResource, on_each
from txbroker.api.topic_waiting import TopicWaiting
from txbroker.client_quotas.quotas import ClientQuotas
from txbroker.cluster.topics import TopicAdmin
from txbroker.errors import BrokerError, ErrorCode
from txbroker.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from txbroker.wire.schema import Request

STRICT_QUOTA_VERSION = 3


class CreatePartitionsHandler:
    """Writes the larger assignment into the tree and waits for the controller."""

    request: type[Request] = CreatePartitionsRequest
    resources = on_each(AclOperation.ALTER, AclResource.TOPIC, "topics", "results", "name")

    def __init__(self, admin: TopicAdmin, waiting: TopicWaiting, quotas: ClientQuotas, check_controller: Callable[[], None]) -> None:
        self._admin = admin
        self._quotas = quotas
        self._waiting = waiting
        self._check_controller = check_controller

    def __call__(self, request: CreatePartitionsRequest, context: RequestContext) -> Deferred[CreatePartitionsResponse]:
        self._check_controller()
        return Deferred.fromCoroutine(self._create(request, context))

    async def _create(self, request: CreatePartitionsRequest, context: RequestContext) -> CreatePartitionsResponse:
        named = Counter(topic.name for topic in request.topics)
        results: dict[str, CreatePartitionsTopicResult] = {}
        counts: dict[str, int] = {}
        mutations = self._quotas.mutations(context.principal, context.client_id, strict=context.api_version >= STRICT_QUOTA_VERSION)
        for topic in request.topics:
            result = results[topic.name] = CreatePartitionsTopicResult(name=topic.name, error_code=ErrorCode.NONE)
            try:
                if named[topic.name] > 1:
                    raise BrokerError(ErrorCode.INVALID_REQUEST, f"Topic '{topic.name}' is in the request more than once.")
                await self._admin.create_partitions(
                    topic.name, topic.count, _assignments(topic), validate_only=request.validate_only, admit=mutations.spend
                )
                if not request.validate_only:
                    partitions_added(topic.name, topic.count, context)
                counts[topic.name] = topic.count
            except BrokerError as error:
                result.error_code, result.error_message = error.code, error.message
        if counts and not request.validate_only and not await self._waiting.ready(counts, request.timeout_ms):
            for name in counts:
                results[name].error_code = ErrorCode.REQUEST_TIMED_OUT
        return CreatePartitionsResponse(throttle_time_ms=mutations.throttle_ms(), results=list(results.values()))

    def failed(self, request: CreatePartitionsRequest, context: RequestContext, error: BrokerError) -> CreatePartitionsResponse:
        """Every topic with the same error."""
        code, message = error.code, error.shown_message
        results = [CreatePartitionsTopicResult(name=t.name, error_code=code, error_message=message) for t in request.topics]
        return CreatePartitionsResponse(throttle_time_ms=0, results=results)


def _assignments(topic: CreatePartitionsTopic) -> list[list[int]] | None:
    return None if topic.assignments is None else [assignment.broker_ids for assignment in topic.assignments]
