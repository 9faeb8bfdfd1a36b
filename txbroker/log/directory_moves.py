"""In which directory a log is to be: requests to move it, and choices for logs that do not exist yet (AlterReplicaLogDirs, KIP-113).

`replica_moves.py` copies a log; here a copy begins, takes the place of the log, or is discarded.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Protocol

from txbroker.errors import BrokerError, ErrorCode, OutOfResources, StorageError
from txbroker.log import replica_move_recovery
from txbroker.log.buffered_later import BufferedLater
from txbroker.log.directory import Copy, LogDirectory
from txbroker.log.directory_list import DirectoryList
from txbroker.log.directory_names import DirectoryState, name_in_state
from txbroker.log.disk import Disk
from txbroker.log.log import Log
from txbroker.log.log_results import Later
from txbroker.log.replica_moves import Move, Moves
from txbroker.names import TopicPartition, partition_directory

logger = logging.getLogger("txbroker.log")

# How many choices for partitions without a log are kept: a client can name any partition.
CHOICES_MAX = 10_000


class LogMaker(Protocol):
    """Creates logs and removes them."""

    def make(self, directory: LogDirectory, path: str, topic_partition: TopicPartition, topic_id: bytes, later: Later, now_ms: int) -> Log:
        """A new log at `path`; StorageError."""

    def discard(self, home: LogDirectory, log: Log, gone: Callable[[], None] | None = None) -> None:
        """Rename a log's directory and remove it later; `gone` is called once the new name is durable. OutOfResources: not yet."""


class _Leaving:
    """A log that a copy has replaced, until the copy is durable; `then`: another move that is to begin afterwards."""

    def __init__(self, move: Move) -> None:
        self.move = move
        self.then: Callable[[], None] = _nothing


def _nothing() -> None:
    """No other move."""


