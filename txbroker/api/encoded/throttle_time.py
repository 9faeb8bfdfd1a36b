"""The throttle time in responses, also in those that are encoded already."""

from __future__ import annotations

import struct
from typing import Any, cast

from txbroker.api.encoded.encoded_response import EncodedResponse
from txbroker.wire.messages.produce import ProduceRequest

_INT32 = struct.Struct(">i")
_AFTER_HEADER = 8  # the size and the correlation id


def with_throttle_time(response: Any, throttle_ms: int, api_key: int, *, flexible: bool) -> Any:
    """The response with this throttle_time_ms. Unchanged if it is cached, as other clients get it, too, or if there is none.

    An encoded one is a Produce or Fetch response. `flexible`: of this version.
    """
    if isinstance(response, EncodedResponse):
        return _patched(response, throttle_ms, is_produce=api_key == ProduceRequest.api_key, flexible=flexible)
    if hasattr(response, "throttle_time_ms"):
        response.throttle_time_ms = throttle_ms
    return response


def _patched(response: EncodedResponse, throttle_ms: int, *, is_produce: bool, flexible: bool) -> EncodedResponse:
    """Fetch has the field at the beginning, Produce at the end; in flexible versions tagged fields are before or after it."""
    head = bytearray(cast(bytes, response.parts[0]))
    position = len(head) - _INT32.size - flexible if is_produce else _AFTER_HEADER + flexible
    _INT32.pack_into(head, position, throttle_ms)
    return EncodedResponse([head, *response.parts[1:]], response.size, response.records_bytes)
