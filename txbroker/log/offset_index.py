"""The offset index of a segment: sparse pairs (offset, position in the log file), Kafka's OffsetIndex.

An entry is 8 bytes, big-endian: offset relative to the segment's base uint32 | position uint32. Its meaning: the batch that
starts at the position ends with that offset, or precedes the batch that does.
"""

from __future__ import annotations

import struct
from bisect import bisect_right

from txbroker.log.disk import Disk
from txbroker.log.index_file import IndexFile

ENTRY = struct.Struct(">II")
RELATIVE_OFFSET_MAX = 2**31 - 1  # Kafka reads them as signed


class OffsetIndex(IndexFile):
    """Look-ups by offset. Offsets are absolute at this interface."""

    __slots__ = ("base_offset",)

    def __init__(self, disk: Disk, path: str, base_offset: int) -> None:
        super().__init__(disk, path, ENTRY.size, ">I")
        self.base_offset = base_offset

    def add(self, offset: int, position: int) -> None:
        """Add an entry: a batch that ends with `offset` starts at `position`. Ignored unless it is above all others."""
        relative = offset - self.base_offset
        if relative > self.last_key():
            self.append(relative, ENTRY.pack(relative, position))

    def lookup(self, offset: int) -> int:
        """A position at or before the batch that holds `offset`, as near as the index knows."""
        number = self.floor(min(offset - self.base_offset, RELATIVE_OFFSET_MAX))
        return self._position(number) if number >= 0 else 0

    def border_before(self, position: int) -> int:
        """The start of a batch at or before `position`, as near as the index knows."""
        number = bisect_right(range(self.count), position, key=self._position) - 1
        return self._position(number) if number >= 0 else 0

    def _position(self, number: int) -> int:
        return int.from_bytes(self.entry(number)[4:], "big")

    @property
    def last(self) -> tuple[int, int]:
        """The last entry as (offset, position); (base offset, 0) when there is none."""
        if not self.count:
            return self.base_offset, 0
        relative, position = ENTRY.unpack(self.entry(self.count - 1))
        return self.base_offset + relative, position

    def truncate_to(self, offset: int) -> None:
        """Remove entries of `offset` and above."""
        self.truncate(self.floor(min(offset - self.base_offset - 1, RELATIVE_OFFSET_MAX)) + 1)

    def plausible(self, log_bytes: int) -> bool:
        """Whether the file can be the index of a log file of this size."""
        return self.whole and (self.count == 0 or self.last[1] < log_bytes)
