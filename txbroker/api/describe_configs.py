"""DescribeConfigs (key 32): the configurations of topics and brokers, with the sources of their values.

Each resource fails or succeeds alone.
Version notes: v1 sources and synonyms (KIP-226), v3 types and documentation (KIP-569).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from twisted.internet.defer import Deferred

from txbroker.api.config_resources import ConfigResources, ResourceType, config_needs
from txbroker.api.request_context import RequestContext
from txbroker.api.resources import AclOperation
from txbroker.api.topic_operations import TopicOperations
from txbroker.cluster.config_store import ConfigAdmin
from txbroker.cluster.node_paths import ALL_BROKERS
from txbroker.config.describe import ConfigEntry, describe_broker, describe_default, describe_topic
from txbroker.config.resolve import BrokerConfig, Source
from txbroker.errors import BrokerError, ErrorCode
from txbroker.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from txbroker.wire.schema import Request

IS_DEFAULT_VERSION = 0  # the only version with is_default instead of config_source


class DescribeConfigsHandler:
    """Every key of a resource, with its value and the source of the value."""

    request: type[Request] = DescribeConfigsRequest
    resources = config_needs(AclOperation.DESCRIBE_CONFIGS, "results")

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
            cleaner = self._operations.cleaner_entries(entity.name, named)
            return [*describe_topic(self._config, await self._admin.read(entity)), *cleaner]
        return describe_default(self._config) if entity == ALL_BROKERS else describe_broker(self._config)

    def failed(self, request: DescribeConfigsRequest, context: RequestContext, error: BrokerError) -> DescribeConfigsResponse:
        """Every resource with the same error."""
        return DescribeConfigsResponse(throttle_time_ms=0, results=[_described(r, error, []) for r in request.resources])


def _each_once(resources: Iterable[DescribeConfigsResource]) -> Iterable[tuple[DescribeConfigsResource, set[str] | None]]:
    """Each resource once, however often it is named, with all keys that are requested of it (None: every key)."""
    named: dict[tuple[int, str], tuple[DescribeConfigsResource, set[str] | None]] = {}
    for resource in resources:
        keys = set(resource.configuration_keys or ()) or None  # empty: every key, as in Kafka
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
