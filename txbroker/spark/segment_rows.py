"""The records of one Kafka segment file as Arrow batches of at most 8 MB, all formats and codecs, with what their batches say about them.

Executors run it: it needs pyarrow and numpy, and no PySpark. The file may be damaged or hostile. Sizes are checked before anything is
read or decompressed, and each range that is no valid batch is reported, never skipped silently.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from txbroker.console.failures import CommandFailed
from txbroker.errors import BrokerError, CorruptRecords
from txbroker.log.aborted_transactions import AbortedBatches
from txbroker.log.cleaner.transaction_filter import read_aborted
from txbroker.log.disk import Disk
from txbroker.log.file_names import LOG, SNAPSHOT, file_path
from txbroker.log.producer_snapshots import parse_snapshot
from txbroker.log.recovery import first_offset_of
from txbroker.log.scan import Entry
from txbroker.logtools.bounded_read import read_small
from txbroker.logtools.compaction_plan import log_ends
from txbroker.logtools.damaged_walk import CONTENT_BYTES_MAX, Damage, DamagedWalk
from txbroker.names import TopicPartition
from txbroker.spark import kafka_source
from txbroker.wire.entries import read_records
from txbroker.wire.records import INT64_MAX, Record

BATCH_BYTES = 8 * 1024 * 1024
_ROW_BYTES = 128  # of a row's fixed columns
_MICROSECONDS_MAX = INT64_MAX // 1000
_SEQUENCES = 2**31

COLUMNS = dict(re.split(r"\s+", column, maxsplit=1) for column in re.split(r",\s+(?=\w+ [A-Z])", kafka_source.SCHEMA)) | {
    "replica": "STRING",
    "segment": "STRING",
    "position": "BIGINT",
    "magic": "INT",
    "leader_epoch": "INT",
    "producer_id": "BIGINT",
    "producer_epoch": "INT",
    "sequence": "INT",
    "transactional": "BOOLEAN",
    "control": "BOOLEAN",
    "delete_horizon": "BIGINT",
    "problem": "STRING",
}
"""The columns and their types: those of `kafka_source.SCHEMA`, and

- replica: the name that the option `path` gives the log directory, or its path.
- segment, position: the log file, and where in it the record's batch begins.
- magic, leader_epoch, transactional, control, delete_horizon (ms, null without one): from the batch's header.
- producer_id, producer_epoch, sequence: null without an idempotent producer.
- problem: null; else the row is no record, but the damage that begins at `position`. `offset` is then the lowest that it can have held.

