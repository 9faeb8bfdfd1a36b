"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs (keys 32, 33, 44).

Behaviour: resources are topics and brokers; the broker named "" is the default of all brokers, any other than this one is refused, as
each broker knows only itself. AlterConfigs replaces all that was set; the incremental form (KIP-339) sets, deletes, appends and
subtracts. Each resource fails or succeeds alone. Some keys of topics are operations on their logs (`topic_operations.py`).
Version notes: DescribeConfigs v1 sources and synonyms (KIP-226), v3 types and documentation (KIP-569).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import IntEnum
from functools import partial

from twisted.internet.defer import Deferred, succeed

from txbroker.api.request_context import RequestContext
from txbroker.api.topic_operations import TopicOperations, wanted_operation
from txbroker.cluster.config_store import ConfigAdmin
from txbroker.cluster.image import ClusterImage
from txbroker.cluster.node_paths import ALL_BROKERS, TOPIC_TYPE, Entity, broker_entity, topic_entity
from txbroker.cluster.tree.operations import together
from txbroker.config.alter import (
    Change,
    Operation,
    alter_broker_configs,
    alter_topic_configs,
    replace_broker_configs,
    replace_topic_configs,
)
from txbroker.config.describe import ConfigEntry, describe_broker, describe_default, describe_topic
from txbroker.config.resolve import BrokerConfig, Source
from txbroker.errors import BrokerError, ErrorCode
from txbroker.names import check_topic_name
from txbroker.wire.messages import alter_configs, incremental_alter_configs
from txbroker.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from txbroker.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from txbroker.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse
from txbroker.wire.schema import Request

IS_DEFAULT_VERSION = 0  # the only version that says "is default" instead of the source


class ResourceType(IntEnum):
    """Kafka's ConfigResource types that are served."""

    TOPIC = 2
    BROKER = 4


class ConfigResources:
    """Turns a resource's type and name into what is configured: shared by the three handlers."""

    def __init__(self, broker_id: int, image: ClusterImage) -> None:
        self._broker_id = broker_id
        self._image = image

    def entity(self, resource_type: int, name: str) -> Entity:
        """The entity in the tree. INVALID_REQUEST, INVALID_TOPIC_EXCEPTION or UNKNOWN_TOPIC_OR_PARTITION."""
        if resource_type == ResourceType.TOPIC:
            check_topic_name(name)
            if self._image.topic(name) is None:
                raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return topic_entity(name)
        if resource_type != ResourceType.BROKER:
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"Resources of type {resource_type} are not served, only topics and brokers.")
        if not name:
            return ALL_BROKERS
        if name != str(self._broker_id):
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"This is broker {self._broker_id}; ask broker {name!r} itself.")
        return broker_entity(self._broker_id)


class DescribeConfigsHandler:
    """Every key of a resource, with its value and where that comes from."""

    request: type[Request] = DescribeConfigsRequest

    def __init__(self, resources: ConfigResources, admin: ConfigAdmin, config: BrokerConfig, operations: TopicOperations) -> None:
        self._resources = resources
        self._admin = admin
        self._config = config
        self._operations = operations

    def __call__(self, request: DescribeConfigsRequest, context: RequestContext) -> Deferred[DescribeConfigsResponse]:
        return Deferred.fromCoroutine(self._describe(request, context.api_version))

    async def _describe(self, request: DescribeConfigsRequest, version: int) -> DescribeConfigsResponse:
        results = []
        for resource, wanted in _each_once(request.resources):
            try:
                entries = await self._entries(resource, wanted or ())
            except BrokerError as error:
                results.append(_described(resource, error, []))
                continue
            rows = [_row(entry, request, version) for entry in entries if wanted is None or entry.name in wanted]
            results.append(_described(resource, None, rows))
        return DescribeConfigsResponse(throttle_time_ms=0, results=results)

    async def _entries(self, resource: DescribeConfigsResource, named: Collection[str]) -> list[ConfigEntry]:
        entity = self._resources.entity(resource.resource_type, resource.resource_name)
        if resource.resource_type == ResourceType.TOPIC:
            told = self._operations.told(entity.name, named)
            return [*describe_topic(self._config, await self._admin.read(entity)), *told]
        return describe_default(self._config) if entity == ALL_BROKERS else describe_broker(self._config)

    def failed(self, request: DescribeConfigsRequest, context: RequestContext, error: BrokerError) -> DescribeConfigsResponse:
        """Every resource with the same error."""
        return DescribeConfigsResponse(throttle_time_ms=0, results=[_described(r, error, []) for r in request.resources])


