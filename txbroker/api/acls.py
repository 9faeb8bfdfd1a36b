"""DescribeAcls, CreateAcls and DeleteAcls (keys 29, 30, 31): the ACLs of the cluster (KIP-140, KIP-290).

Behaviour: without an authorizer they answer SECURITY_DISABLED; some tools request ACLs before anything else, and continue after that. An
ACL counts on this broker before the response is sent. One that exists is created without an error, and a filter that matches nothing
deletes nothing. A binding with a wildcard of filters (ANY, MATCH) fails the whole request with UNKNOWN_SERVER_ERROR, one with an unknown
code only itself with INVALID_REQUEST.
Version notes: v0 has literal patterns only; v1 prefixed ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from itertools import groupby
from typing import TypeVar

from twisted.internet.defer import Deferred

from txbroker.api.admin_log import acls_changed
from txbroker.api.request_context import RequestContext
from txbroker.api.resources import on_cluster
from txbroker.errors import BrokerError, ErrorCode
from txbroker.security.acl_changes import additions, check_binding, removals
from txbroker.security.acl_model import (
    ANY,
    MATCH,
    AclBinding,
    AclEntry,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResource,
    PatternType,
    ResourcePattern,
)
from txbroker.security.acl_store import AclStore
from txbroker.wire.messages.create_acls import AclCreation, AclCreationResult, CreateAclsRequest, CreateAclsResponse
from txbroker.wire.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from txbroker.wire.messages.describe_acls import AclDescription, DescribeAclsRequest, DescribeAclsResource, DescribeAclsResponse
from txbroker.wire.schema import Request

Code = TypeVar("Code", bound=IntEnum)
Results = Mapping[ResourcePattern, BrokerError | None]

_DISABLED = BrokerError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured on the broker.")


class DescribeAclsHandler:
    """The bindings that a filter matches."""

    request: type[Request] = DescribeAclsRequest
    resources = on_cluster(AclOperation.DESCRIBE)

    def __init__(self, store: AclStore | None) -> None:
        self._store = store

    def __call__(self, request: DescribeAclsRequest, context: RequestContext) -> DescribeAclsResponse:
        if self._store is None:
            raise _DISABLED
        wanted = _filter(request)
        entries = self._store.index.entries
        bindings = [
            AclBinding(pattern, entry)
            for pattern in sorted(entries)
            if wanted.matches_resource(pattern)
            for entry in sorted(entries[pattern])
            if wanted.matches_entry(entry)
        ]
        described = [_described(pattern, [b.entry for b in found]) for pattern, found in groupby(bindings, lambda b: b.resource)]
        return DescribeAclsResponse(throttle_time_ms=0, error_code=ErrorCode.NONE, error_message=None, resources=described)

    def failed(self, request: DescribeAclsRequest, context: RequestContext, error: BrokerError) -> DescribeAclsResponse:
        """The error alone."""
        return DescribeAclsResponse(throttle_time_ms=0, error_code=error.code, error_message=error.message, resources=[])


class CreateAclsHandler:
    """Adds bindings; each fails or succeeds alone."""

    request: type[Request] = CreateAclsRequest
    resources = on_cluster(AclOperation.ALTER)

    def __init__(self, store: AclStore | None) -> None:
        self._store = store

    def __call__(self, request: CreateAclsRequest, context: RequestContext) -> CreateAclsResponse | Deferred[CreateAclsResponse]:
        if self._store is None:
            raise _DISABLED
        checked = [_checked(creation) for creation in request.creations]
        changes = additions(each for each in checked if isinstance(each, AclBinding))

        def respond(results: Results) -> CreateAclsResponse:
            acls_changed("created", [each for each in checked if isinstance(each, AclBinding) and results[each.resource] is None], context)
            errors = [results[each.resource] if isinstance(each, AclBinding) else each for each in checked]
            return CreateAclsResponse(throttle_time_ms=0, results=[_result(error) for error in errors])

        return self._store.change(changes).addCallback(respond) if changes else respond({})

    def failed(self, request: CreateAclsRequest, context: RequestContext, error: BrokerError) -> CreateAclsResponse:
        """The error for each creation."""
        return CreateAclsResponse(throttle_time_ms=0, results=[_result(error) for _ in request.creations])


class DeleteAclsHandler:
    """Removes the bindings that filters match."""

    request: type[Request] = DeleteAclsRequest
    resources = on_cluster(AclOperation.ALTER)

    def __init__(self, store: AclStore | None) -> None:
        self._store = store

    def __call__(self, request: DeleteAclsRequest, context: RequestContext) -> DeleteAclsResponse | Deferred[DeleteAclsResponse]:
        if self._store is None:
            raise _DISABLED
        filters: dict[int, AclFilter] = {}
        results = [DeleteAclsFilterResult(error_code=0, error_message=None, matching_acls=[]) for _ in request.filters]
        for index, wanted in enumerate(request.filters):
            try:
                filters[index] = _filter(wanted)
            except BrokerError as error:
                results[index].error_code, results[index].error_message = error.code, error.message
        changes = removals(self._store.index, filters)

        def respond(errors: Results) -> DeleteAclsResponse:
            removed: list[AclBinding] = []
            for pattern, removal in changes.items():
                error = errors[pattern]
                for entry, index in removal.removed.items():
                    results[index].matching_acls.append(_matching(pattern, entry, error))
                    removed += [AclBinding(pattern, entry)] if error is None else []
            acls_changed("deleted", removed, context)
            return DeleteAclsResponse(throttle_time_ms=0, filter_results=results)

        return self._store.change(changes).addCallback(respond) if changes else respond({})

    def failed(self, request: DeleteAclsRequest, context: RequestContext, error: BrokerError) -> DeleteAclsResponse:
        """The error for each filter."""
        results = [DeleteAclsFilterResult(error_code=error.code, error_message=error.message, matching_acls=[]) for _ in request.filters]
        return DeleteAclsResponse(throttle_time_ms=0, filter_results=results)


def _checked(creation: AclCreation) -> AclBinding | BrokerError:
    """The binding of a creation, or its error; a BrokerError that is raised is that of the request."""
    wildcards = {creation.resource_type, creation.resource_pattern_type, creation.operation, creation.permission_type}
    if ANY in wildcards or creation.resource_pattern_type == MATCH:
        raise BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, "ANY and MATCH are for filters, not for an ACL that is created.")
    try:
        pattern = ResourcePattern(
            _code(AclResource, creation.resource_type), _code(PatternType, creation.resource_pattern_type), creation.resource_name
        )
        operation, permission = _code(AclOperation, creation.operation), _code(AclPermission, creation.permission_type)
        binding = AclBinding(pattern, AclEntry(creation.principal, creation.host, operation, permission))
        check_binding(binding)
    except BrokerError as error:
        return error
    return binding


def _filter(wanted: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    """INVALID_REQUEST for one with unknown codes."""
    for codes, code in (
        (AclResource, wanted.resource_type_filter),
        (AclOperation, wanted.operation),
        (AclPermission, wanted.permission_type),
    ):
        if code != ANY:
            _code(codes, code)
    if wanted.pattern_type_filter not in (ANY, MATCH):
        _code(PatternType, wanted.pattern_type_filter)
    return AclFilter(
        wanted.resource_type_filter,
        wanted.pattern_type_filter,
        wanted.resource_name_filter,
        wanted.principal_filter,
        wanted.host_filter,
        wanted.operation,
        wanted.permission_type,
    )


def _code(codes: type[Code], code: int) -> Code:
    try:
        return codes(code)
    except ValueError:
        raise BrokerError(ErrorCode.INVALID_REQUEST, f"{code} is no {codes.__name__} that this broker knows.") from None


def _described(pattern: ResourcePattern, entries: Sequence[AclEntry]) -> DescribeAclsResource:
    acls = [AclDescription(principal=e.principal, host=e.host, operation=e.operation, permission_type=e.permission) for e in entries]
    return DescribeAclsResource(resource_type=pattern.type, resource_name=pattern.name, pattern_type=pattern.pattern, acls=acls)


def _result(error: BrokerError | None) -> AclCreationResult:
    if error is None:
        return AclCreationResult(error_code=ErrorCode.NONE, error_message=None)
    return AclCreationResult(error_code=error.code, error_message=error.message)


def _matching(pattern: ResourcePattern, entry: AclEntry, error: BrokerError | None) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else error.message,
        resource_type=pattern.type,
        resource_name=pattern.name,
        pattern_type=pattern.pattern,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission_type=entry.permission,
    )
