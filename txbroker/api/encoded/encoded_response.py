"""A response that its handler has encoded: the package's docstring explains when and how."""

from __future__ import annotations

import struct
from typing import TypeAlias

from txbroker.log.region import Region

_INT32 = struct.Struct(">i").pack
_CORRELATION_ID = 4  # its position in a frame

# What a response frame consists of. The first part is always bytes.
Part: TypeAlias = bytes | bytearray | memoryview | Region


class EncodedResponse:
    """A whole response frame of `size` bytes in `parts`: bytes, and file regions of records (`records_bytes` of them)."""

    __slots__ = ("parts", "records_bytes", "size")

    def __init__(self, parts: list[Part], size: int, records_bytes: int = 0) -> None:
        self.parts = parts
        self.size = size
        self.records_bytes = records_bytes


class SharedResponse:
    """The same response to several requests of one version: their frames differ in the correlation id. File regions are read."""

    __slots__ = ("_before", "_rest", "_size", "records_bytes")

    def __init__(self, response: EncodedResponse) -> None:
        frame = b"".join(part.read() if isinstance(part, Region) else part for part in response.parts)
        self._before, self._rest = frame[:_CORRELATION_ID], frame[_CORRELATION_ID + 4 :]
        self._size = response.size
        self.records_bytes = response.records_bytes

    def for_request(self, correlation_id: int) -> EncodedResponse:
        return EncodedResponse([self._before + _INT32(correlation_id) + self._rest], self._size, self.records_bytes)
