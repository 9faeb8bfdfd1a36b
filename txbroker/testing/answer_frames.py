"""Frames of requests and answers as rules change them: decoded, and encoded again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from txbroker.api.encoded.response_frame import Part, response_frame
from txbroker.api.registry import Route
from txbroker.log.region import Region
from txbroker.wire.codec import decode, encode_bytes
from txbroker.wire.headers import read_client_id, response_body_position
from txbroker.wire.messages.fetch import FetchRequest
from txbroker.wire.schema import Request, Response


def joined(parts: Sequence[Part]) -> bytes:
    """The bytes of an answer."""
    return b"".join(part.read() if isinstance(part, Region) else part for part in parts)


def answer_body(route: Route, parts: Sequence[Part]) -> memoryview:
    """The body of the answer in a whole frame; ProtocolError."""
    frame = memoryview(joined(parts))[4:]
    return frame[response_body_position(frame, route.response_header) :]


def decoded_answer(route: Route, parts: Sequence[Part]) -> Any:
    """The answer in a whole frame; ProtocolError."""
    return decode(route.response, route.api_version, answer_body(route, parts))


def answer_parts(route: Route, response: Response, correlation_id: int) -> list[Part]:
    """The frame of an answer."""
    return response_frame(response, route.encode, route.response_header, correlation_id)[0]


def decoded_request(route: Route, frame: memoryview) -> Request:
    """The request in a frame; ProtocolError."""
    _, position = read_client_id(frame, route.request_header)
    return route.decode(frame[position:])


def with_body(route: Route, frame: memoryview, request: Request) -> memoryview:
    """The frame of a request with another body, of a part of its partitions."""
    if isinstance(request, FetchRequest):
        request.max_wait_ms = 0  # the partitions that are left out have an error, which is answered at once
    _, position = read_client_id(frame, route.request_header)
    return memoryview(bytearray(bytes(frame[:position]) + encode_bytes(request, route.api_version)))
