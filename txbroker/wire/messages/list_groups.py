"""ListGroups (key 16): versions 0-5, flexible from 3."""

from __future__ import annotations

from txbroker.wire.schema import Int16, Int32, Request, Response, String, Struct, v


class ListGroupsRequest(Request, key=16, versions="0-5", flexible="3+"):
    states_filter: list[String] = v("4+", factory=list)
    types_filter: list[String] = v("5+", factory=list)


class ListedGroup(Struct):
    group_id: String
    protocol_type: String
    group_state: String = v("4+", default="", ignorable=True)
    group_type: String = v("5+", default="", ignorable=True)


class ListGroupsResponse(Response, key=16, versions="0-5", flexible="3+"):
    throttle_time_ms: Int32 = v("1+", default=0, ignorable=True)
    error_code: Int16
    groups: list[ListedGroup]
