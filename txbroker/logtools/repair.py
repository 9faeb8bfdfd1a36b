"""`log repair`: carries out a plan. Removed bytes are first copied (`backups.py`). An interrupted repair can be repeated.

After a repair `log verify` finds no fault, and txbroker and Apache Kafka can open the directory. The clean-shutdown file stays as it is.
A batch that is removed from the middle of a log leaves a gap in the offsets, as compaction does. If a partition has replicas, it is better
to delete its directory and let it be copied from them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from txbroker.errors import CorruptRecords
from txbroker.log.checkpoints import MalformedCheckpoint, format_lines, format_offsets, parse_offsets
from txbroker.log.directory import LOCK_FILE
from txbroker.log.disk import Disk, Lock
from txbroker.log.file_names import INDEX_SUFFIXES, LEADER_EPOCHS, LOG, SNAPSHOT, TXN_INDEX, file_path, parse_name
from txbroker.log.leader_epochs import parse_epochs
from txbroker.log.producer_snapshots import format_snapshot, parse_snapshot
from txbroker.log.recovery import first_offset_of
from txbroker.log.segment import Segment
from txbroker.log.txn_index import TxnIndex
from txbroker.logtools.backups import CUT, TAKEN_OUT, copy_ranges, free_name, keep_copy, save_ranges, set_aside
from txbroker.logtools.bounded_read import read_small
from txbroker.logtools.directory_check import readable_offsets
from txbroker.logtools.findings import Remedy
from txbroker.logtools.log_paths import DataDirectory
from txbroker.logtools.partition_files import UNFINISHED_REPAIR, find_files
from txbroker.logtools.producer_checks import ProducerTracker
from txbroker.logtools.repair_plan import PartitionPlan, Plan
from txbroker.logtools.segment_check import SegmentFacts
from txbroker.names import TopicPartition

# Kafka's default of index.interval.bytes: the configurations of topics are not in their directories.
INDEX_INTERVAL_BYTES = 4096
# A segment with more damaged ranges gets one backup file with all of them.
DAMAGE_FILES_MAX = 100

Done = Callable[[str], None]


class Refused(Exception):
    """A directory that must not be repaired; the text says why, and what to do."""


def lock_all(disk: Disk, directories: Iterable[DataDirectory]) -> list[Lock]:
    """Lock data directories, so that no broker starts on them. Refused when a broker runs, or a directory belongs to a KRaft node."""
    locks: list[Lock] = []
    for data in directories:
        lock = None
        if not data.kraft:
            lock = disk.lock(f"{data.path}/{LOCK_FILE}")
        if lock is None:
            for held in locks:
                held.release()
            why = "belongs to a KRaft node and is only read; copy a partition's directory elsewhere and repair the copy"
            raise Refused(f"{data.path} {why if data.kraft else 'is in use by a broker; stop the broker first'}")
        locks.append(lock)
    return locks


def carry_out(disk: Disk, plan: Plan, done: Done) -> None:
    """Carry out all steps; `done` gets a sentence for each. StorageError; the repair can then be repeated."""
    for partition in plan.partitions:
        _PartitionRepair(disk, partition, done).run()
    for path in plan.checkpoints:
        _rewrite_checkpoint(disk, path, plan.ends, done)


class _PartitionRepair:
    def __init__(self, disk: Disk, plan: PartitionPlan, done: Done) -> None:
        self._disk = disk
        self._plan = plan
        self._report = plan.report
        self._directory = plan.place.path
        self._done = done

    def run(self) -> None:
        directory = self._directory
        for name in self._disk.names(directory):
            if name.endswith(UNFINISHED_REPAIR):
                self._disk.remove(f"{directory}/{name}")
        for path in self._plan.paths(Remedy.SET_ASIDE):
            self._set_aside(path)
        cut = False
        for facts in self._plan.damaged:
            cut = self._repair_log(facts) or cut
        self._rebuild_indexes()
        self._replay(cut)
        self._disk.sync(directory)

    def _path(self, base_offset: int, suffix: str) -> str:
        return file_path(self._directory, base_offset, suffix)

    def _set_aside(self, path: str) -> None:
        name = set_aside(self._disk, path)
        if name is not None:
            self._done(f"{path} was renamed to {name.rpartition('/')[2]}")

    # Log files

    def _repair_log(self, facts: SegmentFacts) -> bool:
        """Remove the damaged ranges from a segment; whether the end of the log was truncated."""
        path = self._path(facts.base_offset, LOG)
        last = facts.base_offset == self._report.segments[-1].base_offset
        if facts.removed_by_repair and not last:
            for suffix in (LOG, *INDEX_SUFFIXES):
                self._set_aside(self._path(facts.base_offset, suffix))
            return False
        damages = [(damage.start, damage.end) for damage in facts.damages]
        if len(damages) == 1 and damages[0][1] == facts.size:
            start = damages[0][0]
            name = save_ranges(self._disk, path, free_name(self._disk, f"{path}{CUT}{start}"), damages)
            file = self._disk.open(path)
            file.truncate(start)
            file.sync()
            self._done(f"{path} was truncated to {start} bytes; the rest is in {name.rpartition('/')[2]}")
            return last
        groups = [[damage] for damage in damages] if len(damages) <= DAMAGE_FILES_MAX else [damages]
        for group in groups:
            name = save_ranges(self._disk, path, free_name(self._disk, f"{path}{TAKEN_OUT}{group[0][0]}"), group)
            self._done(f"{sum(end - start for start, end in group)} bytes were removed from {path}; they are in {name.rpartition('/')[2]}")
        new = path + UNFINISHED_REPAIR
        target = self._disk.create(new)
        copy_ranges(self._disk, path, target, facts.intact)
        target.sync()
        self._disk.rename(new, path)
        self._disk.sync(self._directory)
        return last and damages[-1][1] == facts.size

    # Indexes

    def _rebuild_indexes(self) -> None:
        bases = {parsed[0] for path in self._plan.paths(Remedy.REBUILD_INDEXES) if (parsed := parse_name(path.rpartition("/")[2]))}
        for base_offset in sorted(bases):
            size = self._disk.size(self._path(base_offset, LOG))
            if size is None:
                continue
            segment = self._segment(base_offset, size)
            segment.rebuild_indexes("repair")
            for path in (segment.offset_index.path, segment.time_index.path):
                self._disk.sync(path)
            self._done(f"the indexes of {self._path(base_offset, LOG)} were rebuilt")

    def _segment(self, base_offset: int, size: int) -> Segment:
        return Segment(self._disk, self._directory, base_offset, size=size, created_ms=0, index_interval_bytes=INDEX_INTERVAL_BYTES)

    # Transaction indexes, snapshots and leader epochs, which are rebuilt from the batches

    def _replay(self, cut: bool) -> None:
        txn_indexes = self._offsets(Remedy.REBUILD_TXN_INDEX)
        snapshots = self._offsets(Remedy.REMAKE_SNAPSHOT)
        epochs_wanted = bool(self._plan.paths(Remedy.REWRITE_EPOCHS))
        if not (txn_indexes or snapshots or epochs_wanted or cut):
            return
        for offset in snapshots:
            self._set_aside(self._path(offset, SNAPSHOT))
        tracker = ProducerTracker(self._report.topic_partition)
        epochs: list[tuple[int, int]] = []
        end = self._report.start_offset
        for base_offset in find_files(self._disk, self._directory).logs:
            end = max(end, base_offset)
            self._at_snapshot(tracker, base_offset, base_offset in snapshots)
            tracker.begin_segment()
            size = self._disk.size(self._path(base_offset, LOG)) or 0
            for entry in self._segment(base_offset, size).walk(0):
                tracker.batch(entry)
                epoch = entry.header.leader_epoch
                if epoch > (epochs[-1][0] if epochs else -1):
                    epochs.append((epoch, first_offset_of(entry.header)))
                end = max(end, entry.header.last_offset + 1)
            if base_offset in txn_indexes:
                index = TxnIndex(self._disk, self._path(base_offset, TXN_INDEX))
                index.replace(tracker.aborted)
                if tracker.aborted:  # else there is no file
                    self._disk.sync(index.path)
                self._done(f"{index.path} was rebuilt")
        if cut or end in snapshots:
            self._at_snapshot(tracker, end, True)
        if epochs_wanted:
            self._rewrite_epochs(epochs, end)

    def _offsets(self, remedy: Remedy) -> set[int]:
        parsed = (parse_name(path.rpartition("/")[2]) for path in self._plan.paths(remedy))
        return {found[0] for found in parsed if found is not None}

    def _at_snapshot(self, tracker: ProducerTracker, offset: int, make: bool) -> None:
        """Load the snapshot at an offset, if there is a valid one: it may have more than the log. Else write one if `make`."""
        path = self._path(offset, SNAPSHOT)
        try:
            content = read_small(self._disk, path)
            if content is not None:
                states = parse_snapshot(content)
                tracker.states.clear()
                for state in states:
                    tracker.states.restore(state, None)
                return
        except CorruptRecords:
            return
        if make:
            self._disk.replace(path, format_snapshot(tracker.states))
            self._done(f"{path} was rebuilt")

    def _rewrite_epochs(self, found: list[tuple[int, int]], end: int) -> None:
        path = f"{self._directory}/{LEADER_EPOCHS}"
        try:
            written = parse_epochs(read_small(self._disk, path) or b"")
        except (CorruptRecords, MalformedCheckpoint):
            written = []
        last = found[-1][0] if found else -1
        # An epoch after that of the last batch begins at the log end offset; old record formats have no epochs.
        later = [(epoch, start) for epoch, start in written if epoch > last and (start == end if found else start <= end)]
        # As when a log's first segments are deleted: of the epochs that began before the log does, the last one stays and begins there.
        begin = self._report.start_offset
        begun = [epoch for epoch, start in later if start <= begin]
        later = [(epoch, begin) for epoch in begun[-1:]] + later[len(begun) :]
        keep_copy(self._disk, path)
        self._disk.replace(path, format_lines(f"{epoch} {start}" for epoch, start in [*found, *later]))
        self._done(f"{path} was rebuilt")


def _rewrite_checkpoint(disk: Disk, path: str, ends: dict[tuple[str, TopicPartition], int], done: Done) -> None:
    """Lower offsets to the end of their logs. Of a damaged file, the valid lines are kept."""
    directory = path.rpartition("/")[0]
    try:
        content = read_small(disk, path) or b""
    except CorruptRecords:
        content = b""
    try:
        offsets = parse_offsets(content)
    except MalformedCheckpoint:
        offsets = readable_offsets(content)
    for topic_partition, offset in offsets.items():
        offsets[topic_partition] = min(offset, ends.get((directory, topic_partition), offset))
    name = keep_copy(disk, path)
    disk.replace(path, format_offsets(offsets))
    done(f"{path} was corrected" + ("" if name is None else f"; the old file is {name.rpartition('/')[2]}"))
