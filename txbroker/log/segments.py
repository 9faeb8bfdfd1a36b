"""The list of a log's segments, and the files of segments that leave it (Kafka's LogSegments)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

from txbroker.errors import OutOfResources, StorageError
from txbroker.log.cleaner.cleaning_job import SegmentSpan
from txbroker.log.disk import Disk
from txbroker.log.file_names import CLEANED, DELETED, LOG, SWAP
from txbroker.log.log_config import LogConfig
from txbroker.log.log_results import AbortedTransaction, Later
from txbroker.log.open_segments import OpenSegments
from txbroker.log.producer_snapshots import Snapshots
from txbroker.log.segment import Segment


class Segments:
    """`all`: the segments, ascending, the last one is active; `bases`: their base offsets. Both stay the same list objects.

    Files of segments that leave are renamed at once and removed `delay_ms` later; readers can finish.
    """

    __slots__ = ("_disk", "_later", "_open_segments", "_snapshots", "all", "bases")

    def __init__(self, segments: list[Segment], snapshots: Snapshots, disk: Disk, later: Later, open_segments: OpenSegments) -> None:
        self.all = segments
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

    def drop(self, dropped: Iterable[Segment], delay_ms: int) -> None:
        """Take segments out, and the producers' snapshots of their offsets.

        After OutOfResources nothing has changed, neither here nor in the directory. After another StorageError the segments are still
        in the list, and some of their files may have been renamed: the directory must go offline.
        """
        dropped = list(dropped)
        gone = set(map(id, dropped))
        kept = [segment for segment in self.all if id(segment) not in gone]
        renamed: list[str] = []
        try:
            mark_deleted(self._disk, _paths(dropped) + self._lost_snapshots(dropped, kept), renamed)
        except OutOfResources as error:
            self._undo(renamed, error)
            raise
        self._put(kept)
        self._snapshots.forget(segment.base_offset for segment in dropped if segment.base_offset not in self.bases)
        self._remove_later([path + DELETED for path in renamed], delay_ms)

    def _undo(self, renamed: Sequence[str], error: OutOfResources) -> None:
        try:
            for path in reversed(renamed):
                self._disk.rename(path + DELETED, path)
        except StorageError as again:
            raise StorageError(f"segments could not be deleted ({error}), and their files have new names in part: {again}") from again

    def replace(self, base_offsets: Sequence[int], size: int, config: LogConfig, now_ms: int) -> bool:
        """Replace consecutive closed segments by one of `size` bytes whose files are marked `.cleaned`; False if they are not in the list.

        The new segment has the first of their offsets. After a crash before the last `.cleaned` file has become `.swap`, the next start
        uses the old segments, after it the new one (`recovery.py`). StorageError; after OutOfResources nothing has changed. Kafka's
        UnifiedLog.replaceSegments.
        """
        at = bisect_left(self.bases, base_offsets[0])
        end = at + len(base_offsets)
        if self.bases[at:end] != list(base_offsets) or end >= len(self.bases):
            return False
        old = self.all[at:end]
        new = Segment(
            self._disk,
            old[0].directory,
            base_offsets[0],
            size=size,
            created_ms=now_ms,
            index_interval_bytes=config.index_interval_bytes,
        )
        if self._disk.size(new.path(LOG) + CLEANED) != size:
            return False
        try:
            new.rename_files(CLEANED, SWAP)
        except StorageError:
            new.remove_files(SWAP)  # on a full disk the old segments stay in use
            raise
        self._put([*self.all[:at], new, *self.all[end:]])
        try:
            removed: list[str] = []
            mark_deleted(self._disk, _paths(old) + self._lost_snapshots(old, self.all), removed)
            new.rename_files(SWAP, "")
        except StorageError as error:
            # Files have been renamed in part: the directory must go offline, and the next start completes it.
            raise StorageError(f"a cleaned segment could not replace others: {error}") from error
        self._snapshots.forget(base for base in base_offsets if base not in self.bases)
        self._remove_later([path + DELETED for path in removed], config.file_delete_delay_ms)
        return True

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
            # The names of the new segments must be durable first.
            if paths:
                disk.sync(paths[0].rpartition("/")[0])
            for path in paths:
                disk.remove(path)

        self._later(delay_ms, remove)


def mark_deleted(disk: Disk, paths: Iterable[str], renamed: list[str]) -> None:
    """Mark those files that exist as deleted; each is added to `renamed`. Readers can finish."""
    for path in paths:
        if disk.size(path) is not None:
            disk.rename(path, path + DELETED)
            renamed.append(path)


def _paths(segments: Iterable[Segment]) -> list[str]:
    return [path for segment in segments for path in segment.paths()]
