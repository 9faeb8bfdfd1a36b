"""Finds segments that are missing between others, by the offsets of those that are there.

Offsets without records are no fault by themselves: compaction leaves them, a mirror copies them, and a repair that removes damage makes
them. An index file or a producer snapshot of a segment that is not there is evidence; without either, a gap between two segments is
reported if the log has no other gaps and was neither compacted nor repaired.
"""

from __future__ import annotations

from txbroker.log.disk import Disk
from txbroker.log.file_names import LOG, SNAPSHOT, file_path
from txbroker.log.missing_records import Orphans
from txbroker.log.recovery import first_offset_of
from txbroker.log.scan import Entry
from txbroker.logtools.findings import Findings, Remedy
from txbroker.logtools.partition_files import PartitionFiles
from txbroker.logtools.segment_check import SegmentFacts
from txbroker.wire.batch import BatchHeader


def missing_text(start: int, end: int) -> str:
    """A sentence about the offsets [start, end)."""
    return f"the records from offset {start} to {end - 1} are missing"


class GapCheck:
    """Call `batch` and `segment` in the order of the log, then `finish`. `has_gaps`: the log may have offsets without records."""

    def __init__(self, disk: Disk, directory: str, *, has_gaps: bool) -> None:
        self.has_gaps = has_gaps
        self._disk = disk
        self._directory = directory
        self._next: int | None = None  # within a segment
        self._segments: list[SegmentFacts] = []

    def batch(self, entry: Entry) -> None:
        """Note whether batches of one segment follow on each other, with all of their records."""
        header = entry.header
        first = first_offset_of(header)
        partial = isinstance(header, BatchHeader) and header.count <= header.last_offset_delta
        self.has_gaps = self.has_gaps or partial or (self._next is not None and first > self._next)
        self._next = header.last_offset + 1

    def segment(self, facts: SegmentFacts) -> None:
        """The batches of this segment are complete."""
        self._segments.append(facts)
        self._next = None

    def finish(self, findings: Findings, files: PartitionFiles) -> set[int]:
        """Report index files without a log file, and what is missing. Returns the offsets of the snapshots that are reported."""
        orphans = Orphans(self._disk, self._directory, files.orphans)
        orphaned: dict[int, str] = {}
        lost: set[int] = set()
        for before, after in zip(self._segments, self._segments[1:], strict=False):
            start, end = before.next_offset, after.base_offset
            if start >= end or before.damages:
                continue
            indexed = [base for base in orphans.bases if start <= base < end and base not in files.deleted and orphans.end(base) > base]
            shown = [offset for offset in files.snapshots if start <= offset < end and offset not in files.deleted]
            text = missing_text(start, end)
            orphaned.update(dict.fromkeys(indexed, text))
            for offset in shown:
                if offset in indexed or not self.has_gaps:
                    findings.fault(file_path(self._directory, offset, SNAPSHOT), f"its segment has no log file: {text}", Remedy.SET_ASIDE)
                    lost.add(offset)
            if not indexed and not shown and not self.has_gaps:
                where = file_path(self._directory, end, LOG)
                findings.fault(where, f"the segment before it ends at offset {start}: {text}, unless the topic was compacted or mirrored")
        last = self._segments[-1].base_offset if self._segments else -1
        for base, suffixes in orphans.bases.items():
            text = orphaned.get(base, "")
            if base > last and orphans.end(base) > base:
                text = missing_text(base, orphans.end(base))
            for suffix in suffixes:
                problem = f"it has no log file: {text}" if text else "it has no log file"
                findings.fault(file_path(self._directory, base, suffix), problem, Remedy.SET_ASIDE)
        return lost
