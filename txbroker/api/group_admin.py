"""ListGroups, DescribeGroups and DeleteGroups (keys 16, 15, 42).

Version notes: ListGroups v4 filters by state (KIP-518), v5 by type (KIP-848; all groups here are classic). DescribeGroups v6 returns
GROUP_ID_NOT_FOUND for a group that does not exist (KIP-1043); in earlier versions such a group is Dead, without an error.
"""

from __future__ import annotations

from collections.abc import Sequence

from twisted.internet.defer import Deferred

from txbroker.api.admin_log import groups_deleted
from txbroker.api.authorized_operations import GROUP_OPERATIONS, authorized_operations
from txbroker.api.request_context import RequestContext
from txbroker.api.resources import AclOperation, AclResource, Rights, in_place, on_each
from txbroker.errors import BrokerError, ErrorCode
from txbroker.groups import group_results
from txbroker.groups.coordinator import GroupCoordinator
from txbroker.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from txbroker.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from txbroker.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from txbroker.wire.schema import Request

NOT_FOUND_VERSION = 6
ERROR_MESSAGE_MAX = 1000  # characters: the message contains the group id, and both may have at most 32,767 bytes
DEAD = "Dead"


class ListGroupsHandler:
    """The groups that this broker coordinates."""

    request: type[Request] = ListGroupsRequest
    rights: Rights = ((AclOperation.DESCRIBE, AclResource.CLUSTER), (AclOperation.DESCRIBE, AclResource.GROUP))
    refused: Sequence[AclResource] = ()
    resources = staticmethod(in_place)

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator

    def __call__(self, request: ListGroupsRequest, context: RequestContext) -> ListGroupsResponse:
        code, groups = self._coordinator.list_groups(request.states_filter, request.types_filter)
        listed = [
            ListedGroup(group_id=g.group_id, protocol_type=g.protocol_type, group_state=g.state, group_type=g.group_type) for g in groups
        ]
        if context.is_checked and not context.may(AclOperation.DESCRIBE, AclResource.CLUSTER, logged=False):
            listed = [group for group in listed if context.may(AclOperation.DESCRIBE, AclResource.GROUP, group.group_id, logged=False)]
        return ListGroupsResponse(error_code=code, groups=listed)

    def failed(self, request: ListGroupsRequest, context: RequestContext, error: BrokerError) -> ListGroupsResponse:
        """Only the error."""
        return ListGroupsResponse(error_code=error.code, groups=[])


class DescribeGroupsHandler:
    """Groups with their members."""

    request: type[Request] = DescribeGroupsRequest
    resources = on_each(AclOperation.DESCRIBE, AclResource.GROUP, "groups", "groups")

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator

    def __call__(self, request: DescribeGroupsRequest, context: RequestContext) -> DescribeGroupsResponse:
        asked = request.include_authorized_operations
        described = self._coordinator.describe_groups(dict.fromkeys(request.groups))
        return DescribeGroupsResponse(groups=[_described(group, asked, context) for group in described])

    def failed(self, request: DescribeGroupsRequest, context: RequestContext, error: BrokerError) -> DescribeGroupsResponse:
        """Every group with the same error."""
        groups = [group_results.DescribedGroup(group_id=group_id, error=error.code) for group_id in request.groups]
        return DescribeGroupsResponse(groups=[_described(g, False, context) for g in groups])


def _described(group: group_results.DescribedGroup, operations: bool, context: RequestContext) -> DescribedGroup:
    version = context.api_version
    code, state, message = group.error, group.state, group.error_message
    if code == ErrorCode.GROUP_ID_NOT_FOUND:
        state = DEAD
        if version < NOT_FOUND_VERSION:
            code = ErrorCode.NONE
    return DescribedGroup(
        error_code=code,
        error_message=message[:ERROR_MESSAGE_MAX] if message is not None and version >= NOT_FOUND_VERSION else None,
        group_id=group.group_id,
        group_state=state,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol_name,
        members=[
            DescribedGroupMember(
                member_id=m.member_id,
                group_instance_id=m.group_instance_id,
                client_id=m.client_id,
                client_host=m.client_host,
                member_metadata=m.metadata,
                member_assignment=m.assignment,
            )
            for m in group.members
        ],
        authorized_operations=authorized_operations(operations, GROUP_OPERATIONS, context, AclResource.GROUP, group.group_id),
    )


class DeleteGroupsHandler:
    """Deletes groups without members, with their offsets (KIP-229)."""

    request: type[Request] = DeleteGroupsRequest
    resources = on_each(AclOperation.DELETE, AclResource.GROUP, "groups_names", "results")

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator

    def __call__(self, request: DeleteGroupsRequest, context: RequestContext) -> Deferred[DeleteGroupsResponse]:
        def respond(codes: dict[str, ErrorCode]) -> DeleteGroupsResponse:
            groups_deleted([group for group, code in codes.items() if code is ErrorCode.NONE], context)
            return _deleted(codes)

        return self._coordinator.delete_groups(request.groups_names).addCallback(respond)

    def failed(self, request: DeleteGroupsRequest, context: RequestContext, error: BrokerError) -> DeleteGroupsResponse:
        """Every group with the same error."""
        return _deleted(dict.fromkeys(request.groups_names, error.code))


def _deleted(codes: dict[str, ErrorCode]) -> DeleteGroupsResponse:
    results = [DeletableGroupResult(group_id=group_id, error_code=code) for group_id, code in codes.items()]
    return DeleteGroupsResponse(throttle_time_ms=0, results=results)
