"""CreateDelegationToken (key 38): versions 0-3, flexible from 2."""

from __future__ import annotations

from txbroker.wire.schema import Bytes, Int16, Int32, Int64, Request, Response, String, Struct, v


class CreatableRenewers(Struct):
    principal_type: String
    principal_name: String


class CreateDelegationTokenRequest(Request, key=38, versions="0-3", flexible="2+"):
    owner_principal_type: String | None = v("3+", default="")
    owner_principal_name: String | None = v("3+", default="")
    renewers: list[CreatableRenewers]
    max_lifetime_ms: Int64


class CreateDelegationTokenResponse(Response, key=38, versions="0-3", flexible="2+"):
    error_code: Int16
    principal_type: String
    principal_name: String
    token_requester_principal_type: String = v("3+", default="")
    token_requester_principal_name: String = v("3+", default="")
    issue_timestamp_ms: Int64
    expiry_timestamp_ms: Int64
    max_timestamp_ms: Int64
    token_id: String
    hmac: Bytes
    throttle_time_ms: Int32
