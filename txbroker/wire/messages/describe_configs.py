"""DescribeConfigs (key 32): versions 0-4, flexible from 4."""

from __future__ import annotations

from txbroker.wire.schema import Bool, Int8, Int16, Int32, Request, Response, String, Struct, v


class DescribeConfigsResource(Struct):
    resource_type: Int8
    resource_name: String
    configuration_keys: list[String] | None


class DescribeConfigsRequest(Request, key=32, versions="0-4", flexible="4+"):
    resources: list[DescribeConfigsResource]
    include_synonyms: Bool = v("1+", default=False)
    include_documentation: Bool = v("3+", default=False)


class DescribeConfigsSynonym(Struct):
    name: String = v("1+", default="")
    value: String | None = v("1+", default="")
    source: Int8 = v("1+", default=0)


class DescribeConfigsResourceResult(Struct):
    name: String
    value: String | None
    read_only: Bool
    is_default: Bool = v("0", default=False)
    config_source: Int8 = v("1+", default=-1, ignorable=True)
    is_sensitive: Bool
    synonyms: list[DescribeConfigsSynonym] = v("1+", factory=list, ignorable=True)
    config_type: Int8 = v("3+", default=0, ignorable=True)
    documentation: String | None = v("3+", default="", ignorable=True)


class DescribeConfigsResult(Struct):
    error_code: Int16
    error_message: String | None
    resource_type: Int8
    resource_name: String
    configs: list[DescribeConfigsResourceResult]


class DescribeConfigsResponse(Response, key=32, versions="0-4", flexible="4+"):
    throttle_time_ms: Int32
    results: list[DescribeConfigsResult]
