"""Loading a log from its directory after a clean or unclean shutdown (Kafka's LogLoader).

1. Files that are marked as deleted or incomplete are removed; complete `.swap` files replace the segments with their offsets.
2. Segments are found by their names; index files without a log file are removed.
3. After an unclean shutdown the segments from the recovery point on are read in full: indexes and leader epochs are rebuilt, and the
   log ends before the first batch that is torn, damaged or out of order, and before a gap between two segments above the recovery point,
   unless the log may have gaps (it is or was compacted or mirrored): a replica copies what comes after its end, but never fills a gap.
4. The state of producers is read from the latest snapshot and the batches after it.
5. Records that must have been there and are not are reported (`missing_records.py`); what shows that they were there stays.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

from txbroker.errors import CorruptRecords, StartInterrupted
from txbroker.lazy_dataclass import lazy_dataclass
from txbroker.log import missing_records
from txbroker.log.disk import Disk
from txbroker.log.file_names import DELETED, INDEX_SUFFIXES, LEADER_EPOCHS, LOG, SNAPSHOT, TXN_INDEX, file_path, parent_of
from txbroker.log.leader_epochs import LeaderEpochs
from txbroker.log.log_config import LogConfig
from txbroker.log.log_results import AbortedTransaction
from txbroker.log.missing_file import KnownMissing, still_missing
from txbroker.log.missing_records import Missing, Orphans
from txbroker.log.offset_index import RELATIVE_OFFSET_MAX
from txbroker.log.producer_replay import replay_batch, replay_range
from txbroker.log.producer_snapshots import Snapshots
from txbroker.log.producers import ProducerStates
from txbroker.log.segment import Segment
from txbroker.log.segments import mark_deleted
from txbroker.log.unfinished_changes import finish_changes
from txbroker.names import TopicPartition, amount
from txbroker.wire.batch import BatchHeader
from txbroker.wire.entries import EntryHeader

logger = logging.getLogger("txbroker.log")


@lazy_dataclass(slots=True)
class Loaded:
    """The parts of a log and its offsets. `unsynced`: paths of what was written, which a flush must make durable.

    `missing`: records that the log has lost. `has_gaps`: the log is known to have offsets without records.
    """

    segments: list[Segment]
    leader_epochs: LeaderEpochs
    producers: ProducerStates
    snapshots: Snapshots
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    unsynced: set[str]
    missing: list[Missing]
    has_gaps: bool


class Loader:
    """Loads one directory, once: call `load`."""

    def __init__(
        self,
        directory: str,
        topic_partition: TopicPartition,
        *,
        disk: Disk,
        config: LogConfig,
        now_ms: int,
        clean: bool,
        log_start_offset: int,
        recovery_point: int,
        high_watermark: int,
        producer_id_expiration_ms: int,
        interrupted: Callable[[], bool],
    ) -> None:
        self._directory = directory
        self._disk = disk
        self._config = config
        self._now_ms = now_ms
        self._clean = clean
        self._log_start_offset = log_start_offset
        self._recovery_point = recovery_point
        self._has_gaps = may_have_gaps(config)
        self._interrupted = interrupted
        self._known_ends = [(recovery_point, "recovery point"), (high_watermark, "high watermark")]
        self._known_starts = [(log_start_offset, "the log start offset")] if clean and log_start_offset else []
        self._deleted: set[int] = set()
        self._missing: dict[int, Missing] = {}  # by end
        self._lost: dict[int, Missing] = {}  # by the base offset of a segment that is gone
        self._topic_partition = topic_partition
        self._segments: list[Segment] = []
        self._unsynced: set[str] = set() if clean else {directory, parent_of(directory)}
        self._epochs_found = False
        self._marked_indexes: set[int] = set()
        self._producers = ProducerStates(topic_partition, producer_id_expiration_ms)

    def load(self) -> Loaded:
        """StorageError when the disk fails; StartInterrupted between two segments, from which the next start continues."""
        if not self._disk.is_directory(self._directory):
            self._disk.make_directory(self._directory)
            self._unsynced.update((self._directory, parent_of(self._directory)))
        remaining = finish_changes(self._disk, self._directory)
        self._deleted, self._marked_indexes = remaining.deleted, remaining.marked_indexes
        if remaining.renamed:
            self._unsynced.add(self._directory)
        self._find_segments(remaining.files)
        self._leader_epochs = LeaderEpochs(self._disk, self._directory)
        if not self._leader_epochs.exists and self._have_epochs():
            logger.warning("%s is missing; reading leader epochs from the record batches", self._leader_epochs.path)
            self._leader_epochs.intact = False
        self._known_missing = KnownMissing(self._disk, self._directory)
        was_clean = self._clean
        self._find_lost()
        if not self._segments:
            self._note_end(self._log_start_offset, clean=was_clean)
            self._begin_at(self._log_start_offset)
        log_end_offset = self._log_end()
        self._note_end(log_end_offset, clean=was_clean)
        self._remove_orphans()
        if log_end_offset < self._log_start_offset:
            logger.warning(
                "%s: the log ends at %d, below its start offset %d: deleting all of it",
                self._topic_partition,
                log_end_offset,
                self._log_start_offset,
            )
            self._remove(self._segments)
            self._begin_at(self._log_start_offset)
            log_end_offset = self._log_start_offset
        log_start_offset = max(self._log_start_offset, self._segments[0].base_offset)
        self._settle_epochs(log_start_offset, log_end_offset)
        self._repeat_missing(log_start_offset)
        if self._producers_end < log_end_offset:
            replay_range(self._producers, self._segments, self._producers_end, log_end_offset)
        for segment in self._segments:
            segment.check_indexes()  # here, in a worker, because it may take long
            segment.release()
        recovery_point = log_end_offset if self._clean else min(self._recovery_point, log_end_offset)
        return Loaded(
            segments=self._segments,
            leader_epochs=self._leader_epochs,
            producers=self._producers,
            snapshots=self._snapshots,
            log_start_offset=log_start_offset,
            log_end_offset=log_end_offset,
            recovery_point=recovery_point,
            unsynced=self._unsynced,
            missing=sorted(self._missing.values()),
            has_gaps=self._has_gaps,
        )

    # Missing records

    def _find_lost(self) -> None:
        """What the names of files and the leader epochs show of records that no log file has."""
        epochs = list(self._leader_epochs)
        if not epochs and not self._clean and not any(segment.size for segment in self._segments):
            # A new log, if the broker was killed before it had removed the entries of an earlier log of this name from the checkpoints.
            self._known_ends = [(0, evidence) for _, evidence in self._known_ends]
        self._known_starts += [(start, LEADER_EPOCHS) for _, start in epochs[:1]]
        self._known_ends += [(start, "start of the last leader epoch") for _, start in epochs[-1:]]
        self._known_ends += [(offset, "offset of a producer snapshot") for offset in self._snapshots.offsets[-1:]]
        segments = self._segments
        last = segments[-1].base_offset if segments else -1
        for base in self._orphans.bases:
            if base > last:
                self._known_ends.insert(2, (self._orphans.end(base), "last offset of an index file without its log file"))
        if segments:
            first = segments[0].base_offset
            if not any(base < first for base in self._deleted):  # else retention was deleting segments
                self._note(missing_records.below(first, self._directory, self._known_starts))
            self._lost = missing_records.between(segments, self._orphans, self._snapshots.offsets, has_gaps=self._has_gaps)
            self._note(self._lost.values())

    def _have_epochs(self) -> bool:
        """Whether the last batches have leader epochs, which those of old formats have not."""
        for segment in reversed(self._segments):
            for entry in segment.walk(0) if segment.size else ():
                return entry.header.leader_epoch >= 0
        return False

    def _note_end(self, end: int, *, clean: bool) -> None:
        """What is missing after `end`. After a loss of power a replica lacks records that were not synced, and copies them again: then
        only the high watermark is above the end, which is no error."""
        synced, _ = self._known_ends[0]
        level = logging.ERROR if clean or synced > end else logging.WARNING
        self._note(missing_records.above(end, self._directory, self._known_ends[: None if clean else 2]), level)

    def _note(self, found: Iterable[Missing], level: int = logging.ERROR) -> None:
        for missing in found:
            if missing.end not in self._missing and missing.end > self._log_start_offset:
                self._missing[missing.end] = missing._replace(epoch=self._leader_epochs.latest, lasts=level >= logging.ERROR)
                logger.log(level, "%s: %s; see \"Missing records\" in docs/operations.md", self._topic_partition, missing)
                if level >= logging.ERROR:
                    self._known_missing.add(self._missing.values())

    def _repeat_missing(self, log_start_offset: int) -> None:
        """Repeat what earlier starts have found missing and this one has not, unless it no longer is."""
        known, epochs = self._known_missing, list(self._leader_epochs)
        segments = list(self._ends()) if known.ranges else []
        for missing in still_missing(known.ranges, segments, epochs, log_start_offset, has_gaps=self._has_gaps):
            if not any(found.start <= missing.start and missing.end <= found.end for found in self._missing.values()):
                self._missing[missing.end] = missing
                logger.error("%s: %s; see \"Missing records\" in docs/operations.md", self._topic_partition, missing)
        known.settle(sorted(self._missing.values()))

    def _ends(self) -> Iterator[tuple[int, int]]:
        """The base offset of each segment, and one above its last offset; without those that are damaged, which a read finds."""
        for segment in self._segments:
            with suppress(CorruptRecords):
                yield segment.base_offset, segment.next_offset()

    def _remove_orphans(self) -> None:
        """Remove index files without their log file, unless they show that a segment between others is gone."""
        for base, suffixes in self._orphans.bases.items():
            if base in self._lost:
                continue
            for suffix in suffixes:
                path = file_path(self._directory, base, suffix)
                if base not in (segment.base_offset for segment in self._segments):
                    logger.warning("removing %s, an index file without its log file", path)
                    self._disk.remove(path)

    # Files

    def _find_segments(self, names: list[tuple[int, str]]) -> None:
        logs = {offset for offset, suffix in names if suffix == LOG}
        others = [(offset, suffix) for offset, suffix in names if suffix != LOG]
        self._segments = [self._segment(offset) for offset in sorted(logs)]
        with_aborted = {offset for offset, suffix in others if suffix == TXN_INDEX}
        for segment in self._segments:
            if segment.base_offset in with_aborted and not segment.txn_index.sound:
                self._recover_from(segment, "its transaction index is damaged")
            elif segment.base_offset in self._marked_indexes - with_aborted:
                self._recover_from(segment, "its transaction index is marked as deleted")
        without_log = [(offset, suffix) for offset, suffix in others if suffix in INDEX_SUFFIXES and offset not in logs]
        self._orphans = Orphans(self._disk, self._directory, without_log)
        self._snapshots = Snapshots(self._disk, self._directory, [offset for offset, suffix in others if suffix == SNAPSHOT])

    def _segment(self, base_offset: int) -> Segment:
        size = self._disk.size(file_path(self._directory, base_offset, LOG)) or 0
        return Segment(
            self._disk,
            self._directory,
            base_offset,
            size=size,
            created_ms=self._now_ms,
            index_interval_bytes=self._config.index_interval_bytes,
        )

    def _begin_at(self, offset: int) -> None:
        """Begin an empty log, without producers."""
        segment = self._segment(offset)
        segment.create()
        self._unsynced.add(self._directory)
        self._segments = [segment]
        self._snapshots.keep_only(lambda _: False)
        self._leader_epochs.clear()
        self._producers.clear()
        self._producers_end = offset

    def _remove(self, segments: list[Segment]) -> None:
        renamed: list[str] = []
        mark_deleted(self._disk, [path for segment in segments for path in segment.paths()], renamed)
        if renamed:
            self._disk.sync(self._directory)  # after a loss of power they must not follow on what is cut or written next
        for path in renamed:
            self._disk.remove(path + DELETED)

    # Offsets and content

    def _log_end(self) -> int:
        """The end of the log, after recovery if it is needed, which also updates the producers."""
        self._snapshots.remove_stray([segment.base_offset for segment in self._segments], self._lost)
        if self._clean:
            try:
                end = self._segments[-1].next_offset()
            except CorruptRecords as error:
                self._recover_from(self._segments[-1], str(error))
            else:
                self._producers_end = self._load_producers(end)
                return end
        return self._recover()

    def _recover_from(self, segment: Segment, problem: str) -> None:
        """Recover from this segment on, also after a clean shutdown."""
        logger.warning("%s: reading %s in full: %s", self._topic_partition, segment.path(LOG), problem)
        self._recovery_point = min(self._recovery_point, segment.base_offset)
        self._clean = False
        self._unsynced.add(self._directory)

    def _load_producers(self, end: int) -> int:
        return self._snapshots.load(self._producers, self._log_start_offset, end, self._now_ms)

    def _recover(self) -> int:
        """Read the segments that may not have reached the disk, and truncate at the first problem. Returns the log's end."""
        first = 0
        for at, segment in enumerate(self._segments):
            if segment.base_offset <= self._recovery_point:
                first = at
        while first and self._reaches_into(self._segments[first - 1], self._segments[first].base_offset):
            first -= 1
        base = self._segments[first].base_offset
        synced_end = self._recovery_point
        # The file may be older than a truncation: an offset in it can be in the middle of a batch that was never synced.
        self._recovery_point = min(self._recovery_point, base)
        self._snapshots.keep_only(lambda offset: offset <= base)
        self._producers_end = self._load_producers(base)
        if self._producers_end < base:
            replay_range(self._producers, self._segments, self._producers_end, base)
        self._producers_end = base
        end = base
        for at in range(first, len(self._segments)):
            segment = self._segments[at]
            if self._interrupted():
                raise StartInterrupted(f"{self._topic_partition}: {amount(len(self._segments) - at, 'segment')} not recovered yet")
            if at > first:
                if end < segment.base_offset and not self._may_have_gaps(at, end):
                    evidence = f"the segment before {segment.path(LOG)} ends there"
                    if end >= synced_end:
                        logger.warning("%s: the log ends at offset %d: %s", self._topic_partition, end, evidence)
                        self._drop_after(at - 1)
                        break
                    self._note([Missing(end, segment.base_offset, evidence)])
                if end <= segment.base_offset:
                    self._snapshots.take(self._producers, segment.base_offset)
            before = end
            end, sound = self._recover_segment(at, max(end, segment.base_offset))
            self._producers_end = end
            if not segment.size and segment.base_offset < before:
                # A truncation removed it, and power was lost before a sync. Readers would look here for offsets of the segment before.
                self._drop_after(at - 1)
                break
            if not sound:
                break
        return end

    def _may_have_gaps(self, at: int, end: int) -> bool:
        """Whether the gap from `end` to a segment may be due to compaction or a mirror, now or earlier.

        Then there are gaps within segments, too, where a loss of power leaves none; or it is wider than all records that may be unsynced.
        """
        if missing_records.no_segment_spans(end, self._segments[at].base_offset):
            return True
        for segment in self._segments[at:] if not self._has_gaps else ():
            end = segment.base_offset
            for entry in segment.walk(0):
                if is_after_gap(entry.header, end):
                    self._has_gaps = True
                    return True
                end = entry.header.last_offset + 1
        return self._has_gaps

    def _reaches_into(self, segment: Segment, base_offset: int) -> bool:
        """Whether a segment goes on beyond the start of the next one: a truncation removed that one, and power was lost before a sync."""
        end = segment.base_offset
        for entry in segment.walk(segment.offset_index.last[1]):
            end = entry.header.last_offset + 1
        return end > base_offset

    def _recover_segment(self, at_segment: int, expected: int) -> tuple[int, bool]:
        """Read one segment in full and truncate the log at the first problem. Returns its end, and whether there was no problem."""
        segment, end = self._segments[at_segment], expected
        walk = segment.walk(0, check_crc=True)
        segment.begin_indexes()
        aborted: list[AbortedTransaction] = []
        position, problem = 0, ""
        for position, buffer, at, header in walk:
            problem = self._out_of_place(segment, header, end)
            if problem:
                break
            self._has_gaps = self._has_gaps or is_after_gap(header, end)
            segment.note(position, header.size, header.last_offset, header.max_timestamp)
            if self._leader_epochs.intact:  # else all batches are read afterwards
                self._epochs_found |= self._leader_epochs.correct(header.leader_epoch, first_offset_of(header))
            ended = replay_batch(self._producers, buffer, at, header)
            if ended is not None:
                aborted.append(ended)
            end = header.last_offset + 1
        if not problem:
            position, problem = walk.position, walk.problem
        if problem:
            logger.warning(
                "%s: removing %d bytes of %s, from offset %d on: %s",
                self._topic_partition,
                segment.size - position,
                segment.path(LOG),
                end,
                problem,
            )
            self._drop_after(at_segment)
            segment.cut_file(position)
        segment.txn_index.replace(aborted)
        segment.seal()
        self._unsynced.update(segment.index_paths())  # a later recovery may begin above them
        return end, not problem

    def _out_of_place(self, segment: Segment, header: EntryHeader, end: int) -> str:
        first = first_offset_of(header)
        if first < end:
            return f"a batch of offsets {first} to {header.last_offset} follows on offset {end - 1}"
        if header.last_offset - segment.base_offset > RELATIVE_OFFSET_MAX:
            return f"offset {header.last_offset} is too far from the segment's base"
        return ""

    def _drop_after(self, at: int) -> None:
        """Delete the segments after a truncation point."""
        dropped = self._segments[at + 1 :]
        del self._segments[at + 1 :]
        for segment in dropped:
            path = segment.path(LOG)
            logger.warning("%s: deleting %s (%d bytes), which is after the truncation point", self._topic_partition, path, segment.size)
        self._remove(dropped)

    def _settle_epochs(self, log_start_offset: int, log_end_offset: int) -> None:
        """Make the leader epochs agree with the log."""
        epochs = self._leader_epochs
        if not epochs.intact:
            for segment in self._segments:
                for entry in segment.walk(0):
                    if entry.header.leader_epoch > epochs.latest:
                        epochs.note(entry.header.leader_epoch, first_offset_of(entry.header))
        if not epochs.intact or self._epochs_found:
            epochs.write()
        epochs.truncate_from_end(log_end_offset)
        epochs.truncate_from_start(log_start_offset)


def may_have_gaps(config: LogConfig) -> bool:
    """Whether a log of this configuration may have offsets without records."""
    return config.compact or bool(config.txbroker_mirror_source)


def is_after_gap(header: EntryHeader, end: int) -> bool:
    """Whether there are offsets without records between `end` and the last record of a batch. Old formats do not say it."""
    return isinstance(header, BatchHeader) and (header.base_offset > end or header.count <= header.last_offset_delta)


def never() -> bool:
    """Loading is not interrupted."""
    return False


def first_offset_of(header: EntryHeader) -> int:
    """The first offset of a batch; of an old message or wrapper the only one in its header."""
    return header.base_offset if isinstance(header, BatchHeader) else header.last_offset
