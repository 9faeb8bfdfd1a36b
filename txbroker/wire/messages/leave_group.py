"""LeaveGroup (key 13): versions 0-5, flexible from 4."""

from __future__ import annotations

from txbroker.wire.schema import Int16, Int32, Request, Response, String, Struct, v


class MemberIdentity(Struct):
    member_id: String = v("3+", default="")
    group_instance_id: String | None = v("3+", default=None)
    reason: String | None = v("5+", default=None, ignorable=True)


class LeaveGroupRequest(Request, key=13, versions="0-5", flexible="4+"):
    group_id: String
    member_id: String = v("0-2", default="")
    members: list[MemberIdentity] = v("3+", factory=list)


class MemberResponse(Struct):
    member_id: String = v("3+", default="")
    group_instance_id: String | None = v("3+", default="")
    error_code: Int16 = v("3+", default=0)


class LeaveGroupResponse(Response, key=13, versions="0-5", flexible="4+"):
    throttle_time_ms: Int32 = v("1+", default=0, ignorable=True)
    error_code: Int16
    members: list[MemberResponse] = v("3+", factory=list)