class DirectoryMoves:
    """Belongs to `LogDirectories`, and to the thread of the logs."""

    def __init__(self, disk: Disk, directories: DirectoryList, maker: LogMaker, unique_id: Callable[[], str]) -> None:
        self._disk = disk
        self._directories = directories
        self._maker = maker
        self._unique_id = unique_id
        self._preferred: dict[TopicPartition, LogDirectory] = {}
        self._leaving: dict[TopicPartition, _Leaving] = {}
        # As many moves at once as directories, as Kafka's num.replica.alter.log.dirs.threads.
        self._moves = Moves(len(directories.all), arrived=self._arrived, failed=directories.fail, discard=self._discard_copy)
        directories.when_offline(self._directory_failed)

    def begin(self, topic_partition: TopicPartition, directory: str, now_ms: int) -> None:
        """Begin to move a log to another directory, or choose the directory of a log that does not exist yet.

        LOG_DIR_NOT_FOUND, KAFKA_STORAGE_ERROR (offline), REPLICA_NOT_AVAILABLE (no such log yet; the choice is remembered).
        """
        target = self._directories.by_path.get(directory)
        if target is None:
            raise BrokerError(ErrorCode.LOG_DIR_NOT_FOUND, f"{directory} is not in log.dirs")
        if not target.online:
            raise StorageError(f"{directory} is offline")
        if topic_partition in self._leaving:
            self._leaving[topic_partition].then = partial(self._begin_again, topic_partition, directory, now_ms)
            return
        source = self._directories.by_partition.get(topic_partition)
        if source is None:
            self._prefer(topic_partition, target)
            raise BrokerError(ErrorCode.REPLICA_NOT_AVAILABLE, f"{topic_partition} has no log here; if it gets one, it will be there")
        move = self._moves.get(topic_partition)
        if move is None or move.target is not target:
            self._moves.cancel(topic_partition)
            if source is not target:
                self._copy(source, target, source.logs[topic_partition], now_ms)

    def _prefer(self, topic_partition: TopicPartition, target: LogDirectory) -> None:
        """Remember where a log is to be created; the oldest choices are forgotten when there are too many."""
        self._preferred.pop(topic_partition, None)
        self._preferred[topic_partition] = target
        if len(self._preferred) > CHOICES_MAX:
            del self._preferred[next(iter(self._preferred))]

    def take_choice(self, topic_partition: TopicPartition) -> LogDirectory | None:
        """The directory that was chosen for a log that is created or deleted now, and forget it."""
        return self._preferred.pop(topic_partition, None)

    def is_moving(self, topic_partition: TopicPartition) -> bool:
        """Whether a log is being moved, or waits for it. If it were cleaned meanwhile, its copy could get a record from before a deletion
        and not the deletion."""
        return self._moves.get(topic_partition) is not None

    def cancel(self, topic_partition: TopicPartition) -> None:
        """Cancel a move, if there is one."""
        self._moves.cancel(topic_partition)

    def resume(self, target: LogDirectory, topic_partition: TopicPartition, now_ms: int) -> None:
        """Go on with a copy that an earlier process began."""
        source = self._directories.by_partition.get(topic_partition)
        if source is None:
            del target.copies[topic_partition]  # the original went offline while loading
            return
        self._add(source, target, source.logs[topic_partition], target.copies[topic_partition], now_ms)

    def run(self) -> None:
        """Begin with the moves that wait."""
        self._moves.run()

    def stop(self) -> None:
        """Stop all; the next start resumes them."""
        self._moves.stop()

    def _copy(self, source: LogDirectory, target: LogDirectory, log: Log, now_ms: int) -> None:
        path = f"{target.path}/{name_in_state(log.topic_partition, DirectoryState.FUTURE, self._unique_id())}"
        later = BufferedLater(target.later)
        try:
            copy = Copy(self._maker.make(target, path, log.topic_partition, log.topic_id, later, now_ms), later)
        except StorageError as error:
            self._directories.fail(target, error)
            raise
        logger.info("%s is being moved from %s to %s", log.topic_partition, source.path, target.path)
        target.copies[log.topic_partition] = copy
        self._add(source, target, log, copy, now_ms)

    def _add(self, source: LogDirectory, target: LogDirectory, log: Log, copy: Copy, now_ms: int) -> None:
        self._moves.add(Move(self._disk, self._moves, source, target, log, copy, now_ms))

    def _discard_copy(self, move: Move) -> None:
        if move.target.copies.pop(move.log.topic_partition, None) is not None:
            move.target.until_possible(partial(self._maker.discard, move.target, move.copy))

    def _directory_failed(self, directory: LogDirectory) -> None:
        self._moves.directory_failed(directory)
        self._preferred = {tp: preferred for tp, preferred in self._preferred.items() if preferred is not directory}

    def _arrived(self, move: Move) -> None:
        """Make a copy the log in use. The old log stays until all of the copy is durable, its new name and the records copied last.

        OutOfResources: the move is to go on, and to arrive again.
        """
        topic_partition, source, target, log = move.log.topic_partition, move.source, move.target, move.copy
        try:
            log.advance_start(move.log.log_start_offset)
            log.rename_directory(f"{target.path}/{partition_directory(topic_partition)}")
        except OutOfResources:
            raise
        except StorageError as error:
            self._directories.fail(target, error)
            return
        log.use(self._directories.open_segments)
        del target.copies[topic_partition]
        del source.logs[topic_partition]
        target.logs[topic_partition] = log
        self._directories.by_partition[topic_partition] = target
        target.inherit(topic_partition, source)
        logger.info("%s was moved from %s to %s", topic_partition, source.path, target.path)
        if self._directories.observer is not None:
            self._directories.observer.log_moved(topic_partition, log)
        self._leaving[topic_partition] = _Leaving(move)
        target.until_possible(partial(self._sync_arrived, target, log))

    def _sync_arrived(self, target: LogDirectory, log: Log) -> None:
        """Have a worker sync a copy that has replaced its log. OutOfResources: not yet."""
        try:
            plan = log.flush_plan()
        except OutOfResources:
            raise
        except StorageError as error:
            self._directories.fail(target, error)
            return
        assert plan is not None  # it has the directory's new name

        def synced() -> None:
            log.flushed(plan)
            self.leave(log.topic_partition)

        target.later(0, plan.sync, synced)

    def leave(self, topic_partition: TopicPartition) -> None:
        """Delete the log that a copy has replaced, if there is one: the copy is durable."""
        leaving = self._leaving.get(topic_partition)
        if leaving is not None:
            leaving.move.source.until_possible(partial(self.leave_now, topic_partition))

    def leave_now(self, topic_partition: TopicPartition) -> None:
        """As `leave`, also when the partition is deleted. OutOfResources: it is not deleted yet."""
        leaving = self._leaving.get(topic_partition)
        if leaving is None:
            return
        target = leaving.move.target
        mark = f"{target.path}/{partition_directory(topic_partition)}/{replica_move_recovery.CURRENT_COPY}"
        self._maker.discard(leaving.move.source, leaving.move.log, lambda: target.later(0, partial(self._disk.remove, mark)))
        del self._leaving[topic_partition]
        leaving.then()

    def _begin_again(self, topic_partition: TopicPartition, directory: str, now_ms: int) -> None:
        try:
            self.begin(topic_partition, directory, now_ms)
        except BrokerError as error:
            logger.error("%s cannot be moved to %s: %s", topic_partition, directory, error)
