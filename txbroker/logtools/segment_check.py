"""Checks one segment: all batches and records, and its offset and time indexes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from txbroker.errors import CorruptRecords
from txbroker.log.disk import Disk
from txbroker.log.file_names import LOG, OFFSET_INDEX, TIME_INDEX, file_path
from txbroker.log.recovery import first_offset_of
from txbroker.log.scan import Entry
from txbroker.logtools.damaged_walk import Damage, DamagedWalk, read_content
from txbroker.logtools.findings import Findings, Remedy
from txbroker.logtools.index_checks import IndexEntries, OffsetIndexCheck, TimeIndexCheck
from txbroker.names import amount
from txbroker.wire.records import INT64_MAX

# Reports progress: bytes and records since the last call.
Advance = Callable[[int, int], None]


class BatchObserver(Protocol):
    """Is notified of each valid batch, in order."""

    def batch(self, entry: Entry) -> None: ...


@dataclass(slots=True)
class SegmentFacts:
    """The result of checking a segment. `damages`: ranges that are not valid batches, neighbours joined. `next_offset`: one above the last
    offset of the last valid batch."""

    base_offset: int
    size: int
    next_offset: int
    damages: list[Damage] = field(default_factory=list)
    batches: int = 0
    records: int = 0

    @property
    def intact(self) -> list[tuple[int, int]]:
        """The byte ranges of the log file that are not damaged."""
        ranges: list[tuple[int, int]] = []
        position = 0
        for damage in self.damages:
            if damage.start > position:
                ranges.append((position, damage.start))
            position = damage.end
        if position < self.size:
            ranges.append((position, self.size))
        return ranges

    @property
    def removed_by_repair(self) -> bool:
        """Whether a repair renames the whole file, unless it is the last one."""
        return bool(self.damages) and not self.intact

    def add_damage(self, damage: Damage) -> None:
        """Add a damaged range, joined to the last one if they touch: a hostile file may have millions."""
        if self.damages and self.damages[-1].end == damage.start:
            damage = self.damages[-1]._replace(end=damage.end)
            self.damages.pop()
        self.damages.append(damage)


class SegmentCheck:
    """`limit`: the base offset of the next segment, None for the active one. `growing`: a broker may append to it; `closed`: none will."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        base_offset: int,
        *,
        limit: int | None,
        growing: bool,
        closed: bool,
        advance: Advance,
    ) -> None:
        self._disk = disk
        self._path = file_path(directory, base_offset, LOG)
        self._index_path = file_path(directory, base_offset, OFFSET_INDEX)
        self._time_path = file_path(directory, base_offset, TIME_INDEX)
        self._base_offset = base_offset
        self._limit = INT64_MAX + 1 if limit is None else limit
        self._growing = growing
        self._closed = closed
        self._advance = advance
        self._unread = 0
        self._odd_times = 0
        self._odd_count = 0
        self._odd = ""  # the first batch with odd offsets or timestamps

    def run(self, findings: Findings, observer: BatchObserver) -> SegmentFacts | None:
        """Check the segment; None when it was deleted. StorageError when the disk cannot be read."""
        # Read the indexes first: records that are appended meanwhile are then in the log and not in the indexes, which is valid.
        offsets = OffsetIndexCheck(self._disk, self._index_path, self._base_offset)
        times = TimeIndexCheck(self._disk, self._time_path, self._base_offset)
        file = self._disk.open_existing(self._path)
        if file is None:
            return None
        walk = DamagedWalk(file, file.size, base_offset=self._base_offset, limit=self._limit)
        facts = SegmentFacts(self._base_offset, file.size, self._base_offset)
        for found in walk:
            if isinstance(found, Damage):
                facts.add_damage(found)
                self._advance(found.end - found.start, 0)
                continue
            problem = self._look_inside(found, facts)
            if problem:
                facts.add_damage(Damage(found.position, found.position + found.header.size, first_offset_of(found.header), problem))
                continue
            offsets.batch(found.position, found.header.last_offset)
            times.batch(found.header.last_offset, found.header.max_timestamp)
            observer.batch(found)
            facts.next_offset = found.header.last_offset + 1
        self._report_log(findings, facts)
        offsets.finish(facts.next_offset)
        times.finish(facts.next_offset, closed=self._closed)
        if not facts.damages:  # else they are rebuilt anyway
            self._report_index(findings, self._index_path, offsets.found, offsets.problem, facts)
            self._note_bare(findings, offsets, facts)
            self._report_index(findings, self._time_path, times.found, times.problem, facts)
        return facts

    def _look_inside(self, entry: Entry, facts: SegmentFacts) -> str:
        try:
            content = read_content(entry)
        except CorruptRecords as error:
            self._advance(entry.header.size, 0)
            return f"a batch with a correct CRC is invalid: {error.message}"
        facts.batches += 1
        facts.records += content.records
        self._unread += bool(content.unread)
        if content.odd:
            self._odd_count += 1
            self._odd = self._odd or f"the first one is at position {entry.position}: {content.odd}"
        elif content.records and not content.unread and content.max_timestamp != entry.header.max_timestamp:
            self._odd_times += 1
        self._advance(entry.header.size, content.records)
        return ""

    def _report_log(self, findings: Findings, facts: SegmentFacts) -> None:
        for damage in facts.damages:
            at_end = damage.end == facts.size
            if self._growing and at_end:
                findings.note(self._path, f"from position {damage.start} on: {damage.problem}; a broker may be writing there")
                continue
            remedy = Remedy.CUT if at_end else Remedy.TAKE_OUT
            findings.fault(self._path, damage.problem, remedy, start=damage.start, end=damage.end)
        if self._unread:
            findings.note(self._path, f"records not checked in {amount(self._unread, 'batch')}: too large to be decompressed here")
        if self._odd:
            what = f"odd offsets or timestamps, as Kafka stores them, in {amount(self._odd_count, 'batch')}"
            findings.note(self._path, f"{what}; {self._odd}")
        if self._odd_times:
            findings.note(self._path, f"the maximum timestamp in the header differs from the records in {amount(self._odd_times, 'batch')}")

    def _note_bare(self, findings: Findings, offsets: OffsetIndexCheck, facts: SegmentFacts) -> None:
        """Note an index that ends far before its log: look-ups are slower, but correct. With a large index.interval.bytes it is normal."""
        found = offsets.found
        if not self._closed or not offsets.bare or offsets.problem or found.missing or found.torn or found.zeros:
            return
        what = f"it ends {offsets.bare} bytes before the last batch of a log of {facts.size}" if found.count else "it has no entry"
        remedy = "unless index.interval.bytes is that large, rename it while no broker runs, and `txbroker log repair` rebuilds it"
        findings.note(self._index_path, f"{what}: look-ups after it read up to {offsets.bare} bytes of the log; {remedy}")

    def _report_index(self, findings: Findings, path: str, found: IndexEntries, problem: str, facts: SegmentFacts) -> None:
        if self._growing and facts.size and not problem and (found.missing or found.torn or found.zeros):
            return
        if found.missing:
            problem = "the file is missing" if facts.size else ""
        elif found.torn:
            problem = f"{amount(found.torn, 'byte')} after its last complete entry"
        elif found.zeros and not problem:
            if not self._closed:
                what = "as in the file of a broker that was killed: the next start truncates them"
                findings.note(path, f"{amount(found.zeros, 'empty entry')} at the end, {what}")
                return
            if found.zeros > 1 or found.count or facts.size == 0:
                problem = f"{amount(found.zeros, 'empty entry')} after its {amount(found.count, 'entry')}"
        if problem:
            findings.fault(path, problem, Remedy.REBUILD_INDEXES)
