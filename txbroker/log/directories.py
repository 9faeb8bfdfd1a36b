"""The broker's log directories (`log.dirs`): which logs are where, checkpoints, failures, deletions, moves (Kafka's LogManager).

The life of it: `open` (directories made, locked, identities read), `claim` (identity checked and written), `load` (logs opened,
recovered where needed), then serving, then `close` (all synced, marked clean). All methods belong to the thread of the logs but
`load` and `close`, which wait for the disk and may run in a worker while nobody else uses the directories. What waits for the disk
meanwhile goes through the injected `Later`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from txbroker.errors import ErrorCode
from txbroker.log.config import LogConfig
from txbroker.log.disk import Disk
from txbroker.log.log import PRODUCER_ID_EXPIRATION_MS, Log
from txbroker.log.meta_properties import Identity
from txbroker.log.values import Later
from txbroker.names import TopicPartition

Job = Callable[[], None]


class Observer(Protocol):
    """Whoever must know what happens to logs: told from the thread of the logs."""

    def directory_failed(self, directory: str, partitions: Sequence[TopicPartition]) -> None:
        """A directory went offline; its logs (of these partitions) must not be used any more."""

    def all_directories_failed(self) -> None:
        """No directory is left: the broker must stop."""

    def log_moved(self, topic_partition: TopicPartition, log: Log) -> None:
        """The partition's log is in another directory now; the old `Log` must not be used any more."""


class RunAll(Protocol):
    """Runs all jobs, at most as many at once for each directory as it has workers, and returns when all are done."""

    def __call__(self, jobs: Mapping[str, Sequence[Job]]) -> None: ...


class ReplicaDescription(NamedTuple):
    """One log as DescribeLogDirs shows it; `offset_lag` in records, `is_future` for the unfinished copy of a move."""

    topic_partition: TopicPartition
    size: int
    offset_lag: int
    is_future: bool


class DirectoryDescription(NamedTuple):
    """One log directory as DescribeLogDirs shows it; sizes in bytes, -1 when it is offline (KAFKA_STORAGE_ERROR)."""

    directory: str
    error: ErrorCode
    total_bytes: int
    usable_bytes: int
    replicas: list[ReplicaDescription]


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
        producer_id_expiration_ms: int = PRODUCER_ID_EXPIRATION_MS,
    ) -> None:
        """`paths`: absolute. `config_for`: the settings of a topic. `unique_id`: 32 hexadecimal digits, new at each call."""

    def wire(self, observer: Observer) -> None:
        """Tell `observer` from now on."""

    # --- start and stop ---

    def open(self) -> Identity:
        """Make, check and lock the directories; the identity that their meta.properties hold.

        StartError: a directory is in use, identities disagree or cannot be read, no directory can be used. One of several that
        cannot be used goes offline.
        """

    def claim(self, identity: Identity) -> None:
        """Check that the directories are those of this broker, and write meta.properties where it is missing; StartError."""

    def load(self, now_ms: int, run_all: RunAll, progress: Callable[[str, int, int], None]) -> None:
        """Open every log. `progress(directory, done, total)` is called from workers. StartError when nothing is left to serve."""

    def close(self, now_ms: int, run_all: RunAll, *, broker_epoch: int = -1) -> None:
        """Sync and close all logs, write checkpoints and the mark of a clean shutdown. Workers must be idle; the end of use."""

    # --- logs ---

    def get(self, topic_partition: TopicPartition) -> Log | None: ...

    def logs(self) -> Mapping[TopicPartition, Log]: ...

    def get_or_create(self, topic_partition: TopicPartition, *, topic_id: bytes, is_new: bool, now_ms: int) -> Log:
        """The log, made in the directory with the fewest unless it exists. INCONSISTENT_TOPIC_ID when it is another topic's.

        StorageError when no directory takes it, or unless `is_new` while a directory is offline, where it may be.
        """

    def delete(self, topic_partition: TopicPartition) -> None:
        """Rename the log's directory at once and remove it after file.delete.delay.ms. StorageError when it may be offline."""

    def reconfigure(self, topic: str) -> None:
        """Give the topic's logs the settings that `config_for` has now."""

    def move(self, topic_partition: TopicPartition, directory: str, now_ms: int) -> None:
        """Begin to move a log to another directory, or choose the directory of one that will be made (AlterReplicaLogDirs).

        LOG_DIR_NOT_FOUND, KAFKA_STORAGE_ERROR (offline), REPLICA_NOT_AVAILABLE (no such log yet; the choice is remembered).
        """

    def flush(self, log: Log, now_ms: int, done: Callable[[], None] | None = None) -> None:
        """Sync a log up to its present end in a worker, then call `done` (not when the disk failed)."""

    # --- failures ---

    def fail(self, log: Log, error: Exception) -> None:
        """A log's disk failed: take its directory offline with all its logs, and tell the observer. Again: nothing."""

    # --- what timers call ---

    def retention_pass(self, now_ms: int, high_watermark: Callable[[TopicPartition], int]) -> int:
        """Delete what retention allows in every log; how many segments (log.retention.check.interval.ms)."""

    def flush_due(self, now_ms: int) -> None:
        """Flush the logs whose flush.ms have passed (log.flush.scheduler.interval.ms)."""

    def expire_producers(self, now_ms: int) -> int:
        """Forget silent idempotent producers; how many (producer.id.expiration.check.interval.ms)."""

    def checkpoint_recovery_points(self) -> None:
        """log.flush.offset.checkpoint.interval.ms"""

    def checkpoint_log_start_offsets(self) -> None:
        """log.flush.start.offset.checkpoint.interval.ms"""

    # --- offsets that others own ---

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """What replication-offset-checkpoint held at load, of all directories."""

    def checkpoint_high_watermarks(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Write the high watermarks of all partitions, each to its directory (replica.high.watermark.checkpoint.interval.ms)."""

    # --- what admin requests show ---

    def describe(self, high_watermark: Callable[[TopicPartition], int]) -> list[DirectoryDescription]:
        """All configured directories with their logs."""

    def offline(self) -> list[str]:
        """The directories that failed."""