def _each_once(resources: Iterable[DescribeConfigsResource]) -> Iterable[tuple[DescribeConfigsResource, set[str] | None]]:
    """Each resource once, however often it is named, with all the keys that are wanted of it (None: every key)."""
    named: dict[tuple[int, str], tuple[DescribeConfigsResource, set[str] | None]] = {}
    for resource in resources:
        keys = None if resource.configuration_keys is None else set(resource.configuration_keys)
        first, before = named.setdefault((resource.resource_type, resource.resource_name), (resource, keys))
        if first is not resource and before is not None:
            if keys is None:
                named[resource.resource_type, resource.resource_name] = first, None
            else:
                before |= keys
    return named.values()


def _described(
    resource: DescribeConfigsResource, error: BrokerError | None, rows: list[DescribeConfigsResourceResult]
) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else error.message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=rows,
    )


def _row(entry: ConfigEntry, request: DescribeConfigsRequest, version: int) -> DescribeConfigsResourceResult:
    synonyms = entry.synonyms if request.include_synonyms else ()
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        is_default=version == IS_DEFAULT_VERSION and entry.source == Source.DEFAULT_CONFIG,
        config_source=entry.source,
        is_sensitive=entry.sensitive,
        synonyms=[DescribeConfigsSynonym(name=s.name, value=s.value, source=s.source) for s in synonyms],
        config_type=entry.type,
        documentation=entry.documentation if request.include_documentation else None,
    )


class _Alteration:
    """What both ways of altering share: one resource's new configuration, checked, and written unless it is only validated.

    Or an operation, which is performed.
    """

    def __init__(self, resources: ConfigResources, admin: ConfigAdmin, operations: TopicOperations) -> None:
        self._resources = resources
        self._admin = admin
        self._operations = operations

    def alter(
        self,
        resource_type: int,
        name: str,
        changes: Sequence[Change],
        compute: Callable[[Entity, Mapping[str, str]], Mapping[str, str]],
        validate_only: bool,
    ) -> Deferred[BrokerError | None]:
        """None when it is done. Several may go on at once."""
        return Deferred.fromCoroutine(self._alter(resource_type, name, changes, compute, validate_only))

    async def _alter(
        self,
        resource_type: int,
        name: str,
        changes: Sequence[Change],
        compute: Callable[[Entity, Mapping[str, str]], Mapping[str, str]],
        validate_only: bool,
    ) -> BrokerError | None:
        try:
            entity = self._resources.entity(resource_type, name)
            operation = wanted_operation(entity, changes)
            if operation is not None:
                await self._operations.perform(entity.name, operation, validate_only=validate_only)
            elif validate_only:
                compute(entity, await self._admin.read(entity))
            else:
                await self._admin.change(entity, partial(compute, entity))
        except BrokerError as error:
            return error
        return None


def _repeated(
    resources: Iterable[alter_configs.AlterConfigsResource | incremental_alter_configs.AlterConfigsResource],
) -> dict[tuple[int, str], BrokerError]:
    """Which resources are named more than once: nothing of them is changed (Kafka's ConfigAdminManager)."""
    named = Counter((resource.resource_type, resource.resource_name) for resource in resources)
    error = BrokerError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
    return {name: error for name, count in named.items() if count > 1}


def _refused(error: BrokerError) -> Deferred[BrokerError | None]:
    return succeed(error)


