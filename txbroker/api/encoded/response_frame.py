"""Whole response frames, with their size and header, and the throttle time in them."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable
from typing import Any, TypeAlias, cast

from txbroker.api.encoded.cached_response import CachedResponse
from txbroker.log.region import Region
from txbroker.wire.codec import size_of
from txbroker.wire.headers import response_prefix
from txbroker.wire.messages.produce import ProduceRequest
from txbroker.wire.schema import Response

# What a response frame consists of. The first part is always bytes.
Part: TypeAlias = bytes | bytearray | memoryview | Region

# A whole response frame: its parts and their size. It is a plain tuple because nearly every response is one.
Frame: TypeAlias = tuple[list[Part], int]

_INT32 = struct.Struct(">i")
_AFTER_HEADER = 8  # the size and the correlation id


def response_frame(
    response: Response | Frame | CachedResponse, encode: Callable[[Any], list[Part]], header_version: int, correlation_id: int
) -> Frame:
    """The frame of a response, encoded already or not."""
    if isinstance(response, tuple):
        return response
    if isinstance(response, CachedResponse):
        parts: list[Part] = [response.body(encode)]
    else:
        parts = encode(response)
        with contextlib.suppress(TypeError):  # there are regions
            parts = [b"".join(parts)]  # type: ignore[arg-type]
    size = size_of(parts)
    prefix = response_prefix(header_version, size, correlation_id)
    return [prefix + cast(bytes, parts[0]), *parts[1:]], size + len(prefix)


def with_throttle_time(response: Any, throttle_ms: int, api_key: int, *, flexible: bool) -> Any:
    """The response with this throttle_time_ms. Unchanged if it is cached, as other clients get it, too, or if there is none.

    A frame is a Produce or Fetch response. Fetch has the field at the beginning, Produce at the end; in `flexible` versions tagged fields
    are before or after it.
    """
    if isinstance(response, tuple):
        (first, *others), size = response
        head = bytearray(first)
        position = len(head) - _INT32.size - flexible if api_key == ProduceRequest.api_key else _AFTER_HEADER + flexible
        _INT32.pack_into(head, position, throttle_ms)
        return [head, *others], size
    if hasattr(response, "throttle_time_ms"):
        response.throttle_time_ms = throttle_ms
    return response
