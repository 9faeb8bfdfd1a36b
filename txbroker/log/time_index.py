"""The time index of a segment: sparse pairs (timestamp, offset), Kafka's TimeIndex (KIP-33).

An entry is 12 bytes, big-endian: timestamp int64 (ms) | offset relative to the segment's base uint32. Its meaning: no record up
to that offset is later than the timestamp. The last entry of a closed segment has the largest timestamp of the segment.
"""

from __future__ import annotations

import struct

from txbroker.log.disk import Disk
from txbroker.log.index_file import IndexFile
from txbroker.log.offset_index import RELATIVE_OFFSET_MAX

ENTRY = struct.Struct(">qI")


class TimeIndex(IndexFile):
    """Look-ups by timestamp. Offsets are absolute at this interface."""

    __slots__ = ("base_offset",)

    def __init__(self, disk: Disk, path: str, base_offset: int) -> None:
        super().__init__(disk, path, ENTRY.size, ">q")
        self.base_offset = base_offset

    def add(self, timestamp: int, offset: int) -> None:
        """Add an entry: the largest timestamp up to `offset`. Ignored unless it is above all others."""
        if timestamp > self.last_key():
            self.append(timestamp, ENTRY.pack(timestamp, offset - self.base_offset))

    def lookup(self, timestamp: int) -> int:
        """An offset up to which no record is later than `timestamp`, as near as the index knows; at least the base offset."""
        number = self.floor(timestamp)
        return self.base_offset + int.from_bytes(self.entry(number)[8:], "big") if number >= 0 else self.base_offset

    def first_candidate(self, timestamp: int) -> int:
        """An offset below which no record has `timestamp` or a later one, as near as the index knows; at least the base offset."""
        number = self.floor(timestamp)
        if number < 0:
            return self.base_offset
        found: int
        relative: int
        found, relative = ENTRY.unpack(self.entry(number))
        return self.base_offset + relative + 1 if found < timestamp else self.base_offset + relative

    @property
    def last(self) -> tuple[int, int]:
        """The last entry as (timestamp, offset); (-1, base offset) when there is none."""
        if not self.count:
            return -1, self.base_offset
        timestamp, relative = ENTRY.unpack(self.entry(self.count - 1))
        return timestamp, self.base_offset + relative

    def truncate_to(self, offset: int) -> None:
        """Remove entries of `offset` and above."""
        relative, keep = offset - self.base_offset, self.count
        while keep and ENTRY.unpack(self.entry(keep - 1))[1] >= relative:
            keep -= 1
        self.truncate(keep)

    @staticmethod
    def last_in_file(disk: Disk, path: str, base_offset: int) -> tuple[int, int] | None:
        """The last entry of a file, which is not kept open; None when there is none, or it is impossible."""
        file = disk.open_existing(path)
        if file is None or file.size == 0 or file.size % ENTRY.size:
            return None
        entry = file.pread(file.size - ENTRY.size, ENTRY.size)
        if len(entry) < ENTRY.size or entry == bytes(ENTRY.size):
            return None
        timestamp, relative = ENTRY.unpack(entry)
        return (timestamp, base_offset + relative) if timestamp >= 0 and relative <= RELATIVE_OFFSET_MAX else None

    def plausible(self) -> bool:
        """Whether the file can be a time index."""
        if not self.whole or self.count == 0:
            return self.whole
        timestamp, offset = self.last
        return timestamp >= 0 and offset - self.base_offset <= RELATIVE_OFFSET_MAX
