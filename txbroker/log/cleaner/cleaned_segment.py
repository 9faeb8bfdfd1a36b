"""Writes the segment that a group of segments becomes: its log file and indexes, with the suffix `.cleaned`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from txbroker.errors import CorruptRecords
from txbroker.log.cleaner.unaligned_reads import Ints
from txbroker.log.disk import Buffer, Disk
from txbroker.log.file_names import CLEANED, LOG, OFFSET_INDEX, SEGMENT_SUFFIXES, TIME_INDEX, TXN_INDEX, file_path, parent_of
from txbroker.log.log_results import AbortedTransaction
from txbroker.log.txn_index import ENTRY as TXN_ENTRY

WRITE_BYTES = 4 << 20

_OFFSET_ENTRY = np.dtype([("offset", ">u4"), ("position", ">u4")])
_TIME_ENTRY = np.dtype([("timestamp", ">i8"), ("offset", ">u4")])
_POSITION_MAX = 2**31 - 1
_NO_TIMESTAMP = -1


class CleanedSegment:
    """Add entries in order, then `finish`. `remove` deletes the files.

    `max_timestamp`, `max_timestamp_offset`: the largest timestamp and the last offset of its batch; -1 and the base offset without entries.
    """

    def __init__(self, disk: Disk, directory: str, base_offset: int, index_interval_bytes: int) -> None:
        self.base_offset = base_offset
        self.size = 0
        self.max_timestamp = _NO_TIMESTAMP
        self.max_timestamp_offset = base_offset
        self._disk = disk
        self._paths = {suffix: file_path(directory, base_offset, suffix) + CLEANED for suffix in SEGMENT_SUFFIXES}
        self._interval = index_interval_bytes
        self._parts: list[Buffer] = []
        self._buffered = 0
        self._written = 0
        self._next_entry = index_interval_bytes + 1  # the position from which on a batch gets an index entry
        self._entries: list[tuple[Ints, Ints, Ints, Ints]] = []
        self.remove()
        self._file = disk.create(self._paths[LOG])

    def add(self, parts: Sequence[Buffer], sizes: Ints, last_offsets: Ints, max_timestamps: Ints) -> None:
        """Add entries: size, last offset and largest timestamp of each, and their bytes in parts of any size. StorageError."""
        ends = np.cumsum(sizes)
        if not len(ends):
            return
        if self.size + int(ends[-1]) > _POSITION_MAX:
            raise CorruptRecords(f"{self._paths[LOG]} would exceed the size limit of a segment")
        self._index(self.size + ends - sizes, sizes, last_offsets, max_timestamps)
        self.size += int(ends[-1])
        self._parts += parts
        self._buffered += int(ends[-1])
        if self._buffered >= WRITE_BYTES:
            self._write()

    def _write(self) -> None:
        if self._parts:
            self._file.append(self._parts[0] if len(self._parts) == 1 else b"".join(self._parts))
        self._parts, self._buffered, self._written = [], 0, self._written + self._buffered

    def take_written(self) -> int:
        """How many bytes were written since the last call."""
        written, self._written = self._written, 0
        return written

    def _index(self, positions: Ints, sizes: Ints, last_offsets: Ints, max_timestamps: Ints) -> None:
        """Add sparse index entries as appends do: for a batch when more than `index_interval_bytes` were added since the last entry."""
        largest = np.maximum.accumulate(np.maximum(max_timestamps, self.max_timestamp))
        # Where the largest timestamp rose: the first batch that has it.
        rose = largest > np.concatenate(([self.max_timestamp], largest[:-1]))
        where = np.maximum.accumulate(np.where(rose, np.arange(len(largest)), -1))
        offsets = np.where(where >= 0, last_offsets[where], self.max_timestamp_offset)
        next_entry = np.searchsorted(positions, positions + self._interval, side="right").tolist()
        chosen: list[int] = []
        at = int(np.searchsorted(positions, self._next_entry, side="left"))
        while at < len(positions):
            chosen.append(at)
            at = next_entry[at]
        if chosen:
            self._entries.append((last_offsets[chosen], positions[chosen], largest[chosen], offsets[chosen]))
            self._next_entry = int(positions[chosen[-1]]) + self._interval + 1
        self.max_timestamp, self.max_timestamp_offset = int(largest[-1]), int(offsets[-1])

    def finish(self, aborted: Sequence[AbortedTransaction], modified_ms: int) -> None:
        """Write the rest and the indexes, and sync all files and their names.

        `modified_ms`: of the last old segment, for records without timestamps.
        """
        self._write()
        self._disk.set_modified_ms(self._paths[LOG], modified_ms)
        self._file.sync()
        empty = np.empty(0, dtype=np.int64)
        last, position, timestamp, offset = map(np.concatenate, zip((empty,) * 4, *self._entries, strict=True))
        offset_index = np.empty(len(last), dtype=_OFFSET_ENTRY)
        offset_index["offset"], offset_index["position"] = last - self.base_offset, position
        timestamp, offset = np.append(timestamp, self.max_timestamp), np.append(offset, self.max_timestamp_offset)
        rising = timestamp > np.concatenate(([_NO_TIMESTAMP], timestamp[:-1]))
        time_index = np.empty(int(rising.sum()), dtype=_TIME_ENTRY)
        time_index["timestamp"], time_index["offset"] = timestamp[rising], offset[rising] - self.base_offset
        self._write_file(OFFSET_INDEX, offset_index.tobytes())
        self._write_file(TIME_INDEX, time_index.tobytes())
        # Also without entries, if the segment that it replaces has one: after an interrupted swap nothing else replaces that.
        if aborted or self._disk.size(self._paths[TXN_INDEX].removesuffix(CLEANED)) is not None:
            self._write_file(TXN_INDEX, b"".join(TXN_ENTRY.pack(0, *entry) for entry in aborted))
        self._disk.sync(parent_of(self._paths[LOG]))

    def _write_file(self, suffix: str, content: bytes) -> None:
        self._disk.write(self._paths[suffix], content)
        self._disk.sync(self._paths[suffix])

    def remove(self) -> None:
        """Delete the files, also those that an earlier pass has left."""
        for path in self._paths.values():
            self._disk.remove(path)
