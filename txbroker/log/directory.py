"""One log directory: its lock, identity, checkpoint files, clean-shutdown mark, and the logs that are in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from logging import getLogger
from typing import NamedTuple, TypeVar

from txbroker.errors import NoSpace, OutOfResources, StartError, StorageError
from txbroker.log import checkpoints, clean_shutdown, meta_properties
from txbroker.log.buffered_later import BufferedLater
from txbroker.log.checkpoint_file import CheckpointFile
from txbroker.log.cleaner import cleaning_history_file
from txbroker.log.cleaner.cleaning_history import History
from txbroker.log.disk import Disk, Lock
from txbroker.log.file_names import parent_of
from txbroker.log.log import Log
from txbroker.log.log_results import Later
from txbroker.log.meta_properties import NO_IDENTITY, Identity
from txbroker.log.single_flight import SingleFlight
from txbroker.names import TopicPartition

LOCK_FILE = ".lock"
META_PROPERTIES_SIZE_MAX = 64 * 1024
AGAIN_MS = 1000
# A directory with less space counts as full; one in which a write has failed does so until this much more is free.
ROOM_BYTES = 1024 * 1024

logger = getLogger("txbroker.log")

T = TypeVar("T")


class Copy(NamedTuple):
    """An unfinished copy of a log that is being moved here, and the copy's `later`."""

    log: Log
    later: BufferedLater


