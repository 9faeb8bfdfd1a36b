"""RenewDelegationToken (key 39): versions 0-2, flexible from 2."""

from __future__ import annotations

from txbroker.wire.schema import Bytes, Int16, Int32, Int64, Request, Response


class RenewDelegationTokenRequest(Request, key=39, versions="0-2", flexible="2+"):
    hmac: Bytes
    renew_period_ms: Int64


class RenewDelegationTokenResponse(Response, key=39, versions="0-2", flexible="2+"):
    error_code: Int16
    expiry_timestamp_ms: Int64
    throttle_time_ms: Int32
