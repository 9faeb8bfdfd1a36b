"""Shared by the tests of the log: batches, opening logs, and reading their records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.fakes.disk_path import DiskPath, on_disk
from txbroker.log.disk import Disk
from txbroker.log.log import Log
from txbroker.log.log_config import LogConfig
from txbroker.log.log_results import Appended, Origin
from txbroker.names import TopicPartition
from txbroker.wire.batch import BatchHeader
from txbroker.wire.entries import EntryHeader, Scan, read_records
from txbroker.wire.records import Record, build

NOW = 1_700_000_000_000
PARTITION = TopicPartition("orders", 3)
PLENTY = 10**8

Row = tuple[int, int, bytes | None, bytes | None]


def batch(*values: bytes | None, timestamp: int = NOW, step_ms: int = 0, key: bytes | None = b"k", **options: Any) -> memoryview:
    """A batch of these values as a producer sends it, in a new buffer."""
    first = options.get("base_offset") or 0
    records = [Record(first + index, timestamp + index * step_ms, key, value) for index, value in enumerate(values)]
    return memoryview(bytearray(build(records, **options)))


def marker(producer_id: int, *, epoch: int = 0, committed: bool, coordinator_epoch: int = 0, timestamp: int = NOW) -> memoryview:
    """The control batch that ends a transaction."""
    record = Record(0, timestamp, bytes([0, 0, 0, committed]), b"\0\0" + coordinator_epoch.to_bytes(4, "big"))
    made = build([record], producer_id=producer_id, producer_epoch=epoch, transactional=True, control=True)
    return memoryview(bytearray(made))


def open_log(path: DiskPath | Path, *, disk: Disk | None = None, now_ms: int = NOW, **options: Any) -> Log:
    """Open a log in `path`, on `disk` if it is given; options are those of Log.open or LogConfig."""
    names = ("clean", "log_start_offset", "recovery_point", "high_watermark", "later", "random_below", "producer_id_expiration_ms")
    opened = {name: options.pop(name) for name in names if name in options}
    return Log.open(str(path), PARTITION, disk=disk or on_disk(path).disk, config=LogConfig(**options), now_ms=now_ms, **opened)


def append(
    log: Log, *values: bytes | None, now_ms: int = NOW, leader_epoch: int = 0, origin: Origin = Origin.CLIENT, **options: Any
) -> Appended:
    return log.append(batch(*values, **options), leader_epoch=leader_epoch, now_ms=now_ms, origin=origin)


def end_transaction(log: Log, producer_id: int, **options: Any) -> Appended:
    return log.append(marker(producer_id, **options), leader_epoch=0, now_ms=NOW, origin=Origin.COORDINATOR)


def entries(log: Log, start: int | None = None, *, end: int | None = None, bytes_max: int = 1 << 20) -> list[tuple[EntryHeader, bytes]]:
    """The batches that a consumer reads from `start` (default: the log start offset) to `end` (default: the log end offset)."""
    offset, end = log.log_start_offset if start is None else start, log.log_end_offset if end is None else end
    found: list[tuple[EntryHeader, bytes]] = []
    while offset < end:
        data = log.read(offset, bytes_max, offset_end=end, whole_first_batch=True).region.read()
        before = offset
        for at, header in Scan(data, check_crc=True):
            found.append((header, data[at : at + header.size]))
            offset = header.last_offset + 1
        if offset == before:
            break
    return found


def rows(log: Log, start: int | None = None, **options: Any) -> list[Row]:
    """The records that a consumer reads from `start`."""
    low = log.log_start_offset if start is None else start
    found: list[Row] = []
    for header, data in entries(log, start, **options):
        if not header.control:
            found += [(r.offset, r.timestamp, r.key, r.value) for r in read_records(data, 0, header, PLENTY) if r.offset >= low]
    return found


def values(log: Log, start: int | None = None, **options: Any) -> list[bytes | None]:
    return [row[3] for row in rows(log, start, **options)]


def committed_rows(log: Log) -> list[Row]:
    """The records that a read_committed consumer reads, which gets the aborted transactions with the batches."""
    end = log.last_stable_offset(log.log_end_offset)
    pending = sorted(log.aborted_transactions(log.log_start_offset, end), key=lambda aborted: aborted.first_offset)
    aborted: set[int] = set()
    found: list[Row] = []
    for header, data in entries(log, end=end):
        while pending and pending[0].first_offset <= header.last_offset:
            aborted.add(pending.pop(0).producer_id)
        if header.control:
            aborted.discard(header.producer_id)
        elif not (header.transactional and header.producer_id in aborted):
            found += [(r.offset, r.timestamp, r.key, r.value) for r in read_records(data, 0, header, PLENTY)]
    return found


def names(path: DiskPath | Path, *suffixes: str) -> list[str]:
    return sorted(entry.name for entry in path.iterdir() if not suffixes or entry.name.endswith(suffixes))


def headers(log: Log) -> list[BatchHeader]:
    return [header for header, _ in entries(log) if isinstance(header, BatchHeader)]


def corrupt(path: DiskPath | Path, at: int, replacement: bytes) -> None:
    """Overwrite bytes of a file."""
    content = path.read_bytes()
    path.write_bytes(content[:at] + replacement + content[at + len(replacement) :])


def fill(log: Log, count: int, *, size: int = 20, per_batch: int = 1, timestamp: int = NOW, step_ms: int = 1) -> list[bytes]:
    """Append `count` batches of numbered values, with timestamps `step_ms` apart; the values."""
    made: list[bytes] = []
    for number in range(count):
        content = [f"{number}.{index}".encode().ljust(size, b".") for index in range(per_batch)]
        append(log, *content, timestamp=timestamp + number * step_ms, now_ms=timestamp + number * step_ms)
        made += content
    return made
