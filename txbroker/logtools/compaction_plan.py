"""Plans a pass of the log cleaner from a partition's files, for a dry run. A broker may be using them; they are only read.

The end of the log, open transactions and producers come from the latest valid producer snapshot and the headers of the batches after it.
Incomplete or damaged data at the end of the last segment is ignored: a broker may be writing there.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from txbroker.errors import CorruptRecords, MissingFile
from txbroker.log.cleaner.cleanable import Cleanable, assess
from txbroker.log.cleaner.cleaning_job import CleaningJob, CleaningSettings, LastRecord, SegmentSpan
from txbroker.log.disk import Disk, File
from txbroker.log.file_names import LOG, SNAPSHOT, TIME_INDEX, file_path, parse_name
from txbroker.log.log_config import LogConfig
from txbroker.log.producer_replay import replay_batch
from txbroker.log.producer_snapshots import parse_snapshot
from txbroker.log.producers import ProducerStates
from txbroker.log.scan import LOOK_CHUNK_BYTES, Walk
from txbroker.logtools.partition_files import find_files
from txbroker.names import TopicPartition

_TIME_ENTRY = struct.Struct(">qI")
SNAPSHOT_BYTES_MAX = 64 << 20
PRODUCER_EXPIRATION_MS = 86_400_000  # producer.id.expiration.ms


@dataclass(frozen=True, kw_only=True)
class Planned:
    """A planned pass. `job`: None when there is nothing to clean."""

    job: CleaningJob | None
    cleanable: Cleanable
    log_start_offset: int
    log_end_offset: int
    last_stable_offset: int


class LogEnds(NamedTuple):
    """Where a log ends, and the first offset of the first open transaction: equal if none is open."""

    log_end_offset: int
    last_stable_offset: int


class _Segment:
    """A segment. Its timestamps are read when they are first used."""

    def __init__(self, disk: Disk, directory: str, base_offset: int) -> None:
        self.base_offset = base_offset
        path = file_path(directory, base_offset, LOG)
        self.size = disk.size(path) or 0
        self.modified_ms = disk.modified_ms(path)
        self._disk = disk
        self._directory = directory

    def walk(self, *, chunk_bytes: int = 1 << 20) -> Walk:
        """All of its batches."""
        return Walk(self._read(LOG), 0, self.size, chunk_bytes=chunk_bytes)

    def _read(self, suffix: str) -> File:
        path = file_path(self._directory, self.base_offset, suffix)
        file = self._disk.open_existing(path)
        if file is None:
            raise MissingFile(f"{path} was deleted")
        return file

    @cached_property
    def largest_timestamp_ms(self) -> int:
        """From the last entry of its time index; without entries, from all batches. -1 without a timestamp."""
        path = file_path(self._directory, self.base_offset, TIME_INDEX)
        size = self._disk.size(path) or 0
        file = self._read(TIME_INDEX) if size else None
        # Kafka preallocates index files: the entries are followed by zeros.
        for position in range(size - size % _TIME_ENTRY.size - _TIME_ENTRY.size, -1, -_TIME_ENTRY.size):
            assert file is not None
            timestamp, _ = _TIME_ENTRY.unpack(file.pread(position, _TIME_ENTRY.size))
            if timestamp > 0:
                return int(timestamp)
        return max((entry.header.max_timestamp for entry in self.walk()), default=-1)

    @cached_property
    def first_timestamp(self) -> int:
        """The largest timestamp of the first batch; -1 without a batch."""
        first = next(iter(self.walk(chunk_bytes=LOOK_CHUNK_BYTES)), None)
        return -1 if first is None else first.header.max_timestamp


class _End:
    """The active segment after a roll."""

    size = 0
    modified_ms = 0
    largest_timestamp_ms = first_timestamp = -1

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset


def log_ends(disk: Disk, directory: str, topic_partition: TopicPartition) -> LogEnds:
    """The ends of the log in a partition's directory; both 0 without a segment. StorageError."""
    bases = find_files(disk, directory).logs
    if not bases:
        return LogEnds(0, 0)
    producers, end = _replayed(disk, directory, topic_partition, [_Segment(disk, directory, base) for base in bases])
    return LogEnds(end, _last_stable(producers, end))


