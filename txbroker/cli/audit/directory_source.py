"""A topic's partitions read from log directories, ours or Kafka's: read only, nothing is made, locked or changed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from txbroker.cli.audit.record_rows import BATCH_BYTES_MAX, Bounds, Chunk
from txbroker.cli.failures import CommandFailed, warn
from txbroker.errors import BrokerError
from txbroker.log.aborted_transactions import TransactionScan
from txbroker.log.checkpoints import HIGH_WATERMARKS, LOG_START_OFFSETS, SIZE_MAX, MalformedCheckpoint, parse_offsets
from txbroker.log.log_results import AbortedTransaction
from txbroker.log.scan import Walk, find
from txbroker.names import TopicPartition, parse_partition_directory
from txbroker.wire.entries import Scan

CHUNK_BYTES = 4 * 1024 * 1024
_LOG = ".log"


class LogFile:
    """A segment's file for reading, whatever else happens to it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_RDONLY)

    def __del__(self) -> None:
        if hasattr(self, "_descriptor"):
            os.close(self._descriptor)

    @property
    def size(self) -> int:
        """Its bytes, now."""
        return os.fstat(self._descriptor).st_size

    def pread(self, position: int, length: int) -> bytes:
        """Some of its bytes; fewer at its end."""
        return os.pread(self._descriptor, length, position)


@dataclass(slots=True)
class _Place:
    """Where an offset, or the next one there is, is to be read."""

    offset: int
    base_offset: int
    file: LogFile
    position: int


class DirectoryTopic:
    """A topic in log directories. `committed_only`: up to the first open transaction and without aborted records.

    The end is the high watermark that the broker wrote down last (it does so every five seconds, and when it stops), or where there is
    none the end of the log.
    """

    def __init__(self, directories: Iterable[str], name: str, committed_only: bool) -> None:
        self.name = name
        self._committed_only = committed_only
        self._paths: dict[int, Path] = {}
        self._starts: dict[TopicPartition, int] = {}
        self._high_watermarks: dict[TopicPartition, int] = {}
        self._aborted: dict[int, list[AbortedTransaction]] = {}
        self._next: dict[int, _Place] = {}
        for directory in map(Path, directories):
            self._look(directory)
        if not self._paths:
            places = ", ".join(map(str, directories))
            raise CommandFailed(f"there is no partition of {name} in {places}; --log-dir is one of the broker's log.dirs")

    def close(self) -> None:
        """Close what is open."""
        self._next.clear()

    def version_header(self) -> str | None:
        """Not known without a broker."""
        return None

    def bounds(self) -> Mapping[int, Bounds]:
        """First and end offset of each partition, now."""
        return {index: self._bounds(index) for index in sorted(self._paths)}

    def read(self, partition: int, offset: int, end: int) -> Chunk | None:
        """What lies at an offset, or at the next one that is still there; None: nothing is left of what was before the end."""
        try:
            place = self._next.pop(partition, None)
            if place is None or place.offset != offset:
                place = self._find(partition, offset)
            if place is None:
                return None
            data = place.file.pread(place.position, CHUNK_BYTES)
            scan = Scan(data)
            last = max((header.last_offset for _, header in scan), default=-1)
            if last < 0 and 0 < scan.needed <= BATCH_BYTES_MAX:
                data = place.file.pread(place.position, scan.needed)
                scan = Scan(data)
                last = max((header.last_offset for _, header in scan), default=-1)
        except OSError as error:
            raise CommandFailed(f"{self._paths[partition]} cannot be read: {error.strerror}; run this as the broker's user") from None
        if last < offset:
            raise CommandFailed(f"{place.file.path} is damaged at byte {place.position}: {scan.problem}; see `txbroker dump-log`")
        position = place.position + scan.position
        if position < place.file.size:
            self._next[partition] = _Place(last + 1, place.base_offset, place.file, position)
        mine = [one for one in self._aborted.get(partition, ()) if one.last_offset >= offset and one.first_offset <= last]
        return Chunk(memoryview(data)[: scan.position], offset, mine)

    # --- finding things ---

    def _look(self, directory: Path) -> None:
        try:
            names = os.listdir(directory)
        except OSError as error:
            raise CommandFailed(f"{directory} cannot be read: {error.strerror}; --log-dir is one of the broker's log.dirs") from None
        for name in names:
            found = parse_partition_directory(name)
            if found is not None and found.topic == self.name:
                self._paths[found.partition] = directory / name
        self._starts |= _checkpoint(directory / LOG_START_OFFSETS)
        self._high_watermarks |= _checkpoint(directory / HIGH_WATERMARKS)

    def _bounds(self, partition: int) -> Bounds:
        known = TopicPartition(self.name, partition)
        bases = self._bases(partition)
        if not bases:
            return Bounds(0, 0)
        start = end = max(bases[0], self._starts.get(known, 0))
        transactions = TransactionScan()
        for base in bases if self._committed_only else bases[-1:]:
            file = LogFile(self._path(partition, base))
            walk = Walk(file, 0, file.size)
            end = base
            for entry in walk:
                end = entry.header.last_offset + 1
                if self._committed_only:
                    transactions.add(entry.buffer, entry.at, entry.header)
            if walk.problem and base != bases[-1]:
                raise CommandFailed(f"{file.path} is damaged: {walk.problem}; see `txbroker dump-log`")
        self._aborted[partition] = transactions.aborted
        end = min(end, self._high_watermarks.get(known, end))
        return Bounds(start, max(start, min([end, *transactions.open.values()])))

    def _find(self, partition: int, offset: int) -> _Place | None:
        bases = self._bases(partition)
        first = max((i for i, base in enumerate(bases) if base <= offset), default=0)
        for base in bases[first:]:
            file = LogFile(self._path(partition, base))
            try:
                found = find(file, 0, file.size, offset)
            except BrokerError as error:
                raise CommandFailed(f"{file.path} is damaged: {error}; see `txbroker dump-log`") from None
            if found is not None:
                return _Place(offset, base, file, found.position)
        return None

    def _bases(self, partition: int) -> list[int]:
        names = os.listdir(self._paths[partition])
        return sorted(int(name[:-4]) for name in names if name.endswith(_LOG) and len(name) == 24 and name[:-4].isdecimal())

    def _path(self, partition: int, base_offset: int) -> Path:
        return self._paths[partition] / f"{base_offset:020d}{_LOG}"


