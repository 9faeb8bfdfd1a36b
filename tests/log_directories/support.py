"""What the tests of log directories have in common: workers that wait for the test, disks that fail, and a broker's directories."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from txbroker.errors import StorageError
from txbroker.log.directories import LogDirectories, one_by_one
from txbroker.log.disk import Buffer, DiskUsage, File, OsDisk, OsFile
from txbroker.log.log import Log
from txbroker.log.log_config import LogConfig
from txbroker.log.meta_properties import Identity
from txbroker.names import TopicPartition
from txbroker.wire.records import Record, build

NOW = 1_700_000_000_000
IDENTITY = Identity(1, "lvr4NfIWTo6tu8cpVcm0iw")
T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
TOPIC_ID = bytes(range(16))


class Worker:
    """A `Later`: work and what follows it run when the test says so, in order."""

    def __init__(self) -> None:
        self.now_ms = 0
        self._waiting: list[tuple[int, Callable[[], None], Callable[[], None] | None]] = []

    def __call__(self, delay_ms: int, work: Callable[[], None], done: Callable[[], None] | None = None) -> None:
        self._waiting.append((self.now_ms + delay_ms, work, done))

    def run(self, jobs: int = 10**6) -> int:
        """Run what is due, also what that asks for; how many jobs."""
        ran = 0
        while ran < jobs:
            due = next((job for job in self._waiting if job[0] <= self.now_ms), None)
            if due is None:
                break
            self._waiting.remove(due)
            ran += 1
            due[1]()
            if due[2] is not None:
                due[2]()
        return ran

    def wait(self, ms: int) -> None:
        self.now_ms += ms
        self.run()


class _UnsyncedFile(OsFile):
    def sync(self) -> None:
        pass


class FaultyDisk(OsDisk):
    """A disk on which everything below the paths in `broken` fails. It syncs nothing, for the tests' sake."""

    def __init__(self) -> None:
        super().__init__()
        self.broken: set[str] = set()
        self.replaced: list[str] = []

    def _check(self, path: str) -> None:
        for broken in self.broken:
            if path == broken or path.startswith(f"{broken}/"):
                raise StorageError(f"cannot use {path}: the disk is broken")

    def open(self, path: str) -> File:
        self._check(path)
        return _UnsyncedFile(path)

    def read(self, path: str) -> bytes | None:
        self._check(path)
        return super().read(path)

    def write(self, path: str, data: Buffer) -> None:
        self._check(path)
        super().write(path, data)

    def replace(self, path: str, data: Buffer, *, sync: bool = True) -> None:
        self._check(path)
        self.replaced.append(path)
        super().replace(path, data, sync=False)

    def names(self, directory: str) -> list[str]:
        self._check(directory)
        return super().names(directory)

    def make_directory(self, path: str) -> None:
        self._check(path)
        super().make_directory(path)

    def rename(self, old: str, new: str) -> None:
        self._check(old)
        super().rename(old, new)

    def sync(self, path: str) -> None:
        self._check(path)

    def usage(self, path: str) -> DiskUsage:
        self._check(path)
        return super().usage(path)


class Crash(BaseException):
    """The process ends here."""


class CrashingDisk(FaultyDisk):
    """Ends the process before the change number `changes_left` to files or names."""

    def __init__(self) -> None:
        super().__init__()
        self.changes_left: int | None = None

    def _change(self) -> None:
        if self.changes_left is not None:
            self.changes_left -= 1
            if self.changes_left < 0:
                raise Crash

    def write(self, path: str, data: Buffer) -> None:
        self._change()
        super().write(path, data)

    def replace(self, path: str, data: Buffer, *, sync: bool = True) -> None:
        self._change()
        super().replace(path, data, sync=sync)

    def make_directory(self, path: str) -> None:
        self._change()
        super().make_directory(path)

    def rename(self, old: str, new: str) -> None:
        self._change()
        super().rename(old, new)

    def remove(self, path: str) -> None:
        self._change()
        super().remove(path)

    def remove_tree(self, path: str) -> None:
        self._change()
        super().remove_tree(path)

    def append(self, path: str, data: Buffer) -> None:
        self._change()
        super().append(path, data)


