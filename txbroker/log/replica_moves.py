"""Moving a log to another directory of the broker (AlterReplicaLogDirs, KIP-113): copy it, then replace it by the copy.

The copy is a log in a directory whose name ends in `-future`. A worker copies batches in chunks, one chunk per turn. When little is
left, the copy is synced. The rest is copied in the logs' thread, in which no append can come between, and the copy replaces the log
at once. `replica_move_recovery.py` handles moves that a crash interrupted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Protocol

from txbroker.errors import BrokerError, CorruptRecords, OutOfResources, StorageError
from txbroker.log.directory import AGAIN_MS, Copy, LogDirectory
from txbroker.log.disk import Disk
from txbroker.log.leader_epochs import NO_EPOCH
from txbroker.log.log import Log
from txbroker.log.recovery import first_offset_of
from txbroker.log.region import EMPTY, Region
from txbroker.log.replica_move_recovery import CURRENT_COPY
from txbroker.names import TopicPartition
from txbroker.wire.entries import read_header

CHUNK_BYTES = 4 << 20
LAST_BYTES_MAX = 1 << 20  # copied in the logs' thread: a few milliseconds

logger = logging.getLogger("txbroker.log")


class MoveOwner(Protocol):
    """Is notified of the end of a move, in the logs' thread."""

    def arrived(self, move: Move) -> None:
        """The copy is complete: it must replace the log now. OutOfResources: it cannot yet."""

    def aborted(self, move: Move, error: BrokerError, directory: LogDirectory | None) -> None:
        """The move failed: the disk of `directory` failed, or (None) the log has batches that cannot be copied."""


class Move:
    """The move of one log from `source` to `target`."""

    def __init__(self, disk: Disk, owner: MoveOwner, source: LogDirectory, target: LogDirectory, log: Log, copy: Copy, now_ms: int) -> None:
        self.source = source
        self.target = target
        self.log = log
        self.copy = copy.log
        self._copy_later = copy.later
        self.started = False
        self._disk = disk
        self._owner = owner
        self._now_ms = now_ms  # of the start; appends to a copy only compare it with timestamps
        self._generation = log.generation
        self._synced = False
        self._busy = False
        self._problem: tuple[BrokerError, LogDirectory | None] | None = None
        self._stopped: Callable[[], None] | None = None

    def start(self) -> None:
        """Begin, or continue a move that a crash interrupted."""
        self.started = True
        end = self._common_end()
        if end < self.copy.log_end_offset:
            self._in_worker(partial(self._guarded, partial(self.copy.truncate_to, end)), self._step)
        else:
            self._step()

    def stop(self, stopped: Callable[[], None]) -> None:
        """Stop; `stopped` is called once no worker uses the copy any more."""
        self._stopped = stopped
        if not self._busy:
            stopped()

    def _step(self) -> None:
        if self._must_restart():
            restart = partial(self.copy.truncate_fully_at, self.log.log_start_offset, now_ms=self._now_ms)
            self._in_worker(partial(self._guarded, restart), self._step)
            return
        region = EMPTY
        try:
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
                self._arrive()

    def _arrive(self) -> None:
        try:
            self._owner.arrived(self)
        except OutOfResources as error:
            logger.warning("%s cannot be moved to %s yet, retrying every second: %s", self.log.topic_partition, self.target.path, error)
            self._in_worker(_nothing, self._step, AGAIN_MS)

    def _next_region(self) -> Region:
        """The next chunk that the copy lacks; empty when it is complete."""
        log, copy = self.log, self.copy
        end = log.log_end_offset
        try:
            region = log.read(copy.log_end_offset, CHUNK_BYTES, offset_end=end, whole_first_batch=True).region
        except StorageError as error:
            self._problem = (error, self.source)
            return EMPTY
        if not len(region):
            # Compaction may have left the last offsets without a batch; the next record must not get one of these offsets.
            copy.skip_to(end, self._now_ms)
        return region

    def _in_worker(self, work: Callable[[], None], done: Callable[[], None], delay_ms: int = 0) -> None:
        def finished() -> None:
            self._busy = False
            self._copy_later.release()
            if self._stopped is not None:
                self._stopped()
            elif not self._failed():
                done()

        self._busy = True
        self._copy_later.hold()
        self.target.later(delay_ms, work, finished)

    def _failed(self) -> bool:
        if self._problem is None:
            return False
        self._owner.aborted(self, *self._problem)
        return True

    def _common_end(self) -> int:
        """Up to where an earlier copy has what the log still has: the log may have been truncated before the crash."""
        log, copy = self.log, self.copy
        end = log.log_end_offset
        if copy.leader_epochs.latest != NO_EPOCH:
            known = log.end_offset_for_epoch(copy.leader_epochs.latest)
            end = min(end, known.end_offset) if known.epoch != NO_EPOCH else log.log_start_offset
        return end

    def _guarded(self, truncate: Callable[[], object]) -> None:
        """Truncate the copy, in a worker, because it is synced between the steps."""
        try:
            truncate()
        except StorageError as error:
            self._problem = (error, self.target)

    def _must_restart(self) -> bool:
        """Whether the log lost records that were copied or come next, by truncation or retention."""
        log = self.log
        if log.generation == self._generation and self.copy.log_end_offset >= log.log_start_offset:
            return False
        self._generation = log.generation
        self._synced = False
        return True

    def _transfer(self, region: Region) -> None:
        """Append a region's whole batches to the copy, in a worker, or for the rest in the logs' thread."""
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
            # The log begins within this batch (DeleteRecords); the copy begins with the whole batch.
            end = first_offset_of(read_header(data))
            copy.truncate_fully_at(end, now_ms=self._now_ms)
        copy.append_replicated(memoryview(data), now_ms=self._now_ms)
        if copy.flush_due and self._busy:  # in a worker; what the logs' thread appends is synced once the copy is in use
            copy.flush()
        if copy.log_end_offset == end:
            raise CorruptRecords(f"no whole batch could be read at offset {end}")

    def _sync(self) -> None:
        try:
            self.copy.set_missing(self.log.missing)
        except StorageError as error:
            self._problem = (error, self.target)
            self._failed()
            return
        plan = self.copy.flush_plan()

        def sync() -> None:
            if plan is not None:
                plan.sync()
            try:
                # A mark that an earlier move left in the log itself is not valid any more.
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


