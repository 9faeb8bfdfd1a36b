"""SyncGroup (key 14): versions 0-5, flexible from 4."""

from __future__ import annotations

from txbroker.wire.schema import Bytes, Int16, Int32, Request, Response, String, Struct, v


class SyncGroupRequestAssignment(Struct):
    member_id: String
    assignment: Bytes


class SyncGroupRequest(Request, key=14, versions="0-5", flexible="4+"):
    group_id: String
    generation_id: Int32
    member_id: String
    group_instance_id: String | None = v("3+", default=None)
    protocol_type: String | None = v("5+", default=None, ignorable=True)
    protocol_name: String | None = v("5+", default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment]


class SyncGroupResponse(Response, key=14, versions="0-5", flexible="4+"):
    throttle_time_ms: Int32 = v("1+", default=0, ignorable=True)
    error_code: Int16
    protocol_type: String | None = v("5+", default=None, ignorable=True)
    protocol_name: String | None = v("5+", default=None, ignorable=True)
    assignment: Bytes
