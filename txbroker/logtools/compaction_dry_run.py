"""A dry run of the log cleaner on a partition's files: which records a pass would remove, and why. No file is changed.

A broker may be using the directory: what it has cleaned or deleted meanwhile ends the dry run with DryRunFailed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from txbroker.errors import StorageError
from txbroker.log.checkpoints import CLEANER_OFFSETS, LOG_START_OFFSETS, SIZE_MAX, MalformedCheckpoint, parse_offsets
from txbroker.log.cleaner.cleanable import Limit, WhyNot, why_not
from txbroker.log.cleaner.cleaning_job import (
    CleaningJob,
    CleaningSettings,
    Event,
    Failed,
    FailureKind,
    Mapped,
    Progress,
    Removable,
    Strategy,
)
from txbroker.log.cleaner.compaction_pass import run_job
from txbroker.log.disk import Disk
from txbroker.log.log_config import LogConfig
from txbroker.logtools.compaction_plan import Planned, plan
from txbroker.names import TopicPartition, parse_partition_directory

DEDUPE_BUFFER_BYTES = 128 << 20  # log.cleaner.dedupe.buffer.size
_LOAD_FACTOR = 0.9  # log.cleaner.io.buffer.load.factor
_IO_BUFFER_BYTES = 512 << 10  # log.cleaner.io.buffer.size
_MAP_BYTES_MAX = 2**31 - 1


class DryRunFailed(Exception):
    """A partition could not be read to its end. `damaged`: its records are corrupted; else its files could not be read, or changed."""

    def __init__(self, reason: str, *, damaged: bool = False) -> None:
        super().__init__(reason)
        self.damaged = damaged


class PartitionLog(NamedTuple):
    """A partition in a data directory (one of log.dirs)."""

    data_directory: str
    topic_partition: TopicPartition

    @property
    def path(self) -> str:
        """Its own directory."""
        return f"{self.data_directory}/{self.topic_partition}"


@dataclass(frozen=True, slots=True)
class CleanerCheckpoints:
    """The checkpoint files of a data directory that a pass depends on: cleaner offsets and log start offsets."""

    cleaned: Mapping[TopicPartition, int]
    starts: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRunReport:
    """What a pass over one partition would do. `records`: how many it would remove by reason, of `bytes` together.

    `clean_up_to`: the offset up to which the log would be clean. `missed_keys`: they found no place in the map; `invalid_headers`: records
    whose version header is not of 8 bytes.
    """

    planned: Planned
    config: LogConfig
    records: Mapping[str, int]
    bytes: int
    clean_up_to: int
    missed_keys: int
    invalid_headers: int

    @property
    def why_not_now(self) -> WhyNot | None:
        """Why a running cleaner would not begin the pass now; None when it would."""
        return why_not(self.planned.cleanable, self.config, self.planned.log_end_offset)

    @property
    def roll_would_help(self) -> bool:
        """Whether nothing can be cleaned because all that is dirty is in the active segment."""
        return self.planned.job is None and self.planned.cleanable.limit is Limit.ACTIVE

    @property
    def map_full(self) -> bool:
        """Whether the map of keys ends before the records that could be cleaned."""
        # With the other strategies the record at the log's end is judged once another one follows it.
        at_end = self.config.compaction_strategy is not Strategy.OFFSET and self.clean_up_to == self.planned.log_end_offset - 1
        return self.clean_up_to < self.planned.cleanable.first_uncleanable_offset and not at_end


def find_partitions(disk: Disk, directories: Sequence[str], topic: str, partition: int | None = None) -> list[PartitionLog]:
    """The partitions of a topic in data directories, or the one of this number. StorageError when a directory cannot be read."""
    found = [
        PartitionLog(directory, parsed)
        for directory in directories
        for name in disk.names(directory)
        if (parsed := parse_partition_directory(name)) is not None and parsed.topic == topic
    ]
    return sorted((one for one in found if partition in (None, one.topic_partition.partition)), key=lambda one: one.topic_partition)


def cleaning_settings(config: LogConfig, dedupe_buffer_bytes: int = DEDUPE_BUFFER_BYTES) -> CleaningSettings:
    """The settings of a single worker with this memory for its map of keys and no limit to its I/O."""
    return CleaningSettings(
        strategy=config.compaction_strategy,
        header=config.compaction_strategy_header,
        segment_bytes=config.segment_bytes,
        segment_index_bytes=config.segment_index_bytes,
        index_interval_bytes=config.index_interval_bytes,
        delete_retention_ms=config.delete_retention_ms,
        max_message_bytes=config.max_message_bytes,
        map_bytes=min(dedupe_buffer_bytes, _MAP_BYTES_MAX),
        load_factor=_LOAD_FACTOR,
        io_buffer_bytes=_IO_BUFFER_BYTES,
        io_bytes_per_second=float("inf"),
    )


def read_checkpoints(disk: Disk, directory: str, complain: Callable[[str, Exception], None]) -> CleanerCheckpoints:
    """The checkpoints of a data directory. Missing and damaged files count as empty, as in a broker; `complain` reports damaged ones."""

    def offsets(name: str) -> Mapping[TopicPartition, int]:
        path = f"{directory}/{name}"
        try:
            size = disk.size(path)
            return parse_offsets(disk.read(path) or b"") if size is not None and size <= SIZE_MAX else {}
        except (StorageError, MalformedCheckpoint) as error:
            complain(path, error)
            return {}

    return CleanerCheckpoints(offsets(CLEANER_OFFSETS), offsets(LOG_START_OFFSETS))


class DryRun:
    """The dry run of one partition: planned when it is made, then `run` once."""

    def __init__(
        self,
        disk: Disk,
        log: PartitionLog,
        config: LogConfig,
        settings: CleaningSettings,
        checkpoints: CleanerCheckpoints,
        *,
        roll: bool,
        now_ms: int,
        seed: int,
    ) -> None:
        """Plan the pass. `roll`: as if the active segment were closed first; `seed`: 64 random bits. DryRunFailed."""
        self._disk = disk
        self._config = config
        try:
            planned = plan(
                disk,
                log.path,
                log.topic_partition,
                config,
                settings,
                checkpoint=checkpoints.cleaned.get(log.topic_partition),
                log_start_offset=checkpoints.starts.get(log.topic_partition, 0),
                roll=roll,
                now_ms=now_ms,
                seed=seed,
            )
        except StorageError as error:
            raise DryRunFailed(str(error)) from None
        if planned is None:
            raise DryRunFailed(f"{log.path} has no segment")
        self._planned = planned
        self._job: CleaningJob | None = planned.job

    @property
    def bytes_to_read(self) -> int:
        """How much the pass reads: the dirty part twice."""
        segments = self._job.segments if self._job is not None else ()
        return sum(span.size for span in segments) + self._planned.cleanable.cleanable_bytes

    def run(
        self,
        on_removable: Callable[[Removable], None],
        on_read: Callable[[int], None],
        *,
        monotonic: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> DryRunReport:
        """Read the partition; DryRunFailed. `monotonic` and `sleep` are in seconds.

        `on_removable` is called for each record that would be removed, `on_read` with the bytes read so far, of `bytes_to_read`.
        """
        counts = _Counts(on_removable, on_read)
        if self._job is not None:
            run_job(self._job, self._disk, counts.event, lambda: False, monotonic=monotonic, sleep=sleep)
        mapped = counts.mapped
        return DryRunReport(
            planned=self._planned,
            config=self._config,
            records=dict(sorted(counts.records.items())),
            bytes=counts.bytes,
            clean_up_to=self._planned.cleanable.first_dirty_offset if mapped is None else mapped.end_offset,
            missed_keys=0 if mapped is None else mapped.missed_keys,
            invalid_headers=0 if mapped is None else mapped.invalid_headers,
        )


@dataclass(slots=True)
class _Counts:
    on_removable: Callable[[Removable], None]
    on_read: Callable[[int], None]
    records: Counter[str] = field(default_factory=Counter)
    bytes: int = 0
    mapped: Mapped | None = None

    def event(self, event: Event) -> None:
        match event:
            case Removable():
                self.records[event.reason] += 1
                self.bytes += event.size
                self.on_removable(event)
            case Progress():
                self.on_read(event.bytes_done)
            case Mapped():
                self.mapped = event
            case Failed():
                raise DryRunFailed(event.reason, damaged=event.kind is FailureKind.CORRUPT)
            case _:
                pass
