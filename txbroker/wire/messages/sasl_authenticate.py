"""SaslAuthenticate (key 36): versions 0-2, flexible from 2."""

from __future__ import annotations

from txbroker.wire.schema import Bytes, Int16, Int64, Request, Response, String, v


class SaslAuthenticateRequest(Request, key=36, versions="0-2", flexible="2+"):
    auth_bytes: Bytes


class SaslAuthenticateResponse(Response, key=36, versions="0-2", flexible="2+"):
    error_code: Int16
    error_message: String | None
    auth_bytes: Bytes
    session_lifetime_ms: Int64 = v("1+", default=0, ignorable=True)
