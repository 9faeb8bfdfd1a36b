"""UpdateFeatures (key 57): versions 0-2, flexible from 0."""

from __future__ import annotations

from txbroker.wire.schema import Bool, Int8, Int16, Int32, Request, Response, String, Struct, v


class FeatureUpdateKey(Struct):
    feature: String
    max_version_level: Int16
    allow_downgrade: Bool = v("0", default=False)
    upgrade_type: Int8 = v("1+", default=1)


class UpdateFeaturesRequest(Request, key=57, versions="0-2", flexible="0+"):
    timeout_ms: Int32 = v(default=60000)
    feature_updates: list[FeatureUpdateKey]
    validate_only: Bool = v("1+", default=False)


class UpdatableFeatureResult(Struct):
    feature: String
    error_code: Int16
    error_message: String | None


class UpdateFeaturesResponse(Response, key=57, versions="0-2", flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None
    results: list[UpdatableFeatureResult] = v("0-1", factory=list, ignorable=True)
