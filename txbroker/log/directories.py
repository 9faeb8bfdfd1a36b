"""The broker's log directories (`log.dirs`): which logs are where, checkpoints, failures, deletions, moves (Kafka's LogManager).

Life cycle: `open` (create and lock the directories, read identities), `claim` (check and write the identity), `load` (open logs,
recover them where needed), `start`, then serving, then `stop`, `hold` and `close` (sync all, mark as clean). All methods belong to the
thread of the logs; `load` and `close` wait for the disk and may run in a worker while nothing else uses the directories. Other work that
waits for the disk goes through the injected `Later`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Protocol

from txbroker.errors import NoSpace, OutOfResources, StartError, StartInterrupted, StorageError
from txbroker.log import meta_properties, replica_move_recovery
from txbroker.log.cleaning_checkpoints import CleaningCheckpoints
from txbroker.log.descriptions import DirectoryDescription, describe_directory, describe_offline
from txbroker.log.directory import AGAIN_MS, LogDirectory
from txbroker.log.directory_list import DirectoryList, Observer
from txbroker.log.directory_moves import DirectoryMoves
from txbroker.log.directory_names import DirectoryState, name_in_state
from txbroker.log.disk import Disk
from txbroker.log.loading import Job, Loading, Progress, Settings
from txbroker.log.log import PRODUCER_ID_EXPIRATION_MS, Log
from txbroker.log.log_config import LogConfig
from txbroker.log.log_expiry import Expired, Expirer
from txbroker.log.log_results import Later, no_jitter
from txbroker.log.meta_properties import NO_IDENTITY, Identity
from txbroker.log.offset_checkpoints import OffsetCheckpoints
from txbroker.log.producer_expiry import ProducerExpiry
from txbroker.log.recovery import never
from txbroker.names import NULL_TOPIC_ID, TopicPartition, amount, partition_directory

logger = logging.getLogger("txbroker.log")

# Closing a log mostly waits for syncs, which file systems combine. Kafka uses only the threads of recovery for it.
CLOSING_AT_ONCE = 16


class RunAll(Protocol):
    """Runs all jobs, up to `at_once` per directory at the same time (None: as many as recovery may), and returns when all are done."""

    def __call__(self, jobs: Mapping[str, Sequence[Job]], *, at_once: int | None = None) -> None: ...


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
        self._list = DirectoryList(disk, later, paths)
        self.moves = DirectoryMoves(disk, self._list, self, unique_id)
        self.cleaning = CleaningCheckpoints(disk, self._list)
        self.checkpoints = OffsetCheckpoints(self._list)
        self._to_remove: list[tuple[LogDirectory, str]] = []
        self._loadings: list[Loading] = []
        self._producer_expiry = ProducerExpiry(later)
        self._expirer = Expirer(self._list.by_partition.get, self._list.fail)
        self._interrupted: dict[str, bool] = {}  # directories of an interrupted start, and whether all their logs are recovered

    def wire(self, observer: Observer) -> None:
        """Notify `observer` from `start` on."""
        self._list.observer = observer

    # --- start and stop ---

    def open(self) -> Identity:
        """Create, check and lock the directories; returns the identity in their meta.properties.

        StartError: a directory is in use, identities differ or cannot be read, or no directory can be used. One of several that cannot
        be used goes offline.
        """
        if len(self._list.by_path) < len(self._list.all):
            raise StartError(f"log.dirs names a directory twice: {', '.join(directory.path for directory in self._list.all)}")
        self._list.for_each_online(LogDirectory.open)
        together, together_path = NO_IDENTITY, ""
        for directory in self._list.online():
            path = f"{directory.path}/{meta_properties.FILE_NAME}"
            together = meta_properties.join(together, together_path, directory.identity, path)
            together_path = together_path or path
        return together

    def claim(self, identity: Identity) -> None:
        """Check that the directories are those of this broker, and write meta.properties where it is missing; StartError."""
        self._list.for_each_online(lambda directory: directory.claim(identity))

    def load(self, now_ms: int, run_all: RunAll, progress: Progress, interrupted: Callable[[], bool] = never) -> None:
        """Open every log. `progress(directory, done, total)` is called from workers: at the end, and at every tenth of a recovery.

        StartError when a partition is in two directories, or when no directory can serve. StartInterrupted before the next log or segment
        is recovered once `interrupted` returns True; `close` closes the logs that are open then.
        """
        expiration_ms = self._producer_id_expiration_ms()
        settings = Settings(self._config_for, self._random_below, expiration_ms, now_ms, interrupted)
        loadings = [Loading(directory, self._disk, settings, progress) for directory in self._list.online()]
        self._loadings = loadings
        for loading in loadings:
            loading.find()
        sound = [loading for loading in loadings if loading.error is None]
        replica_move_recovery.settle(sound, self._disk, self._unique_id, complete=len(sound) == len(self._list.all))
        run_all({loading.directory.path: loading.jobs() for loading in loadings})
        for loading in loadings:
            if loading.error is None:
                self._take(loading)
            else:
                self._list.fail(loading.directory, loading.error)
        left = sum(len(loading.left) for loading in loadings)
        if left:
            self._interrupted = {loading.directory.path: loading.keep_checkpoints() for loading in loadings}
            raise StartInterrupted(f"the start was interrupted before {amount(left, 'log')} could be loaded; the next start continues")
        for directory in self._list.online():
            for topic_partition in list(directory.copies):
                self.moves.resume(directory, topic_partition, now_ms)
        self._list.check_any_online()
        self._list.serving = True
        self._loadings = []

    def loading(self) -> tuple[int, int]:
        """How many logs are open, and how many there are, while they are loaded. Any thread may call it."""
        loadings = self._loadings
        return sum(loading.done for loading in loadings), sum(loading.total for loading in loadings)

    def _take(self, loading: Loading) -> None:
        directory = loading.directory
        for log in loading.logs:
            log.use(self._list.open_segments)
            directory.logs[log.topic_partition] = log
            self._list.by_partition[log.topic_partition] = directory
        for copy in loading.copies:
            directory.copies[copy.log.topic_partition] = copy
        self._to_remove.extend((directory, path) for path in loading.to_remove)

    def start(self) -> None:
        """Loading is over: from now on workers delete and copy what is due, and the observer is notified."""
        for directory in self._list.online():
            directory.release()
        for directory, path in self._to_remove:
            directory.later(0, partial(self._disk.remove_tree, path))
        self._to_remove.clear()
        self.moves.run()

    def stop(self) -> None:
        """Begin no more moves and passes; before `hold`."""
        self.moves.stop()
        self._producer_expiry.stop()

    def hold(self) -> None:
        """Leave the logs to `close`: what ends in other workers from now on changes no log."""
        for directory in self._list.all:
            directory.hold()

    def close(self, run_all: RunAll) -> None:
        """Sync and close all logs, write checkpoints and the mark of a clean shutdown, and unlock the directories; after `hold`.

        Before `load` it only unlocks. After an interrupted `load`, only directories whose logs are all recovered get the mark. A directory
        in which a worker failed gets none: of several syncs of a file, the system may report a failure to the first one only.
        """
        errors: dict[str, StorageError] = {}
        online = self._list.online()

        def close_log(directory: LogDirectory, log: Log) -> None:
            try:
                log.close()
            except StorageError as error:
                errors[directory.path] = error

        if self._list.serving or self._interrupted:
            jobs = {directory.path: [partial(close_log, directory, log) for log in directory.logs.values()] for directory in online}
            run_all(jobs, at_once=CLOSING_AT_ONCE)
        for directory in online:
            if self._list.serving or self._interrupted:
                self._finish(directory, errors.get(directory.path) or directory.worker_failure)
            directory.unlock()

    def _finish(self, directory: LogDirectory, error: StorageError | None) -> None:
        try:
            if error is not None:
                raise error
            directory.write_checkpoints()
            if self._interrupted.get(directory.path, True):
                directory.mark_clean()
        except StorageError as problem:
            logger.error("%s was not closed cleanly and will be recovered at the next start: %s", directory.path, problem)

    # --- directories ---

    @property
    def resource_failures(self) -> int:
        """How often the system had no descriptor or memory left for a log's file."""
        return self._list.resource_failures

    @property
    def space_failures(self) -> int:
        """How often a file system had no space left for a log's file."""
        return self._list.space_failures

    @property
    def missing_files(self) -> int:
        """How often a file of a log that must exist was gone or too short."""
        return self._list.missing_files

    def online(self) -> list[str]:
        """The directories that serve."""
        return [directory.path for directory in self._list.online()]

    def offline(self) -> list[str]:
        """The directories that failed."""
        return self._list.offline()

    def found_full(self, path: str) -> None:
        """A write to a file in this directory that is not a log's, such as the metadata, has found no space."""
        directory = self._list.by_path.get(path)
        if directory is not None:
            directory.found_full()

    def problems(self) -> list[str]:
        """A sentence for each directory that is offline or full."""
        return self._list.problems()

    def fail(self, log: Log, error: Exception) -> None:
        """A log's disk failed: take its directory offline with all its logs, and notify the observer, unless that was done before."""
        home = self._list.directory_of(log)
        if home is not None:
            self._list.fail(home, error)

    def check_file(self, path: str) -> None:
        """A log file was shorter than expected while it was sent: its directory goes offline, unless the log was truncated meanwhile."""
        directory = path.rpartition("/")[0]
        home = self._list.by_path.get(directory.rpartition("/")[0])
        for log in home.logs.values() if home is not None else ():
            if log.directory != directory:
                continue
            try:
                log.check_file(path)
            except StorageError as error:
                self.fail(log, error)
            return

    # --- logs ---

    def get(self, topic_partition: TopicPartition) -> Log | None:
        """The log of a partition, if it is here and its directory is online."""
        home = self._list.by_partition.get(topic_partition)
        return None if home is None else home.logs[topic_partition]

    def logs(self) -> dict[TopicPartition, Log]:
        """All logs in use."""
        return {topic_partition: home.logs[topic_partition] for topic_partition, home in self._list.by_partition.items()}

    def create(self, topic_partition: TopicPartition, topic_id: bytes, *, is_new: bool, now_ms: int) -> Log:
        """Create the log of a partition, in the directory with the fewest logs.

        StorageError when no directory can take it, or when a directory in which it may be is offline, unless `is_new`.
        """
        if not is_new and self._list.offline():
            raise StorageError(f"the log of {topic_partition} may be in {', '.join(self._list.offline())}, which is offline")
        preferred = self.moves.take_choice(topic_partition)
        candidates = [preferred] if preferred else sorted(self._list.online(), key=LogDirectory.log_count)
        for directory in candidates:
            try:
                path = f"{directory.path}/{partition_directory(topic_partition)}"
                log = self.make(directory, path, topic_partition, topic_id, directory.later, now_ms)
            except StorageError as error:
                self._list.fail(directory, error)
                if directory.online:  # resources were lacking: the next start must not find an unfinished log
                    with suppress(StorageError):
                        self._disk.remove_tree(path)
                continue
            directory.kept_cleaner_offsets.pop(topic_partition, None)
            directory.kept_cleaning_histories.pop(topic_partition, None)
            log.use(self._list.open_segments)
            directory.logs[topic_partition] = log
            self._list.by_partition[topic_partition] = directory
            return log
        raise StorageError(f"the log of {topic_partition} could not be created in any log directory")

    def make(self, directory: LogDirectory, path: str, topic_partition: TopicPartition, topic_id: bytes, later: Later, now_ms: int) -> Log:
        log = Log.open(
            path,
            topic_partition,
            disk=self._disk,
            config=self._config_for(topic_partition.topic),
            now_ms=now_ms,
            later=later,
            random_below=self._random_below,
            producer_id_expiration_ms=self._producer_id_expiration_ms(),
        )
        if topic_id != NULL_TOPIC_ID:
            log.assign_topic_id(topic_id)
        directory.sync_entries()
        return log

    def delete(self, topic_partition: TopicPartition) -> None:
        """Rename a log's directory, and remove it after file.delete.delay.ms.

        StorageError when it may be offline. OutOfResources: it is still in use, and the caller tries again.
        """
        self.moves.take_choice(topic_partition)
        home = self._list.by_partition.get(topic_partition)
        if home is None:
            if self._list.offline():
                raise StorageError(f"the log of {topic_partition} may be in {', '.join(self._list.offline())}, which is offline")
            return
        self.moves.cancel(topic_partition)
        log = home.logs[topic_partition]
        try:
            self.moves.leave_now(topic_partition)
            self._rename_to_delete(home, log)
        except StorageError as error:
            self._list.fail(home, error)
            raise
        if not home.online:
            raise StorageError(f"the log of {topic_partition} could not be deleted: {home.path} failed")
        del self._list.by_partition[topic_partition], home.logs[topic_partition]
        self._remove_later(home, log)

    def discard(self, home: LogDirectory, log: Log, gone: Callable[[], None] | None = None) -> None:
        """Rename the directory of a log that is not in use, and remove it later; `gone` is called once the new name is durable.

        OutOfResources: it has its name still. After another error its directory is offline.
        """
        self._rename_to_delete(home, log)
        if home.online:
            self._remove_later(home, log, gone)

    def _rename_to_delete(self, home: LogDirectory, log: Log) -> None:
        try:
            log.rename_directory(f"{home.path}/{name_in_state(log.topic_partition, DirectoryState.DELETE, self._unique_id())}")
        except OutOfResources:
            raise
        except StorageError as error:
            self._list.fail(home, error)

    def _remove_later(self, home: LogDirectory, log: Log, gone: Callable[[], None] | None = None) -> None:
        delay_ms = log.config.file_delete_delay_ms
        logger.info("the log of %s was renamed to %s and will be removed in %d ms", log.topic_partition, log.directory, delay_ms)
        home.forget(log.topic_partition)
        if gone is None:
            home.sync_entries()
        else:
            home.later(0, partial(self._disk.sync, home.path), gone)
        home.later(delay_ms, log.delete)

    def reconfigure(self, topics: Collection[str] | None) -> None:
        """Apply the current settings of these topics, or of all, to their logs; raises the first error when all others have theirs."""
        configs: dict[str, LogConfig] = {}
        errors = []
        for directory in self._list.online() if topics is None or topics else ():
            for log in directory.all_logs():
                topic = log.topic_partition.topic
                if topics is not None and topic not in topics:
                    continue
                try:
                    if topic not in configs:
                        configs[topic] = self._config_for(topic)
                    log.reconfigure(configs[topic])
                except Exception as error:
                    errors.append(error)
        if errors:
            raise errors[0]

    def flush(self, log: Log, done: Callable[[], None] | None = None) -> None:
        """Sync a log up to its present end in a worker, then call `done`; not when the disk failed: the directory is offline then.

        A recovery point that a truncation is about to lower is in the checkpoint then, unless there is no space.
        """
        home = self._list.directory_of(log)
        assert home is not None
        try:
            plan = log.flush_plan()
        except StorageError as error:
            self._list.fail(home, error)
            home.later(AGAIN_MS, _nothing, partial(self.flush, log, done))  # not if the directory is offline now
            return
        lowering = log.lowering
        if plan is None and lowering is None:
            if done is not None:
                done()
            return
        write_recovery_points = home.recovery_points.prepared() if lowering is not None else _nothing

        def sync() -> None:
            with suppress(NoSpace):  # the truncation frees space
                write_recovery_points()
            if plan is not None:
                plan.sync()

        def synced() -> None:
            if lowering is not None:
                log.lowered(lowering)
            if plan is not None:
                log.flushed(plan)
            if done is not None:
                done()

        home.later(0, sync, synced)

    # --- periodic work ---

    def expire(self, topic_partition: TopicPartition, now_ms: int, high_watermark: int, done: Callable[[Expired | None], None]) -> None:
        """Expire segments of one log below `high_watermark` by Kafka's rule, and with retention.precise all expired records.

        `done` is always called, now or later; with None when the log cannot be used.
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

    # --- descriptions ---

    def describe(self, high_watermark: Callable[[TopicPartition], int | None]) -> list[DirectoryDescription]:
        """All configured directories with their logs."""
        described = []
        for directory in self._list.all:
            try:
                described.append(describe_directory(directory, self._disk, self.get, high_watermark))
            except StorageError as error:
                self._list.fail(directory, error)
                described.append(describe_offline(directory))
        return described


def _nothing() -> None:
    """No work: only the delay matters."""
