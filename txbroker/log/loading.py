"""Opening the logs of a directory at start: which there are, and how each is opened (Kafka's LogManager.loadLogs)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count

from txbroker.errors import StartInterrupted, StorageError
from txbroker.lazy_dataclass import lazy_dataclass
from txbroker.log import directory_names
from txbroker.log.buffered_later import BufferedLater
from txbroker.log.directory import Copy, LogDirectory
from txbroker.log.directory_names import DirectoryState, PartitionDirectory
from txbroker.log.disk import Disk
from txbroker.log.log import Log
from txbroker.log.log_config import LogConfig
from txbroker.log.recovery import never
from txbroker.names import TopicPartition, amount

Job = Callable[[], None]
Progress = Callable[[str, int, int], None]

logger = logging.getLogger("txbroker.log")


@lazy_dataclass(slots=True)
class Settings:
    """Arguments of opening a log, apart from its directory."""

    config_for: Callable[[str], LogConfig]
    random_below: Callable[[int], int]
    producer_id_expiration_ms: int
    now_ms: int
    interrupted: Callable[[], bool] = never


class Loading:
    """The logs of one directory while they are loaded: `find` them, `ignore` or `drop` some, run all `jobs` in any order and any thread.

    `logs`, `copies`: opened by the jobs. `left`: logs that they did not open, because loading was interrupted; `untouched` unless one of
    these was being recovered. `to_remove`: paths. `error`: the disk failed.
    """

    def __init__(self, directory: LogDirectory, disk: Disk, settings: Settings, progress: Progress) -> None:
        self.directory = directory
        self.logs: list[Log] = []
        self.copies: list[Copy] = []
        self.left: list[TopicPartition] = []
        self.untouched = True
        self.to_remove: list[str] = []
        self.error: StorageError | None = None
        self._disk = disk
        self._settings = settings
        self._progress = progress
        self._found: dict[str, PartitionDirectory] = {}
        self._recovery_points: dict[TopicPartition, int] = {}
        self._log_start_offsets: dict[TopicPartition, int] = {}
        self._total = 0
        self._numbers = count(1)  # next() is atomic: jobs run in several threads

    @property
    def total(self) -> int:
        """How many logs there are, once that is known."""
        return self._total

    @property
    def done(self) -> int:
        """How many are open."""
        return len(self.logs) + len(self.copies)

    def find(self) -> None:
        """Find the logs."""
        try:
            for name in self._disk.names(self.directory.path):
                parsed = directory_names.parse(name)
                path = f"{self.directory.path}/{name}"
                if parsed is None or not self._disk.is_directory(path):
                    continue
                if parsed.state is DirectoryState.DELETE:
                    self.to_remove.append(path)
                elif parsed.state is DirectoryState.STRAY:
                    logger.warning("leaving %s as it is: Kafka marked it as stray because the cluster did not know the partition", path)
                else:
                    self._found[path] = parsed
        except StorageError as error:
            self.error = error
            self._found.clear()

    def paths(self, state: DirectoryState) -> list[tuple[str, TopicPartition]]:
        """The directories in this state that were found, and their partitions."""
        return [(path, parsed.topic_partition) for path, parsed in self._found.items() if parsed.state is state]

    def ignore(self, path: str) -> None:
        """Leave a found directory as it is."""
        del self._found[path]

    def drop(self, path: str, unique_id: str) -> None:
        """Delete a found directory."""
        parsed = self._found.pop(path)
        renamed = f"{self.directory.path}/{directory_names.name_in_state(parsed.topic_partition, DirectoryState.DELETE, unique_id)}"
        try:
            self._disk.rename(path, renamed)
            self._disk.sync(self.directory.path)
        except StorageError as error:
            self.error = error
        self.to_remove.append(renamed)

    def jobs(self) -> list[Job]:
        """One job per log; none when the disk fails. The mark of a clean shutdown is removed."""
        directory = self.directory
        try:
            if self.error is None:
                directory.take_clean_mark()
                self._recovery_points = directory.recovery_points.read()
                self._log_start_offsets = directory.log_start_offsets.read()
                directory.kept_high_watermarks = directory.high_watermarks.read()
                directory.kept_cleaner_offsets = directory.cleaner_offsets.read()
                directory.kept_cleaning_histories = directory.cleaning_histories.read()
        except StorageError as error:
            self.error = error
        if self.error is not None:
            return []
        self._total = len(self._found)
        self._announce()
        self._report_lost()
        config_for = self._settings.config_for
        configs = {topic: config_for(topic) for topic in {parsed.topic_partition.topic for parsed in self._found.values()}}
        return [partial(self._open, path, parsed, configs[parsed.topic_partition.topic]) for path, parsed in self._found.items()]

    def _announce(self) -> None:
        path = self.directory.path
        if not self._total:
            logger.info("%s has no logs yet", path)
        elif self.directory.was_clean:
            logger.info("loading %s from %s, which was shut down cleanly", amount(self._total, "log"), path)
        else:
            logger.warning("recovering %s of %s, which was not shut down cleanly", amount(self._total, "log"), path)

    def _report_lost(self) -> None:
        """After a clean shutdown every log that has a recovery point has a directory."""
        there = {parsed.topic_partition for parsed in self._found.values()}
        for topic_partition, offset in self._recovery_points.items() if self.directory.was_clean else ():
            if offset and topic_partition not in there:
                what = f"its recovery point says that it had records up to offset {offset - 1}"
                logger.error("%s has no directory for %s: %s", self.directory.path, topic_partition, what)

    def _open(self, path: str, parsed: PartitionDirectory, config: LogConfig) -> None:
        if self.error is not None:
            return
        topic_partition, is_copy = parsed.topic_partition, parsed.state is DirectoryState.FUTURE
        if self._settings.interrupted():
            self.left.append(topic_partition)
            return
        later = BufferedLater(self.directory.later)
        try:
            log = Log.open(
                path,
                topic_partition,
                disk=self._disk,
                config=config,
                now_ms=self._settings.now_ms,
                # A shutdown does not wait for copies: they are never closed cleanly.
                clean=self.directory.was_clean and not is_copy,
                log_start_offset=self._log_start_offsets.get(topic_partition, 0),
                recovery_point=self._recovery_points.get(topic_partition, 0),
                high_watermark=0 if is_copy else self.directory.kept_high_watermarks.get(topic_partition, 0),
                later=later if is_copy else self.directory.later,
                random_below=self._settings.random_below,
                producer_id_expiration_ms=self._settings.producer_id_expiration_ms,
                interrupted=self._settings.interrupted,
            )
            if is_copy:
                # A loss of power may have left a gap above it, which looks as one that compaction leaves; the log still has these records.
                log.truncate_to(max(log.recovery_point, log.segments[0].base_offset))
        except StartInterrupted:
            self.left.append(topic_partition)
            self.untouched = False
            return
        except StorageError as error:
            self.error = error
            return
        if is_copy:
            self.copies.append(Copy(log, later))
        else:
            self.logs.append(log)
        self._count()

    def keep_checkpoints(self) -> bool:
        """Loading was interrupted: keep the checkpoints of the logs that were not loaded. Returns whether all logs are recovered."""
        directory = self.directory
        directory.left_recovery_points = _only(self._recovery_points, self.left)
        directory.left_log_start_offsets = _only(self._log_start_offsets, self.left)
        return not self.left or (directory.was_clean and self.untouched)

    def _count(self) -> None:
        """Report the progress: at the end, and at every tenth of a recovery, which may take long."""
        done, total = next(self._numbers), self._total
        tenth = done * 10 // total != (done - 1) * 10 // total
        if done == total or (tenth and not self.directory.was_clean):
            self._progress(self.directory.path, done, total)


def _only(offsets: Mapping[TopicPartition, int], names: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
    return {name: offsets[name] for name in names if name in offsets}
