"""Checks all files of a partition: segments, indexes, snapshots, leader epochs, topic id, leftovers."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

from txbroker.errors import CorruptRecords
from txbroker.log.checkpoints import MalformedCheckpoint
from txbroker.log.disk import Disk
from txbroker.log.file_names import LEADER_EPOCHS, LOG, PARTITION_METADATA, SNAPSHOT, TXN_INDEX, file_path
from txbroker.log.leader_epochs import parse_epochs
from txbroker.log.missing_file import SIZE_MAX, parse_missing, path_of, still_missing
from txbroker.log.partition_metadata import read_topic_id
from txbroker.log.recovery import first_offset_of
from txbroker.log.scan import Entry
from txbroker.logtools.bounded_read import read_small
from txbroker.logtools.findings import Findings, Remedy
from txbroker.logtools.gap_check import GapCheck, missing_text
from txbroker.logtools.kraft_snapshot import check_metadata_snapshot
from txbroker.logtools.partition_files import find_files
from txbroker.logtools.producer_checks import ProducerTracker, check_snapshot, check_txn_index
from txbroker.logtools.segment_check import Advance, SegmentCheck, SegmentFacts
from txbroker.names import TopicPartition, amount

# A segment that a running broker replaces during the check is checked again.
TRIES = 3


@dataclass(slots=True)
class PartitionReport:
    """The result of checking a partition. `start_offset`: of its first segment, `end_offset`: one above the last valid record; both are
    those after a repair.

    `swaps`: there are `.swap` files, which a broker must swap in first. `unread`: the disk failed, and nothing is known.
    """

    directory: str
    topic_partition: TopicPartition
    start_offset: int = 0
    end_offset: int = 0
    segments: list[SegmentFacts] = field(default_factory=list)
    findings: Findings = field(default_factory=Findings)
    swaps: bool = False
    unread: bool = False

    @property
    def size(self) -> int:
        """Bytes of its log files."""
        return sum(segment.size for segment in self.segments)

    @property
    def records(self) -> int:
        """The number of records, with transaction markers."""
        return sum(segment.records for segment in self.segments)

    @property
    def batches(self) -> int:
        """The number of batches."""
        return sum(segment.batches for segment in self.segments)


class PartitionCheck:
    """`live`: a broker is using the directory; `clean`: the last one shut down cleanly; `cleaned`: the log was compacted.

    Nothing is changed.
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        topic_partition: TopicPartition,
        *,
        live: bool,
        clean: bool,
        advance: Advance,
        cleaned: bool = False,
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._live = live
        self._clean = clean
        self._advance = advance
        self._report = PartitionReport(directory, topic_partition)
        self._findings = self._report.findings
        self._tracker = ProducerTracker(topic_partition)
        self._epochs = _EpochCheck()
        self._gaps = GapCheck(disk, directory, has_gaps=cleaned)

    def run(self) -> PartitionReport:
        """StorageError when the disk cannot be read."""
        files = find_files(self._disk, self._directory)
        self._report.swaps = files.swaps
        self._note_leftovers(files.leftovers)
        self._gaps.has_gaps = self._gaps.has_gaps or files.repaired
        self._epochs.load(self._disk, self._directory)
        snapshots = set(files.snapshots)
        self._report.start_offset = self._report.end_offset = files.logs[0] if files.logs else 0
        for at, base_offset in enumerate(files.logs):
            limit = files.logs[at + 1] if at + 1 < len(files.logs) else None
            self._report.end_offset = max(self._report.end_offset, base_offset)
            if base_offset in snapshots:
                snapshots.discard(base_offset)
                self._check_snapshot(base_offset)
            self._check_segment(base_offset, limit)
        lost = self._gaps.finish(self._findings, files)
        for offset in sorted(snapshots - lost):
            self._check_snapshot(offset, stray=offset not in (self._report.end_offset, max(snapshots)))
        start = self._report.start_offset = self._first_kept(files.logs)
        if files.logs and not self._live and not any(base < start for base in files.deleted):
            self._epochs.check_start(start)
        self._check_missing(start)
        self._epochs.finish(self._findings, self._report.end_offset)
        self._check_metadata(files.metadata)
        for name in files.metadata_snapshots:
            check_metadata_snapshot(self._disk, f"{self._directory}/{name}", self._findings, self._advance)
        if not files.any:
            self._findings.note(self._directory, "it has no files of a log")
        return self._report

    def _note_leftovers(self, leftovers: list[tuple[str, str]]) -> None:
        """One note for all leftovers of a kind: the log cleaner leaves many."""
        by_kind: dict[str, list[str]] = {}
        for name, what in leftovers:
            by_kind.setdefault(what, []).append(name)
        for what, names in by_kind.items():
            problem = what if len(names) == 1 else f"{what}; the same applies to {amount(len(names) - 1, 'other file')}"
            self._findings.note(f"{self._directory}/{names[0]}", problem)

    def batch(self, entry: Entry) -> None:
        """A valid batch, in order (`BatchObserver`)."""
        self._tracker.batch(entry)
        self._epochs.batch(entry)
        self._gaps.batch(entry)

    # Segments

    def _check_segment(self, base_offset: int, limit: int | None) -> None:
        for attempt in range(TRIES):
            before = self._stamp(base_offset)
            found = Findings()
            # The state of producers is not valid for batches that are read a second time.
            self._tracker.lost = self._tracker.lost or attempt > 0
            self._tracker.begin_segment()
            check = SegmentCheck(
                self._disk,
                self._directory,
                base_offset,
                limit=limit,
                growing=self._live and limit is None,
                closed=limit is not None or (self._clean and not self._live),
                advance=self._advance,
            )
            facts = check.run(found, self)
            if facts is not None:
                self._check_txn_index(found, facts)
            if not found.faults or not self._live or self._stamp(base_offset) == before or attempt + 1 == TRIES:
                break
        self._findings.extend(found.kept)
        if facts is None:
            self._findings.note(file_path(self._directory, base_offset, LOG), "a running broker has deleted or replaced it")
            self._gaps.has_gaps = True  # not by a loss
            return
        self._report.segments.append(facts)
        self._gaps.segment(facts)
        self._report.end_offset = max(self._report.end_offset, facts.next_offset)
        if facts.damages:
            self._tracker.lost = True

    def _first_kept(self, logs: list[int]) -> int:
        """The base offset of the first segment that a repair keeps."""
        removed = {facts.base_offset for facts in self._report.segments[:-1] if facts.removed_by_repair}
        return next((base for base in logs if base not in removed), 0)

    def _stamp(self, base_offset: int) -> tuple[int | None, ...]:
        """Values that change when a broker replaces the files of a segment."""
        paths = [file_path(self._directory, base_offset, suffix) for suffix in (LOG, TXN_INDEX)]
        return tuple(self._disk.size(path) for path in paths)

    def _check_txn_index(self, findings: Findings, facts: SegmentFacts) -> None:
        if facts.damages or self._tracker.too_many or (self._live and not self._tracker.aborted):
            return
        path = file_path(self._directory, facts.base_offset, TXN_INDEX)
        try:
            problem = check_txn_index(read_small(self._disk, path), self._tracker, facts.base_offset, facts.next_offset)
        except CorruptRecords as error:
            problem = error.message or ""
        if problem:
            findings.fault(path, problem, Remedy.REBUILD_TXN_INDEX)

    # Snapshots and topic id

    def _check_snapshot(self, offset: int, *, stray: bool = False) -> None:
        """`stray`: no segment has this base offset, and it is not the newest snapshot."""
        path = file_path(self._directory, offset, SNAPSHOT)
        try:
            content = read_small(self._disk, path)
            if content is None:
                return  # deleted with its segment
            tracker = self._tracker if offset == self._report.end_offset and not self._tracker.lost else None
            problem = check_snapshot(content, offset, tracker)
        except CorruptRecords as error:
            problem = error.message or ""
        if problem:
            self._findings.fault(path, problem, Remedy.REMAKE_SNAPSHOT)
        elif self._live:
            return  # the broker may have appended more than was read
        elif offset > self._report.end_offset:
            self._findings.fault(path, f"its offset is above the log end offset {self._report.end_offset}", Remedy.SET_ASIDE)
        elif stray:
            self._findings.note(path, "no segment has this base offset: the next start of a broker removes it")

    def _check_missing(self, start_offset: int) -> None:
        """What the broker has found missing at a start, and still is."""
        path = path_of(self._directory)
        try:
            content = read_small(self._disk, path, SIZE_MAX)
            known = [] if content is None else parse_missing(content)
        except (CorruptRecords, MalformedCheckpoint) as error:
            self._findings.fault(path, str(error), Remedy.SET_ASIDE)
            return
        segments = [(facts.base_offset, facts.next_offset) for facts in self._report.segments]
        for missing in still_missing(known, segments, self._epochs.entries, start_offset, has_gaps=self._gaps.has_gaps):
            self._findings.fault(path, str(missing), Remedy.SET_ASIDE)

    def _check_metadata(self, there: bool) -> None:
        if not there:
            return
        path = f"{self._directory}/{PARTITION_METADATA}"
        try:
            read_topic_id(read_small(self._disk, path) or b"")
        except (CorruptRecords, ValueError) as error:
            self._findings.fault(path, str(error), Remedy.SET_ASIDE)


