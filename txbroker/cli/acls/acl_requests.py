"""ACLs of a cluster by DescribeAcls, CreateAcls and DeleteAcls, in kafka-python's messages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from txbroker.cli import clients
from txbroker.console.failures import broker_error
from txbroker.security.acl_model import (
    ANY,
    AclBinding,
    AclEntry,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResource,
    PatternType,
    ResourcePattern,
)

EVERYTHING = AclFilter(ANY, ANY, None, None, None, ANY, ANY)
_FILTER = ("resource_type_filter", "pattern_type_filter", "resource_name_filter", "principal_filter", "host_filter", "operation",
           "permission_type")  # fmt: skip


def described(admin: Any, wanted: AclFilter = EVERYTHING) -> list[AclBinding]:
    """The bindings that a filter matches, in order. CommandFailed."""
    from kafka.protocol.admin import DescribeAclsRequest

    response = clients.send(admin, DescribeAclsRequest(**dict(zip(_FILTER, wanted, strict=True)), min_version=1))
    if response.error_code:
        raise broker_error("the ACLs cannot be listed", response.error_code, response.error_message)
    return sorted(
        _binding(resource.resource_type, resource.pattern_type, resource.resource_name, acl)
        for resource in response.resources
        for acl in resource.acls
        if acl.operation in list(AclOperation)  # those of newer brokers have none here
    )


def create(admin: Any, bindings: Sequence[AclBinding]) -> None:
    """Create bindings. CommandFailed with the first that fails; the others are created."""
    from kafka.protocol.admin import CreateAclsRequest

    creations = [
        CreateAclsRequest.AclCreation(
            resource_type=resource.type, resource_name=resource.name, resource_pattern_type=resource.pattern,
            principal=entry.principal, host=entry.host, operation=entry.operation, permission_type=entry.permission,
        )
        for resource, entry in bindings
    ]  # fmt: skip
    response = clients.send(admin, CreateAclsRequest(creations=creations, min_version=1))
    for binding, result in zip(bindings, response.results, strict=True):
        if result.error_code:
            raise broker_error(f"cannot create the ACL {binding}", result.error_code, result.error_message)


def delete(admin: Any, filters: Iterable[AclFilter]) -> list[AclBinding]:
    """Delete what filters match; the deleted bindings. CommandFailed with the first that fails."""
    from kafka.protocol.admin import DeleteAclsRequest

    made = [DeleteAclsRequest.DeleteAclsFilter(**dict(zip(_FILTER, each, strict=True))) for each in filters]
    response = clients.send(admin, DeleteAclsRequest(filters=made, min_version=1))
    found = []
    for result in response.filter_results:
        if result.error_code:
            raise broker_error("the ACLs cannot be deleted", result.error_code, result.error_message)
        for acl in result.matching_acls:
            binding = _binding(acl.resource_type, acl.pattern_type, acl.resource_name, acl)
            if acl.error_code:
                raise broker_error(f"cannot delete the ACL {binding}", acl.error_code, acl.error_message)
            found.append(binding)
    return sorted(found)


def _binding(kind: int, pattern: int, name: str, acl: Any) -> AclBinding:
    resource = ResourcePattern(AclResource(kind), PatternType(pattern), name)
    return AclBinding(resource, AclEntry(acl.principal, acl.host, AclOperation(acl.operation), AclPermission(acl.permission_type)))
