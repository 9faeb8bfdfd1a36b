"""A reference for passes: Kafka's cleaning rules on plain values, one record at a time, written for readability."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from txbroker.log.cleaner.cleaning_job import CleaningJob, Strategy
from txbroker.log.cleaner.compaction_order import CompactionOrder
from txbroker.log.log_results import AbortedTransaction
from txbroker.wire import control
from txbroker.wire.batch import BatchHeader
from txbroker.wire.entries import EntryHeader, Scan, read_records
from txbroker.wire.records import Record

PLENTY = 10**9


@dataclass(frozen=True)
class Left:
    """One batch, or old entry, that stays. `same`: unchanged byte for byte."""

    base_offset: int
    last_offset: int
    horizon: int | None
    max_timestamp: int
    records: tuple[Record, ...]
    same: bool


Batch = tuple[EntryHeader, list[Record], bytes]


def parse(content: bytes) -> list[Batch]:
    scan = Scan(content, check_crc=True)
    found = [(header, list(read_records(content, at, header, PLENTY)), content[at : at + header.size]) for at, header in scan]
    assert scan.position == len(content), scan.problem
    return found


class Reference:
    """One pass whose map is large enough for all keys."""

    def __init__(self, job: CleaningJob, files: Sequence[bytes], aborted: Sequence[AbortedTransaction]) -> None:
        self.job = job
        self.segments = [parse(content) for content in files]
        self.aborted = aborted
        self.end = job.first_uncleanable_offset
        if job.settings.strategy is not Strategy.OFFSET:
            self.end = min(self.end, max(job.log_end_offset - 1, job.first_dirty_offset))
        self.order = CompactionOrder(job.settings.strategy, job.settings.header)
        self.latest: dict[bytes, tuple[int, bool, int]] = {}
        self.index: list[AbortedTransaction] = []

    def is_aborted(self, header: EntryHeader) -> AbortedTransaction | None:
        if header.last_offset >= self.job.first_uncleanable_offset:
            return None
        for entry in self.aborted:
            base = header.base_offset if isinstance(header, BatchHeader) else header.last_offset
            if entry.producer_id == header.producer_id and entry.first_offset <= header.last_offset and base <= entry.last_offset:
                return entry
        return None

    def build_map(self, end: int | None = None) -> None:
        self.end = self.end if end is None else end
        offset_only = self.job.settings.strategy is Strategy.OFFSET
        for dirty in (True, False):
            for segment in self.segments:
                for header, records, _ in segment:
                    undecided = header.last_offset >= self.job.first_uncleanable_offset
                    if header.control or (header.transactional and (undecided or self.is_aborted(header))):
                        continue
                    for record in records:
                        if record.key is None or (record.offset >= self.job.first_dirty_offset) is not dirty or record.offset >= self.end:
                            continue
                        if not dirty and (offset_only or record.key not in self.latest):
                            continue
                        ours = self.order.rank(record)
                        self.latest[record.key] = max(ours, self.latest.get(record.key, ours))

    def left(self) -> list[list[Left]]:
        """The batches that stay, by segment."""
        clean = [span for span in self.job.segments if span.base_offset < self.job.first_dirty_offset]
        old_horizon = clean[-1].modified_ms - self.job.settings.delete_retention_ms if clean else 0
        committed: set[int] = set()
        seen: set[AbortedTransaction] = set()
        result = []
        for span, segment in zip(self.job.segments, self.segments, strict=True):
            kept = []
            for header, records, content in segment:
                if span.base_offset >= self.end:
                    continue
                one = self._batch(header, records, content, span.modified_ms > old_horizon, committed, seen)
                if one is not None:
                    kept.append(one)
            result.append(kept)
        return result

    def _batch(
        self, header: EntryHeader, records: list[Record], content: bytes, old_deletes_stay: bool, committed: set[int],
        seen: set[AbortedTransaction]
    ) -> Left | None:
        job = self.job
        base = header.base_offset if isinstance(header, BatchHeader) else header.last_offset
        whole = Left(base, header.last_offset, header.delete_horizon, header.max_timestamp, tuple(records), True)
        if header.last_offset >= job.first_uncleanable_offset:
            if header.control:
                self.index += [entry for entry in self.aborted if entry.last_offset == header.last_offset]
            return whole
        stays_empty = header.last_offset + 1 == job.first_uncleanable_offset or any(
            last.producer_id == header.producer_id
            and (header.last_offset == last.data_offset if last.data_offset >= 0
                 else header.control and header.producer_epoch == last.producer_epoch)
            for last in job.producers)
        horizon_past = header.delete_horizon is not None and header.delete_horizon <= job.now_ms
        goes = may_go = False
        aborted = self.is_aborted(header) if header.transactional else None
        if header.control:
            marker = control.read_marker(records[0]) if records else None
            if not records:
                may_go = True
            elif marker is None:
                may_go = False
            elif marker.committed:
                may_go = header.producer_id not in committed
                committed.discard(header.producer_id)
            else:
                may_go = aborted is None or aborted not in seen
                if not may_go:
                    assert aborted is not None
                    self.index.append(aborted)
            goes = may_go and horizon_past
        elif aborted is not None:
            seen.add(aborted)
            goes = True
        elif header.transactional:
            committed.add(header.producer_id)
        old = not isinstance(header, BatchHeader)
        kept = [record for record in records
                if not goes and (header.control or self._stays(record, header, old_deletes_stay, horizon_past))]
        if not kept:
            if stays_empty and old:
                return whole
            empty = Left(base, header.last_offset, None, header.max_timestamp, (), not records)
            return empty if stays_empty else None
        needs_horizon = not old and header.delete_horizon is None and (
            (header.control and may_go)
            or (header.last_offset < self.end and not header.control and any(record.value is None for record in kept)))
        if len(kept) == len(records) and not needs_horizon:
            return whole
        horizon = job.now_ms + job.settings.delete_retention_ms if needs_horizon else header.delete_horizon
        largest = header.max_timestamp if header.log_append_time else max(-1, *(record.timestamp for record in kept))
        last_offset = kept[-1].offset if old else header.last_offset
        return Left(last_offset if old else base, last_offset, horizon, largest, tuple(kept), False)

    def _stays(self, record: Record, header: EntryHeader, old_deletes_stay: bool, horizon_past: bool) -> bool:
        if record.offset >= self.end:
            return True
        if record.key is None:
            return False
        newest = self.latest.get(record.key)
        if newest is not None and newest > self.order.rank(record):
            return False
        deletes_stay = not horizon_past if isinstance(header, BatchHeader) else old_deletes_stay
        return record.value is not None or deletes_stay


def content_of(content: bytes, originals: set[bytes]) -> list[Left]:
    """The content of a cleaned file as values of the reference."""
    found = []
    for header, records, raw in parse(content):
        base = header.base_offset if isinstance(header, BatchHeader) else header.last_offset
        found.append(Left(base, header.last_offset, header.delete_horizon, header.max_timestamp, tuple(records), raw in originals))
    return found


