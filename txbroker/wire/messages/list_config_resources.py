"""ListConfigResources (key 74): versions 0-1, flexible from 0."""

from __future__ import annotations

from txbroker.wire.schema import Int8, Int16, Int32, Request, Response, String, Struct, v


class ListConfigResourcesRequest(Request, key=74, versions="0-1", flexible="0+"):
    resource_types: list[Int8] = v("1+", factory=list)


class ConfigResource(Struct):
    resource_name: String
    resource_type: Int8 = v("1+", default=16, ignorable=True)


class ListConfigResourcesResponse(Response, key=74, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    config_resources: list[ConfigResource]
