"""Checks offset and time indexes against their log, entry by entry, while the batches of the log are read.

The checks are what look-ups rely on and what Kafka's own files fulfil: an entry has the position of a batch, and no batch before it has
the offset of the entry or a later one; a timestamp is the largest so far. An append of several batches may leave an entry with the offset
of the last batch and the position of the first one: that is correct.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from txbroker.log import offset_index, time_index
from txbroker.log.disk import Disk, File
from txbroker.log.offset_index import RELATIVE_OFFSET_MAX

_CHUNK_ENTRIES = 8192
INTERVAL_BYTES = 4096  # the default of index.interval.bytes
BARE_INTERVALS = 16


class IndexEntries:
    """The entries of an index file, read in pieces.

    `torn`: bytes after the last complete entry. `zeros`: how many entries at the end are zero, as in a file that a broker preallocated and
    did not close. `count`: how many entries come before them.
    """

    def __init__(self, disk: Disk, path: str, entry: struct.Struct) -> None:
        file = disk.open_existing(path)
        self.missing = file is None
        self._file = file
        self._entry = entry
        size = 0 if file is None else file.size
        self.torn = size % entry.size
        whole = size // entry.size
        self.count = count_before_zeros(file, whole, entry.size) if file is not None else 0
        self.zeros = whole - self.count

    def __iter__(self) -> Iterator[tuple[int, int]]:
        size = self._entry.size
        for first in range(0, self.count, _CHUNK_ENTRIES):
            assert self._file is not None
            data = self._file.pread(first * size, min(_CHUNK_ENTRIES, self.count - first) * size)
            yield from self._entry.iter_unpack(data[: len(data) // size * size])


def count_before_zeros(file: File, whole: int, entry_bytes: int) -> int:
    """How many entries there are without the zero entries at the end. The first entry may be zero: offset 0 at position 0."""
    end = whole
    while end > 0:
        first = max(0, end - _CHUNK_ENTRIES)
        data = file.pread(first * entry_bytes, (end - first) * entry_bytes)
        stripped = data.rstrip(b"\0")
        if stripped:
            return first + (len(stripped) + entry_bytes - 1) // entry_bytes
        end = first
    return 0


class _Check:
    """`problem`: the first problem; "" without one."""

    def __init__(self, found: IndexEntries, base_offset: int) -> None:
        self.found = found
        self.problem = ""
        self._entries = iter(found)
        self._base_offset = base_offset
        self._next = next(self._entries, None)

    def _wrong(self, problem: str) -> None:
        self.problem = self.problem or problem
        self._next = None  # one is enough: a repair rebuilds the whole index

    def _advance(self) -> None:
        self._next = next(self._entries, None)


class OffsetIndexCheck(_Check):
    """Call `batch` for each batch in the order of the log, then `finish`."""

    def __init__(self, disk: Disk, path: str, base_offset: int) -> None:
        super().__init__(IndexEntries(disk, path, offset_index.ENTRY), base_offset)
        self._last_entry = (-1, -1)
        self._previous_offset = base_offset - 1
        self._widest = INTERVAL_BYTES
        self._last_position = 0

    def batch(self, position: int, last_offset: int) -> None:
        """A batch begins at `position` and ends with `last_offset`."""
        while self._next is not None and self._next[1] <= position:
            relative, at = self._next
            offset = self._base_offset + relative
            if relative > RELATIVE_OFFSET_MAX or relative <= self._last_entry[0] or at <= self._last_entry[1]:
                self._wrong(f"its entry for offset {offset} at position {at} is not above the entry before it")
            elif at < position:
                self._wrong(f"its entry for offset {offset} has position {at}, where no batch begins")
            elif offset <= self._previous_offset:
                self._wrong(f"its entry for offset {offset} has position {at}, where offset {self._previous_offset + 1} begins")
            else:
                self._widest = max(self._widest, at - max(self._last_entry[1], 0))
                self._last_entry = self._next
                self._advance()
        self._previous_offset, self._last_position = last_offset, position

    @property
    def bare(self) -> int:
        """How many bytes of batches follow the last entry, if that is far more than between any two entries; else 0."""
        rest = self._last_position - max(self._last_entry[1], 0)
        return rest if rest > BARE_INTERVALS * self._widest else 0

    def finish(self, end_offset: int) -> None:
        """`end_offset`: of the segment."""
        if self._next is not None:
            offset, at = self._base_offset + self._next[0], self._next[1]
            self._wrong(f"its entry for offset {offset} has position {at}, where no batch begins")
        elif self._last_entry[0] >= 0 and self._base_offset + self._last_entry[0] >= end_offset:
            self._wrong(f"its last offset is {self._base_offset + self._last_entry[0]}, but the end offset of the segment is {end_offset}")


class TimeIndexCheck(_Check):
    """Call `batch` for each batch in the order of the log, then `finish`."""

    def __init__(self, disk: Disk, path: str, base_offset: int) -> None:
        super().__init__(IndexEntries(disk, path, time_index.ENTRY), base_offset)
        self._last_entry = (-1, 0)
        self.largest = -1

    def batch(self, last_offset: int, max_timestamp: int) -> None:
        """A batch ends with `last_offset`, and its largest timestamp is `max_timestamp`."""
        self.largest = max(self.largest, max_timestamp)
        while self._next is not None and self._base_offset + self._next[1] <= last_offset:
            timestamp, relative = self._next
            offset = self._base_offset + relative
            if timestamp <= self._last_entry[0] or relative < self._last_entry[1]:
                self._wrong(f"its entry for timestamp {timestamp} and offset {offset} is not above the entry before it")
            elif timestamp != self.largest:
                self._wrong(f"it has {timestamp} as the largest timestamp up to offset {offset}, but that is {self.largest}")
            else:
                self._last_entry = self._next
                self._advance()

    def finish(self, end_offset: int, *, closed: bool) -> None:
        """`end_offset`: of the segment. The index of a `closed` segment ends with the largest timestamp of the segment."""
        if self._next is not None:
            self._wrong(f"it has an entry for offset {self._base_offset + self._next[1]}, but the segment ends at {end_offset}")
        elif closed and self._last_entry[0] != self.largest and not (self.largest == 0 and self.found.zeros):
            last = "has no entry" if self._last_entry[0] < 0 else f"ends with timestamp {self._last_entry[0]}"
            self._wrong(f"it {last}, but the largest timestamp of the segment is {self.largest}")
