"""AlterConfigs and IncrementalAlterConfigs (keys 33, 44): change the configurations of topics and brokers.

AlterConfigs replaces all configurations of a resource; IncrementalAlterConfigs (KIP-339) sets, deletes, appends and subtracts. Each
resource fails or succeeds alone. Some keys of topics are operations on their logs (`topic_operations.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from twisted.internet.defer import Deferred

from txbroker.api.admin_log import RecordedChange, topic_operation
from txbroker.api.config_resources import ConfigResources, ResourceType, config_needs
from txbroker.api.request_context import RequestContext
from txbroker.api.resources import AclOperation
from txbroker.api.topic_operations import TopicOperations, parse_operation
from txbroker.cluster.config_store import ConfigAdmin
from txbroker.cluster.node_paths import ALL_BROKERS, TOPIC_TYPE, Entity
from txbroker.cluster.tree.operations import together
from txbroker.config.alter import (
    Change,
    Operation,
    alter_broker_configs,
    alter_topic_configs,
    encrypted,
    replace_broker_configs,
    replace_topic_configs,
)
from txbroker.config.resolve import BrokerConfig
from txbroker.errors import BrokerError, ErrorCode
from txbroker.wire.messages import alter_configs, incremental_alter_configs
from txbroker.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from txbroker.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse
from txbroker.wire.schema import Request

Resource: TypeAlias = alter_configs.AlterConfigsResource | incremental_alter_configs.AlterConfigsResource


class _Alteration(NamedTuple):
    """What one resource of a request is to become: the changes that it has, and the new configuration as a function of the present one."""

    resource: Resource
    changes: Sequence[Change]
    compute: Callable[[Entity, Mapping[str, str]], Mapping[str, str]]


class _Alterer:
    """Alters resources, for both handlers: validates the new configurations and writes them, or performs operations on topics."""

    def __init__(self, resources: ConfigResources, admin: ConfigAdmin, operations: TopicOperations) -> None:
        self._resources = resources
        self._admin = admin
        self._operations = operations

    async def alter(self, alterations: Sequence[_Alteration], validate_only: bool, context: RequestContext) -> list[dict[str, Any]]:
        """Alter all resources at the same time. The fields of each one's response.

        A resource that is named more than once is not changed (Kafka's ConfigAdminManager).
        """
        named = Counter((resource.resource_type, resource.resource_name) for resource, _, _ in alterations)
        errors = await together(
            [
                Deferred.fromCoroutine(
                    self._alter(
                        each, validate_only, context, unique=named[each.resource.resource_type, each.resource.resource_name] == 1
                    )
                )
                for each in alterations
            ]
        )
        return [_fields(each.resource, error) for each, error in zip(alterations, errors, strict=True)]

    async def _alter(
        self, alteration: _Alteration, validate_only: bool, context: RequestContext, *, unique: bool
    ) -> BrokerError | None:
        resource, changes, compute = alteration
        try:
            if not unique:
                raise BrokerError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            if resource.resource_type == ResourceType.TOPIC and not resource.resource_name:
                raise BrokerError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
            entity = self._resources.entity(resource.resource_type, resource.resource_name)
            operation = parse_operation(entity, changes)
            if operation is not None:
                await self._operations.perform(entity.name, operation, validate_only=validate_only)
                if not validate_only:
                    topic_operation(entity.name, f"{operation.key}={operation.value}", context)
            elif validate_only:
                compute(entity, await self._admin.read(entity))
            else:
                change = RecordedChange(partial(compute, entity))
                await self._admin.change(entity, change)
                change.log(entity, context)
        except BrokerError as error:
            return error
        return None


def _fields(resource: Resource, error: BrokerError | None) -> dict[str, Any]:
    """The fields of a resource's response, which both APIs have."""
    return {
        "error_code": ErrorCode.NONE if error is None else error.code,
        "error_message": None if error is None else error.message,
        "resource_type": resource.resource_type,
        "resource_name": resource.resource_name,
    }


class AlterConfigsHandler:
    """Replaces the configurations of a resource (deprecated in Kafka, but used by several clients)."""

    request: type[Request] = AlterConfigsRequest
    resources = config_needs(AclOperation.ALTER_CONFIGS, "responses")

    def __init__(
        self, resources: ConfigResources, admin: ConfigAdmin, config: BrokerConfig, operations: TopicOperations,
        random_bytes: Callable[[int], bytes],
    ) -> None:  # fmt: skip
        """`random_bytes`: for the encryption of passwords."""
        self._alterer = _Alterer(resources, admin, operations)
        self._config = config
        self._random_bytes = random_bytes

    def __call__(self, request: AlterConfigsRequest, context: RequestContext) -> Deferred[AlterConfigsResponse]:
        alterations = []
        for resource in request.resources:
            values = [(config.name, config.value) for config in resource.configs]
            changes = [Change(name, Operation.SET, value) for name, value in values]
            alterations.append(_Alteration(resource, changes, partial(self._replaced, values)))
        return Deferred.fromCoroutine(self._alterer.alter(alterations, request.validate_only, context)).addCallback(_response)

    def _replaced(self, values: list[tuple[str, str | None]], entity: Entity, _: Mapping[str, str]) -> dict[str, str]:
        if entity.type == TOPIC_TYPE:
            return replace_topic_configs(self._config, values)
        changes = [Change(name, Operation.SET, value) for name, value in values]
        per_broker = entity != ALL_BROKERS
        stored = [(name, value) for name, _, value in encrypted(self._config, changes, self._random_bytes, per_broker=per_broker)]
        return replace_broker_configs(self._config, stored, per_broker=per_broker)

    def failed(self, request: AlterConfigsRequest, context: RequestContext, error: BrokerError) -> AlterConfigsResponse:
        """Every resource with the same error."""
        return _response([_fields(resource, error) for resource in request.resources])


def _response(results: list[dict[str, Any]]) -> AlterConfigsResponse:
    responses = [alter_configs.AlterConfigsResourceResponse(**fields) for fields in results]
    return AlterConfigsResponse(throttle_time_ms=0, responses=responses)


class IncrementalAlterConfigsHandler:
    """Changes single keys of a resource."""

    request: type[Request] = IncrementalAlterConfigsRequest
    resources = config_needs(AclOperation.ALTER_CONFIGS, "responses")

    def __init__(
        self, resources: ConfigResources, admin: ConfigAdmin, config: BrokerConfig, operations: TopicOperations,
        random_bytes: Callable[[int], bytes],
    ) -> None:  # fmt: skip
        """`random_bytes`: for the encryption of passwords."""
        self._alterer = _Alterer(resources, admin, operations)
        self._config = config
        self._random_bytes = random_bytes

    def __call__(self, request: IncrementalAlterConfigsRequest, context: RequestContext) -> Deferred[IncrementalAlterConfigsResponse]:
        alterations = []
        for resource in request.resources:
            changes = [Change(config.name, config.config_operation, config.value) for config in resource.configs]
            alterations.append(_Alteration(resource, changes, partial(self._changed, changes)))
        return Deferred.fromCoroutine(self._alterer.alter(alterations, request.validate_only, context)).addCallback(_incremental_response)

    def _changed(self, changes: list[Change], entity: Entity, before: Mapping[str, str]) -> dict[str, str]:
        if entity.type == TOPIC_TYPE:
            return alter_topic_configs(self._config, before, changes)
        per_broker = entity != ALL_BROKERS
        stored = encrypted(self._config, changes, self._random_bytes, per_broker=per_broker)
        return alter_broker_configs(self._config, before, stored, per_broker=per_broker)

    def failed(
        self, request: IncrementalAlterConfigsRequest, context: RequestContext, error: BrokerError
    ) -> IncrementalAlterConfigsResponse:
        """Every resource with the same error."""
        return _incremental_response([_fields(resource, error) for resource in request.resources])


def _incremental_response(results: list[dict[str, Any]]) -> IncrementalAlterConfigsResponse:
    responses = [incremental_alter_configs.AlterConfigsResourceResponse(**fields) for fields in results]
    return IncrementalAlterConfigsResponse(throttle_time_ms=0, responses=responses)
