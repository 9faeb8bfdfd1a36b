"""Reads a topic from log directories, txbroker's or Kafka's. They are only read: nothing is created, locked or changed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from txbroker.cli.audit.record_rows import BATCH_BYTES_MAX, Bounds, Chunk
from txbroker.cli.segment_reading import ReadOnlyFile, base_offsets, segment_path, unreadable
from txbroker.config.resolve import BrokerConfig
from txbroker.config.topics import topic_settings
from txbroker.console.failures import CommandFailed, warn
from txbroker.errors import BrokerError
from txbroker.log.aborted_transactions import TransactionScan
from txbroker.log.checkpoints import HIGH_WATERMARKS, LOG_START_OFFSETS, SIZE_MAX, MalformedCheckpoint, parse_offsets
from txbroker.log.cleaner.compaction_order import CompactionOrder
from txbroker.log.log_results import AbortedTransaction
from txbroker.log.os_disk import OsDisk
from txbroker.log.scan import Walk, find
from txbroker.logtools.process_directories import data_directories
from txbroker.logtools.stored_configs import NotReadable, broker_configs, topic_configs
from txbroker.names import OFFSETS_TOPIC, TopicPartition, parse_partition_directory
from txbroker.wire.entries import Scan

CHUNK_BYTES = 4 * 1024 * 1024


@dataclass(slots=True)
class _Position:
    """The position of an offset, or of the next one that exists, in a file."""

    offset: int
    base_offset: int
    file: ReadOnlyFile
    position: int


class DirectoryTopic:
    """A topic in log directories; CommandFailed where they cannot be read.

    `committed_only`: up to the first open transaction and without aborted records. The end is the high watermark that the broker stored
    last (it does so every five seconds, and when it stops), or without one the end of the log.
    """

    def __init__(self, directories: Sequence[str], name: str, committed_only: bool) -> None:
        self.name = name
        self._directories = directories
        self._committed_only = committed_only
        self._paths: dict[int, Path] = {}
        self._starts: dict[TopicPartition, int] = {}
        self._high_watermarks: dict[TopicPartition, int] = {}
        self._aborted: dict[int, list[AbortedTransaction]] = {}
        self._next: dict[int, _Position] = {}
        for directory in map(Path, data_directories(OsDisk(), directories)):
            self._find_partitions(directory)
        if not self._paths:
            raise CommandFailed(f"there is no partition of {name} in {', '.join(directories)}; --log-dir is one of the broker's log.dirs")

    def close(self) -> None:
        """Close the files."""
        self._next.clear()

    def order(self) -> CompactionOrder:
        """Which record of a key is the latest: by the metadata that a txbroker stores in the directories, else by offset, as Kafka's.

        The broker's server.properties is not read.
        """
        disk, config = OsDisk(), BrokerConfig({})
        try:
            overrides = topic_configs(disk, self._directories, self.name)
            stored = broker_configs(disk, self._directories)
        except NotReadable as error:
            raise CommandFailed(f"the configuration of {self.name} is not known: {error}; specify --compaction-strategy") from None
        config.set_dynamic(stored.broker, stored.default)
        settings = topic_settings(config, overrides or {})
        return CompactionOrder.of_topic(settings.compaction_strategy, settings.compaction_strategy_header)

    def bounds(self) -> Mapping[int, Bounds]:
        """First and end offset of each partition, now."""
        found = {}
        for partition, path in sorted(self._paths.items()):
            try:
                found[partition] = self._bounds(partition)
            except OSError as error:
                raise unreadable(path, error) from None
        return found

    def read(self, partition: int, offset: int, end: int) -> Chunk | None:
        """Batches from an offset on, or from the next one that still exists; None when there is none before the end."""
        try:
            found = self._next.pop(partition, None)
            if found is None or found.offset != offset:
                found = self._find(partition, offset)
            if found is None:
                return None
            data = found.file.pread(found.position, CHUNK_BYTES)
            scan = Scan(data)
            last = max((header.last_offset for _, header in scan), default=-1)
            if last < 0 and 0 < scan.needed <= BATCH_BYTES_MAX:
                data = found.file.pread(found.position, scan.needed)
                scan = Scan(data)
                last = max((header.last_offset for _, header in scan), default=-1)
            size = found.file.size
        except OSError as error:
            raise unreadable(self._paths[partition], error) from None
        if last < offset:
            raise CommandFailed(f"{found.file.path} is damaged at byte {found.position}: {scan.problem}; see `txbroker dump-log`")
        position = found.position + scan.position
        if position < size:
            self._next[partition] = _Position(last + 1, found.base_offset, found.file, position)
        aborted = [one for one in self._aborted.get(partition, ()) if one.last_offset >= offset and one.first_offset <= last]
        return Chunk(memoryview(data)[: scan.position], offset, aborted)

    def _find_partitions(self, directory: Path) -> None:
        try:
            names = os.listdir(directory)
        except OSError as error:
            raise unreadable(directory, error) from None
        for name in names:
            found = parse_partition_directory(name)
            if found is not None and found.topic == self.name:
                other = self._paths.setdefault(found.partition, directory / name)
                if other != directory / name:
                    raise CommandFailed(f"{other} and {directory / name} are replicas of one partition: specify --log-dir {directory}")
        self._starts |= _checkpoint(directory / LOG_START_OFFSETS)
        self._high_watermarks |= _checkpoint(directory / HIGH_WATERMARKS)

    def _bounds(self, partition: int) -> Bounds:
        known = TopicPartition(self.name, partition)
        bases = base_offsets(self._paths[partition])
        if not bases:
            return Bounds(0, 0)
        start = end = max(bases[0], self._starts.get(known, 0))
        transactions = TransactionScan()
        for base in bases if self._committed_only else bases[-1:]:
            file = ReadOnlyFile(segment_path(self._paths[partition], base))
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

    def _find(self, partition: int, offset: int) -> _Position | None:
        bases = base_offsets(self._paths[partition])
        first = max((i for i, base in enumerate(bases) if base <= offset), default=0)
        for base in bases[first:]:
            file = ReadOnlyFile(segment_path(self._paths[partition], base))
            try:
                found = find(file, 0, file.size, offset)
            except BrokerError as error:
                raise CommandFailed(f"{file.path} is damaged: {error}; see `txbroker dump-log`") from None
            if found is not None:
                return _Position(offset, base, file, found.position)
        return None


def _checkpoint(path: Path) -> Mapping[TopicPartition, int]:
    try:
        return parse_offsets(path.read_bytes()) if path.stat().st_size <= SIZE_MAX else {}
    except FileNotFoundError:
        return {}
    except (OSError, MalformedCheckpoint) as problem:
        warn(f"{path} is ignored: {problem}")
        return {}


def committed(directories: Sequence[str], topic: str) -> dict[str, dict[int, int]]:
    """The committed offsets of all groups for a topic, from the partitions of __consumer_offsets in these directories."""
    from txbroker.groups.group_replay import GroupReplay

    found: dict[str, dict[int, int]] = {}
    for batches in _offsets_logs(directories):
        loaded = GroupReplay()
        try:
            for chunk in batches:
                for _ in loaded.batches(chunk):
                    pass
        except BrokerError as error:
            warn(f"some committed offsets are missing: {error}; see `txbroker log verify`")
        for group, offsets in loaded.offsets.items():
            mine = {partition.partition: offset.offset for partition, offset in offsets if partition.topic == topic}
            if mine:
                found.setdefault(group, {}).update(mine)
    return found


def _offsets_logs(directories: Sequence[str]) -> Iterator[Iterator[memoryview]]:
    try:
        source = DirectoryTopic(directories, OFFSETS_TOPIC, committed_only=False)
    except CommandFailed:
        return  # no group has committed anything in these directories
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
