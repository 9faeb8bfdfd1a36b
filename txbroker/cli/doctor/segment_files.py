"""The segments of partitions, from the files in a log directory, also while the broker runs."""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from pathlib import Path

from txbroker.cli.doctor.facts import PartitionFacts, SegmentFacts
from txbroker.cli.segment_reading import ReadOnlyFile, base_offsets, segment_path, unreadable
from txbroker.console.failures import CommandFailed
from txbroker.log.checkpoints import CLEANER_OFFSETS, SIZE_MAX, MalformedCheckpoint, parse_offsets
from txbroker.log.os_disk import OsDisk
from txbroker.log.scan import LOOK_CHUNK_BYTES, Walk
from txbroker.logtools.process_directories import data_directories
from txbroker.names import TopicPartition

# A segment cannot have more batches than bytes; a time index has no more than segment.index.bytes, 10 MiB by default.
INDEX_BYTES_MAX = 256 * 1024 * 1024
_TIME_ENTRY = struct.Struct(">qI")


def read_segments(log_dir: str, topic: str, partitions: list[PartitionFacts]) -> list[PartitionFacts]:
    """Add the segments to the partitions whose logs are in `log_dir`, and return these partitions; CommandFailed if it cannot be read."""
    if not os.path.isdir(log_dir):
        raise CommandFailed(f"{log_dir} is not a directory; --log-dir must be one of the broker's log.dirs, on the broker's machine")
    directories = data_directories(OsDisk(), [log_dir])
    return [part for directory in directories for part in _read_segments(Path(directory), topic, partitions)]


def _read_segments(directory: Path, topic: str, partitions: list[PartitionFacts]) -> list[PartitionFacts]:
    found = []
    try:
        cleaned = _cleaner_offsets(directory)
        for part in partitions:
            path = directory / f"{topic}-{part.index}"
            if path.is_dir():
                part.segments = _segments(path)
                part.first_dirty_offset = cleaned.get(TopicPartition(topic, part.index))
                if part.size is None:
                    part.size = sum(segment.size for segment in part.segments)
                found.append(part)
    except OSError as error:
        raise unreadable(directory, error) from None
    return found


def _cleaner_offsets(directory: Path) -> dict[TopicPartition, int]:
    path = directory / CLEANER_OFFSETS
    try:
        return parse_offsets(path.read_bytes()) if path.stat().st_size <= SIZE_MAX else {}
    except (OSError, MalformedCheckpoint):
        return {}


def _segments(directory: Path) -> list[SegmentFacts]:
    bases = base_offsets(directory)
    found = []
    for base in bases:
        with suppress(FileNotFoundError):  # the broker has deleted it
            found.append(_segment(segment_path(directory, base), base, active=base == bases[-1]))
    return found


def _segment(path: Path, base_offset: int, *, active: bool) -> SegmentFacts:
    with ReadOnlyFile(path) as file:
        size = file.size
        first_ms = _first_ms(file, size)
        largest_ms = _largest_ms(file, size) if active else None
        if largest_ms is None:
            largest_ms = _indexed_ms(path.with_suffix(".timeindex"))
        return SegmentFacts(base_offset, size, first_ms, largest_ms, path.stat().st_mtime_ns // 1_000_000, active)


def _first_ms(file: ReadOnlyFile, size: int) -> int | None:
    """The largest timestamp of the first batch, from which rolls by time count."""
    first = next(iter(Walk(file, 0, size, chunk_bytes=LOOK_CHUNK_BYTES)), None)
    return None if first is None else _known(first.header.max_timestamp)


def _largest_ms(file: ReadOnlyFile, size: int) -> int | None:
    """The largest timestamp of all batches, up to the current size."""
    return _known(max((entry.header.max_timestamp for entry in Walk(file, 0, size)), default=-1))


def _indexed_ms(path: Path) -> int | None:
    """The last entry of a time index, which is the largest timestamp of a closed segment. Kafka preallocates the file with zeros."""
    try:
        if path.stat().st_size > INDEX_BYTES_MAX:
            return None
        data = path.read_bytes()
    except OSError:
        return None
    end = len(data) - len(data) % _TIME_ENTRY.size
    for position in range(end - _TIME_ENTRY.size, -1, -_TIME_ENTRY.size):
        timestamp, _ = _TIME_ENTRY.unpack_from(data, position)
        if timestamp > 0:
            return int(timestamp)
    return None


def _known(timestamp: int) -> int | None:
    return timestamp if timestamp >= 0 else None
