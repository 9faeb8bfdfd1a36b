"""The files of one partition's log: segments that are read, rolled, synced and replaced (Kafka's LocalLog).

Producers, transactions and leader epochs are added by `log.py`.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Sequence

from txbroker.errors import BrokerError, CorruptRecords, ErrorCode, MissingFile
from txbroker.log import missing_file, time_lookup
from txbroker.log.cleaner.cleaning_job import SegmentSpan
from txbroker.log.disk import Disk, File
from txbroker.log.file_names import LOG, parent_of
from txbroker.log.flush import FlushPlan
from txbroker.log.log_config import LogConfig
from txbroker.log.log_results import Later, Read, TimestampOffset
from txbroker.log.missing_records import Missing, no_segment_spans
from txbroker.log.open_segments import OpenSegments
from txbroker.log.recovery import Loaded
from txbroker.log.region import EMPTY, Region
from txbroker.log.segment import Segment
from txbroker.log.segments import Replaced, Segments
from txbroker.names import TopicPartition

logger = logging.getLogger("txbroker.log")


class LocalLog:
    """The segments of `topic_partition` in `directory`. Offsets: [log_start_offset, log_end_offset); below `recovery_point` all is synced.

    `segments` are ascending and the last is active; `generation` counts the truncations; `timed_flush_s` is the monotonic time at
    which flush.ms last ended. `missing`: records that were lost, as far as is known.
    """

    __slots__ = (
        "_bases",
        "_creations",
        "_disk",
        "_later",
        "_list",
        "_lower_bound",
        "_random_below",
        "_renames",
        "_synced_creations",
        "_synced_renames",
        "_syncing",
        "_unsynced",
        "config",
        "directory",
        "generation",
        "log_end_offset",
        "log_start_offset",
        "lowering",
        "missing",
        "recovery_point",
        "segments",
        "timed_flush_s",
        "topic_partition",
    )

    def __init__(
        self,
        directory: str,
        topic_partition: TopicPartition,
        loaded: Loaded,
        *,
        disk: Disk,
        config: LogConfig,
        later: Later,
        random_below: Callable[[int], int],
    ) -> None:
        self.directory = directory
        self.topic_partition = topic_partition
        self.config = config
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.log_end_offset
        self.recovery_point = loaded.recovery_point
        self._lower_bound: int | None = None  # of the recovery point after the truncation that has begun
        self.lowering: int | None = None  # the same, while the checkpoint may have a higher one
        self.timed_flush_s = 0.0
        self.generation = 0
        self._list = Segments(loaded.segments, loaded.snapshots, disk, later, OpenSegments())
        # The same list objects for the whole life of the log, so that a read needs no further look-up.
        self.segments, self._bases = self._list.all, self._list.bases
        self._disk = disk
        self._later = later
        self._random_below = random_below
        self._unsynced = loaded.unsynced
        self._syncing: list[FlushPlan] = []
        self.missing = loaded.missing
        self._renames = self._synced_renames = 0
        self._creations, self._synced_creations = int(bool(loaded.unsynced)), 0

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return self._list.size

    # Read

    def read(self, offset: int, bytes_max: int, *, offset_end: int, whole_first_batch: bool = False) -> Read:
        """A region that begins with the batch that holds `offset`, within one segment and below `offset_end`.

        Empty from `offset_end` up to the log's end; OFFSET_OUT_OF_RANGE outside the log.
        """
        log_end_offset = self.log_end_offset
        if not self.log_start_offset <= offset <= log_end_offset:
            raise BrokerError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} is outside {self.topic_partition}, which has the offsets [{self.log_start_offset}, {log_end_offset})",
            )
        if offset >= offset_end:
            return Read(EMPTY, offset_end, 0)
        segments, bases = self.segments, self._bases
        at = bisect_right(bases, offset) - 1 if offset < bases[-1] else len(bases) - 1
        segment = segments[at]
        place = segment.locate(offset)
        if place is None:
            at = self._after_gap(at, offset)
            place = segments[at].locate(offset) if at < len(segments) else None
            if place is None:
                return Read(EMPTY, offset_end, 0)
            segment = segments[at]
        position, batch_bytes = place
        segment_end = log_end_offset if at + 1 == len(bases) else bases[at + 1]
        end = segment.size if offset_end >= segment_end else segment.end_position(offset_end)
        length = end - position
        if length <= 0:
            return Read(EMPTY, offset_end, 0)
        if length > bytes_max:
            length = bytes_max
            if length < batch_bytes:
                if not whole_first_batch:
                    return Read(EMPTY, offset_end, batch_bytes)
                length = batch_bytes
        return Read(Region(segment.file, position, length), min(offset_end, segment_end), batch_bytes)

    def _after_gap(self, at: int, offset: int) -> int:
        """The first segment after this one with a batch, and a report of the offsets between them if there should be records.

        Compaction may leave a segment's last offsets without a batch, and a mirror copies such gaps.
        """
        before, segments = at, self.segments
        at += 1
        while at < len(segments) and segments[at].locate(offset) is None:
            at += 1
        config = self.config
        if at < len(segments) and not config.compact and not config.txbroker_mirror_source:
            end = self._bases[at]
            if all(not missing.start < end <= missing.end for missing in self.missing):
                try:
                    start = segments[before].next_offset()
                except CorruptRecords:
                    start = offset
                if no_segment_spans(start, end):
                    return at
                evidence = f"{segments[before].path(LOG)} ends there, and the next segment begins at {end}"
                missing = Missing(start, end, evidence, lasts=False)  # the gap stays, and an earlier compaction may have left it
                self.missing.append(missing)
                logger.error("%s: %s; readers continue at offset %d", self.topic_partition, missing, end)
        return at

    def set_missing(self, missing: list[Missing]) -> None:
        """Change what is missing, also in the file for the next start, which the next flush makes durable. StorageError."""
        before, self.missing = self.missing, missing
        if missing_file.lasting(before) == missing_file.lasting(missing):
            return
        if missing_file.write_missing(self._disk, self.directory, missing, sync=False):
            self._unsynced.update((missing_file.path_of(self.directory), self.directory))

    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """The first record (by offset) whose timestamp is `timestamp` or later."""
        return time_lookup.offset_for_timestamp(self.segments, timestamp, self.log_start_offset, self.config.unpacked_bytes_max)

    def offset_of_max_timestamp(self) -> TimestampOffset | None:
        """The record with the largest timestamp, the first of equals."""
        return time_lookup.offset_of_max_timestamp(self.segments, self.log_start_offset, self.config.unpacked_bytes_max)

    def check_file(self, path: str) -> None:
        """StorageError if `path` is a file of the log and is shorter than what was written to it."""
        for segment in self.segments:
            if segment.path(LOG) == path and len(segment.file.pread(segment.size - 1, 1)) != min(segment.size, 1):
                raise MissingFile(f"{path} is shorter than the {segment.size} bytes that were written to it")

    # Segments

    def _new_segment(self, base_offset: int, now_ms: int) -> Segment:
        config = self.config
        jitter_max = min(config.segment_jitter_ms, config.roll_ms)
        segment = Segment(
            self._disk,
            self.directory,
            base_offset,
            size=0,
            created_ms=now_ms,
            index_interval_bytes=config.index_interval_bytes,
            jitter_ms=self._random_below(jitter_max) if jitter_max > 0 else 0,
        )
        segment.create()
        self._list.add(segment)
        self._creations += 1
        self._unsynced.add(self.directory)
        return segment

    def closed_below(self, offset: int) -> list[SegmentSpan]:
        """The closed segments that begin below `offset`; StorageError."""
        return self._list.closed_below(offset)

    def replace_segments(self, old_base_offsets: Sequence[int], *, size: int, generation: int, now_ms: int, done: Replaced) -> bool:
        """Replace closed segments by the one that a cleaning made of them, whose `.cleaned` files are named by the first of their offsets.

        False, and nothing has changed, if the log was truncated since `generation` or one of them is gone. `done`: see `Segments.replace`.
        """
        return generation == self.generation and self._list.replace(old_base_offsets, size, self.config, now_ms, done)

    # Durability

    @property
    def flush_due(self) -> bool:
        """Whether as many records are not synced as flush.messages allows."""
        return self.log_end_offset - self.recovery_point >= self.config.flush_messages

    @property
    def settled_end(self) -> int:
        """The offset (exclusive) up to which records may be acknowledged: while a flush is due only what is synced."""
        return self.recovery_point if self.flush_due else self.log_end_offset

    @property
    def names_unsynced(self) -> bool:
        """Whether the names of its segments have changed in a way on which nothing may be based before the next sync."""
        return self._renames != self._synced_renames

    @property
    def truncation_waits(self) -> bool:
        """Whether a truncation goes on only after the next flush: of names, or of the lower recovery point."""
        return self.names_unsynced or self.lowering is not None

    @property
    def must_flush(self) -> bool:
        """Whether nothing is to be appended or removed before the next flush: for flush.messages, or in the middle of a truncation."""
        return self.flush_due or self.truncation_waits

    @property
    def names_due(self) -> bool:
        """Whether a truncation or retention must wait: for the next flush, or until a cleaned segment has replaced others."""
        return self.truncation_waits or self._list.is_replacing

    @property
    def kept_recovery_point(self) -> int:
        """The recovery point for the checkpoint. It is lower than `recovery_point` while a truncation is about to go below that."""
        return self.recovery_point if self._lower_bound is None else min(self.recovery_point, self._lower_bound)

    def lowered(self, offset: int) -> None:
        """The checkpoint has `offset`, which was `lowering`, as recovery point."""
        if self.lowering == offset:
            self.lowering = None

    def _sync_last_name(self) -> None:
        """Have a worker sync the name of the last segment, unless it is durable or a worker is about to."""
        if self._creations != self._synced_creations and not any(plan.creations == self._creations for plan in self._syncing):
            plan = self._plan(self.recovery_point, [], {self.directory})
            self._later(0, plan.sync, lambda: self.flushed(plan))

    def _names_changed(self) -> None:
        self._renames += 1
        self._unsynced.add(self.directory)

    def _sync_names(self) -> None:
        """Sync in place what names must wait for; without a checkpoint, since the log is not in use."""
        self.lowering = None
        if self.names_unsynced or self._creations != self._synced_creations:
            plan = self.names_plan()
            plan.sync()
            self.flushed(plan)

    def names_plan(self) -> FlushPlan:
        """As `flush_plan`, for the names of the segments only."""
        return self._plan(self.recovery_point, [], self._take_paths())

    def _take_paths(self) -> set[str]:
        """All paths that may not be durable: also those of plans that are not reported as done, so that plans may end in any order."""
        paths = self._unsynced.union(*(plan.paths for plan in self._syncing))
        self._unsynced = set()
        return paths

    def flush_plan(self) -> FlushPlan | None:
        """What must be synced for the log to be durable up to its present end; None when nothing is. Run `plan.sync()` in a worker.

        Files of earlier plans that are not reported as done (`flushed`) are in it again. Each plan must be run. Indexes of the active
        segment are not in it, because recovery rebuilds them.
        """
        offset = self.log_end_offset
        if self.recovery_point >= offset and not (self._unsynced or self._syncing):
            return None
        first = max(0, bisect_right(self._bases, self.recovery_point) - 1)
        written = [segment for segment in self.segments[first:] if max(segment.base_offset, self.recovery_point) < offset]
        files: list[File] = [segment.file for segment in written]
        return self._plan(offset, files, self._take_paths())

    def _plan(self, offset: int, files: Sequence[File], paths: set[str]) -> FlushPlan:
        plan = FlushPlan(self._disk, offset, files, sorted(paths), generation=self.generation)
        plan.renames, plan.creations = self._renames, self._creations
        self._syncing.append(plan)
        return plan

    def flushed(self, plan: FlushPlan) -> None:
        """`plan` was synced: moves the recovery point. MissingFile if one of its files was gone that the log must have."""
        self._syncing.remove(plan)
        for path in plan.absent:
            self._check_absent(path)
        self._synced_renames = max(self._synced_renames, plan.renames)
        self._synced_creations = max(self._synced_creations, plan.creations)
        if plan.generation == self.generation and plan.offset > self.recovery_point:
            self.recovery_point = plan.offset
            self._lower_bound = None  # no truncation follows, or it begins again

    def _check_absent(self, path: str) -> None:
        directory = self.directory
        if path in (directory, parent_of(directory)) or (parent_of(path) == directory and not self._list.has_left(path.rpartition("/")[2])):
            raise MissingFile(f"cannot sync {path}: it is gone")

    def flush(self) -> None:
        """Sync in place; without a checkpoint, as `_sync_names`."""
        self.lowering = None
        plan = self.flush_plan()
        if plan is not None:
            plan.sync()
            self.flushed(plan)

    def delete(self) -> None:
        """Remove the directory with all files. May run in a worker once the log is not used any more."""
        self._disk.sync(parent_of(self.directory))  # a loss of power must not bring back the name before with a part of the files
        self._disk.remove_tree(self.directory)

    def reconfigure(self, config: LogConfig) -> None:
        """Apply new settings; the active segment keeps its jitter."""
        self.config = config
        for segment in self.segments:
            segment.index_interval_bytes = config.index_interval_bytes
