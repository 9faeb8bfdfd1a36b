"""ExpireDelegationToken (key 40): versions 0-2, flexible from 2."""

from __future__ import annotations

from txbroker.wire.schema import Bytes, Int16, Int32, Int64, Request, Response


class ExpireDelegationTokenRequest(Request, key=40, versions="0-2", flexible="2+"):
    hmac: Bytes
    expiry_time_period_ms: Int64


class ExpireDelegationTokenResponse(Response, key=40, versions="0-2", flexible="2+"):
    error_code: Int16
    expiry_timestamp_ms: Int64
    throttle_time_ms: Int32
