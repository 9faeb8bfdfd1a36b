"""UnregisterBroker (key 64): versions 0, flexible from 0."""

from __future__ import annotations

from txbroker.wire.schema import Int16, Int32, Request, Response, String


class UnregisterBrokerRequest(Request, key=64, versions="0", flexible="0+"):
    broker_id: Int32


class UnregisterBrokerResponse(Response, key=64, versions="0", flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None