A timestamp that Spark cannot represent is null, and `timestamp_ms` has it. `timestamp_type` is -1 in messages without a timestamp.
"""

_TYPES: dict[str, Any] = {
    "STRING": pa.string(), "INT": pa.int32(), "BIGINT": pa.int64(), "BINARY": pa.binary(), "BOOLEAN": pa.bool_(),
    "TIMESTAMP": pa.timestamp("us", tz="UTC"), COLUMNS["headers"]: pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
}  # fmt: skip


class Wanted(NamedTuple):
    """What to read: offsets in [start, end), timestamps in [time_start, time_end) in ms, and of `COLUMNS` these.

    `committed_only`: what a read_committed consumer gets. `control`: control records too. `report_damage`: as rows; else the task fails.
    """

    columns: Sequence[str] = tuple(COLUMNS)
    start: int = 0
    end: int = INT64_MAX
    time_start: int | None = None
    time_end: int | None = None
    committed_only: bool = True
    control: bool = False
    report_damage: bool = False


class SegmentFile(NamedTuple):
    """One segment. `limit`: the base offset of the next one, None for the last. `live`: a broker is using the directory."""

    replica: str
    directory: str
    topic: str
    partition: int
    base_offset: int
    limit: int | None
    live: bool

    @property
    def path(self) -> str:
        """The log file."""
        return file_path(self.directory, self.base_offset, LOG)


def read_segment(disk: Disk, segment: SegmentFile, wanted: Wanted) -> Iterator[Any]:
    """The rows as pyarrow.RecordBatch, in the order of the file. CommandFailed for damage, and for a file that is gone; StorageError."""
    file = disk.open_existing(segment.path)
    if file is None:
        raise CommandFailed(f"{segment.path} was deleted or replaced after it had been listed: a broker cleans or expires the log; "
                            "run this again")
    rows = _Rows(segment, wanted.columns)
    limit = INT64_MAX + 1 if segment.limit is None else segment.limit
    shown = _Shown(disk, segment, wanted)
    for found in DamagedWalk(file, file.size, base_offset=segment.base_offset, limit=limit):
        if isinstance(found, Damage):
            if segment.limit is None and segment.live and found.end == file.size:
                return (yield from rows.flush())  # the broker is writing there
            yield from _damage(rows, segment, wanted, found)
        elif shown.has(found):
            try:
                records = _records(found)
            except BrokerError as error:
                end = found.position + found.header.size
                yield from _damage(rows, segment, wanted, Damage(found.position, end, first_offset_of(found.header), str(error.message)))
                continue
            yield from rows.add(found, [one for one in records if _is_selected(one, wanted)])
    yield from rows.flush()


def _records(entry: Entry) -> list[Record]:
    """All records of a batch, or none: BrokerError if one of them is invalid."""
    records = list(read_records(entry.buffer, entry.at, entry.header, CONTENT_BYTES_MAX))
    last = first_offset_of(entry.header) - 1 if entry.header.magic == 2 else -1
    for record in records:
        if record.offset <= last:
            raise CorruptRecords(f"offset {record.offset} comes after offset {last} in one batch")
        last = record.offset
    return records


def _is_selected(record: Record, wanted: Wanted) -> bool:
    if not wanted.start <= record.offset < wanted.end:
        return False
    if wanted.time_start is not None and record.timestamp < wanted.time_start:
        return False
    return wanted.time_end is None or record.timestamp < wanted.time_end


def _damage(rows: _Rows, segment: SegmentFile, wanted: Wanted, damage: Damage) -> Iterator[Any]:
    """The damage as a row, or as the failure of the task."""
    if not wanted.report_damage:
        raise CommandFailed(f"{segment.path} is damaged at position {damage.start}: {damage.problem}; see `txbroker log verify`")
    yield from rows.flush()
    yield rows.damage(damage)


class _Shown:
    """Which batches have rows, by their headers and by the transaction indexes. Batches are passed in order."""

    def __init__(self, disk: Disk, segment: SegmentFile, wanted: Wanted) -> None:
        self._wanted = wanted
        self._end = wanted.end
        self._aborted: AbortedBatches | None = None
        if wanted.committed_only:
            self._aborted = AbortedBatches(read_aborted(disk, segment.directory, segment.base_offset))
            self._end = min(self._end, _stable_end(disk, segment))

    def has(self, entry: Entry) -> bool:
        """Whether its records may be selected."""
        header, wanted = entry.header, self._wanted
        # Also called for batches that are not selected: a marker ends a transaction.
        hidden = self._aborted is not None and self._aborted.hides(entry.buffer, entry.at, header)
        if hidden or (header.control and not wanted.control) or header.last_offset < wanted.start:
            return False
        if header.magic == 2 and first_offset_of(header) >= self._end:
            return False
        return wanted.time_start is None or header.max_timestamp >= wanted.time_start


def _stable_end(disk: Disk, segment: SegmentFile) -> int:
    """An end for read_committed: the last stable offset, or INT64_MAX if it is after the segment. CorruptRecords is no obstacle."""
    if segment.limit is not None:
        try:
            content = read_small(disk, file_path(segment.directory, segment.limit, SNAPSHOT))
            if content is not None and all(state.txn_first_offset < 0 for state in parse_snapshot(content)):
                return INT64_MAX  # no transaction is open where the segment ends
        except CorruptRecords:
            pass
    return log_ends(disk, segment.directory, TopicPartition(segment.topic, segment.partition)).last_stable_offset


class _Rows:
    """Collects rows, column by column, and makes batches of them."""

    def __init__(self, segment: SegmentFile, columns: Sequence[str]) -> None:
        self._segment = segment
        self._columns = columns
        self._schema = pa.schema([(name, _TYPES[COLUMNS[name]]) for name in columns])
        self._records: list[Record] = []
        self._entries: list[tuple[Entry, int]] = []  # and how many of its records there are
        self._bytes = 0

    def add(self, entry: Entry, records: Sequence[Record]) -> Iterator[Any]:
        """Add records of a batch; the Arrow batches that are full."""
        count = 0
        for record in records:
            size = _size_of(record)
            if self._bytes + size > BATCH_BYTES and self._bytes:
                self._entries.append((entry, count))
                yield from self.flush()
                count = 0
            self._bytes += size
            self._records.append(record)
            count += 1
        self._entries.append((entry, count))

    def flush(self) -> Iterator[Any]:
        """The rest as an Arrow batch, if there is any."""
        if self._records:
            yield self._batch([self._column(name) for name in self._columns])
        self._records, self._entries, self._bytes = [], [], 0

    def damage(self, damage: Damage) -> Any:
        """A row that is a damage."""
        known: dict[str, Any] = {**self._fixed(), "offset": damage.offset, "position": damage.start, "problem": damage.problem}
        return self._batch([pa.array([known.get(name)], _TYPES[COLUMNS[name]]) for name in self._columns])

    def _batch(self, arrays: list[Any]) -> Any:
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _fixed(self) -> dict[str, Any]:
        segment = self._segment
        return {"topic": segment.topic, "partition": segment.partition, "replica": segment.replica, "segment": segment.path}

    def _column(self, name: str) -> Any:
        kind, records = _TYPES[COLUMNS[name]], self._records
        fixed = self._fixed()
        if name in fixed or name == "problem":
            return pa.repeat(pa.scalar(fixed.get(name), kind), len(records))
        if name in _OF_RECORD:
            return pa.array([getattr(record, _OF_RECORD[name]) for record in records], kind)
        if name == "timestamp":
            return _microseconds([record.timestamp for record in records])
        if name == "headers":
            return pa.array([_headers(record) for record in records], kind)
        if name == "sequence":
            return pa.array(self._sequences(), kind)
        values = pa.array([_of_batch(name, entry) for entry, _ in self._entries], kind)
        return values.take(pa.array(np.repeat(np.arange(len(self._entries)), [count for _, count in self._entries])))

    def _sequences(self) -> list[int | None]:
        found: list[int | None] = []
        at = 0
        for entry, count in self._entries:
            first, base = entry.header.base_sequence, first_offset_of(entry.header)
            some = self._records[at : at + count]
            found += [None] * count if first < 0 else [(first + one.offset - base) % _SEQUENCES for one in some]
            at += count
        return found


_OF_RECORD = {"offset": "offset", "timestamp_ms": "timestamp", "key": "key", "value": "value"}


def _of_batch(name: str, entry: Entry) -> Any:
    """A column that is the same in all records of a batch."""
    header = entry.header
    if name == "position":
        return entry.position
    if name == "timestamp_type":
        return -1 if header.magic == 0 else int(header.log_append_time)
    value = getattr(header, name)
    return None if name in ("producer_id", "producer_epoch") and header.producer_id < 0 else value


def _size_of(record: Record) -> int:
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return _ROW_BYTES + len(record.key or b"") + len(record.value or b"") + headers


def _microseconds(times: list[int]) -> Any:
    """Spark's TIMESTAMP from milliseconds; null where it does not fit."""
    found = np.array(times, np.int64)
    fits = np.abs(found.astype(np.float64)) < _MICROSECONDS_MAX
    return pa.array(np.where(fits, found, 0) * 1000, pa.int64(), mask=~fits).cast(_TYPES["TIMESTAMP"])


def _headers(record: Record) -> list[dict[str, Any]] | None:
    """As in Spark's own source: null without headers, and names that are not UTF-8 with replacement characters."""
    if not record.headers:
        return None
    return [{"key": name.encode("utf-8", "surrogateescape").decode("utf-8", "replace"), "value": value} for name, value in record.headers]
