"""Moving a log to another directory of the broker (AlterReplicaLogDirs, KIP-113): make a copy, then change places.

The copy is a log in a directory whose name ends in `-future`. Batches go over in chunks, read and written in a worker, one chunk
a turn. When little is left, the copy is synced; the last bit is then copied in the logs' own thread, where nobody appends
meanwhile, and the two logs change places at once.

What a crash in the middle leaves is the matter of `copies.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from txbroker.errors import BrokerError, CorruptRecords, OutOfResources, StorageError
from txbroker.log.directory import Copy, LogDirectory
from txbroker.log.disk import Disk
from txbroker.log.leader_epochs import NO_EPOCH
from txbroker.log.log import Log
from txbroker.log.recovery import first_offset_of
from txbroker.log.region import EMPTY, Region
from txbroker.log.replica_move_recovery import CURRENT_COPY
from txbroker.names import TopicPartition
from txbroker.wire.entries import read_header

CHUNK_BYTES = 4 << 20
LAST_BYTES_MAX = 1 << 20  # copied in the logs' own thread: a few milliseconds

logger = logging.getLogger("txbroker.log")


class MoveOwner(Protocol):
    """Who is told how a move ended, in the logs' thread."""

    def arrived(self, move: Move) -> None:
        """The copy has all that the log has: now they must change places."""

    def aborted(self, move: Move, error: BrokerError, directory: LogDirectory | None) -> None:
        """It cannot go on: the disk of `directory` failed, or (None) the log has batches that cannot be copied."""


