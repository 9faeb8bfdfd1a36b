"""Dumping and checking `.index` and `.timeindex` files against the log that they are of."""

from __future__ import annotations

from txbroker.errors import BrokerError, CorruptRecords
from txbroker.log import files, offset_index, time_index
from txbroker.log.disk import Disk
from txbroker.log.dump_log import DECOMPRESSED_BYTES_MAX
from txbroker.log.dump_run import DumpRun, Pairs
from txbroker.wire import entries
from txbroker.wire.entries import EntryHeader, Scan

NO_TIMESTAMP = -1
NOT_FOUND = -1


def _sibling(path: str, suffix: str) -> str:
    return path.rpartition(".")[0] + suffix


def _offset_entries(disk: Disk, path: str, base_offset: int) -> list[tuple[int, int]]:
    """Pairs of offset and position; a torn last entry is left out."""
    mapped = disk.map(path)
    whole = bytes(memoryview(mapped)[: len(mapped) // offset_index.ENTRY.size * offset_index.ENTRY.size])
    return [(base_offset + relative, position) for relative, position in offset_index.ENTRY.iter_unpack(whole)]


def _time_entries(disk: Disk, path: str, base_offset: int) -> list[tuple[int, int]]:
    """Pairs of timestamp and offset; a torn last entry is left out."""
    mapped = disk.map(path)
    whole = bytes(memoryview(mapped)[: len(mapped) // time_index.ENTRY.size * time_index.ENTRY.size])
    return [(timestamp, base_offset + relative) for timestamp, relative in time_index.ENTRY.iter_unpack(whole)]


def _sanity_check(run: DumpRun, path: str, entry_size: int, problem: str | None) -> None:
    size = run.disk.size(path) or 0
    if size % entry_size:
        problem = f"its {size} bytes are no multiple of {entry_size}"
    if problem is not None:
        raise CorruptRecords(problem)
    run.write(f"{path} passed sanity check.")


def _add(pairs: Pairs, path: str, first: int, second: int) -> None:
    pairs.setdefault(path, []).append((first, second))


def dump_offset_index(run: DumpRun, path: str, base_offset: int) -> None:
    """Every entry; those at whose position no batch of that last offset begins are reported at the end."""
    found = _offset_entries(run.disk, path, base_offset)
    if not found:
        run.write(f"{path} is empty.")
        return
    if run.options.index_sanity_check:
        last = found[-1][0]
        problem = f"its last offset {last} is below its first {base_offset}" if last < base_offset else None
        _sanity_check(run, path, offset_index.ENTRY.size, problem)
        return
    log = memoryview(run.disk.map(_sibling(path, files.LOG)))
    for number, (offset, position) in enumerate(found):
        if offset == base_offset and number > 0:
            return  # the zeros of a preallocated file that nobody cut
        last_offset = _last_offset_at(log[position : position + run.options.max_message_size])
        if last_offset != offset:
            _add(run.findings.index_mismatches, run.absolute(path), offset, last_offset)
        if not run.options.verify_index_only:
            run.write(f"offset: {offset} position: {position}")


def _last_offset_at(view: memoryview) -> int:
    """The last offset of the batch that a view begins with."""
    for _, header in Scan(view):
        return header.last_offset
    return NOT_FOUND


def dump_time_index(run: DumpRun, path: str, base_offset: int) -> None:
    """Every entry; those that the log does not bear out are reported at the end."""
    found = _time_entries(run.disk, path, base_offset)
    if run.options.index_sanity_check:
        problem = None
        if found and found[-1][0] < found[0][0]:
            problem = f"its last timestamp {found[-1][0]} is below its first {found[0][0]}"
        _sanity_check(run, path, time_index.ENTRY.size, problem)
        return
    log = memoryview(run.disk.map(_sibling(path, files.LOG)))
    positions = _offset_entries(run.disk, _sibling(path, files.OFFSET_INDEX), base_offset)
    previous = NO_TIMESTAMP
    for number, (timestamp, offset) in enumerate(found):
        if offset == base_offset and number > 0:
            return
        start = max((position for indexed, position in positions if indexed <= offset), default=0)
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
    """The largest timestamp of a batch's records."""
    try:
        records = entries.read_records(log, position, header, DECOMPRESSED_BYTES_MAX)
        return max((record.timestamp for record in records), default=NO_TIMESTAMP)
    except BrokerError as error:
        run.corrupt(f"{path}: the batch that ends at offset {header.last_offset} cannot be read: {error}")
        return NO_TIMESTAMP