def _nothing() -> None:
    """No work: only the delay matters."""


class Moves:
    """All moves of the broker; at most `active_max` at the same time, the others wait in their order.

    `arrived(move)`: replace the log by the copy. `failed(directory, error)`: a disk failed. `discard(move)`: it was cancelled, remove
    the copy.
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
        """Begin waiting moves."""
        self._running = True
        self._next()

    def stop(self) -> None:
        """Stop all moves; the next start continues them."""
        self._running = False
        for move in list(self._moves.values()):
            move.stop(lambda: None)

    def get(self, topic_partition: TopicPartition) -> Move | None:
        """The move of a partition's log, active or waiting."""
        return self._moves.get(topic_partition)

    def add(self, move: Move) -> None:
        """Add a move."""
        self._moves[move.log.topic_partition] = move
        self._next()

    def cancel(self, topic_partition: TopicPartition) -> None:
        """Cancel a move, if there is one."""
        move = self._moves.pop(topic_partition, None)
        if move is not None:
            move.stop(lambda: self._discard(move))
            self._next()

    def directory_failed(self, directory: LogDirectory) -> None:
        """End moves from or to it. Copies are left as they are, for when the directory is online again."""
        for topic_partition, move in list(self._moves.items()):
            if directory in (move.source, move.target):
                del self._moves[topic_partition]
                move.target.copies.pop(topic_partition, None)
                move.stop(lambda: None)
        self._next()

    def arrived(self, move: Move) -> None:
        """A `Move` has finished. OutOfResources: not yet."""
        topic_partition = move.log.topic_partition
        del self._moves[topic_partition]
        try:
            self._arrived(move)
        except OutOfResources:
            self._moves[topic_partition] = move
            raise
        self._next()

    def aborted(self, move: Move, error: BrokerError, directory: LogDirectory | None) -> None:
        """A `Move` has failed."""
        if directory is not None and not isinstance(error, OutOfResources):
            self._failed(directory, error)
            return
        source, target = move.source.path, move.target.path
        logger.error("%s stays in %s, because it cannot be moved to %s: %s", move.log.topic_partition, source, target, error)
        self.cancel(move.log.topic_partition)

    def _next(self) -> None:
        if not self._running:
            return
        for move in list(self._moves.values()):
            if sum(other.started for other in self._moves.values()) >= self._active_max:
                return
            if not move.started and self._moves.get(move.log.topic_partition) is move:
                move.start()
