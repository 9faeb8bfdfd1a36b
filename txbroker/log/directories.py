"""The broker's log directories (`log.dirs`): which logs are where, checkpoints, failures, deletions, moves (Kafka's LogManager).

The life of it: `open` (directories made, locked, identities read), `claim` (identity checked and written), `load` (logs opened,
recovered where needed), `start`, then serving, then `close` (all synced, marked clean). All methods belong to the thread of the
logs; `load` and `close` wait for the disk and may run in a worker while nobody else uses the directories. What else waits for the
disk goes through the injected `Later`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Protocol

from txbroker.errors import BrokerError, ErrorCode, NoSpace, OutOfResources, StartError, StartInterrupted, StorageError
from txbroker.log import meta_properties, replica_move_recovery
from txbroker.log.buffered_later import HeldLater
from txbroker.log.cleaner.cleaning_history import History
from txbroker.log.descriptions import DirectoryDescription, describe_directory, describe_offline
from txbroker.log.directory import AGAIN_MS, Copy, LogDirectory
from txbroker.log.directory_names import Fate, with_fate
from txbroker.log.disk import Disk
from txbroker.log.file_names import remove_cleaned
from txbroker.log.loading import Job, Loading, Progress, Settings
from txbroker.log.log import PRODUCER_ID_EXPIRATION_MS, Log, no_jitter
from txbroker.log.log_config import LogConfig
from txbroker.log.log_expiry import Expired, Expirer
from txbroker.log.log_results import Later
from txbroker.log.meta_properties import NOBODY, Identity
from txbroker.log.open_segments import OpenSegments
from txbroker.log.producer_expiry import ProducerExpiry
from txbroker.log.recovery import never
from txbroker.log.replica_moves import Move, Moves
from txbroker.names import NULL_TOPIC_ID, TopicPartition, partition_directory

logger = logging.getLogger("txbroker.log")

# Partitions that do not exist, for which a directory was chosen: anybody can name any.
CHOICES_MAX = 10_000


class Observer(Protocol):
    """Whoever must know what happens to logs: told from the thread of the logs."""

    def directory_failed(self, directory: str, partitions: Sequence[TopicPartition]) -> None:
        """A directory went offline; its logs (of these partitions) must not be used any more."""

    def all_directories_failed(self) -> None:
        """No directory is left: the broker must stop."""

    def log_moved(self, topic_partition: TopicPartition, log: Log) -> None:
        """The partition's log is in another directory now; the old `Log` must not be used any more."""


# Closing a log is mostly waiting for syncs, which file systems do together; Kafka has only the threads of recovery for it.
CLOSING_AT_ONCE = 16


class RunAll(Protocol):
    """Runs all jobs, for each directory `at_once` of them together (None: as many as recovery may), and returns when all are done."""

    def __call__(self, jobs: Mapping[str, Sequence[Job]], *, at_once: int | None = None) -> None: ...


def one_by_one(jobs: Mapping[str, Sequence[Job]], *, at_once: int | None = None) -> None:
    """A `RunAll` without workers, for tools and tests."""
    for of_directory in jobs.values():
        for job in of_directory:
            job()


