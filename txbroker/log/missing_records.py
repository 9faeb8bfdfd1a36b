"""Records that a log must have had and that its files do not have.

A start finds them by what else is in the directory, says which they are, and serves the rest, as Kafka does without a word. Offsets without
records are no evidence: compaction leaves such gaps, and a mirror copies them. Evidence is

- an index file with entries whose log file is gone, or the producer snapshot of a segment that is gone, if the segment before ends below;
- leader epochs, or after a clean shutdown the log start offset, that begin below the first segment;
- a recovery point, a high watermark or, after a clean shutdown, a snapshot or leader epoch above the log's end.

A segment that retention, truncation or the cleaner removes leaves a `.deleted` file for as long as other files of it are there.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from txbroker.errors import CorruptRecords
from txbroker.log.disk import Disk
from txbroker.log.file_names import LOG, OFFSET_INDEX, SNAPSHOT, TIME_INDEX, file_path
from txbroker.log.offset_index import RELATIVE_OFFSET_MAX, OffsetIndex
from txbroker.log.segment import Segment
from txbroker.log.time_index import TimeIndex

EPOCH_MAX = 2**31 - 1


class Missing(NamedTuple):
    """The offsets [start, end), of which no file has the records that were there. `evidence`: a sentence that says how that is known.

    `epoch`: the latest leader epoch that was known then, -1 for none; records of a later one are other records. `lasts`: the next
    starts repeat it, and `log verify` finds it.
    """

    start: int
    end: int
    evidence: str
    epoch: int = EPOCH_MAX
    lasts: bool = True

    def __str__(self) -> str:
        return f"the records from offset {self.start} to {self.end - 1} are missing: {self.evidence}"


def no_segment_spans(start: int, end: int) -> bool:
    """Whether a gap between two segments is wider than a segment can be: a leader whose log was compacted sent the batch after it.

    A narrower gap of such a log lies within a segment, because the segment after it begins at the log's end.
    """
    return end - start > RELATIVE_OFFSET_MAX


class Orphans:
    """Index files without a log file. `bases`: their base offsets, and which suffixes each has."""

    def __init__(self, disk: Disk, directory: str, indexes: Iterable[tuple[int, str]]) -> None:
        self._disk = disk
        self._directory = directory
        self.bases: dict[int, list[str]] = {}
        for base, suffix in indexes:
            self.bases.setdefault(base, []).append(suffix)

    def end(self, base: int) -> int:
        """One above the last offset that the indexes of a segment know; `base` if they have no entry, as after a crash during a roll."""
        end = base
        if self._disk.size(file_path(self._directory, base, OFFSET_INDEX)):
            end = OffsetIndex(self._disk, file_path(self._directory, base, OFFSET_INDEX), base).last[0] + 1
        last = TimeIndex.last_in_file(self._disk, file_path(self._directory, base, TIME_INDEX), base)
        return max(end, last[1] + 1) if last is not None else end


def between(segments: Sequence[Segment], orphans: Orphans, snapshots: Collection[int], *, has_gaps: bool) -> dict[int, Missing]:
    """The closed segments that are missing between others, by base offset. `has_gaps`: the log may have offsets without records."""
    bases = [segment.base_offset for segment in segments]
    found: dict[int, Missing] = {}
    suspects = {base: f"{file_path(segments[0].directory, base, LOG)} is gone" for base in orphans.bases if orphans.end(base) > base}
    if not has_gaps:
        where = segments[0].directory
        suspects |= {base: f"{file_path(where, base, SNAPSHOT)} has no log file" for base in snapshots if base not in suspects}
    for base, evidence in suspects.items():
        if not bases[0] < base < bases[-1] or base in bases:
            continue
        at = bisect_right(bases, base) - 1
        try:
            end = segments[at].next_offset()
        except CorruptRecords:
            continue  # the end of the log, if it is recovered; else a read finds it
        if end <= base:
            found[base] = Missing(base if has_gaps else end, bases[at + 1], evidence)
    return found


def below(first: int, directory: str, starts: Iterable[tuple[int, str]]) -> list[Missing]:
    """The first segments are missing, if one of `starts` is below `first`: offsets at which the log began, and where that is written."""
    known = min(starts, default=(first, ""))
    return [Missing(known[0], first, f"{known[1]} in {directory} begins there")] if known[0] < first else []


def above(end: int, directory: str, ends: Iterable[tuple[int, str]]) -> list[Missing]:
    """The last records are missing, if one of `ends` is above `end`: offsets up to which there were records, and where that is written."""
    known = max(ends, default=(end, ""))
    return [Missing(end, known[0], f"the log in {directory} ends there, but the {known[1]} is {known[0]}")] if known[0] > end else []
