"""One segment looked at in full: every batch and record, and both indexes beside them."""

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
from txbroker.wire.records import INT64_MAX

# How far a look is: bytes and records since the last call.
Advance = Callable[[int, int], None]


class SeesBatches(Protocol):
    """Who wants to know of each sound batch, in order."""

    def batch(self, entry: Entry) -> None: ...


@dataclass(slots=True)
class SegmentFacts:
    """What a look at a segment found. `damages`: what is no sound batch, neighbours joined; `next_offset`: one above the last sound one."""

    base_offset: int
    size: int
    next_offset: int
    damages: list[Damage] = field(default_factory=list)
    batches: int = 0
    records: int = 0

    def add_damage(self, damage: Damage) -> None:
        """Join it to the one before it, if they touch: a hostile file has millions."""
        if self.damages and self.damages[-1].end == damage.start:
            damage = self.damages[-1]._replace(end=damage.end)
            self.damages.pop()
        self.damages.append(damage)


class SegmentCheck:
    """`limit`: the next segment's base offset, None in the active one. `growing`: a broker appends to it now; `closed`: none will."""

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

    def run(self, findings: Findings, watcher: SeesBatches) -> SegmentFacts | None:
        """Look at all of it; None when it is gone. StorageError when the disk cannot be read."""
        # The indexes first: what is appended while this runs makes the log longer than they say, and never shorter.
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
            watcher.batch(found)
            facts.next_offset = found.header.last_offset + 1
        self._report_log(findings, facts)
        offsets.finish(facts.next_offset)
        times.finish(facts.next_offset, closed=self._closed)
        if not facts.damages:  # else they are made anew anyway
            self._report_index(findings, self._index_path, offsets.found, offsets.problem, facts)
            self._note_bare(findings, offsets, facts)
            self._report_index(findings, self._time_path, times.found, times.problem, facts)
        return facts

    def _look_inside(self, entry: Entry, facts: SegmentFacts) -> str:
        try:
            content = read_content(entry)
        except CorruptRecords as error:
            self._advance(entry.header.size, 0)
            return f"a batch cannot be read, though its CRC is right: {error.message}"
        facts.batches += 1
        facts.records += content.records
        self._unread += bool(content.unread)
        if content.records and not content.unread and content.max_timestamp != entry.header.max_timestamp:
            self._odd_times += 1
        self._advance(entry.header.size, content.records)
        return ""

    def _report_log(self, findings: Findings, facts: SegmentFacts) -> None:
        for damage in facts.damages:
            at_end = damage.end == facts.size
            if self._growing and at_end:
                findings.note(self._path, f"from position {damage.start} on: {damage.problem}: a broker may be writing there now")
                continue
            remedy = Remedy.CUT if at_end else Remedy.TAKE_OUT
            findings.fault(self._path, damage.problem, remedy, start=damage.start, end=damage.end)
        if self._unread:
            findings.note(self._path, f"{self._unread} batches hold more than is opened: their records were not looked at")
        if self._odd_times:
            findings.note(self._path, f"{self._odd_times} batches have another largest timestamp in their header than in their records")

    def _note_bare(self, findings: Findings, offsets: OffsetIndexCheck, facts: SegmentFacts) -> None:
        """Nothing that is found by such an index is wrong, it takes longer: no fault, and right where index.interval.bytes is large."""
        found = offsets.found
        if not self._closed or not offsets.bare or offsets.problem or found.missing or found.torn or found.zeros:
            return
        what = f"it ends {offsets.bare} bytes before the last batch of a log of {facts.size}" if found.count else "it has no entry"
        remedy = "unless index.interval.bytes is that large, set it aside while no broker runs, and `txbroker log repair` makes it anew"
        findings.note(self._index_path, f"{what}: look-ups beyond it read up to {offsets.bare} bytes of the log; {remedy}")

    def _report_index(self, findings: Findings, path: str, found: IndexEntries, problem: str, facts: SegmentFacts) -> None:
        if self._growing and facts.size and not problem and (found.missing or found.torn or found.zeros):
            return
        if found.missing:
            problem = "the file is missing" if facts.size else ""
        elif found.torn:
            problem = f"{found.torn} bytes follow on its last whole entry"
        elif found.zeros and not problem:
            if not self._closed:
                what = "as in the file of a broker that was killed: its next start cuts them"
                findings.note(path, f"{found.zeros} empty entries follow, {what}")
                return
            if found.zeros > 1 or found.count or facts.size == 0:
                problem = f"{found.zeros} empty entries follow on its {found.count}"
        if problem:
            findings.fault(path, problem, Remedy.REBUILD_INDEXES)
