"""FindCoordinator (key 10): versions 0-6, flexible from 3."""

from __future__ import annotations

from txbroker.wire.schema import Int8, Int16, Int32, Request, Response, String, Struct, v


class FindCoordinatorRequest(Request, key=10, versions="0-6", flexible="3+"):
    key: String = v("0-3", default="")
    key_type: Int8 = v("1+", default=0)
    coordinator_keys: list[String] = v("4+", factory=list)


class Coordinator(Struct):
    key: String = v("4+", default="")
    node_id: Int32 = v("4+", default=0)
    host: String = v("4+", default="")
    port: Int32 = v("4+", default=0)
    error_code: Int16 = v("4+", default=0)
    error_message: String | None = v("4+", default="", ignorable=True)


class FindCoordinatorResponse(Response, key=10, versions="0-6", flexible="3+"):
    throttle_time_ms: Int32 = v("1+", default=0, ignorable=True)
    error_code: Int16 = v("0-3", default=0)
    error_message: String | None = v("1-3", default="", ignorable=True)
    node_id: Int32 = v("0-3", default=0)
    host: String = v("0-3", default="")
    port: Int32 = v("0-3", default=0)
    coordinators: list[Coordinator] = v("4+", factory=list)
