"""DescribeGroups (key 15): versions 0-6, flexible from 5."""

from __future__ import annotations

from txbroker.wire.schema import Bool, Bytes, Int16, Int32, Request, Response, String, Struct, v


class DescribeGroupsRequest(Request, key=15, versions="0-6", flexible="5+"):
    groups: list[String]
    include_authorized_operations: Bool = v("3+", default=False)


class DescribedGroupMember(Struct):
    member_id: String
    group_instance_id: String | None = v("4+", default=None, ignorable=True)
    client_id: String
    client_host: String
    member_metadata: Bytes
    member_assignment: Bytes


class DescribedGroup(Struct):
    error_code: Int16
    error_message: String | None = v("6+", default=None)
    group_id: String
    group_state: String
    protocol_type: String
    protocol_data: String
    members: list[DescribedGroupMember]
    authorized_operations: Int32 = v("3+", default=-2147483648)


class DescribeGroupsResponse(Response, key=15, versions="0-6", flexible="5+"):
    throttle_time_ms: Int32 = v("1+", default=0, ignorable=True)
    groups: list[DescribedGroup]
