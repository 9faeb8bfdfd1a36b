"""Delegation tokens over raw connections."""

from __future__ import annotations

import base64
import secrets
from typing import Any

from tests.security.test_sasl_brokers import authenticate, handshake
from tests.support.raw import RawConnection
from txbroker.client.client_security import Sasl, Scram
from txbroker.wire.codec import decode, encode_bytes
from txbroker.wire.headers import request_prefix, response_body_position, response_header_version
from txbroker.wire.schema import Request, response_class


def ask(connection: RawConnection, request: Request, version: int) -> Any:
    """The response to a request that kafka-python does not have."""
    kind, body = type(request), encode_bytes(request, version)
    connection.send_bytes(request_prefix(kind, version, 1, "tests", len(body)) + body)
    frame = memoryview(connection.receive_frame())
    return decode(response_class(kind), version, frame[response_body_position(frame, response_header_version(kind, version)) :])


class TokenScram(Scram):
    """The messages of a client that logs in with a token."""

    def __init__(self, mechanism: str, token_id: str, hmac: bytes) -> None:
        super().__init__(Sasl(mechanism, token_id, base64.b64encode(hmac).decode()), secrets.token_urlsafe())
        self._bare += ",tokenauth=true"
        self.first = f"n,,{self._bare}"


def token_log_in(connection: RawConnection, token_id: str, hmac: bytes, mechanism: str = "SCRAM-SHA-256") -> Any:
    """The last answer to a login with a token."""
    assert handshake(connection, mechanism).error_code == 0
    client = TokenScram(mechanism, token_id, hmac)
    first = authenticate(connection, client.first.encode())
    return first if first.error_code else authenticate(connection, client.final(first.auth_bytes.decode()).encode())
