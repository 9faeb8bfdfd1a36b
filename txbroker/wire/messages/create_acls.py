"""CreateAcls (key 30): versions 0-3, flexible from 2."""

from __future__ import annotations

from txbroker.wire.schema import Int8, Int16, Int32, Request, Response, String, Struct, v


class AclCreation(Struct):
    resource_type: Int8
    resource_name: String
    resource_pattern_type: Int8 = v("1+", default=3)
    principal: String
    host: String
    operation: Int8
    permission_type: Int8


class CreateAclsRequest(Request, key=30, versions="0-3", flexible="2+"):
    creations: list[AclCreation]


class AclCreationResult(Struct):
    error_code: Int16
    error_message: String | None


class CreateAclsResponse(Response, key=30, versions="0-3", flexible="2+"):
    throttle_time_ms: Int32
    results: list[AclCreationResult]
