"""A response that its handler has encoded: the package's docstring explains when and how."""

from __future__ import annotations

from typing import TypeAlias

from txbroker.log.region import Region

# What a response frame consists of. The first part is always bytes.
Part: TypeAlias = bytes | bytearray | memoryview | Region


class EncodedResponse:
    """A whole response frame of `size` bytes in `parts`: bytes, and file regions of records (`records_bytes` of them)."""

    __slots__ = ("parts", "records_bytes", "size")

    def __init__(self, parts: list[Part], size: int, records_bytes: int = 0) -> None:
        self.parts = parts
        self.size = size
        self.records_bytes = records_bytes
