"""Which offset of the target has the record of which offset of the source, for one partition, exactly.

The map is a list of runs: records that are consecutive both in the source and in the target. A topic that is neither compacted nor
transactional is one run; each gap in the source begins another. A run takes 24 bytes of memory.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple


class MappedRun(NamedTuple):
    """`length` records from `source` on in the source are those from `target` on in the target."""

    source: int
    target: int
    length: int


class OffsetMap:
    """Records from `target_start` to `target_end` (exclusive). `mapped_end`: the end of the last run.

    `position`: the source's next offset; what is below it was copied or dropped.
    """

    def __init__(self, position: int, target_start: int) -> None:
        self.position = position
        self.target_start = target_start
        self.target_end = target_start
        self._sources = array("q")
        self._targets = array("q")
        self._counts = array("q")

    def __len__(self) -> int:
        return len(self._sources)

    @property
    def mapped_end(self) -> int:
        """The target's offset after the last run."""
        return self._targets[-1] + self._counts[-1] if self._targets else self.target_start

    def runs(self, first: int = 0) -> Iterator[MappedRun]:
        """The runs from the one with index `first` on."""
        for index in range(first, len(self._sources)):
            yield MappedRun(self._sources[index], self._targets[index], self._counts[index])

    def add(self, source: int, count: int) -> None:
        """The next `count` records of the target are those from `source` on. ValueError unless they are after all others."""
        next_source = self._sources[-1] + self._counts[-1] if self._sources else 0
        if source < next_source or count < 1:
            raise ValueError(f"a run of {count} from source offset {source} on cannot follow those up to {next_source}")
        if self._sources and source == next_source and self.target_end == self.mapped_end:
            self._counts[-1] += count
        else:
            self._sources.append(source)
            self._targets.append(self.target_end)
            self._counts.append(count)
        self.target_end += count
        self.position = source + count

    def skip_to(self, target_end: int) -> None:
        """The next record of the target is at this offset, and what is below it has no offset in the source."""
        self.target_end = max(self.target_end, target_end)

    def restore(self, runs: Iterable[MappedRun], mapped_end: int, target_end: int) -> None:
        """Add runs that were stored, of which the last one has grown up to `mapped_end`. ValueError if they contradict each other."""
        for source, target, count in runs:
            if target < self.target_end:
                raise ValueError(f"a run is at target offset {target}, the runs before it end at {self.target_end}")
            self.skip_to(target)
            self.add(source, count)
        if mapped_end > self.target_end:
            if not self._sources:
                raise ValueError(f"no runs are stored for target offsets up to {mapped_end}")
            self._counts[-1] += mapped_end - self.target_end
            self.target_end = mapped_end
        self.truncate(mapped_end)
        self.skip_to(target_end)

    def target_of(self, source: int) -> int:
        """The offset in the target from which a consumer reads what it has not read in the source, if `source` is its next offset.

        An offset without a record in the target is that of the next record with one; beyond the last run it is `target_end`.
        """
        index = bisect_right(self._sources, source) - 1
        if index >= 0 and source < self._sources[index] + self._counts[index]:
            return self._targets[index] + source - self._sources[index]
        return self._targets[index + 1] if index + 1 < len(self._targets) else self.target_end

    def source_of(self, target: int) -> int:
        """The source's next offset if the target ends at `target`, which is not below `target_start`."""
        index = bisect_right(self._targets, target) - 1
        if index >= 0 and target < self._targets[index] + self._counts[index]:
            return self._sources[index] + target - self._targets[index]
        return self._sources[index + 1] if index + 1 < len(self._sources) else self.position

    def truncate(self, target_end: int) -> None:
        """The target lost the records from `target_end` on."""
        if target_end >= self.target_end:
            return
        self.position = self.source_of(target_end)
        index = bisect_left(self._targets, target_end)
        del self._sources[index:], self._targets[index:], self._counts[index:]
        if index:
            self._counts[-1] = min(self._counts[-1], target_end - self._targets[-1])
        self.target_end = target_end
