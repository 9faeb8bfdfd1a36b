"""Authorized operations as bit fields (KIP-430): without an authorizer, every operation of a resource."""

from __future__ import annotations

from txbroker.api.request_context import RequestContext
from txbroker.api.resources import CLUSTER_NAME, AclOperation, AclResource
from txbroker.security.acl_model import SUPPORTED_OPERATIONS

NOT_REQUESTED = -(2**31)  # the field's value when the client did not request it


def _bits(*operations: AclOperation) -> int:
    return sum(1 << operation for operation in operations)


TOPIC_OPERATIONS = _bits(*SUPPORTED_OPERATIONS[AclResource.TOPIC])
GROUP_OPERATIONS = _bits(*SUPPORTED_OPERATIONS[AclResource.GROUP])
CLUSTER_OPERATIONS = _bits(*SUPPORTED_OPERATIONS[AclResource.CLUSTER])


def authorized_operations(
    requested: bool, operations: int, context: RequestContext, resource: AclResource, name: str = CLUSTER_NAME
) -> int:
    """The field's value. `operations`: those of the type of the resource. None of the cluster for a client that may not describe it."""
    if not requested:
        return NOT_REQUESTED
    if not context.is_checked:
        return operations
    if resource is AclResource.CLUSTER and not context.may(AclOperation.DESCRIBE, resource, name, logged=False):
        return 0
    return _bits(*(each for each in AclOperation if operations >> each & 1 and context.may(each, resource, name, logged=False)))
