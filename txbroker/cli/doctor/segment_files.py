"""A partition's segments, looked at in a log directory while the broker runs: read only, nothing is made, locked or changed."""

from __future__ import annotations

import os
import struct
from pathlib import Path

from txbroker.cli.doctor.facts import PartitionFacts, SegmentFacts
from txbroker.cli.failures import CommandFailed
from txbroker.log.checkpoints import CLEANER_OFFSETS, SIZE_MAX, MalformedCheckpoint, parse_offsets
from txbroker.log.scan import LOOK_CHUNK_BYTES, Walk
from txbroker.names import TopicPartition

# A segment cannot have more batches than bytes; a time index has no more than segment.index.bytes, 10 MiB by default.
INDEX_BYTES_MAX = 256 * 1024 * 1024
_TIME_ENTRY = struct.Struct(">qI")


def look(directory: Path, topic: str, partitions: list[PartitionFacts]) -> list[PartitionFacts]:
    """Add their segments to the partitions whose logs are in `directory`, and return those; CommandFailed when it cannot be read."""
    if not directory.is_dir():
        raise CommandFailed(f"{directory} is no directory; --log-dir is one of the broker's log.dirs, on its own machine")
    cleaned = _cleaner_offsets(directory)
    found = []
    for part in partitions:
        place = directory / f"{topic}-{part.index}"
        if not place.is_dir():
            continue
        try:
            part.segments = _segments(place)
        except OSError as error:
            raise CommandFailed(f"{place} cannot be read: {error.strerror}; run this as the user that the broker runs as") from None
        part.first_dirty_offset = cleaned.get(TopicPartition(topic, part.index))
        if part.size is None:
            part.size = sum(segment.size for segment in part.segments)
        found.append(part)
    return found


def _cleaner_offsets(directory: Path) -> dict[TopicPartition, int]:
    path = directory / CLEANER_OFFSETS
    try:
        return parse_offsets(path.read_bytes()) if path.stat().st_size <= SIZE_MAX else {}
    except (OSError, MalformedCheckpoint):
        return {}


def _segments(directory: Path) -> list[SegmentFacts]:
    names = sorted(name for name in os.listdir(directory) if name.endswith(".log") and name[:-4].isdigit() and len(name) == 24)
    return [_segment(directory / name, active=name == names[-1]) for name in names if (directory / name).exists()]


def _segment(path: Path, *, active: bool) -> SegmentFacts:
    with _ReadOnly(path) as file:
        status = os.fstat(file.descriptor)
        first_ms = _first_ms(file, status.st_size)
        largest_ms = _largest_ms(file, status.st_size) if active else None
        if largest_ms is None:
            largest_ms = _indexed_ms(path.with_suffix(".timeindex"))
        return SegmentFacts(int(path.stem), status.st_size, first_ms, largest_ms, status.st_mtime_ns // 1_000_000, active)


class _ReadOnly:
    """A file for reading, whatever else happens to it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> _ReadOnly:
        self.descriptor = os.open(self._path, os.O_RDONLY)
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.descriptor)

    def pread(self, position: int, length: int) -> bytes:
        return os.pread(self.descriptor, length, position)


def _first_ms(file: _ReadOnly, size: int) -> int | None:
    """The largest timestamp of the first batch, from which rolls by time count."""
    first = next(iter(Walk(file, 0, size, chunk_bytes=LOOK_CHUNK_BYTES)), None)
    return None if first is None else _known(first.header.max_timestamp)


def _largest_ms(file: _ReadOnly, size: int) -> int | None:
    """Of all batches: what the broker appends while we look is not waited for."""
    return _known(max((entry.header.max_timestamp for entry in Walk(file, 0, size)), default=-1))


def _indexed_ms(path: Path) -> int | None:
    """The last entry of a time index: of a closed segment its largest timestamp. What Kafka reserves behind the entries is zero."""
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
