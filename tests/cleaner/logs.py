"""Logs to clean: batches of all kinds in segment files as a broker writes them, and runs passes on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.support.fakes.unsynced_disk import UnsyncedDisk
from txbroker.log.cleaner.cleaning_job import (
    CleaningJob,
    CleaningSettings,
    Done,
    Event,
    Failed,
    GroupCleaned,
    LastRecord,
    Mapped,
    Progress,
    SegmentSpan,
)
from txbroker.log.cleaner.compaction_pass import run_job
from txbroker.log.disk import Disk
from txbroker.log.log_results import AbortedTransaction
from txbroker.log.segment import Segment
from txbroker.log.txn_index import ENTRY
from txbroker.wire import legacy
from txbroker.wire.batch import stamp
from txbroker.wire.control import Marker, build_marker
from txbroker.wire.records import Record, build

NOW = 1_700_000_000_000
RETENTION = 1000

SETTINGS = CleaningSettings(
    segment_bytes=1 << 30, segment_index_bytes=10 << 20, index_interval_bytes=200, delete_retention_ms=RETENTION,
    max_message_bytes=1 << 20, map_bytes=1 << 20, load_factor=0.9, io_buffer_bytes=1 << 16, io_bytes_per_second=1e300)


@dataclass
class MadeSegment:
    base_offset: int
    content: bytearray = field(default_factory=bytearray)
    modified_ms: int = NOW - 500


class LogMaker:
    """Appends batches at ascending offsets; `roll` begins a segment. Tracks transactions and producers as a broker does."""

    def __init__(self) -> None:
        self.segments = [MadeSegment(0)]
        self.next_offset = 0
        self.aborted: list[AbortedTransaction] = []
        self._producers: dict[int, list[LastRecord]] = {}
        self._open: dict[int, int] = {}
        self._sequences: dict[int, int] = {}

    def data(self, records: list[tuple[bytes | None, bytes | None, int]], *, headers: tuple[tuple[str, bytes | None], ...] = (),
             headers_of: Callable[[int], tuple[tuple[str, bytes | None], ...]] | None = None, producer_id: int = -1,
             transactional: bool = False, gap: int = 0, **options: Any) -> int:
        """Append a batch of (key, value, timestamp); its base offset. `gap`: offsets to leave out before it."""
        self.next_offset += gap
        base = self.next_offset
        made = [Record(base + number, timestamp, key, value, headers_of(number) if headers_of else headers)
                for number, (key, value, timestamp) in enumerate(records)]
        sequence = self._sequences.get(producer_id, 0) if producer_id >= 0 else -1
        content = bytearray(build(made, producer_id=producer_id, producer_epoch=0 if producer_id >= 0 else -1, base_sequence=sequence,
                                  transactional=transactional, **options))
        stamp(content, 0, base, 7)
        self.segments[-1].content += content
        self.next_offset += len(records)
        if producer_id >= 0:
            self._sequences[producer_id] = sequence + len(records)
            last = LastRecord(producer_id, 0, self.next_offset - 1)
            self._producers[producer_id] = [last] if transactional else [*self._producers.get(producer_id, ())[-2:], last]
            if transactional:
                self._open.setdefault(producer_id, base)
        return base

    @property
    def producers(self) -> tuple[LastRecord, ...]:
        return tuple(last for of_one in self._producers.values() for last in of_one)

    def old(self, records: list[tuple[bytes | None, bytes | None, int]], *, magic: int, **options: Any) -> None:
        made = [Record(self.next_offset + number, timestamp if magic else -1, key, value)
                for number, (key, value, timestamp) in enumerate(records)]
        self.segments[-1].content += legacy.build(made, magic=magic, **options)
        self.next_offset += len(records)

    def end(self, producer_id: int, *, committed: bool, timestamp: int = NOW - 5000) -> None:
        """Append a transaction marker, also without a transaction."""
        content = bytearray(build_marker(Marker(committed, 0), producer_id=producer_id, producer_epoch=0, timestamp=timestamp,
                                         base_offset=self.next_offset, leader_epoch=7))
        self.segments[-1].content += content
        first = self._open.pop(producer_id, None)
        if first is not None and not committed:
            self.aborted.append(AbortedTransaction(producer_id, first, self.next_offset, self.next_offset + 1))
        self._producers[producer_id] = [LastRecord(producer_id, 0, -1)]
        self.next_offset += 1

    def roll(self) -> None:
        if self.segments[-1].content:
            self.segments.append(MadeSegment(self.next_offset))

    @property
    def last_stable_offset(self) -> int:
        return min([self.next_offset, *self._open.values()])

    def write(self, directory: Path) -> None:
        """Write the closed segments with their indexes, and the transaction indexes."""
        directory.mkdir(exist_ok=True)
        for made in self.segments:
            path = directory / f"{made.base_offset:020d}.log"
            path.write_bytes(made.content)
            segment = Segment(UnsyncedDisk(), str(directory), made.base_offset, size=len(made.content), created_ms=NOW,
                              index_interval_bytes=200)
            segment.begin_indexes()
            for position, _, _, header in segment.walk(0):
                segment.note(position, header.size, header.last_offset, header.max_timestamp)
            segment.seal()
        ends = [made.base_offset for made in self.segments[1:]] + [self.next_offset + 1]
        for made, end in zip(self.segments, ends, strict=True):
            entries = [entry for entry in self.aborted if made.base_offset <= entry.last_offset < end]
            if entries:
                (directory / f"{made.base_offset:020d}.txnindex").write_bytes(b"".join(ENTRY.pack(0, *entry) for entry in entries))

    def job(self, directory: Path, **changes: Any) -> CleaningJob:
        """A job that cleans everything below the last stable offset, as if the last segment were closed too."""
        settings = {name: changes.pop(name) for name in list(changes) if name in SETTINGS.__dataclass_fields__}
        uncleanable = changes.pop("first_uncleanable_offset", self.last_stable_offset)
        ends = [made.base_offset for made in self.segments[1:]] + [self.next_offset]
        spans = tuple(SegmentSpan(made.base_offset, end, len(made.content), made.modified_ms)
                      for made, end in zip(self.segments, ends, strict=True) if made.base_offset < uncleanable and made.content)
        job = CleaningJob(directory=str(directory), topic="t", partition=0, segments=spans, log_start_offset=0,
                          log_end_offset=self.next_offset, first_dirty_offset=0, first_uncleanable_offset=uncleanable,
                          producers=self.producers, now_ms=NOW, seed=1234567, settings=replace(SETTINGS, **settings))
        return replace(job, **changes)


@dataclass
class Result:
    """The events of a pass, and the cleaned files by new base offset."""

    events: list[Event]
    contents: dict[int, bytes]

    @property
    def groups(self) -> list[GroupCleaned]:
        return [event for event in self.events if isinstance(event, GroupCleaned)]

    @property
    def mapped(self) -> Mapped:
        return next(event for event in self.events if isinstance(event, Mapped))

    @property
    def end(self) -> Done | Failed:
        last = self.events[-1]
        assert isinstance(last, Done | Failed)
        return last


def run(job: CleaningJob, *, disk: Disk | None = None, stopped: Callable[[], bool] = lambda: False,
        sleep: Callable[[float], None] | None = None, monotonic: Callable[[], float] = lambda: 0.0, **options: Any) -> Result:
    events: list[Event] = []

    def never(_: float) -> None:
        raise AssertionError("nothing is to be waited for")

    run_job(job, disk or UnsyncedDisk(), events.append, stopped, monotonic=monotonic, sleep=sleep or never, **options)
    events = [event for event in events if not isinstance(event, Progress)]
    contents = {event.new_base_offset: (Path(job.directory) / f"{event.new_base_offset:020d}.log.cleaned").read_bytes()
                for event in events if isinstance(event, GroupCleaned)}
    return Result(events, contents)


def swap(directory: Path, result: Result) -> None:
    """Replace the old files by the cleaned ones, as the owner of the log does."""
    for group in result.groups:
        for base in group.old_base_offsets:
            for path in directory.glob(f"{base:020d}.*"):
                if not path.name.endswith(".cleaned"):
                    path.unlink()
        for path in directory.glob(f"{group.new_base_offset:020d}.*.cleaned"):
            path.rename(path.with_suffix(""))


