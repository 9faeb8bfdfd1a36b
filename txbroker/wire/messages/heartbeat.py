"""Heartbeat (key 12): versions 0-4, flexible from 4."""

from __future__ import annotations

from txbroker.wire.schema import Int16, Int32, Request, Response, String, v


class HeartbeatRequest(Request, key=12, versions="0-4", flexible="4+"):
    group_id: String
    generation_id: Int32
    member_id: String
    group_instance_id: String | None = v("3+", default=None)


class HeartbeatResponse(Response, key=12, versions="0-4", flexible="4+"):
    throttle_time_ms: Int32 = v("1+", default=0, ignorable=True)
    error_code: Int16
