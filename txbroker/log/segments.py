"""The list of a log's segments, and the files of segments that leave it (Kafka's LogSegments)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from txbroker.errors import OutOfResources, StorageError
from txbroker.log.cleaner.cleaning_job import SegmentSpan
from txbroker.log.disk import Disk, unless_renamed
from txbroker.log.file_names import CLEANED, DELETED, LOG, SNAPSHOT, parent_of, parse_name
from txbroker.log.log_config import LogConfig
from txbroker.log.log_results import AbortedTransaction, Later
from txbroker.log.open_segments import OpenSegments
from txbroker.log.producer_snapshots import Snapshots
from txbroker.log.segment import Segment
from txbroker.log.segment_swap import SegmentSwap

Replaced = Callable[[StorageError | None], None]


class Segments:
    """`all`: the segments, ascending, the last one is active; `bases`: their base offsets. Both stay the same list objects.

    Names change in this order, so that a loss of power leaves a log without gaps: one segment leaves, and the directory is synced before
    the next one does (the log's `names_due`). `is_replacing`: a cleaned segment takes the place of others.
    Files of segments that leave are renamed at once and removed `delay_ms` later; readers can finish.
    """

    __slots__ = ("_disk", "_later", "_open_segments", "_snapshots", "all", "bases", "is_replacing")

    def __init__(self, segments: list[Segment], snapshots: Snapshots, disk: Disk, later: Later, open_segments: OpenSegments) -> None:
        self.all = segments
        self.is_replacing = False
        self._open_segments = open_segments
        self._bound_open()
        self.bases = [segment.base_offset for segment in segments]
        self._snapshots = snapshots
        self._disk = disk
        self._later = later

    @property
    def size(self) -> int:
        """Bytes of all."""
        return sum(segment.size for segment in self.all)

    def from_offset(self, offset: int) -> Sequence[Segment]:
        """The segment that `offset` belongs to, and those after it; all when it is below them."""
        return self.all[max(0, bisect_right(self.bases, offset) - 1) :]

    def aborted_transactions(self, start: int, end: int) -> list[AbortedTransaction]:
        """Aborted transactions with records in [start, end)."""
        found: list[AbortedTransaction] = []
        for segment in self.from_offset(start):
            for aborted in segment.txn_index.entries:
                if aborted.last_offset >= start and aborted.first_offset < end:
                    found.append(aborted)
                if aborted.last_stable_offset >= end:
                    return found
        return found

    def has_left(self, name: str) -> bool:
        """Whether a name is that of a file of a segment, or of a snapshot, that is not in the list any more."""
        parsed = parse_name(name)
        return parsed is not None and parsed[0] not in (self._snapshots.offsets if parsed[1] == SNAPSHOT else self.bases)

    def closed_below(self, offset: int) -> list[SegmentSpan]:
        """The closed segments that begin below `offset`, for a cleaning; StorageError."""
        spans: list[SegmentSpan] = []
        for segment, next_offset in zip(self.all, self.bases[1:], strict=False):
            if segment.base_offset < offset:
                spans.append(SegmentSpan(segment.base_offset, next_offset, segment.size, self._disk.modified_ms(segment.path(LOG))))
        return spans

    def add(self, segment: Segment) -> None:
        """Add a new active segment; the one before it is closed now."""
        closed = self.all[-1] if self.all else None
        self.all.append(segment)
        self.bases.append(segment.base_offset)
        if closed is not None:
            closed.open_segments = self._open_segments
            self._open_segments.opened(closed)

    def drop_first(self, delay_ms: int) -> None:
        """Take the oldest segment out, with the producers' snapshot of its offset. Errors as `_mark_deleted`."""
        dropped = self.all[0]
        renamed = self._mark_deleted([*dropped.paths(), self._snapshots.path(dropped.base_offset)])
        self._put(self.all[1:])
        self._snapshots.forget([dropped.base_offset])
        self._remove_later(renamed, delay_ms)

    def drop_last(self, delay_ms: int) -> None:
        """Take the active segment out; the one before it is active then. The snapshot of its offset is that of the log's end now.

        Errors as `_mark_deleted`.
        """
        renamed = self._mark_deleted(self.all[-1].paths())
        self._put(self.all[:-1])
        self._remove_later(renamed, delay_ms)

    def _mark_deleted(self, paths: Sequence[str]) -> list[str]:
        """Mark the files of a segment as deleted; their new paths.

        After OutOfResources nothing has changed, neither here nor in the directory. After another StorageError some of the files may have
        been renamed: the directory must go offline.
        """
        renamed: list[str] = []
        try:
            mark_deleted(self._disk, paths, renamed)
        except OutOfResources as error:
            self._undo(renamed, error)
            raise
        return [path + DELETED for path in renamed]

    def _undo(self, renamed: Sequence[str], error: OutOfResources) -> None:
        try:
            for path in reversed(renamed):
                self._disk.rename(path + DELETED, path)
        except StorageError as again:
            raise StorageError(f"a segment could not be deleted ({error}), and its files have new names in part: {again}") from again

    def move_empty(self, base_offset: int) -> Segment:
        """The active segment is empty: it begins at another offset from now on. Its file gets another name, so that one always exists."""
        empty = self.all[-1]
        if base_offset != empty.base_offset:
            self._snapshots.discard(empty.base_offset)
            self.all[-1] = empty = empty.renamed(base_offset)
            self.bases[-1] = base_offset
        return empty

    def replace(self, base_offsets: Sequence[int], size: int, config: LogConfig, now_ms: int, done: Replaced) -> bool:
        """Replace consecutive closed segments by one of `size` bytes whose files are marked `.cleaned`; False if they are not in the list.

        The new segment has the first of their offsets. `segment_swap.py` has the steps: until `done` is called, no segment may leave the
        list (`is_replacing`). It is called with the error after which the directory must go offline, or with None; not if a sync fails.
        StorageError; after OutOfResources the list is as it was. Kafka's UnifiedLog.replaceSegments.
        """
        at = bisect_left(self.bases, base_offsets[0])
        end = at + len(base_offsets)
        if self.is_replacing or self.bases[at:end] != list(base_offsets) or end >= len(self.bases):
            return False
        new = Segment(
            self._disk,
            self.all[at].directory,
            base_offsets[0],
            size=size,
            created_ms=now_ms,
            index_interval_bytes=config.index_interval_bytes,
        )
        if self._disk.size(new.path(LOG) + CLEANED) != size:
            return False
        swap = SegmentSwap(self._disk, new.directory, base_offsets[0], self.bases[end])
        swap.begin()
        self.is_replacing = True
        self._later(0, swap.sync, partial(self._swap, swap, self.all[at:end], new, config.file_delete_delay_ms, done))
        return True

    def _swap(self, swap: SegmentSwap, old: Sequence[Segment], new: Segment, delay_ms: int, done: Replaced) -> None:
        """In one turn the new segment takes the place of the old ones, in the list and in the directory."""
        if old[0].directory != swap.directory:
            return  # it was renamed, because the log was deleted
        at = self.all.index(old[0])
        self._put([*self.all[:at], new, *self.all[at + len(old) :]])
        try:
            removed: list[str] = []
            mark_deleted(self._disk, _paths(old) + self._lost_snapshots(old, self.all), removed)
            swap.take_names()
        except StorageError as error:
            # Files have been renamed in part: the directory must go offline, and the next start completes it.
            done(StorageError(f"a cleaned segment could not replace others: {error}"))
            return
        self._snapshots.forget(segment.base_offset for segment in old if segment.base_offset not in self.bases)

        def ended() -> None:
            self.is_replacing = False
            done(None)

        self._later(0, swap.end, ended)
        self._remove_later([path + DELETED for path in removed], delay_ms)

    def _put(self, segments: list[Segment]) -> None:
        self.all[:] = segments
        self.bases[:] = [segment.base_offset for segment in segments]
        self._bound_open()

    def share(self, open_segments: OpenSegments) -> None:
        """Count the open files of closed segments with those of other logs."""
        self._open_segments = open_segments
        self._bound_open()
        for segment in self.all[:-1]:
            if segment.is_open:
                open_segments.opened(segment)

    def _bound_open(self) -> None:
        """The files of all segments except the active one may be closed."""
        for segment in self.all[:-1]:
            segment.open_segments = self._open_segments
        if self.all:
            self.all[-1].open_segments = None

    def _lost_snapshots(self, dropped: Iterable[Segment], kept: Iterable[Segment]) -> list[str]:
        """The snapshots that have no segment of the same base offset then."""
        bases = {segment.base_offset for segment in kept}
        return [self._snapshots.path(segment.base_offset) for segment in dropped if segment.base_offset not in bases]

    def _remove_later(self, paths: Sequence[str], delay_ms: int) -> None:
        disk = self._disk

        def remove() -> None:
            with unless_renamed(disk, parent_of(paths[0])):
                disk.sync(parent_of(paths[0]))  # the names of the new segments must be durable first
            for path in paths:
                disk.remove(path)

        if paths:
            self._later(delay_ms, remove)


def mark_deleted(disk: Disk, paths: Iterable[str], renamed: list[str]) -> None:
    """Mark those files that exist as deleted; each is added to `renamed`. Readers can finish."""
    for path in paths:
        if disk.size(path) is not None:
            disk.rename(path, path + DELETED)
            renamed.append(path)


def _paths(segments: Iterable[Segment]) -> list[str]:
    return [path for segment in segments for path in segment.paths()]
