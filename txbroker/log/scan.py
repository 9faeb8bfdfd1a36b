"""Walking a log file by its headers: find an offset from an index position on, or read batch after batch.

Entries of all magics have offset int64, length int32 and magic int8 at the same positions, so segments of older Kafka versions can be
walked too. Sizes are checked against the file before anything is read.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from txbroker.errors import CorruptRecords
from txbroker.wire.batch import LOG_OVERHEAD
from txbroker.wire.entries import SIZE_MIN, EntryHeader, Scan, Stop

FIND_CHUNK_BYTES = 8 * 1024  # two index intervals: most look-ups take one read
WALK_CHUNK_BYTES = 1024 * 1024
LOOK_CHUNK_BYTES = 64 * 1024  # for walks that are probably short

_START = struct.Struct(">qi4xb6xi")  # offset, length, magic, and of magic 2 the last offset delta
_MAGIC_MAX = 2


class Source(Protocol):
    """The methods of a file that a walk uses."""

    def pread(self, position: int, length: int) -> bytes: ...


class Place(NamedTuple):
    """Position and size of an entry in bytes; its base offset (of old formats: last offset) and last offset."""

    position: int
    size: int
    base_offset: int
    last_offset: int


def find(file: Source, position: int, end: int, offset: int) -> Place | None:
    """The first entry from `position` on that ends with `offset` or later; None when there is none before `end`.

    CorruptRecords when there is no valid entry where one should begin.
    """
    unpack, start_bytes = _START.unpack_from, _START.size
    while end - position >= SIZE_MIN:
        chunk = file.pread(position, min(FIND_CHUNK_BYTES, end - position))
        if position + len(chunk) == end:
            chunk += b"\0"  # the smallest message, which may be the last, is a byte shorter than _START
        at, usable = 0, len(chunk) - start_bytes
        while at <= usable:
            base_offset, length, magic, delta = unpack(chunk, at)
            if magic == _MAGIC_MAX and length > 0 and base_offset + delta < offset:  # the usual case, a dozen times per look-up
                at += length + LOG_OVERHEAD
                continue
            size = length + LOG_OVERHEAD
            last_offset = base_offset + delta if magic == _MAGIC_MAX else base_offset
            if size < SIZE_MIN or not 0 <= magic <= _MAGIC_MAX or last_offset < base_offset or at + size > end - position:
                raise CorruptRecords(f"there is no record batch at position {position + at}")
            if last_offset >= offset:
                return Place(position + at, size, base_offset, last_offset)
            at += size
        if usable < 0 or position + at > end:
            raise CorruptRecords(f"the log file ends at position {position + len(chunk)}, within a record batch")
        position += at
    return None


class Entry(NamedTuple):
    """One batch, or old message, of a walk: complete in `buffer`, where it begins `at`; `position` is its position in the file."""

    position: int
    buffer: bytes
    at: int
    header: EntryHeader


class Walk:
    """One pass over a file's entries from `position` to `end`, read a megabyte at a time.

    Iterate it for entries. Afterwards `position` is the end of the last good one, and `problem` the reason why the walk ended before
    `end` ("" when it did not).
    """

    def __init__(self, file: Source, position: int, end: int, *, check_crc: bool = False, chunk_bytes: int = WALK_CHUNK_BYTES) -> None:
        self.position = position
        self.problem = ""
        self._file = file
        self._end = end
        self._check_crc = check_crc
        self._chunk_bytes = chunk_bytes

    def __iter__(self) -> Iterator[Entry]:
        wanted = self._chunk_bytes
        while self.position < self._end:
            start = self.position
            requested = min(wanted, self._end - start)
            chunk = self._file.pread(start, requested)
            scan = Scan(chunk, check_crc=self._check_crc)
            for at, header in scan:
                yield Entry(start + at, chunk, at, header)
                self.position = start + at + header.size
            if len(chunk) < requested:
                self.problem = f"the file ends at position {start + len(chunk)}, before {self._end}"
                return
            if scan.stop is Stop.CORRUPT or (scan.stop is Stop.TORN and scan.needed > self._end - self.position):
                self.problem = scan.problem.replace(f" at {self.position - start}", f" at position {self.position}")
                return
            wanted = max(self._chunk_bytes, scan.needed)