class Watcher:
    """An observer that remembers."""

    def __init__(self) -> None:
        self.failed: list[tuple[str, list[TopicPartition]]] = []
        self.all_failed = 0
        self.moved: dict[TopicPartition, Log] = {}

    def directory_failed(self, directory: str, partitions: Sequence[TopicPartition]) -> None:
        self.failed.append((directory, sorted(partitions)))

    def all_directories_failed(self) -> None:
        self.all_failed += 1

    def log_moved(self, topic_partition: TopicPartition, log: Log) -> None:
        self.moved[topic_partition] = log


class Broker:
    """Log directories with all around them; `root` holds the directories a, b, …"""

    def __init__(
        self,
        root: Path,
        count: int = 1,
        *,
        disk: FaultyDisk | None = None,
        producer_id_expiration_ms: Callable[[], int] = lambda: 10**9,
        **config: Any,
    ) -> None:
        self.root = root
        self.paths = [f"{root}/{name}" for name in "abcd"[:count]]
        self.disk = disk or FaultyDisk()
        self.worker = Worker()
        self.watcher = Watcher()
        self.config = LogConfig(**config)
        self.progress: list[tuple[str, int, int]] = []
        numbers = itertools.count(1)
        self.directories = LogDirectories(
            self.disk,
            self.worker,
            lambda: f"{next(numbers):032x}",
            self.paths,
            config_for=lambda topic: self.config,
            producer_id_expiration_ms=producer_id_expiration_ms,
        )
        self.directories.wire(self.watcher)

    def start(self, identity: Identity = IDENTITY) -> LogDirectories:
        directories = self.directories
        directories.open()
        directories.claim(identity)
        directories.load(NOW, one_by_one, lambda *progress: self.progress.append(progress))
        directories.start()
        return directories

    def stop(self) -> None:
        self.directories.stop()
        self.directories.close(one_by_one)

    def crash(self) -> None:
        """The process ends: locks are gone, nothing is written any more."""
        for directory in self.directories._directories:
            directory.unlock()

    def create(self, topic_partition: TopicPartition, **options: Any) -> Log:
        return self.directories.create(topic_partition, TOPIC_ID, **({"is_new": True, "now_ms": NOW} | options))

    def names(self, directory: str = "a") -> list[str]:
        """What is in a directory beside the files that are always there."""
        usual = {".lock", "meta.properties"}
        return sorted(path.name for path in (self.root / directory).iterdir() if path.name not in usual)

    def partitions(self, directory: str = "a") -> list[str]:
        return [name for name in self.names(directory) if (self.root / directory / name).is_dir()]

    def checkpoint(self, name: str, directory: str = "a") -> list[str]:
        return sorted((self.root / directory / name).read_text().splitlines()[2:])


def append(log: Log, *values: bytes, timestamp: int = NOW) -> None:
    records = [Record(index, timestamp, b"k", value) for index, value in enumerate(values)]
    log.append(memoryview(bytearray(build(records))), leader_epoch=0, now_ms=NOW)


def content(log: Log) -> bytes:
    """All batches, from the log's start on."""
    data, offset = b"", log.log_start_offset
    while offset < log.log_end_offset:
        read = log.read(offset, 1 << 20, offset_end=log.log_end_offset, whole_first_batch=True)
        data += read.region.read()
        offset = read.end_offset
    return data


def zero_watermark(topic_partition: TopicPartition) -> int:
    return 0


def run_nothing(jobs: Mapping[str, Sequence[Callable[[], None]]]) -> None:
    """A `RunAll` for a start that is not to come that far."""
    raise AssertionError("no job was expected")
