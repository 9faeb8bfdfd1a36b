"""Reads a log file that may be damaged anywhere: its valid batches, and the damaged ranges between them.

A broker's recovery ends a log at the first invalid batch (`recovery.py`). The offline tools also read what follows: after a damaged batch
the walk continues where the batch should end by its size, or else at the next complete batch of magic 2 with a correct CRC and plausible
offsets. Older messages are found by their sizes only.

The CRC of a batch does not cover its base offset. A wrong base offset is found by the order of the batches: it is too low, or the batch
leaves a gap into which the next batch belongs. A wrong base offset of the last batch of a log looks like a gap.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from txbroker.errors import BrokerError, CorruptRecords, ErrorCode
from txbroker.log.offset_index import RELATIVE_OFFSET_MAX
from txbroker.log.recovery import first_offset_of
from txbroker.log.scan import WALK_CHUNK_BYTES, Entry, Source, Walk
from txbroker.wire import entries
from txbroker.wire.batch import HEADER_SIZE, LOG_OVERHEAD, MAGIC_POSITION, BatchHeader
from txbroker.wire.control import read_marker
from txbroker.wire.entries import EntryHeader
from txbroker.wire.records import INT64_MAX, walk_records

# Larger batches are not read into memory; no broker with a reasonable configuration has them.
ENTRY_BYTES_MAX = 256 * 1024 * 1024
# The limit of one decompressed batch; a broker reads half of that.
CONTENT_BYTES_MAX = 128 * 1024 * 1024
# How many bytes searches for the next batch may read again to check CRCs, in addition to SEARCH_TIMES the size of the file.
SEARCH_BYTES = 64 * 1024 * 1024
SEARCH_TIMES = 4

_START = struct.Struct(">qiibIhi")  # up to the last offset delta
_MAGIC = b"\x02"
_ATTRIBUTES_KNOWN = 0x7F


class Damage(NamedTuple):
    """The bytes [start, end) of a file are not a valid batch, and why. `offset`: the lowest possible offset of their first record."""

    start: int
    end: int
    offset: int
    problem: str


class Content(NamedTuple):
    """The records of a batch: their count, their largest timestamp (-1: none), and why not all were read ("" when they were).

    `odd`: what is wrong with offsets or timestamps that Kafka's brokers store and its clients read ("": nothing).
    """

    records: int
    max_timestamp: int
    unread: str
    odd: str = ""


class _Bounded:
    """A file that refuses reads of more than ENTRY_BYTES_MAX."""

    def __init__(self, file: Source) -> None:
        self._file = file

    def pread(self, position: int, length: int) -> bytes:
        if length > ENTRY_BYTES_MAX:
            raise CorruptRecords(f"the entry at position {position} has a size of {length} bytes, above the limit of {ENTRY_BYTES_MAX}")
        return self._file.pread(position, length)


class DamagedWalk:
    """Iterates over the valid entries of a log file of `size` bytes, and its damaged ranges.

    `base_offset`: of the segment. Entries with offsets at or above `limit`, the base offset of the next segment, are damage too.
    `next_offset`: one above the last offset of the last valid entry.
    """

    def __init__(self, file: Source, size: int, *, base_offset: int, limit: int = INT64_MAX + 1, check_crc: bool = True) -> None:
        self.next_offset = base_offset
        self._file = _Bounded(file)
        self._size = size
        self._base_offset = base_offset
        self._limit = limit
        self._check_crc = check_crc
        self._search_left = SEARCH_BYTES + SEARCH_TIMES * size

    def __iter__(self) -> Iterator[Entry | Damage]:
        position = 0
        while position < self._size:
            walk = Walk(self._file, position, self._size, check_crc=self._check_crc)
            problem = ""
            after_gap: Entry | None = None
            try:
                for entry in walk:
                    if after_gap is not None:
                        yield self._accepted(after_gap, before=entry.header)
                        after_gap = None
                    misplaced = self._misplaced(entry.header)
                    if misplaced:
                        yield _damaged(entry, self.next_offset, misplaced)
                    elif first_offset_of(entry.header) > self.next_offset:
                        after_gap = entry
                    else:
                        yield self._accepted(entry)
                problem = walk.problem
            except CorruptRecords as error:
                problem = error.message or str(error)
            if after_gap is not None:
                yield self._accepted(after_gap)
            position = walk.position
            if problem:
                end = self._resume(position)
                yield Damage(position, end, self.next_offset, problem)
                position = end

    def _accepted(self, entry: Entry, *, before: EntryHeader | None = None) -> Entry | Damage:
        """A valid entry; or damage, if it leaves a gap into which the next entry, `before`, belongs."""
        header = entry.header
        if before is not None and not self._misplaced(before) and first_offset_of(before) <= header.last_offset:
            first, last, continues = first_offset_of(header), header.last_offset, first_offset_of(before)
            return _damaged(entry, self.next_offset, f"a batch of offsets {first} to {last} comes before offset {continues}")
        self.next_offset = header.last_offset + 1
        return entry

    def _misplaced(self, header: EntryHeader) -> str:
        first, last = first_offset_of(header), header.last_offset
        if not 0 <= last <= INT64_MAX or first < 0:
            return f"a batch has the impossible offsets {first} to {last}"
        if first < self._base_offset:
            return f"a batch of offsets {first} to {last} is in the segment with base offset {self._base_offset}"
        if first < self.next_offset:
            return f"a batch of offsets {first} to {last} comes after offset {self.next_offset - 1}"
        if last >= self._limit:
            return f"a batch of offsets {first} to {last} overlaps the next segment, which has base offset {self._limit}"
        if last - self._base_offset > RELATIVE_OFFSET_MAX:
            return f"offset {last} is too far above the base offset of the segment"
        return ""

    # After a damaged batch

    def _resume(self, position: int) -> int:
        """The position of the next valid entry after the damage at `position`; the size of the file when there is none."""
        framed = self._framed_end(position)
        if framed is not None and (framed == self._size or self._valid_at(framed)):
            return framed
        return self._search(position + 1)

    def _framed_end(self, position: int) -> int | None:
        """The end of the entry by its size; None when the size is impossible."""
        try:
            size = entries.size_of(self._file.pread(position, HEADER_SIZE))
        except CorruptRecords:
            return None
        return position + size if size is not None and position + size <= self._size else None

    def _valid_at(self, position: int) -> bool:
        """Whether a complete, valid entry begins at `position`."""
        try:
            size = entries.size_of(self._file.pread(position, LOG_OVERHEAD + MAGIC_POSITION))
            if size is None or size > min(self._size - position, self._search_left):
                return False
            self._search_left -= size
            data = self._file.pread(position, size)
            header = entries.read_header(data)
            entries.check_crc(data, 0, header)
        except CorruptRecords:
            return False
        return not self._misplaced(header)

    def _search(self, position: int) -> int:
        """The position of the first valid batch of magic 2 at or after `position`; the size of the file when there is none."""
        while self._size - position >= HEADER_SIZE:
            chunk = self._file.pread(position, min(WALK_CHUNK_BYTES, self._size - position))
            at = chunk.find(_MAGIC, MAGIC_POSITION)
            while at >= 0 and at - MAGIC_POSITION + HEADER_SIZE <= len(chunk):
                start = at - MAGIC_POSITION
                if self._plausible(chunk, start, self._size - position - start) and self._valid_at(position + start):
                    return position + start
                at = chunk.find(_MAGIC, at + 1)
            if len(chunk) < HEADER_SIZE or position + len(chunk) >= self._size:
                break
            position += len(chunk) - HEADER_SIZE + 1
        return self._size

    def _plausible(self, chunk: bytes, start: int, available: int) -> bool:
        base, length, _, _, _, attributes, delta = _START.unpack_from(chunk, start)
        return bool(
            HEADER_SIZE - LOG_OVERHEAD <= length <= available - LOG_OVERHEAD
            and self.next_offset <= base
            and delta >= 0
            and base + delta < self._limit
            and 0 <= attributes <= _ATTRIBUTES_KNOWN
        )


def _damaged(entry: Entry, offset: int, problem: str) -> Damage:
    return Damage(entry.position, entry.position + entry.header.size, offset, problem)


def read_content(entry: Entry, bytes_max: int = CONTENT_BYTES_MAX) -> Content:
    """Read all records of a batch; CorruptRecords when Kafka's clients cannot read them, or a control record is invalid."""
    header = entry.header
    try:
        return _read_in_order(entry, bytes_max)
    except CorruptRecords as error:
        # Kafka takes any offset and timestamp deltas in an uncompressed batch, and its clients do not check them.
        if not isinstance(header, BatchHeader) or header.control:
            raise
        walk_records(entry.buffer, entry.at, header, bytes_max, False)
        return Content(header.count, header.max_timestamp, "", error.message or "")


def _read_in_order(entry: Entry, bytes_max: int) -> Content:
    """In addition to the checks of `read_records`, offsets must ascend, and control records must be valid."""
    header, count, largest = entry.header, 0, -1
    last = first_offset_of(header) - 1 if isinstance(header, BatchHeader) else -1
    control = isinstance(header, BatchHeader) and header.control
    try:
        for record in entries.read_records(entry.buffer, entry.at, header, bytes_max):
            if record.offset <= last:
                raise CorruptRecords(f"offset {record.offset} comes after offset {last} in one batch")
            last = record.offset
            count += 1
            if record.timestamp > largest:
                largest = record.timestamp
            if control:
                read_marker(record)
    except CorruptRecords:
        raise
    except BrokerError as error:
        if error.code is not ErrorCode.MESSAGE_TOO_LARGE:
            raise
        return Content(count, largest, error.message or "too large")
    if last > header.last_offset:
        raise CorruptRecords(f"a record has offset {last}, above the last offset {header.last_offset} of its batch")
    return Content(count, largest, "")
