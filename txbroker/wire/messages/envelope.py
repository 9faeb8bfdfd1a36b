"""Envelope (key 58): versions 0, flexible from 0."""

from __future__ import annotations

from txbroker.wire.schema import Bytes, Int16, Request, Response, v


class EnvelopeRequest(Request, key=58, versions="0", flexible="0+"):
    request_data: Bytes
    request_principal: Bytes | None
    client_host_address: Bytes


class EnvelopeResponse(Response, key=58, versions="0", flexible="0+"):
    response_data: Bytes | None = v(default=None)
    error_code: Int16
