"""Responses as handlers return them, encoded or not, as messages."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any, TypeVar

from txbroker.api.encoded.response_frame import Frame, Part
from txbroker.api.parking import ParkedRequest
from txbroker.log.region import Region
from txbroker.wire.codec import decode
from txbroker.wire.headers import response_header_version
from txbroker.wire.schema import Request, response_class

M = TypeVar("M")


def joined(parts: Iterable[Part]) -> bytes:
    """The bytes of a response, or of all responses that a connection sends."""
    return b"".join(part.read() if isinstance(part, Region) else part for part in parts)


def frame(response: Frame) -> bytes:
    """The whole frame, whose size is checked."""
    data = joined(response[0])
    assert len(data) == response[1] == 4 + struct.unpack_from(">i", data)[0]
    return data


def later(response: Any) -> Any:
    """The Deferred of a parked request; any other response as it is."""
    return response.deferred() if isinstance(response, ParkedRequest) else response


def message(response: Any, request: type[Request], version: int, correlation_id: int = 1) -> Any:
    """The message; of an encoded one header and size are checked."""
    if not isinstance(response, tuple):
        return response
    data = frame(response)
    header = struct.pack(">i", correlation_id) + bytes(response_header_version(request, version))
    assert data[4 : 4 + len(header)] == header
    return decode(response_class(request), version, data[4 + len(header) :])
