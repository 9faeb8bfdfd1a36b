"""What the tests of log directories share: directories with all that they need, on a disk that fails when the test says so."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from simulation.workers import one_by_one
from tests.support.fakes.disk_path import DiskPath, on_disk
from tests.support.fakes.faulty_disk import FaultyDisk
from tests.support.fakes.worker import Worker
from txbroker.log.directories import LogDirectories
from txbroker.log.log import Log
from txbroker.log.log_config import LogConfig
from txbroker.log.meta_properties import Identity
from txbroker.names import TopicPartition
from txbroker.wire.records import Record, build

NOW = 1_700_000_000_000
IDENTITY = Identity(1, "lvr4NfIWTo6tu8cpVcm0iw")
T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
TOPIC_ID = bytes(range(16))


class Watcher:
    """An observer that records its calls."""

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


class DirectoryHarness:
    """Log directories with their disk, worker and observer; `root` holds the directories a, b, …"""

    def __init__(
        self,
        root: DiskPath | Path,
        count: int = 1,
        *,
        disk: FaultyDisk | None = None,
        producer_id_expiration_ms: Callable[[], int] = lambda: 10**9,
        **config: Any,
    ) -> None:
        self.root = on_disk(root)
        self.paths = [f"{root}/{name}" for name in "abcd"[:count]]
        self.disk = disk or FaultyDisk(self.root.disk)
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
        self.directories.hold()
        self.directories.close(one_by_one)

    def crash(self) -> None:
        """End the process: locks are released, and nothing more is written."""
        for directory in self.directories._list.all:
            directory.unlock()

    def create(self, topic_partition: TopicPartition, **options: Any) -> Log:
        return self.directories.create(topic_partition, TOPIC_ID, **({"is_new": True, "now_ms": NOW} | options))

    def names(self, directory: str = "a") -> list[str]:
        """The names in a directory, without the files that are always there."""
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
    """The bytes of all batches from the log start offset on."""
    data, offset = b"", log.log_start_offset
    while offset < log.log_end_offset:
        read = log.read(offset, 1 << 20, offset_end=log.log_end_offset, whole_first_batch=True)
        data += read.region.read()
        offset = read.end_offset
    return data


def zero_watermark(topic_partition: TopicPartition) -> int:
    return 0


def run_nothing(jobs: Mapping[str, Sequence[Callable[[], None]]]) -> None:
    """A `RunAll` for a start that fails before it loads logs."""
    raise AssertionError("no job was expected")