class LogDirectories:
    """The logs of this broker by partition, and the directories that they are in."""

    def __init__(
        self,
        disk: Disk,
        later: Later,
        unique_id: Callable[[], str],
        paths: Sequence[str],
        *,
        config_for: Callable[[str], LogConfig],
        random_below: Callable[[int], int] = no_jitter,
        producer_id_expiration_ms: Callable[[], int] = lambda: PRODUCER_ID_EXPIRATION_MS,
    ) -> None:
        """`paths`: absolute. `config_for`: the settings of a topic. `unique_id`: 32 hexadecimal digits, new at each call.

        `random_below(n)` is a number in [0, n), for segment.jitter.ms.
        """
        self._disk = disk
        self._unique_id = unique_id
        self._config_for = config_for
        self._random_below = random_below
        self._producer_id_expiration_ms = producer_id_expiration_ms
        self._directories = [LogDirectory(disk, later, path, self._fail) for path in paths]
        self._by_path = {directory.path: directory for directory in self._directories}
        self._homes: dict[TopicPartition, LogDirectory] = {}
        self._preferred: dict[TopicPartition, LogDirectory] = {}
        # As many moves at once as directories, as Kafka's num.replica.alter.log.dirs.threads.
        self._moves = Moves(len(paths), arrived=self._arrived, failed=self._fail, discard=self._discard_copy)
        self._doomed: list[tuple[LogDirectory, str]] = []
        self._observer: Observer | None = None
        self._open_segments = OpenSegments()
        self._loaded = False
        self._loadings: list[Loading] = []
        self._producer_expiry = ProducerExpiry(later)
        self._expirer = Expirer(self._homes.get, self._fail)
        self.lacks = 0
        """How often the system had no descriptor or memory left for a log's file."""
        self.full = 0
        """How often a file system had no room left for one."""
        self._given_up: dict[str, bool] = {}  # the directories of an interrupted start, and whether all of their logs are whole

    def wire(self, observer: Observer) -> None:
        """Tell `observer` from `start` on."""
        self._observer = observer

    # --- start and stop ---

    def open(self) -> Identity:
        """Make, check and lock the directories; the identity that their meta.properties hold.

        StartError: a directory is in use, identities disagree or cannot be read, no directory can be used. One of several that
        cannot be used goes offline.
        """
        if len(self._by_path) < len(self._directories):
            raise StartError(f"log.dirs names a directory twice: {', '.join(directory.path for directory in self._directories)}")
        self._for_each_online(LogDirectory.open)
        together, together_path = NOBODY, ""
        for directory in self._online():
            path = f"{directory.path}/{meta_properties.FILE_NAME}"
            together = meta_properties.join(together, together_path, directory.identity, path)
            together_path = together_path or path
        return together

    def claim(self, identity: Identity) -> None:
        """Check that the directories are those of this broker, and write meta.properties where it is missing; StartError."""
        self._for_each_online(lambda directory: directory.claim(identity))

    def load(self, now_ms: int, run_all: RunAll, progress: Progress, interrupted: Callable[[], bool] = never) -> None:
        """Open every log. `progress(directory, done, total)` is called from workers: at the end, at every tenth of a recovery.

        StartError when a partition is in two directories, or when none is left to serve. StartInterrupted once `interrupted` says so,
        before the next log or segment that is to be recovered: what was opened is to be closed then.
        """
        expiration_ms = self._producer_id_expiration_ms()
        settings = Settings(self._config_for, self._random_below, expiration_ms, now_ms, self._open_segments, interrupted)
        loadings = [Loading(directory, self._disk, settings, progress) for directory in self._online()]
        self._loadings = loadings
        for loading in loadings:
            loading.find()
        sound = [loading for loading in loadings if loading.error is None]
        replica_move_recovery.settle(sound, self._disk, self._unique_id, complete=len(sound) == len(self._directories))
        run_all({loading.directory.path: loading.jobs() for loading in loadings})
        for loading in loadings:
            if loading.error is None:
                self._take(loading)
            else:
                self._fail(loading.directory, loading.error)
        left = sum(len(loading.left) for loading in loadings)
        if left:
            self._given_up = {loading.directory.path: loading.give_up() for loading in loadings}
            raise StartInterrupted(f"the start was given up: {left} logs are left for the next one")
        for directory in self._online():
            for topic_partition in list(directory.copies):
                self._resume(directory, topic_partition, now_ms)
        self._check_any_online()
        self._loaded = True
        self._loadings = []

    def loading(self) -> tuple[int, int]:
        """How many logs are open, and how many there are, while they are loaded; from any thread."""
        loadings = self._loadings
        return sum(loading.done for loading in loadings), sum(loading.total for loading in loadings)

    def _take(self, loading: Loading) -> None:
        directory = loading.directory
        for log in loading.logs:
            directory.logs[log.topic_partition] = log
            self._homes[log.topic_partition] = directory
        for copy in loading.copies:
            directory.copies[copy.log.topic_partition] = copy
        self._doomed.extend((directory, path) for path in loading.doomed)

    def _resume(self, target: LogDirectory, topic_partition: TopicPartition, now_ms: int) -> None:
        source = self._homes.get(topic_partition)
        if source is None:
            del target.copies[topic_partition]  # the log that it copies went offline while loading
            return
        copy = target.copies[topic_partition]
        self._moves.add(Move(self._disk, self._moves, source, target, source.logs[topic_partition], copy, now_ms))

    def start(self) -> None:
        """Loading is over: from now on workers delete and copy what is due, and the observer is told."""
        for directory in self._online():
            directory.later.release()
        for directory, path in self._doomed:
            directory.later(0, partial(self._disk.remove_tree, path))
        self._doomed.clear()
        self._moves.run()

    def stop(self) -> None:
        """Begin nothing more; before `close`."""
        self._moves.stop()
        self._producer_expiry.stop()

    def close(self, run_all: RunAll) -> None:
        """Sync and close all logs, write checkpoints and the mark of a clean shutdown, unlock: the end of use.

        Before `load` it only unlocks; after one that was interrupted, the mark is for directories whose logs are all whole.
        """
        errors: dict[str, StorageError] = {}

        def close_log(directory: LogDirectory, log: Log) -> None:
            try:
                log.close()
            except StorageError as error:
                errors[directory.path] = error

        if self._loaded or self._given_up:
            run_all(
                {directory.path: [partial(close_log, directory, log) for log in directory.logs.values()] for directory in self._online()},
                at_once=CLOSING_AT_ONCE,
            )
        for directory in self._online():
            if self._loaded or self._given_up:
                self._finish(directory, errors.get(directory.path))
            directory.unlock()

    def _finish(self, directory: LogDirectory, error: StorageError | None) -> None:
        try:
            if error is not None:
                raise error
            directory.write_checkpoints()
            if self._given_up.get(directory.path, True):
                directory.mark_clean()
        except StorageError as problem:
            logger.error("%s is not closed cleanly and will be recovered at the next start: %s", directory.path, problem)

    # --- directories ---

    def _online(self) -> list[LogDirectory]:
        return [directory for directory in self._directories if directory.online]

    def online(self) -> list[str]:
        """The directories that serve."""
        return [directory.path for directory in self._online()]

    def offline(self) -> list[str]:
        """The directories that failed."""
        return [directory.path for directory in self._directories if not directory.online]

    def _for_each_online(self, action: Callable[[LogDirectory], None]) -> None:
        """Do it with each; one that fails goes offline, StartError when none is left."""
        problem = ""
        for directory in self._online():
            try:
                action(directory)
            except StorageError as error:
                problem = str(error)
                self._fail(directory, error)
        self._check_any_online(problem)

    def _check_any_online(self, problem: str = "see the log") -> None:
        if not self._online():
            paths = ", ".join(directory.path for directory in self._directories)
            raise StartError(f"none of the log directories can be used ({paths}): {problem}; correct it, or choose another log.dirs")

    def fail(self, log: Log, error: Exception) -> None:
        """A log's disk failed: take its directory offline with all its logs, and tell the observer. Again: nothing."""
        directory = self._by_path.get(log.directory.rpartition("/")[0])
        if directory is not None:
            self._fail(directory, error)

    def check_file(self, path: str) -> None:
        """A reader could not be given what a log file held: its directory goes offline, unless the file was only cut meanwhile."""
        directory = path.rpartition("/")[0]
        home = self._by_path.get(directory.rpartition("/")[0])
        for log in home.logs.values() if home is not None else ():
            if log.directory != directory:
                continue
            try:
                log.check_file(path)
            except StorageError as error:
                self.fail(log, error)
            return

    def _fail(self, directory: LogDirectory, error: Exception) -> None:
        if self._loaded and isinstance(error, OutOfResources):
            if isinstance(error, NoSpace):
                self.full += 1
                times = self.full
            else:
                self.lacks += 1
                times = self.lacks
            if times & (times - 1) == 0:  # at the first, second, fourth, eighth time: producers try again all the time
                logger.error("%s; the log directory %s stays online (so far %d times)", error, directory.path, times)
        else:
            self._take_offline(directory, error)

    def _take_offline(self, directory: LogDirectory, error: Exception) -> None:
        if not directory.online:
            return
        partitions = directory.go_offline()
        for topic_partition in partitions:
            del self._homes[topic_partition]
        if self._loaded or self._online():  # else whoever starts the broker is told, in one sentence
            logger.error("the log directory %s is offline with its %d logs: %s", directory.path, len(partitions), error)
        self._moves.directory_failed(directory)
        self._preferred = {tp: preferred for tp, preferred in self._preferred.items() if preferred is not directory}
        if self._observer is not None and self._loaded:
            self._observer.directory_failed(directory.path, partitions)
            if not self._online():
                self._observer.all_directories_failed()

    # --- logs ---

    def get(self, topic_partition: TopicPartition) -> Log | None:
        """The log of a partition, if it is here and its directory is online."""
        home = self._homes.get(topic_partition)
        return None if home is None else home.logs[topic_partition]

    def logs(self) -> dict[TopicPartition, Log]:
        """All logs in use."""
        return {topic_partition: home.logs[topic_partition] for topic_partition, home in self._homes.items()}

    def create(self, topic_partition: TopicPartition, topic_id: bytes, *, is_new: bool, now_ms: int) -> Log:
        """Make the log of a partition that has none, in the directory with the fewest.

        StorageError when no directory takes it, or unless `is_new` while a directory is offline, where it may be.
        """
        if not is_new and self.offline():
            raise StorageError(f"the log of {topic_partition} may be in {', '.join(self.offline())}, which is offline")
        preferred = self._preferred.pop(topic_partition, None)
        candidates = [preferred] if preferred else sorted(self._online(), key=LogDirectory.log_count)
        for directory in candidates:
            try:
                path = f"{directory.path}/{partition_directory(topic_partition)}"
                log = self._make(directory, path, topic_partition, topic_id, directory.later, now_ms)
            except StorageError as error:
                self._fail(directory, error)
                if directory.online:  # it only lacked something: what is there must not be taken for the log at the next start
                    with suppress(StorageError):
                        self._disk.remove_tree(path)
                continue
            directory.kept_cleaner_offsets.pop(topic_partition, None)
            directory.kept_cleaning_histories.pop(topic_partition, None)
            directory.logs[topic_partition] = log
            self._homes[topic_partition] = directory
            return log
        raise StorageError(f"no log directory takes the log of {topic_partition}")

    def _make(self, directory: LogDirectory, path: str, topic_partition: TopicPartition, topic_id: bytes, later: Later, now_ms: int) -> Log:
        log = Log.open(
            path,
            topic_partition,
            disk=self._disk,
            config=self._config_for(topic_partition.topic),
            now_ms=now_ms,
            later=later,
            random_below=self._random_below,
            producer_id_expiration_ms=self._producer_id_expiration_ms(),
            open_segments=self._open_segments,
        )
        if topic_id != NULL_TOPIC_ID:
            log.assign_topic_id(topic_id)
        directory.sync_entries()
        return log

    def delete(self, topic_partition: TopicPartition) -> None:
        """Take a log out of use: renamed at once, removed after file.delete.delay.ms. StorageError when it may be offline."""
        self._preferred.pop(topic_partition, None)
        home = self._homes.get(topic_partition)
        if home is None:
            if self.offline():
                raise StorageError(f"the log of {topic_partition} may be in {', '.join(self.offline())}, which is offline")
            return
        self._moves.cancel(topic_partition)
        del self._homes[topic_partition]
        self._discard(home, home.logs.pop(topic_partition))
        if not home.online:
            raise StorageError(f"the log of {topic_partition} could not be deleted: {home.path} failed")

    def _discard(self, home: LogDirectory, log: Log, gone: Callable[[], None] | None = None) -> None:
        """Rename a log's directory and remove it later; `gone` is called once the new name is durable."""
        doomed = f"{home.path}/{with_fate(log.topic_partition, Fate.DELETE, self._unique_id())}"
        try:
            log.rename_directory(doomed)
        except StorageError as error:
            self._fail(home, error)
            return
        logger.info("the log of %s is now %s, to be removed in %d ms", log.topic_partition, doomed, log.config.file_delete_delay_ms)
        home.forget(log.topic_partition)
        if gone is None:
            home.sync_entries()
        else:
            home.later(0, partial(self._disk.sync, home.path), gone)
        home.later(log.config.file_delete_delay_ms, log.delete)

    def reconfigure(self, topic: str) -> None:
        """Give the topic's logs the settings that `config_for` has now."""
        config = self._config_for(topic)
        for directory in self._online():
            for log in directory.all_logs():
                if log.topic_partition.topic == topic:
                    log.reconfigure(config)

    def flush(self, log: Log, done: Callable[[], None] | None = None) -> None:
        """Sync a log up to its present end in a worker, then call `done` (not when the disk failed: its directory is offline then)."""
        home = self._by_path[log.directory.rpartition("/")[0]]
        try:
            plan = log.flush_plan()
        except StorageError as error:
            self._fail(home, error)
            home.later(AGAIN_MS, _nothing, partial(self.flush, log, done))  # not if it is offline now
            return
        if plan is None:
            if done is not None:
                done()
            return

        def synced() -> None:
            log.flushed(plan)
            if done is not None:
                done()

        home.later(0, plan.sync, synced)

    # --- moves ---

    def move(self, topic_partition: TopicPartition, directory: str, now_ms: int) -> None:
        """Begin to move a log to another directory, or choose the directory of one that will be made (AlterReplicaLogDirs).

        LOG_DIR_NOT_FOUND, KAFKA_STORAGE_ERROR (offline), REPLICA_NOT_AVAILABLE (no such log yet; the choice is remembered).
        """
        target = self._by_path.get(directory)
        if target is None:
            raise BrokerError(ErrorCode.LOG_DIR_NOT_FOUND, f"{directory} is not in log.dirs")
        if not target.online:
            raise StorageError(f"{directory} is offline")
        source = self._homes.get(topic_partition)
        if source is None:
            self._prefer(topic_partition, target)
            raise BrokerError(ErrorCode.REPLICA_NOT_AVAILABLE, f"{topic_partition} has no log here; if it gets one, it will be there")
        move = self._moves.get(topic_partition)
        if move is None or move.target is not target:
            self._moves.cancel(topic_partition)
            if source is not target:
                self._begin_move(source, target, source.logs[topic_partition], now_ms)

    def _prefer(self, topic_partition: TopicPartition, target: LogDirectory) -> None:
        """Remember where a log is to be once it is made; of choices for partitions that never come, only so many are kept."""
        self._preferred.pop(topic_partition, None)
        self._preferred[topic_partition] = target
        if len(self._preferred) > CHOICES_MAX:
            del self._preferred[next(iter(self._preferred))]

    def _begin_move(self, source: LogDirectory, target: LogDirectory, log: Log, now_ms: int) -> None:
        path = f"{target.path}/{with_fate(log.topic_partition, Fate.FUTURE, self._unique_id())}"
        later = HeldLater(target.later)
        try:
            copy = Copy(self._make(target, path, log.topic_partition, log.topic_id, later, now_ms), later)
        except StorageError as error:
            self._fail(target, error)
            raise
        logger.info("%s is being moved from %s to %s", log.topic_partition, source.path, target.path)
        target.copies[log.topic_partition] = copy
        self._moves.add(Move(self._disk, self._moves, source, target, log, copy, now_ms))

    def _discard_copy(self, move: Move) -> None:
        if move.target.copies.pop(move.log.topic_partition, None) is not None:
            self._discard(move.target, move.copy)

    def _arrived(self, move: Move) -> None:
        """Make a copy the log in use. The new name is durable before the old log loses its own."""
        topic_partition, source, target, log = move.log.topic_partition, move.source, move.target, move.copy
        try:
            log.advance_start(move.log.log_start_offset)
            log.rename_directory(f"{target.path}/{partition_directory(topic_partition)}")
            self._disk.sync(target.path)
        except StorageError as error:
            self._fail(target, error)
            return
        del target.copies[topic_partition]
        del source.logs[topic_partition]
        target.logs[topic_partition] = log
        self._homes[topic_partition] = target
        target.inherit(topic_partition, source)
        logger.info("%s is in %s now and no more in %s", topic_partition, target.path, source.path)
        if self._observer is not None:
            self._observer.log_moved(topic_partition, log)
        mark = f"{log.directory}/{replica_move_recovery.CURRENT_COPY}"
        self._discard(source, move.log, lambda: target.later(0, partial(self._disk.remove, mark)))

    # --- cleaning ---

    def is_moving(self, topic_partition: TopicPartition) -> bool:
        """Whether its log is on the way to another directory, or waits for that. A log that is cleaned meanwhile might take a
        record from before a deletion there, and not the deletion."""
        return self._moves.get(topic_partition) is not None

    def cleaner_checkpoint(self, topic_partition: TopicPartition) -> int | None:
        """Up to where a log has been cleaned, by cleaner-offset-checkpoint."""
        home = self._homes.get(topic_partition)
        return None if home is None else home.kept_cleaner_offsets.get(topic_partition)

    def checkpoint_cleaned(self, topic_partition: TopicPartition, offset: int) -> None:
        """Have written down that a log has been cleaned up to `offset`."""
        home = self._homes[topic_partition]
        home.kept_cleaner_offsets[topic_partition] = offset
        home.cleaner_offsets.request()

    def cleaning_history(self, topic_partition: TopicPartition) -> History | None:
        """What is remembered of a log's cleaning."""
        home = self._homes.get(topic_partition)
        return None if home is None else home.kept_cleaning_histories.get(topic_partition)

    def keep_cleaning_history(self, topic_partition: TopicPartition, history: History | None) -> None:
        """Remember it, or forget it, and have that written down."""
        home = self._homes[topic_partition]
        if history is not None:
            home.kept_cleaning_histories[topic_partition] = history
        elif home.kept_cleaning_histories.pop(topic_partition, None) is None:
            return
        home.cleaning_histories.request()

    def remove_unfinished(self, directory: str, done: Callable[[], None]) -> None:
        """Remove what a cleaning left in a log's directory, which may be gone, then call `done`; not when the disk fails."""
        home = self._by_path[directory.rpartition("/")[0]]
        home.later(0, partial(remove_cleaned, self._disk, directory), done)

    # --- what timers call ---

    def expire(self, topic_partition: TopicPartition, now_ms: int, high_watermark: int, done: Callable[[Expired | None], None]) -> None:
        """Expire what is due in one log (log.retention.check.interval.ms), below `high_watermark`: whole segments by Kafka's rule, and with
        retention.precise all records that have expired. `done` is called in any case, at once or later: None when the log cannot be used.
        """
        self._expirer.expire(topic_partition, now_ms, high_watermark, done)

    def expire_producers(self, now_ms: int) -> None:
        """Begin to forget producers that were silent for producer.id.expiration.ms, in slices."""
        self._producer_expiry.begin(self.logs().values(), now_ms, self._producer_id_expiration_ms())

    def flush_due(self, monotonic_s: float) -> None:
        """Flush, in workers, the logs whose flush.ms has passed since this last flushed them (log.flush.scheduler.interval.ms)."""
        for log in self.logs().values():
            if (monotonic_s - log.timed_flush_s) * 1000 >= log.config.flush_ms:
                log.timed_flush_s = monotonic_s
                self.flush(log)

    def checkpoint_recovery_points(self) -> None:
        """Have recovery-point-offset-checkpoint written (log.flush.offset.checkpoint.interval.ms)."""
        for directory in self._online():
            directory.recovery_points.request()

    def checkpoint_log_start_offsets(self) -> None:
        """Have log-start-offset-checkpoint written (log.flush.start.offset.checkpoint.interval.ms)."""
        for directory in self._online():
            directory.log_start_offsets.request()

    # --- high watermarks, which partitions own ---

    def high_watermark(self, topic_partition: TopicPartition) -> int:
        """What replication-offset-checkpoint says of a partition; 0 where it does not."""
        offsets = (directory.kept_high_watermarks.get(topic_partition, 0) for directory in self._online())
        return max(offsets, default=0)

    def checkpoint_high_watermarks(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Have these written, each in its directory (replica.high.watermark.checkpoint.interval.ms; before `close` too)."""
        for directory in self._online():
            directory.kept_high_watermarks = {tp: offsets[tp] for tp in directory.logs if tp in offsets}
            directory.high_watermarks.request()

    # --- what admin requests show ---

    def describe(self, high_watermark: Callable[[TopicPartition], int]) -> list[DirectoryDescription]:
        """All configured directories with their logs."""
        described = []
        for directory in self._directories:
            try:
                described.append(describe_directory(directory, self._disk, self.get, high_watermark))
            except StorageError as error:
                self._fail(directory, error)
                described.append(describe_offline(directory))
        return described


def _nothing() -> None:
    """No work, only time."""