class _EpochCheck:
    """leader-epoch-checkpoint against the epochs in the batches."""

    def __init__(self) -> None:
        self._path = ""
        self._starts: list[int] = []
        self._epochs: list[int] = []
        self._exists = False
        self._problem = ""
        self._highest = -1

    def load(self, disk: Disk, directory: str) -> None:
        """Read the file."""
        self._path = f"{directory}/{LEADER_EPOCHS}"
        try:
            content = read_small(disk, self._path)
            self._exists = content is not None
            for epoch, start in parse_epochs(content or b""):
                self._epochs.append(epoch)
                self._starts.append(start)
        except (CorruptRecords, MalformedCheckpoint) as error:
            self._problem = str(error)

    @property
    def entries(self) -> list[tuple[int, int]]:
        """The epochs of the file with their start offsets."""
        return list(zip(self._epochs, self._starts, strict=True))

    def batch(self, entry: Entry) -> None:
        """Compare one batch."""
        epoch = entry.header.leader_epoch
        if self._problem or epoch < 0 or epoch < self._highest:
            return
        self._highest = epoch
        offset = first_offset_of(entry.header)
        at = bisect_right(self._starts, offset) - 1
        if not self._exists:
            self._problem = f"it is missing, but the log has batches of epoch {epoch}"
        elif at >= 0 and self._epochs[at] != epoch:
            self._problem = f"it has epoch {self._epochs[at]} for offset {offset}, but the batch has {epoch}"
        elif at < 0 and (not self._epochs or epoch > self._epochs[0]):
            self._problem = f"it lacks epoch {epoch} of the batch at offset {offset}"

    def check_start(self, start_offset: int) -> None:
        """The first segment begins at `start_offset`, which is where the first epoch may begin at the earliest."""
        if not self._problem and self._starts and self._starts[0] < start_offset:
            what = f"but the first valid segment begins at {start_offset}: {missing_text(self._starts[0], start_offset)}"
            self._problem = f"epoch {self._epochs[0]} begins at offset {self._starts[0]}, {what}"

    def finish(self, findings: Findings, end_offset: int) -> None:
        """Report the problem, at the end of the log."""
        if not self._problem and self._starts and self._starts[-1] > end_offset:
            self._problem = f"epoch {self._epochs[-1]} begins at offset {self._starts[-1]}, above the log end offset {end_offset}"
        if self._problem:
            findings.fault(self._path, self._problem, Remedy.REWRITE_EPOCHS)