class AlterConfigsHandler:
    """Replaces configurations (deprecated by Kafka, used by several clients)."""

    request: type[Request] = AlterConfigsRequest

    def __init__(self, resources: ConfigResources, admin: ConfigAdmin, config: BrokerConfig, operations: TopicOperations) -> None:
        self._alteration = _Alteration(resources, admin, operations)
        self._config = config

    def __call__(self, request: AlterConfigsRequest, context: RequestContext) -> Deferred[AlterConfigsResponse]:
        return Deferred.fromCoroutine(self._alter(request))

    async def _alter(self, request: AlterConfigsRequest) -> AlterConfigsResponse:
        repeated = _repeated(request.resources)
        begun = [
            _refused(error) if (error := repeated.get((resource.resource_type, resource.resource_name))) else self._begin(resource, request)
            for resource in request.resources
        ]
        errors = await together(begun)
        return AlterConfigsResponse(
            throttle_time_ms=0, responses=[_replaced(*each) for each in zip(request.resources, errors, strict=True)]
        )

    def _begin(self, resource: alter_configs.AlterConfigsResource, request: AlterConfigsRequest) -> Deferred[BrokerError | None]:
        wanted = [(config.name, config.value) for config in resource.configs]
        changes = [Change(name, Operation.SET, value) for name, value in wanted]
        compute = partial(self._replaced, wanted)
        return self._alteration.alter(resource.resource_type, resource.resource_name, changes, compute, request.validate_only)

    def _replaced(self, wanted: list[tuple[str, str | None]], entity: Entity, _: Mapping[str, str]) -> dict[str, str]:
        if entity.type == TOPIC_TYPE:
            return replace_topic_configs(self._config, wanted)
        return replace_broker_configs(self._config, wanted, per_broker=entity != ALL_BROKERS)

    def failed(self, request: AlterConfigsRequest, context: RequestContext, error: BrokerError) -> AlterConfigsResponse:
        """Every resource with the same error."""
        return AlterConfigsResponse(throttle_time_ms=0, responses=[_replaced(r, error) for r in request.resources])


def _replaced(resource: alter_configs.AlterConfigsResource, error: BrokerError | None) -> alter_configs.AlterConfigsResourceResponse:
    return alter_configs.AlterConfigsResourceResponse(
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else error.message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


class IncrementalAlterConfigsHandler:
    """Changes single keys of configurations."""

    request: type[Request] = IncrementalAlterConfigsRequest

    def __init__(self, resources: ConfigResources, admin: ConfigAdmin, config: BrokerConfig, operations: TopicOperations) -> None:
        self._alteration = _Alteration(resources, admin, operations)
        self._config = config

    def __call__(self, request: IncrementalAlterConfigsRequest, context: RequestContext) -> Deferred[IncrementalAlterConfigsResponse]:
        return Deferred.fromCoroutine(self._alter(request))

    async def _alter(self, request: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
        repeated = _repeated(request.resources)
        begun = [
            _refused(error) if (error := repeated.get((resource.resource_type, resource.resource_name))) else self._begin(resource, request)
            for resource in request.resources
        ]
        errors = await together(begun)
        return IncrementalAlterConfigsResponse(
            throttle_time_ms=0, responses=[_changed(*each) for each in zip(request.resources, errors, strict=True)]
        )

    def _begin(
        self, resource: incremental_alter_configs.AlterConfigsResource, request: IncrementalAlterConfigsRequest
    ) -> Deferred[BrokerError | None]:
        changes = [Change(config.name, config.config_operation, config.value) for config in resource.configs]
        compute = partial(self._changed, changes)
        return self._alteration.alter(resource.resource_type, resource.resource_name, changes, compute, request.validate_only)

    def _changed(self, changes: list[Change], entity: Entity, before: Mapping[str, str]) -> dict[str, str]:
        if entity.type == TOPIC_TYPE:
            return alter_topic_configs(self._config, before, changes)
        return alter_broker_configs(self._config, before, changes, per_broker=entity != ALL_BROKERS)

    def failed(
        self, request: IncrementalAlterConfigsRequest, context: RequestContext, error: BrokerError
    ) -> IncrementalAlterConfigsResponse:
        """Every resource with the same error."""
        return IncrementalAlterConfigsResponse(throttle_time_ms=0, responses=[_changed(r, error) for r in request.resources])


def _changed(
    resource: incremental_alter_configs.AlterConfigsResource, error: BrokerError | None
) -> incremental_alter_configs.AlterConfigsResourceResponse:
    return incremental_alter_configs.AlterConfigsResourceResponse(
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else error.message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