def _last_stable(producers: ProducerStates, end: int) -> int:
    unstable = producers.first_unstable_offset(end)
    return end if unstable is None else unstable


def plan(
    disk: Disk,
    directory: str,
    topic_partition: TopicPartition,
    config: LogConfig,
    settings: CleaningSettings,
    *,
    checkpoint: int | None,
    log_start_offset: int,
    roll: bool,
    now_ms: int,
    seed: int,
) -> Planned | None:
    """Plan a dry pass over a partition's directory; None when it has no segment.

    `checkpoint` and `log_start_offset` come from the checkpoint files. `roll`: as if the active segment were closed first.
    StorageError when a file cannot be read or does not exist any more, because a broker has cleaned or deleted it.
    """
    offsets = find_files(disk, directory).logs
    if not offsets:
        return None
    found = [_Segment(disk, directory, offset) for offset in offsets]
    start = max(log_start_offset, found[0].base_offset)
    producers, end = _replayed(disk, directory, topic_partition, found)
    stable = _last_stable(producers, end)
    segments: list[_Segment | _End] = [*found, _End(end)] if roll and end > found[-1].base_offset else [*found]
    cleanable = assess(
        segments,
        config,
        checkpoint=checkpoint,
        log_start_offset=start,
        log_end_offset=end,
        last_stable_offset=stable,
        now_ms=now_ms,
    )
    job = _job(directory, topic_partition, segments, cleanable, producers, start, end, settings, now_ms, seed)
    return Planned(job=job, cleanable=cleanable, log_start_offset=start, log_end_offset=end, last_stable_offset=stable)


def _job(
    directory: str,
    topic_partition: TopicPartition,
    segments: list[_Segment | _End],
    cleanable: Cleanable,
    producers: ProducerStates,
    start: int,
    end: int,
    settings: CleaningSettings,
    now_ms: int,
    seed: int,
) -> CleaningJob | None:
    if cleanable.first_uncleanable_offset <= cleanable.first_dirty_offset:
        return None
    spans = [
        SegmentSpan(segment.base_offset, following.base_offset, segment.size, segment.modified_ms)
        for segment, following in pairwise(segments)
        if segment.base_offset < cleanable.first_uncleanable_offset
    ]
    return CleaningJob(
        directory=directory,
        topic=topic_partition.topic,
        partition=topic_partition.partition,
        segments=tuple(spans),
        log_start_offset=start,
        log_end_offset=end,
        first_dirty_offset=cleanable.first_dirty_offset,
        first_uncleanable_offset=cleanable.first_uncleanable_offset,
        producers=tuple(LastRecord(state.producer_id, state.epoch, state.last_offset) for state in producers),
        now_ms=now_ms,
        seed=seed,
        settings=settings,
        dry=True,
    )


def _replayed(disk: Disk, directory: str, topic_partition: TopicPartition, segments: list[_Segment]) -> tuple[ProducerStates, int]:
    """The producers at the end of the log, and the log end offset."""
    producers = ProducerStates(topic_partition, PRODUCER_EXPIRATION_MS)
    known = _from_snapshot(disk, directory, producers, segments[-1].base_offset)
    end = segments[-1].base_offset
    for at, segment in enumerate(segments):
        if at + 1 < len(segments) and segments[at + 1].base_offset <= known:
            continue
        for _, buffer, position, header in segment.walk():
            end = max(end, header.last_offset + 1)
            if header.last_offset >= known:
                replay_batch(producers, buffer, position, header)
    return producers, end


def _from_snapshot(disk: Disk, directory: str, producers: ProducerStates, high: int) -> int:
    """Load the latest valid snapshot at or below `high`; its offset, 0 without one."""
    offsets = sorted(parsed[0] for name in disk.names(directory) if (parsed := parse_name(name)) and parsed[1:] == (SNAPSHOT, ""))
    for offset in reversed([offset for offset in offsets if offset <= high]):
        path = file_path(directory, offset, SNAPSHOT)
        if (disk.size(path) or 0) > SNAPSHOT_BYTES_MAX:
            continue
        try:
            for state in parse_snapshot(disk.read(path) or b""):
                producers.restore(state, None)
        except CorruptRecords:
            continue
        return offset
    return 0
