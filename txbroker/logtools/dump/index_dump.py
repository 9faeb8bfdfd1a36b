"""Dumps `.index` and `.timeindex` files and checks them against their log."""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Sequence
from functools import cached_property
from typing import overload

from txbroker.errors import BrokerError, CorruptRecords
from txbroker.log import file_names, offset_index, time_index
from txbroker.log.disk import Disk
from txbroker.logtools.dump.dump_run import DumpRun, Pairs
from txbroker.logtools.dump.log_dump import DECOMPRESSED_BYTES_MAX
from txbroker.logtools.index_checks import count_before_zeros
from txbroker.wire import entries
from txbroker.wire.entries import EntryHeader, Scan

NO_TIMESTAMP = -1
NOT_FOUND = -1
_BLOCK_ENTRIES = 4096


def _sibling(path: str, suffix: str) -> str:
    return path.rpartition(".")[0] + suffix


class _Entries(Sequence[tuple[int, int]]):
    """The entries of an index file, read in blocks: a broker may truncate the file meanwhile. An incomplete last entry is left out.

    `bases` are added to the two numbers of each entry.
    """

    def __init__(self, disk: Disk, path: str, entry: struct.Struct, bases: tuple[int, int]) -> None:
        self._file = disk.open_existing(path)
        self._entry = entry
        self._bases = bases
        self._count = 0 if self._file is None else self._file.size // entry.size
        self._block = b""
        self._first = 0

    @cached_property
    def count_before_zeros(self) -> int:
        """How many entries there are before the zeros of a preallocated file."""
        return 0 if self._file is None else count_before_zeros(self._file, self._count, self._entry.size)

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, number: int) -> tuple[int, int]: ...

    @overload
    def __getitem__(self, number: slice) -> Sequence[tuple[int, int]]: ...

    def __getitem__(self, number: int | slice) -> tuple[int, int] | Sequence[tuple[int, int]]:
        if isinstance(number, slice):
            return [self[each] for each in range(*number.indices(self._count))]
        if number < 0:
            number += self._count
        if not 0 <= number < self._count:
            raise IndexError(number)
        size = self._entry.size
        at = (number - self._first) * size
        if not 0 <= at <= len(self._block) - size:
            self._first = number // _BLOCK_ENTRIES * _BLOCK_ENTRIES
            assert self._file is not None
            self._block = self._file.pread(self._first * size, _BLOCK_ENTRIES * size)
            at = (number - self._first) * size
            if at > len(self._block) - size:
                raise CorruptRecords("it was truncated while it was read")
        first, second = self._entry.unpack_from(self._block, at)
        return first + self._bases[0], second + self._bases[1]


def _offset_entries(disk: Disk, path: str, base_offset: int) -> _Entries:
    """The pairs of offset and position."""
    return _Entries(disk, path, offset_index.ENTRY, (base_offset, 0))


def _time_entries(disk: Disk, path: str, base_offset: int) -> _Entries:
    """The pairs of timestamp and offset."""
    return _Entries(disk, path, time_index.ENTRY, (0, base_offset))


def _position_before(positions: _Entries, offset: int) -> int:
    """The position in the log from which to search for an offset, by the offset index; a binary search, as in a broker."""
    number = bisect_right(positions, offset, hi=positions.count_before_zeros, key=lambda entry: entry[0]) - 1
    return positions[number][1] if number >= 0 else 0


def _sanity_check(run: DumpRun, path: str, entry_size: int, problem: str | None) -> None:
    size = run.disk.size(path) or 0
    if size % entry_size:
        problem = f"its size of {size} bytes is not a multiple of {entry_size}"
    if problem is not None:
        raise CorruptRecords(problem)
    run.write(f"{path} passed sanity check.")


def _add(pairs: Pairs, path: str, first: int, second: int) -> None:
    pairs.setdefault(path, []).append((first, second))


def dump_offset_index(run: DumpRun, path: str, base_offset: int) -> None:
    """All entries. Those whose position has no batch with that last offset are reported at the end."""
    found = _offset_entries(run.disk, path, base_offset)
    if not found:
        run.write(f"{path} is empty.")
        return
    if run.options.index_sanity_check:
        last = found[-1][0]
        problem = f"its last offset {last} is below its base offset {base_offset}" if last < base_offset else None
        _sanity_check(run, path, offset_index.ENTRY.size, problem)
        return
    log = memoryview(run.disk.map(_sibling(path, file_names.LOG)))
    for number, (offset, position) in enumerate(found):
        if offset == base_offset and number > 0:
            return  # the zeros of a preallocated file that was not closed
        last_offset = _last_offset_at(log[position : position + run.options.max_message_size])
        if last_offset != offset:
            _add(run.findings.index_mismatches, run.absolute(path), offset, last_offset)
        if not run.options.verify_index_only:
            run.write(f"offset: {offset} position: {position}")


def _last_offset_at(view: memoryview) -> int:
    """The last offset of the batch at the start of a view."""
    for _, header in Scan(view):
        return header.last_offset
    return NOT_FOUND


def dump_time_index(run: DumpRun, path: str, base_offset: int) -> None:
    """All entries. Those that do not match the log are reported at the end."""
    found = _time_entries(run.disk, path, base_offset)
    if run.options.index_sanity_check:
        problem = None
        if found and found[-1][0] < found[0][0]:
            problem = f"its last timestamp {found[-1][0]} is below its first one {found[0][0]}"
        _sanity_check(run, path, time_index.ENTRY.size, problem)
        return
    log = memoryview(run.disk.map(_sibling(path, file_names.LOG)))
    positions = _offset_entries(run.disk, _sibling(path, file_names.OFFSET_INDEX), base_offset)
    previous = NO_TIMESTAMP
    for number, (timestamp, offset) in enumerate(found):
        if offset == base_offset and number > 0:
            return
        start = _position_before(positions, offset)
        _check_time_entry(run, path, log[start:], timestamp, offset, previous)
        if not run.options.verify_index_only:
            run.write(f"timestamp: {timestamp} offset: {offset}")
        previous = timestamp


def _check_time_entry(run: DumpRun, path: str, log: memoryview, timestamp: int, offset: int, previous: int) -> None:
    findings, absolute = run.findings, run.absolute(path)
    for position, header in Scan(log):
        if header.last_offset < offset:
            continue
        if header.last_offset > offset:
            _add(findings.offsets_not_found, path, offset, header.last_offset)
            return
        latest = _latest(run, path, log, position, header)
        if latest != timestamp:
            _add(findings.timestamp_mismatches, absolute, timestamp, latest)
        if previous >= timestamp:
            _add(findings.timestamps_out_of_order, absolute, timestamp, previous)
        return
    _add(findings.offsets_not_found, path, offset, NOT_FOUND)


def _latest(run: DumpRun, path: str, log: memoryview, position: int, header: EntryHeader) -> int:
    """The largest timestamp of the records in a batch."""
    try:
        records = entries.read_records(log, position, header, DECOMPRESSED_BYTES_MAX)
        return max((record.timestamp for record in records), default=NO_TIMESTAMP)
    except BrokerError as error:
        run.corrupt(f"{path}: the batch that ends at offset {header.last_offset} cannot be read: {error}")
        return NO_TIMESTAMP
