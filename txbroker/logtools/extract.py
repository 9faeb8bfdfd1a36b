"""`log extract`: the records of a partition, read from its files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from txbroker.errors import BrokerError
from txbroker.log.aborted_transactions import AbortedBatches, TransactionScan
from txbroker.log.disk import Disk
from txbroker.log.recovery import first_offset_of
from txbroker.logtools.damaged_walk import CONTENT_BYTES_MAX, Damage
from txbroker.logtools.log_paths import PartitionPlace
from txbroker.logtools.partition_walk import OnDamage, walk_partition
from txbroker.logtools.segment_check import Advance
from txbroker.wire import entries
from txbroker.wire.entries import EntryHeader
from txbroker.wire.records import INT64_MAX, Record

# Each takes some hundred bytes of memory.
TRANSACTIONS_MAX = 2_000_000


class TooMany(Exception):
    """There are too many aborted or open transactions to keep them in memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Selects records by offsets [start, end) and timestamps [time_start, time_end) in ms.

    `committed_only`: without records of aborted and of open transactions. Transaction markers are never selected.
    """

    start: int = 0
    end: int = INT64_MAX
    time_start: int | None = None
    time_end: int | None = None
    committed_only: bool = False


class Extracted(NamedTuple):
    """A record, and the timestamp type of its batch: CreateTime, LogAppendTime, or None for magic 0."""

    record: Record
    timestamp_type: str | None


def extract(disk: Disk, place: PartitionPlace, selection: Selection, on_damage: OnDamage, advance: Advance) -> Iterator[Extracted]:
    """The selected records, in the order of their offsets. StorageError when the disk cannot be read; TooMany.

    `advance` gets the bytes of each batch, and how many of its records were selected. `on_damage` gets what cannot be read.
    """
    hidden = _hidden_batches(disk, place) if selection.committed_only else None
    for entry in walk_partition(disk, place, on_damage, start=selection.start, end=selection.end):
        header = entry.header
        if first_offset_of(header) >= selection.end and header.magic == 2:
            return
        count = 0
        if not _is_skipped(header, selection, hidden):
            kind = _timestamp_type(header)
            try:
                for record in entries.read_records(entry.buffer, entry.at, header, CONTENT_BYTES_MAX):
                    if _is_selected(record, selection):
                        count += 1
                        yield Extracted(record, kind)
            except BrokerError as error:
                on_damage(place.path, Damage(entry.position, entry.position + header.size, first_offset_of(header), str(error.message)))
        advance(header.size, count)


def _is_skipped(header: EntryHeader, selection: Selection, hidden: AbortedBatches | None) -> bool:
    """Whether no record of a batch is selected, by its header."""
    if header.control or header.last_offset < selection.start or (hidden is not None and _is_hidden(header, hidden)):
        return True
    return selection.time_start is not None and header.max_timestamp < selection.time_start


def _is_selected(record: Record, selection: Selection) -> bool:
    if not selection.start <= record.offset < selection.end:
        return False
    if selection.time_start is not None and record.timestamp < selection.time_start:
        return False
    return selection.time_end is None or record.timestamp < selection.time_end


def _timestamp_type(header: EntryHeader) -> str | None:
    if header.magic == 0:
        return None
    return "LogAppendTime" if header.log_append_time else "CreateTime"


def _hidden_batches(disk: Disk, place: PartitionPlace) -> AbortedBatches:
    """The transactions that a read_committed consumer does not see, from the headers and markers of the whole partition; TooMany."""
    scan = TransactionScan()
    for entry in walk_partition(disk, place, lambda path, damage: None, check_crc=False):
        scan.add(entry.buffer, entry.at, entry.header)
        if len(scan.aborted) + len(scan.open) > TRANSACTIONS_MAX:
            raise TooMany(f"{place.topic_partition} has more than {TRANSACTIONS_MAX} aborted or open transactions")
    return AbortedBatches(scan.hidden())


def _is_hidden(header: EntryHeader, hidden: AbortedBatches) -> bool:
    return header.transactional and hidden.find(header.producer_id, first_offset_of(header), header.last_offset) is not None