def _checkpoint(path: Path) -> Mapping[TopicPartition, int]:
    try:
        return parse_offsets(path.read_bytes()) if path.stat().st_size <= SIZE_MAX else {}
    except FileNotFoundError:
        return {}
    except (OSError, MalformedCheckpoint) as problem:
        warn(f"{path} cannot be used ({problem}); what it says is left out of account")
        return {}


def committed(directories: Iterable[str], topic: str) -> dict[str, dict[int, int]]:
    """What groups have committed for a topic, from the partitions of __consumer_offsets in these directories."""
    from txbroker.groups.loader import LoadedPartition

    found: dict[str, dict[int, int]] = {}
    for batches in _offsets_logs(directories):
        loaded = LoadedPartition()
        try:
            for chunk in batches:
                for _ in loaded.batches(chunk):
                    pass
        except BrokerError as error:
            warn(f"the committed offsets are not all known: {error}")
        for group, offsets in loaded.offsets.items():
            mine = {partition.partition: offset.offset for partition, offset in offsets if partition.topic == topic}
            if mine:
                found.setdefault(group, {}).update(mine)
    return found


def _offsets_logs(directories: Iterable[str]) -> Iterator[Iterator[memoryview]]:
    try:
        source = DirectoryTopic(directories, "__consumer_offsets", committed_only=False)
    except CommandFailed:
        return
    for partition, (start, end) in source.bounds().items():
        yield _chunks(source, partition, start, end)


def _chunks(source: DirectoryTopic, partition: int, offset: int, end: int) -> Iterator[memoryview]:
    while offset < end:
        chunk = source.read(partition, offset, end)
        if chunk is None:
            return
        assert isinstance(chunk.data, memoryview)
        last = max(header.last_offset for _, header in Scan(chunk.data))
        yield chunk.data
        offset = last + 1
