"""JoinGroup (key 11): versions 0-9, flexible from 6."""

from __future__ import annotations

from txbroker.wire.schema import Bool, Bytes, Int16, Int32, Request, Response, String, Struct, v


class JoinGroupRequestProtocol(Struct):
    name: String
    metadata: Bytes


class JoinGroupRequest(Request, key=11, versions="0-9", flexible="6+"):
    group_id: String
    session_timeout_ms: Int32
    rebalance_timeout_ms: Int32 = v("1+", default=-1, ignorable=True)
    member_id: String
    group_instance_id: String | None = v("5+", default=None)
    protocol_type: String
    protocols: list[JoinGroupRequestProtocol]
    reason: String | None = v("8+", default=None, ignorable=True)


class JoinGroupResponseMember(Struct):
    member_id: String
    group_instance_id: String | None = v("5+", default=None, ignorable=True)
    metadata: Bytes


class JoinGroupResponse(Response, key=11, versions="0-9", flexible="6+"):
    throttle_time_ms: Int32 = v("2+", default=0, ignorable=True)
    error_code: Int16
    generation_id: Int32 = v(default=-1)
    protocol_type: String | None = v("7+", default=None, ignorable=True)
    protocol_name: String | None = v(nullable="7+")
    leader: String
    skip_assignment: Bool = v("9+", default=False)
    member_id: String
    members: list[JoinGroupResponseMember]