class LogDirectory:
    """The directory at `path`. `logs`: those in use, by partition; `copies`: of logs that are being moved here.

    Errors of its disk in workers are reported to `failed`; the owner then takes it offline (`go_offline`).
    """

    def __init__(self, disk: Disk, later: Later, path: str, failed: Callable[[LogDirectory, StorageError], None]) -> None:
        self.path = path
        self.online = True
        self.failure = ""  # why it is offline
        self.worker_failure: StorageError | None = None  # the first failure of work in a worker, which `failed` gets too
        self._usable_when_full: int | None = None  # bytes, when a write found no space
        self.was_clean = False
        self.identity = NO_IDENTITY
        self.logs: dict[TopicPartition, Log] = {}
        self.copies: dict[TopicPartition, Copy] = {}
        self.left_recovery_points: Mapping[TopicPartition, int] = {}  # of logs that an interrupted start did not load
        self.left_log_start_offsets: Mapping[TopicPartition, int] = {}
        self.kept_high_watermarks: Mapping[TopicPartition, int] = {}
        self.kept_cleaner_offsets: dict[TopicPartition, int] = {}
        self.kept_cleaning_histories: dict[TopicPartition, History] = {}
        self._disk = disk
        # Held until loading is over, and while closing: both use the logs in workers.
        self._unguarded_later = BufferedLater(later, held=True)
        self._failed = failed
        self._lock: Lock | None = None
        self._lacking = False
        self._entries_sync = SingleFlight(self.later, lambda: partial(disk.sync, path))
        self.recovery_points = self._checkpoint(checkpoints.RECOVERY_POINTS, self._recovery_points)
        self.log_start_offsets = self._checkpoint(checkpoints.LOG_START_OFFSETS, self._log_start_offsets)
        self.high_watermarks = self._checkpoint(checkpoints.HIGH_WATERMARKS, lambda: self.kept_high_watermarks)
        self.cleaner_offsets = self._checkpoint(checkpoints.CLEANER_OFFSETS, lambda: self.kept_cleaner_offsets)
        self.cleaning_histories = CheckpointFile(
            disk, self.later, f"{path}/{cleaning_history_file.FILE_NAME}", lambda: self.kept_cleaning_histories,
            cleaning_history_file.format_histories, cleaning_history_file.parse_histories,
        )  # fmt: skip

    def _checkpoint(self, name: str, offsets: Callable[[], Mapping[TopicPartition, int]]) -> CheckpointFile[int]:
        path = f"{self.path}/{name}"
        return CheckpointFile(self._disk, self.later, path, offsets, checkpoints.format_offsets, checkpoints.parse_offsets)

    def log_count(self) -> int:
        """How many logs are in it, unfinished copies too."""
        return len(self.logs) + len(self.copies)

    def found_full(self) -> None:
        """A write has found no space."""
        self._usable_when_full = self._usable()

    def is_full(self) -> bool:
        """Whether its file system has less than ROOM_BYTES left, or a write has found no space and no more than that was freed since.

        A quota can end before the space does.
        """
        usable = self._usable()
        if self._usable_when_full is not None and usable > self._usable_when_full + ROOM_BYTES:
            self._usable_when_full = None
        return self._usable_when_full is not None or usable < ROOM_BYTES

    def _usable(self) -> int:
        try:
            return self._disk.usage(self.path).usable
        except StorageError:
            return ROOM_BYTES  # the next write shows what is wrong

    # --- work in workers ---

    def hold(self) -> None:
        """Begin no work, and ignore what running work has done, until `release`. What is running still notes its failure."""
        self._unguarded_later.hold()

    def release(self) -> None:
        """Begin what was given since the start or since `hold`."""
        self._unguarded_later.release()

    def later(self, delay_ms: int, work: Callable[[], None], done: Callable[[], None] | None = None) -> None:
        """A `Later` whose errors take this directory offline, those of `done` too, and unexpected ones of `work`: callers would wait for
        ever otherwise.

        Work that lacked resources is repeated until it succeeds.
        """
        failures: list[StorageError] = []

        def guarded() -> None:
            try:
                if self.online:
                    work()
            except StorageError as error:
                failures.append(error)
            except Exception as error:
                logger.exception("work in %s failed", self.path)
                failures.append(StorageError(f"work in {self.path} failed: {error!r}"))
            if failures and not isinstance(failures[0], OutOfResources) and self.worker_failure is None:
                self.worker_failure = failures[0]

        def finished() -> None:
            if failures and isinstance(failures[0], OutOfResources):
                self._try_again(failures[0], work, done)
            elif failures:
                self._failed(self, failures[0])
            else:
                self._lacking = False
                if done is not None and self.online:
                    self._end(done)

        self._unguarded_later(delay_ms, guarded, finished)

    def _end(self, done: Callable[[], None]) -> None:
        try:
            done()
        except StorageError as error:
            self._failed(self, error)

    def _try_again(self, error: StorageError, work: Callable[[], None], done: Callable[[], None] | None) -> None:
        """Retry every second. Only the first failure is logged, until something has succeeded."""
        if isinstance(error, NoSpace):
            self.found_full()
        if not self._lacking:
            logger.warning("%s; retrying every second", error)
        self._lacking = True
        self.later(AGAIN_MS, work, done)

    def until_possible(self, step: Callable[[], None]) -> None:
        """Make a step in the logs' thread; after OutOfResources again every second, unless the directory is offline then."""
        try:
            step()
        except OutOfResources as error:
            self._failed(self, error)
            self.later(AGAIN_MS, _nothing, partial(self.until_possible, step))

    def ask(self, work: Callable[[], T], done: Callable[[T | StorageError], None]) -> None:
        """Run `work`, which reads, in a worker. `done` is always called, with its result or its error."""
        answers: list[T | StorageError] = []

        def guarded() -> None:
            try:
                answers.append(work())
            except StorageError as error:
                answers.append(error)
            except Exception as error:
                logger.exception("a read in %s failed", self.path)
                answers.append(StorageError(f"a read in {self.path} failed: {error!r}"))

        self._unguarded_later(0, guarded, lambda: done(answers[0]))

    def sync_entries(self) -> None:
        """Sync the directory's entries in a worker."""
        self._entries_sync.request()

    # --- start and stop ---

    def open(self) -> None:
        """Create it if it is missing, lock it, read its identity. StorageError; StartError when another broker uses it."""
        make_directory(self._disk, self.path)
        self._disk.names(self.path)
        self._lock = self._disk.lock(f"{self.path}/{LOCK_FILE}")
        if self._lock is None:
            raise StartError(f"the log directory {self.path} is in use by another broker; stop that one, or choose another log.dirs")
        path = f"{self.path}/{meta_properties.FILE_NAME}"
        size = self._disk.size(path)
        if size is None:
            return
        if size > META_PROPERTIES_SIZE_MAX:
            raise StartError(f"{path} has {size} bytes, more than any broker writes; choose another directory for log.dirs")
        self.identity = meta_properties.parse(self._disk.read(path) or b"", path)
        if self.identity.broker_id is None:
            logger.warning("%s has no broker id, as after a loss of power: it will be written again", path)

    def claim(self, identity: Identity) -> None:
        """Check the identity, and write it if it is missing or incomplete. StartError; StorageError."""
        path = f"{self.path}/{meta_properties.FILE_NAME}"
        meta_properties.check(self.identity, path, identity)
        if self.identity != identity:
            self._disk.replace(path, meta_properties.format_identity(identity))
            self.identity = identity

    def take_clean_mark(self) -> None:
        """Read whether the last shutdown was clean, and remove the mark, so that a crash from now on is noticed."""
        path = f"{self.path}/{clean_shutdown.FILE_NAME}"
        self.was_clean = self._disk.size(path) is not None
        if self.was_clean:
            self._disk.remove(path)
        self._disk.sync(self.path)  # also what a process that was killed has renamed

    def write_checkpoints(self) -> None:
        """Write all checkpoints, at the end of use."""
        self.recovery_points.write()
        self.log_start_offsets.write()
        self.high_watermarks.write()
        self.cleaner_offsets.write()
        self.cleaning_histories.write()

    def mark_clean(self) -> None:
        """Write the mark of a clean shutdown, after all else."""
        self._disk.replace(f"{self.path}/{clean_shutdown.FILE_NAME}", clean_shutdown.CONTENT)

    def unlock(self) -> None:
        """Release the lock."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def go_offline(self) -> list[TopicPartition]:
        """Stop using it; returns the partitions whose logs were in use."""
        partitions = list(self.logs)
        self.online = False
        self.logs.clear()
        self.copies.clear()
        self.unlock()
        return partitions

    # --- checkpoints ---

    def forget(self, topic_partition: TopicPartition) -> None:
        """A log left this directory: remove it from the checkpoints, so that a later log of the same name does not inherit its offsets."""
        if self.kept_cleaner_offsets.pop(topic_partition, None) is not None:
            self.cleaner_offsets.request()
        if self.kept_cleaning_histories.pop(topic_partition, None) is not None:
            self.cleaning_histories.request()
        if topic_partition in self.kept_high_watermarks:
            self.kept_high_watermarks = {other: offset for other, offset in self.kept_high_watermarks.items() if other != topic_partition}
            self.high_watermarks.request()
        self.recovery_points.request()
        self.log_start_offsets.request()

    def inherit(self, topic_partition: TopicPartition, other: LogDirectory) -> None:
        """A log came here from another directory: take over its offsets, in place of those of an earlier log of the same name."""
        self.kept_cleaner_offsets.pop(topic_partition, None)
        if self.kept_cleaning_histories.pop(topic_partition, None) is not None:
            self.cleaning_histories.request()
        cleaned = other.kept_cleaner_offsets.get(topic_partition)
        if cleaned is not None:
            self.kept_cleaner_offsets[topic_partition] = cleaned
        self.cleaner_offsets.request()
        self.recovery_points.request()
        self.log_start_offsets.request()

    def all_logs(self) -> list[Log]:
        """The logs in use and the unfinished copies."""
        return [*self.logs.values(), *(copy.log for copy in self.copies.values())]

    def _recovery_points(self) -> dict[TopicPartition, int]:
        return {**self.left_recovery_points, **{log.topic_partition: log.kept_recovery_point for log in self.all_logs()}}

    def _log_start_offsets(self) -> dict[TopicPartition, int]:
        # Only where the files do not show it: most logs start with their first segment.
        moved = [log for log in self.all_logs() if log.log_start_offset > log.segments[0].base_offset]
        return {**self.left_log_start_offsets, **{log.topic_partition: log.log_start_offset for log in moved}}


def _nothing() -> None:
    """No work: only the delay matters."""


def make_directory(disk: Disk, path: str) -> None:
    """Create a directory and its parents, durably, if they are missing. StorageError.

    Each name is durable before the next one. So if a start was interrupted, the first directory that exists may have no durable name.
    """
    missing: list[str] = []
    there = path
    while not disk.is_directory(there) and there != parent_of(there):
        missing.append(there)
        there = parent_of(there)
    if there != path or not disk.names(path):
        _sync_if_readable(disk, parent_of(there))
    for directory in reversed(missing):
        disk.make_directory(directory)
        _sync_if_readable(disk, parent_of(directory))


def _sync_if_readable(disk: Disk, directory: str) -> None:
    """A directory in which this process may create names, and which it may not read, cannot be synced."""
    try:
        disk.sync(directory)
    except StorageError as error:
        if not isinstance(error.__cause__, PermissionError):
            raise
