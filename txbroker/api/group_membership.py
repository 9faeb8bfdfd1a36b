"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup (keys 11, 14, 12, 13): the messages of the classic group protocol.

The protocol itself is in `txbroker.groups`; the handlers convert between its values and the messages.
Version notes: JoinGroup v1 rebalance timeout (before it: the session timeout); v4 MEMBER_ID_REQUIRED (KIP-394); v5 static members
(KIP-345); v9 the assignment may be skipped (KIP-814). LeaveGroup v3 has several members.
"""

from __future__ import annotations

from twisted.internet.defer import Deferred

from txbroker.api.request_context import RequestContext
from txbroker.api.resources import AclOperation, on_group
from txbroker.errors import BrokerError, ErrorCode
from txbroker.groups import group_results
from txbroker.groups.coordinator import GroupCoordinator
from txbroker.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from txbroker.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from txbroker.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from txbroker.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from txbroker.wire.schema import Request

REBALANCE_TIMEOUT_VERSION = 1
MEMBER_ID_REQUIRED_VERSION = 4
NULL_PROTOCOL_VERSION = 7
SKIP_ASSIGNMENT_VERSION = 9
BATCHED_LEAVE_VERSION = 3


class JoinGroupHandler:
    """Adds a member; the response is sent when the group's next generation is complete."""

    request: type[Request] = JoinGroupRequest
    resources = on_group(AclOperation.READ)

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator

    def __call__(self, request: JoinGroupRequest, context: RequestContext) -> Deferred[JoinGroupResponse]:
        version = context.api_version
        rebalance_timeout_ms = request.rebalance_timeout_ms if version >= REBALANCE_TIMEOUT_VERSION else request.session_timeout_ms
        join = group_results.JoinGroup(
            group_id=request.group_id,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            client_id=context.client_id or "",
            client_host=f"/{context.peer_host}",
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
            protocol_type=request.protocol_type,
            protocols=tuple(group_results.Protocol(name=p.name, metadata=p.metadata) for p in request.protocols),
            member_id_required=version >= MEMBER_ID_REQUIRED_VERSION,
            can_skip_assignment=version >= SKIP_ASSIGNMENT_VERSION,
            reason=request.reason,
        )
        return self._coordinator.join_group(join).addCallback(_joined, version)

    def failed(self, request: JoinGroupRequest, context: RequestContext, error: BrokerError) -> JoinGroupResponse:
        """Only the error."""
        return _joined(group_results.JoinAnswer(error=error.code, member_id=request.member_id), context.api_version)


def _joined(answer: group_results.JoinAnswer, version: int) -> JoinGroupResponse:
    name = answer.protocol_name
    return JoinGroupResponse(
        error_code=answer.error,
        generation_id=answer.generation_id,
        protocol_type=answer.protocol_type,
        protocol_name=name if version >= NULL_PROTOCOL_VERSION else name or "",
        leader=answer.leader,
        skip_assignment=answer.skip_assignment,
        member_id=answer.member_id,
        members=[
            JoinGroupResponseMember(member_id=m.member_id, group_instance_id=m.group_instance_id, metadata=m.metadata)
            for m in answer.members
        ],
    )


class SyncGroupHandler:
    """Distributes the leader's assignment; the response to a follower waits for it."""

    request: type[Request] = SyncGroupRequest
    resources = on_group(AclOperation.READ)

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator

    def __call__(self, request: SyncGroupRequest, context: RequestContext) -> Deferred[SyncGroupResponse]:
        sync = group_results.SyncGroup(
            group_id=request.group_id,
            generation_id=request.generation_id,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignments={a.member_id: a.assignment for a in request.assignments},
        )
        return self._coordinator.sync_group(sync).addCallback(_synced)

    def failed(self, request: SyncGroupRequest, context: RequestContext, error: BrokerError) -> SyncGroupResponse:
        """Only the error."""
        return _synced(group_results.SyncAnswer(error=error.code))


def _synced(answer: group_results.SyncAnswer) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=answer.error,
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol_name,
        assignment=answer.assignment,
    )


class HeartbeatHandler:
    """Keeps a member's session alive; the error notifies it of a rebalance."""

    request: type[Request] = HeartbeatRequest
    resources = on_group(AclOperation.READ)

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator

    def __call__(self, request: HeartbeatRequest, context: RequestContext) -> HeartbeatResponse:
        code = self._coordinator.heartbeat(request.group_id, request.member_id, request.group_instance_id, request.generation_id)
        return HeartbeatResponse(error_code=code)

    def failed(self, request: HeartbeatRequest, context: RequestContext, error: BrokerError) -> HeartbeatResponse:
        """Only the error."""
        return HeartbeatResponse(error_code=error.code)


class LeaveGroupHandler:
    """Removes members, by member id or by group instance id."""

    request: type[Request] = LeaveGroupRequest
    resources = on_group(AclOperation.READ)

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator

    def __call__(self, request: LeaveGroupRequest, context: RequestContext) -> LeaveGroupResponse:
        if context.api_version < BATCHED_LEAVE_VERSION:
            code, left = self._coordinator.leave_group(request.group_id, [group_results.MemberIdentity(member_id=request.member_id)])
            if code == ErrorCode.NONE and left:
                code = left[0].error
            return LeaveGroupResponse(error_code=code)
        leaving = [
            group_results.MemberIdentity(member_id=m.member_id, group_instance_id=m.group_instance_id, reason=m.reason)
            for m in request.members
        ]
        code, left = self._coordinator.leave_group(request.group_id, leaving)
        members = [MemberResponse(member_id=m.member_id, group_instance_id=m.group_instance_id, error_code=m.error) for m in left]
        return LeaveGroupResponse(error_code=code, members=members)

    def failed(self, request: LeaveGroupRequest, context: RequestContext, error: BrokerError) -> LeaveGroupResponse:
        """Only the error."""
        return LeaveGroupResponse(error_code=error.code)
