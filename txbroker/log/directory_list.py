"""The directories of `log.dirs`, in which of them each partition's log is, and what happens when a disk fails."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from txbroker.errors import MissingFile, NoSpace, OutOfResources, StartError, StorageError
from txbroker.log.directory import LogDirectory
from txbroker.log.disk import Disk
from txbroker.log.log import Log
from txbroker.log.log_results import Later
from txbroker.log.open_segments import OpenSegments
from txbroker.names import TopicPartition, amount

logger = logging.getLogger("txbroker.log")


def no_usable_directory(paths: Sequence[str], problem: str) -> StartError:
    """All directories of log.dirs have failed; `problem` is the last failure."""
    return StartError(f"none of the log directories can be used ({', '.join(paths)}): {problem}; correct it, or choose another log.dirs")


class Observer(Protocol):
    """Is notified of what happens to logs, in the thread of the logs."""

    def directory_failed(self, directory: str, partitions: Sequence[TopicPartition]) -> None:
        """A directory went offline; its logs (of these partitions) must not be used any more."""

    def all_directories_failed(self) -> None:
        """No directory is left: the broker must stop."""

    def log_moved(self, topic_partition: TopicPartition, log: Log) -> None:
        """The partition's log is in another directory now; the old `Log` must not be used any more."""


class DirectoryList:
    """Every `StorageError` of a directory comes to `fail`.

    `all`: in the order of log.dirs. `by_partition`: the directory of each log in use. `serving`: loading is over; until then a lack of
    descriptors, memory or space is a failure too. `resource_failures`, `space_failures`: how often the system had no descriptor or
    memory, or a file system no space, for a log's file; `missing_files`: how often a file that must exist was gone or too short.
    `open_segments`: of all logs in use.
    """

    def __init__(self, disk: Disk, later: Later, paths: Sequence[str]) -> None:
        self.all = [LogDirectory(disk, later, path, self.fail) for path in paths]
        self.by_path = {directory.path: directory for directory in self.all}
        self.by_partition: dict[TopicPartition, LogDirectory] = {}
        self.observer: Observer | None = None
        self.serving = False
        self.resource_failures = 0
        self.space_failures = 0
        self.missing_files = 0
        self.open_segments = OpenSegments()
        self._when_offline: list[Callable[[LogDirectory], None]] = []

    def when_offline(self, callback: Callable[[LogDirectory], None]) -> None:
        """Have `callback` called with each directory that goes offline."""
        self._when_offline.append(callback)

    def online(self) -> list[LogDirectory]:
        """The directories that serve."""
        return [directory for directory in self.all if directory.online]

    def offline(self) -> list[str]:
        """The paths of the directories that failed."""
        return [directory.path for directory in self.all if not directory.online]

    def problems(self) -> list[str]:
        """A sentence for each directory that is offline or full."""
        return [
            f"log directory {directory.path} is full: free space there"
            if directory.online
            else f"log directory {directory.path} is offline ({directory.failure}): repair it and restart the broker"
            for directory in self.all
            if not directory.online or directory.is_full()
        ]

    def directory_of(self, log: Log) -> LogDirectory | None:
        """The directory that a log is in, by its path."""
        return self.by_path.get(log.directory.rpartition("/")[0])

    def for_each_online(self, action: Callable[[LogDirectory], None]) -> None:
        """Call `action` with each; a directory for which it fails goes offline. StartError when none is left."""
        problem = ""
        for directory in self.online():
            try:
                action(directory)
            except StorageError as error:
                problem = str(error)
                self.fail(directory, error)
        self.check_any_online(problem)

    def check_any_online(self, problem: str = "see the log") -> None:
        """StartError when no directory is left."""
        if not self.online():
            raise no_usable_directory([directory.path for directory in self.all], problem)

    def fail(self, directory: LogDirectory, error: Exception) -> None:
        """Take a directory offline with all its logs, unless the system only lacked resources or space. Offline already: nothing."""
        if self.serving and isinstance(error, OutOfResources):
            if isinstance(error, NoSpace):
                directory.found_full()
                self.space_failures += 1
                times = self.space_failures
            else:
                self.resource_failures += 1
                times = self.resource_failures
            if times & (times - 1) == 0:  # the first, second, fourth, eighth time: producers retry continually
                logger.error("%s; the log directory %s stays online (%s so far)", error, directory.path, amount(times, "failure"))
        elif directory.online:
            self._take_offline(directory, error)

    def _take_offline(self, directory: LogDirectory, error: Exception) -> None:
        directory.failure = str(error)
        self.missing_files += isinstance(error, MissingFile)
        partitions = directory.go_offline()
        for topic_partition in partitions:
            del self.by_partition[topic_partition]
        if self.serving or self.online():  # otherwise the start fails with this error
            logger.error("the log directory %s is offline with its %s: %s", directory.path, amount(len(partitions), "log"), error)
        for callback in self._when_offline:
            callback(directory)
        if self.observer is not None and self.serving:
            self.observer.directory_failed(directory.path, partitions)
            if not self.online():
                self.observer.all_directories_failed()