class Move:
    """One log on its way from `source` to `target`."""

    def __init__(self, disk: Disk, owner: MoveOwner, source: LogDirectory, target: LogDirectory, log: Log, copy: Copy, now_ms: int) -> None:
        self.source = source
        self.target = target
        self.log = log
        self.copy = copy.log
        self._copy_later = copy.later
        self.started = False
        self._disk = disk
        self._owner = owner
        self._now_ms = now_ms  # of the start: appends of a copy only compare it with records' own timestamps
        self._generation = log.generation
        self._synced = False
        self._busy = False
        self._problem: tuple[BrokerError, LogDirectory | None] | None = None
        self._stopped: Callable[[], None] | None = None

    def start(self) -> None:
        """Begin, or go on with what a crash interrupted."""
        self.started = True
        self._cut_what_differs()
        self._step()

    def stop(self, stopped: Callable[[], None]) -> None:
        """Go no further; `stopped` is called once no worker touches the copy any more."""
        self._stopped = stopped
        if not self._busy:
            stopped()

    def _step(self) -> None:
        region = EMPTY
        try:
            self._begin_anew_if_cut()
            region = self._next_region()
        except StorageError as error:
            self._problem = (error, self.target)
        if self._failed():
            return
        if self.log.segments[-1].base_offset > self.copy.log_end_offset or len(region) > LAST_BYTES_MAX:
            self._in_worker(lambda: self._transfer(region), self._step)
        elif not self._synced:
            self._sync()
        else:
            if len(region):
                self._transfer(region)
            if not self._failed():
                self._owner.arrived(self)

    def _next_region(self) -> Region:
        """What the copy lacks, up to a chunk of it; nothing once it has all."""
        log, copy = self.log, self.copy
        end = log.log_end_offset
        try:
            region = log.read(copy.log_end_offset, CHUNK_BYTES, offset_end=end, whole_first_batch=True).region
        except StorageError as error:
            self._problem = (error, self.source)
            return EMPTY
        if not len(region):
            # Compaction may have left the last offsets without a batch; the next record must not get one of them.
            copy.skip_to(end, self._now_ms)
        return region

    def _in_worker(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        def finished() -> None:
            self._busy = False
            self._copy_later.release()
            if self._stopped is not None:
                self._stopped()
            elif not self._failed():
                done()

        self._busy = True
        self._copy_later.hold()
        self.target.later(0, work, finished)

    def _failed(self) -> bool:
        if self._problem is None:
            return False
        self._owner.aborted(self, *self._problem)
        return True

    def _cut_what_differs(self) -> None:
        """Keep of a copy that was begun earlier what the log still has: it may have been truncated before the crash."""
        log, copy = self.log, self.copy
        end = log.log_end_offset
        if copy.leader_epochs.latest != NO_EPOCH:
            known = log.end_offset_for_epoch(copy.leader_epochs.latest)
            end = min(end, known.end_offset) if known.epoch != NO_EPOCH else log.log_start_offset
        try:
            copy.truncate_to(end)
        except StorageError as error:
            self._problem = (error, self.target)

    def _begin_anew_if_cut(self) -> None:
        """Follow the log where it lost what was copied or comes next: its end by truncation, its beginning by retention."""
        log, copy = self.log, self.copy
        if log.generation != self._generation or copy.log_end_offset < log.log_start_offset:
            self._generation = log.generation
            self._synced = False
            copy.truncate_fully_at(log.log_start_offset, now_ms=self._now_ms)

    def _transfer(self, region: Region) -> None:
        """Append a region's whole batches to the copy. In a worker, or for the last bit in the logs' thread."""
        try:
            data = region.read()
        except StorageError as error:
            self._problem = (error, self.source)
            return
        if self.log.generation != self._generation:
            return  # truncated since the region was chosen: these may be other records
        try:
            self._append(data)
        except StorageError as error:
            self._problem = (error, self.target)
        except BrokerError as error:
            self._problem = (error, None)

    def _append(self, data: bytes) -> None:
        copy = self.copy
        end = copy.log_end_offset
        if first_offset_of(read_header(data)) < end:
            # The log begins in the middle of this batch (DeleteRecords); the copy begins with the whole of it.
            end = first_offset_of(read_header(data))
            copy.truncate_fully_at(end, now_ms=self._now_ms)
        copy.append_replicated(memoryview(data), now_ms=self._now_ms)
        if copy.flush_due:
            copy.flush()
        if copy.log_end_offset == end:
            raise CorruptRecords(f"no whole batch could be read at offset {end}")

    def _sync(self) -> None:
        plan = self.copy.flush_plan()

        def sync() -> None:
            if plan is not None:
                plan.sync()
            try:
                # A mark that an earlier move left on the log itself must not speak for it any more.
                self._disk.remove(f"{self.log.directory}/{CURRENT_COPY}")
                self._disk.sync(self.log.directory)
            except StorageError as error:
                self._problem = (error, self.source)
                return
            self._disk.replace(f"{self.copy.directory}/{CURRENT_COPY}", b"")

        def synced() -> None:
            self._synced = True
            if plan is not None:
                self.copy.flushed(plan)
            self._step()

        self._in_worker(sync, synced)


class Moves:
    """All moves of the broker; at most `active_max` at once, the others wait in their order.

    `arrived(move)`: make the copy the log in use. `failed(directory, error)`: a disk failed. `discard(move)`: it was cancelled,
    the copy is to be removed.
    """

    def __init__(
        self,
        active_max: int,
        *,
        arrived: Callable[[Move], None],
        failed: Callable[[LogDirectory, Exception], None],
        discard: Callable[[Move], None],
    ) -> None:
        self._active_max = active_max
        self._arrived = arrived
        self._failed = failed
        self._discard = discard
        self._moves: dict[TopicPartition, Move] = {}
        self._running = False

    def run(self) -> None:
        """Begin with those that wait."""
        self._running = True
        self._next()

    def stop(self) -> None:
        """Go no further with any, for good; the next start goes on."""
        self._running = False
        for move in self._moves.values():
            move.stop(lambda: None)

    def get(self, topic_partition: TopicPartition) -> Move | None:
        """The move of a partition's log, active or waiting."""
        return self._moves.get(topic_partition)

    def add(self, move: Move) -> None:
        """Have a log moved."""
        self._moves[move.log.topic_partition] = move
        self._next()

    def cancel(self, topic_partition: TopicPartition) -> None:
        """Call a move off, if there is one."""
        move = self._moves.pop(topic_partition, None)
        if move is not None:
            move.stop(lambda: self._discard(move))
            self._next()

    def directory_failed(self, directory: LogDirectory) -> None:
        """Give up what goes from or to it. The copy that was begun is left as it is, for when the directory is back."""
        for topic_partition, move in list(self._moves.items()):
            if directory in (move.source, move.target):
                del self._moves[topic_partition]
                move.target.copies.pop(topic_partition, None)
                move.stop(lambda: None)
        self._next()

    def arrived(self, move: Move) -> None:
        """A `Move` says: it is done."""
        del self._moves[move.log.topic_partition]
        self._arrived(move)
        self._next()

    def aborted(self, move: Move, error: BrokerError, directory: LogDirectory | None) -> None:
        """A `Move` says: it cannot go on."""
        if directory is not None and not isinstance(error, OutOfResources):
            self._failed(directory, error)
            return
        logger.error("%s stays in %s, it cannot be moved to %s: %s", move.log.topic_partition, move.source.path, move.target.path, error)
        self.cancel(move.log.topic_partition)

    def _next(self) -> None:
        if not self._running:
            return
        for move in list(self._moves.values()):
            if sum(other.started for other in self._moves.values()) >= self._active_max:
                return
            if not move.started and self._moves.get(move.log.topic_partition) is move:
                move.start()
