"""ApiVersions (key 18): versions 0-4, flexible from 3."""

from __future__ import annotations

from txbroker.wire.schema import Bool, Int16, Int32, Int64, Request, Response, String, Struct, v


class ApiVersionsRequest(Request, key=18, versions="0-4", flexible="3+"):
    client_software_name: String = v("3+", default="", ignorable=True)
    client_software_version: String = v("3+", default="", ignorable=True)


class ApiVersion(Struct):
    api_key: Int16
    min_version: Int16
    max_version: Int16


class SupportedFeatureKey(Struct):
    name: String = v("3+", default="")
    min_version: Int16 = v("3+", default=0)
    max_version: Int16 = v("3+", default=0)


class FinalizedFeatureKey(Struct):
    name: String = v("3+", default="")
    max_version_level: Int16 = v("3+", default=0)
    min_version_level: Int16 = v("3+", default=0)


class ApiVersionsResponse(Response, key=18, versions="0-4", flexible="3+"):
    error_code: Int16
    api_keys: list[ApiVersion]
    throttle_time_ms: Int32 = v("1+", default=0, ignorable=True)
    supported_features: list[SupportedFeatureKey] = v("3+", factory=list, tag=0, ignorable=True)
    finalized_features_epoch: Int64 = v("3+", default=-1, tag=1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = v("3+", factory=list, tag=2, ignorable=True)
    zk_migration_ready: Bool = v("3+", default=False, tag=3, ignorable=True)
