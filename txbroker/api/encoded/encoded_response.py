"""A response that its handler has encoded: the package's docstring explains when and how."""

from __future__ import annotations

import struct
from typing import TypeAlias

from txbroker.log.region import Region

_INT32 = struct.Struct(">i").pack

# What a response frame consists of. The first part is always bytes.
Part: TypeAlias = bytes | bytearray | memoryview | Region


class EncodedResponse:
    """A whole response frame of `size` bytes in `parts`: bytes, and file regions of records (`records_bytes` of them)."""

    __slots__ = ("parts", "records_bytes", "size")

    def __init__(self, parts: list[Part], size: int, records_bytes: int = 0) -> None:
        self.parts = parts
        self.size = size
        self.records_bytes = records_bytes

    def joined(self) -> EncodedResponse:
        """The same with one part; file regions are read."""
        parts = [part.read() if isinstance(part, Region) else part for part in self.parts]
        return EncodedResponse([b"".join(parts)], self.size, self.records_bytes)

    def for_request(self, correlation_id: int) -> EncodedResponse:
        """The same response to another request of the same version."""
        first, *others = self.parts
        assert isinstance(first, bytes)
        return EncodedResponse([first[:4] + _INT32(correlation_id) + first[8:], *others], self.size, self.records_bytes)
