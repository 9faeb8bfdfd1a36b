"""`extract`: a partition's records, straight from its files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from txbroker.errors import BrokerError
from txbroker.log.disk import Disk
from txbroker.log.producer_replay import replay_batch
from txbroker.log.producers import NO_PRODUCER_ID, ProducerStates
from txbroker.log.recovery import first_offset_of
from txbroker.logtools.damaged_walk import CONTENT_BYTES_MAX, Damage
from txbroker.logtools.log_paths import PartitionPlace
from txbroker.logtools.partition_walk import OnDamage, walk_partition
from txbroker.logtools.producer_checks import NEVER_MS
from txbroker.logtools.segment_check import Advance
from txbroker.wire import entries
from txbroker.wire.entries import EntryHeader
from txbroker.wire.records import INT64_MAX, Record

# Each costs some hundred bytes of memory.
ABORTED_MAX = 2_000_000


class TooMany(Exception):
    """More aborted or open transactions than can be kept in memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which records: offsets in [start, end), timestamps (ms) in [time_start, time_end).

    `committed_only`: without those of aborted transactions, and of those that have not ended. Transaction markers are never records.
    """

    start: int = 0
    end: int = INT64_MAX
    time_start: int | None = None
    time_end: int | None = None
    committed_only: bool = False


class Extracted(NamedTuple):
    """A record and what its batch says of it."""

    record: Record
    timestamp_type: str


def extract(disk: Disk, place: PartitionPlace, selection: Selection, on_damage: OnDamage, advance: Advance) -> Iterator[Extracted]:
    """The records, in the order of their offsets. StorageError when the disk cannot be read; TooMany."""
    hidden = _Hidden(disk, place) if selection.committed_only else None
    for entry in walk_partition(disk, place, on_damage, start=selection.start, end=selection.end):
        header = entry.header
        advance(header.size, 0)
        if header.control or header.last_offset < selection.start or (hidden is not None and hidden.hides(header)):
            continue
        if first_offset_of(header) >= selection.end and header.magic == 2:
            return
        if selection.time_start is not None and header.max_timestamp < selection.time_start:
            continue
        kind = _timestamp_type(header)
        try:
            for record in entries.read_records(entry.buffer, entry.at, header, CONTENT_BYTES_MAX):
                if _wanted(record, selection):
                    yield Extracted(record, kind)
        except BrokerError as error:
            on_damage(place.path, Damage(entry.position, entry.position + header.size, first_offset_of(header), str(error.message)))


def _wanted(record: Record, selection: Selection) -> bool:
    if not selection.start <= record.offset < selection.end:
        return False
    if selection.time_start is not None and record.timestamp < selection.time_start:
        return False
    return selection.time_end is None or record.timestamp < selection.time_end


def _timestamp_type(header: EntryHeader) -> str:
    if header.magic == 0:
        return "NoTimestampType"
    return "LogAppendTime" if header.log_append_time else "CreateTime"


class _Hidden:
    """Which transactional batches a read_committed consumer would not see; found out by their headers and the markers."""

    def __init__(self, disk: Disk, place: PartitionPlace) -> None:
        self._spans: dict[int, list[tuple[int, int]]] = {}  # producer -> (first, last) offsets, ascending
        states = ProducerStates(place.topic_partition, NEVER_MS)
        count = 0
        for entry in walk_partition(disk, place, lambda path, damage: None, check_crc=False):
            header = entry.header
            if header.producer_id == NO_PRODUCER_ID or not (header.transactional or header.control):
                continue
            ended = replay_batch(states, entry.buffer, entry.at, header)
            if header.control:
                states.forget_ended_below(INT64_MAX)
            if ended is not None or len(states) > ABORTED_MAX:
                count += 1
                if count > ABORTED_MAX or ended is None:
                    raise TooMany(f"{place.topic_partition} has more than {ABORTED_MAX} aborted transactions or transactional producers")
                self._spans.setdefault(ended.producer_id, []).append((ended.first_offset, ended.last_offset))
        for state in states:
            if state.txn_first_offset >= 0:
                self._spans.setdefault(state.producer_id, []).append((state.txn_first_offset, INT64_MAX))
        self._at: dict[int, int] = {}

    def hides(self, header: EntryHeader) -> bool:
        """Whether this batch is of such a transaction. Batches come in the order of the log."""
        spans = self._spans.get(header.producer_id)
        if spans is None or not header.transactional:
            return False
        at = self._at.get(header.producer_id, 0)
        while at < len(spans) and spans[at][1] < header.last_offset:
            at += 1
        self._at[header.producer_id] = at
        return at < len(spans) and spans[at][0] <= first_offset_of(header)
