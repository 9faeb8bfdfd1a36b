"""CreateTopics (key 19): topics with their partitions and configurations.

Behaviour: each topic fails or succeeds alone, but a request for too many partitions in total fails as a whole, as in KRaft. The response is
sent when the new topics have leaders, at the latest after timeout.ms.
Version notes: v1 validate only; v4 -1 for the broker's default number of partitions and replicas (KIP-464), accepted in every version;
v5 returns the resulting configuration (KIP-525); v6 a topic above the quota of changes fails (KIP-599); v7 topic ids.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from twisted.internet.defer import Deferred

from txbroker.api.admin_log import topic_created
from txbroker.api.request_context import RequestContext
from txbroker.api.resources import AclOperation, AclResource, Rights, on_each
from txbroker.api.topic_waiting import TopicWaiting
from txbroker.client_quotas.quotas import ClientQuotas
from txbroker.cluster.topics import PARTITIONS_MAX, CreatedTopic, NewTopic, TopicAdmin
from txbroker.cluster.tree.operations import together
from txbroker.config.describe import describe_topic
from txbroker.config.resolve import BrokerConfig
from txbroker.errors import BrokerError, ErrorCode
from txbroker.names import NULL_TOPIC_ID, amount, collision_key
from txbroker.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from txbroker.wire.schema import Request

WRITTEN_TOGETHER_MAX = 100  # topics of a request
STRICT_QUOTA_VERSION = 6


class CreateTopicsHandler:
    """Writes topics into the tree and waits for the controller. `check_controller` raises NOT_CONTROLLER if this broker is not it."""

    request: type[Request] = CreateTopicsRequest
    rights: Rights = (
        (AclOperation.CREATE, AclResource.CLUSTER),
        (AclOperation.CREATE, AclResource.TOPIC),
        (AclOperation.DESCRIBE_CONFIGS, AclResource.TOPIC),
    )
    refused: Sequence[AclResource] = (AclResource.TOPIC,)
    resources = on_each(AclOperation.CREATE, AclResource.TOPIC, "topics", "topics", "name", instead=AclOperation.CREATE)

    def __init__(
        self, admin: TopicAdmin, waiting: TopicWaiting, config: BrokerConfig, quotas: ClientQuotas, check_controller: Callable[[], None]
    ) -> None:
        self._admin = admin
        self._waiting = waiting
        self._config = config
        self._quotas = quotas
        self._check_controller = check_controller

    def __call__(self, request: CreateTopicsRequest, context: RequestContext) -> Deferred[CreateTopicsResponse]:
        self._check_controller()
        default = self._config.int("num.partitions")
        count = sum(len(topic.assignments) or (topic.num_partitions if topic.num_partitions > 0 else default) for topic in request.topics)
        if count > PARTITIONS_MAX:
            raise BrokerError(ErrorCode.POLICY_VIOLATION, f"The request has {amount(count, 'partition')}; the limit is {PARTITIONS_MAX:,}.")
        return Deferred.fromCoroutine(self._create(request, context))

    async def _create(self, request: CreateTopicsRequest, context: RequestContext) -> CreateTopicsResponse:
        named = Counter(topic.name for topic in request.topics)
        results: dict[str, CreatableTopicResult] = {}
        counts: dict[str, int] = {}
        mutations = self._quotas.mutations(context.principal, context.client_id, strict=context.api_version >= STRICT_QUOTA_VERSION)

        async def create(topic: CreatableTopic) -> None:
            try:
                if named[topic.name] > 1:
                    raise BrokerError(ErrorCode.INVALID_REQUEST, f"Topic '{topic.name}' is in the request more than once.")
                created = await self._admin.create(_new_topic(topic), validate_only=request.validate_only, admit=mutations.spend)
            except BrokerError as error:
                results[topic.name] = _failure(topic.name, error)
                return
            if not request.validate_only:
                topic_created(created.name, created.partition_count, created.replication_factor, created.configs, context)
            result = results[topic.name] = self._result(created)
            if not context.may(AclOperation.DESCRIBE_CONFIGS, AclResource.TOPIC, topic.name, logged=False):
                result.configs, result.num_partitions, result.replication_factor = [], -1, -1
                result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            counts[topic.name] = created.partition_count

        for topics in _groups(request.topics):
            await together([Deferred.fromCoroutine(create(topic)) for topic in topics])
        if counts and not request.validate_only and not await self._waiting.ready(counts, request.timeout_ms):
            for name in counts:
                results[name] = _failure(name, BrokerError(ErrorCode.REQUEST_TIMED_OUT, "The topic was created, but has no leaders yet."))
        return CreateTopicsResponse(throttle_time_ms=mutations.throttle_ms(), topics=[results[name] for name in named])

    def _result(self, created: CreatedTopic) -> CreatableTopicResult:
        return CreatableTopicResult(
            name=created.name,
            topic_id=created.topic_id,
            error_code=ErrorCode.NONE,
            error_message=None,
            num_partitions=created.partition_count,
            replication_factor=created.replication_factor,
            configs=[
                CreatableTopicConfigs(
                    name=entry.name,
                    value=entry.value,
                    read_only=entry.read_only,
                    config_source=entry.source,
                    is_sensitive=entry.sensitive,
                )
                for entry in describe_topic(self._config, created.configs)
            ],
        )

    def failed(self, request: CreateTopicsRequest, context: RequestContext, error: BrokerError) -> CreateTopicsResponse:
        """Every topic with the same error."""
        return CreateTopicsResponse(topics=[_failure(topic.name, error) for topic in request.topics])


def _groups(topics: Iterable[CreatableTopic]) -> Iterator[list[CreatableTopic]]:
    """The topics in groups that are written at the same time. Names that collide are in different ones: the later topic is refused."""
    group: dict[str, CreatableTopic] = {}
    for topic in topics:
        key = collision_key(topic.name)
        if key in group or len(group) == WRITTEN_TOGETHER_MAX:
            yield list(group.values())
            group = {}
        group[key] = topic
    if group:
        yield list(group.values())


def _new_topic(topic: CreatableTopic) -> NewTopic:
    """The last value of a key counts. A null one is refused, as in Kafka also if a later one is not null."""
    configs: dict[str, str | None] = {}
    for config in topic.configs:
        configs[config.name] = None if configs.get(config.name, "") is None else config.value
    return NewTopic(
        name=topic.name,
        partition_count=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=[(assignment.partition_index, assignment.broker_ids) for assignment in topic.assignments],
        configs=configs,
    )


def _failure(name: str, error: BrokerError) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=name,
        topic_id=NULL_TOPIC_ID,
        error_code=error.code,
        error_message="Authorization failed." if error.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED else error.message,
    )
