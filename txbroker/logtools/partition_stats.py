"""`log stats`: counts batches, records, codecs, keys and timestamps of a partition in one pass, in bounded memory."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from txbroker.errors import BrokerError
from txbroker.log.disk import Disk
from txbroker.log.file_names import INDEX_SUFFIXES, file_path
from txbroker.log.recovery import first_offset_of
from txbroker.log.scan import Entry
from txbroker.logtools.damaged_walk import CONTENT_BYTES_MAX, Damage
from txbroker.logtools.key_counter import KeyCounter
from txbroker.logtools.log_paths import PartitionPlace
from txbroker.logtools.partition_files import find_files
from txbroker.logtools.partition_walk import OnDamage, walk_partition
from txbroker.logtools.segment_check import Advance
from txbroker.names import TopicPartition
from txbroker.wire.batch import HEADER_SIZE, BatchHeader
from txbroker.wire.compression import Codec
from txbroker.wire.entries import read_records
from txbroker.wire.legacy import unwrap
from txbroker.wire.records import payload_size

TIME_BUCKETS_MAX = 512


@dataclass(slots=True)
class CodecStats:
    """Batches of one codec, and the bytes of their records as stored and decompressed."""

    batches: int = 0
    records: int = 0
    stored_bytes: int = 0
    plain_bytes: int = 0


@dataclass(slots=True)
class SegmentStats:
    """One segment, with the bytes of its log file and of its indexes."""

    base_offset: int
    size: int
    index_bytes: int


class TimeCounts:
    """Records by timestamp in at most TIME_BUCKETS_MAX buckets, whose width doubles when there are more. Times in ms."""

    def __init__(self) -> None:
        self.width_ms = 1000
        self.counts: Counter[int] = Counter()

    def add(self, timestamp: int) -> None:
        """Count a record with this timestamp."""
        self.counts[timestamp // self.width_ms] += 1
        while len(self.counts) > TIME_BUCKETS_MAX:
            self.width_ms *= 2
            merged: Counter[int] = Counter()
            for bucket, count in self.counts.items():
                merged[bucket // 2] += count
            self.counts = merged


@dataclass(slots=True)
class PartitionStats:
    """The counts of a partition. Sizes in bytes, timestamps in ms (None: no record has one).

    `batch_sizes`, `batch_records`: batches by the `bit_length` of their size and number of records. `obsolete`: records that a later record
    with the same key replaces, the most that compaction can remove; an estimate if `keys` is one. `unread`: batches that cannot be read.
    """

    topic_partition: TopicPartition
    segments: list[SegmentStats] = field(default_factory=list)
    start_offset: int | None = None
    end_offset: int = 0
    batches: int = 0
    records: int = 0
    control_records: int = 0
    tombstones: int = 0
    keyless: int = 0
    transactional: int = 0
    key_bytes: int = 0
    value_bytes: int = 0
    keyed_bytes: int = 0
    first_timestamp: int | None = None
    last_timestamp: int | None = None
    batch_bytes_max: int = 0
    unread: int = 0
    formats: Counter[int] = field(default_factory=Counter)
    codecs: dict[str, CodecStats] = field(default_factory=dict)
    batch_sizes: Counter[int] = field(default_factory=Counter)
    batch_records: Counter[int] = field(default_factory=Counter)
    times: TimeCounts = field(default_factory=TimeCounts)
    keys: KeyCounter = field(default_factory=KeyCounter)

    @property
    def size(self) -> int:
        """Bytes of the log files."""
        return sum(segment.size for segment in self.segments)

    @property
    def keyed(self) -> int:
        """Records with a key."""
        return self.records - self.keyless

    @property
    def obsolete(self) -> int:
        """Records that a later record with the same key replaces."""
        return max(0, self.keyed - self.keys.count)

    @property
    def obsolete_bytes(self) -> int:
        """An estimate of the bytes of their keys and values, from the mean of all records with a key."""
        return self.keyed_bytes * self.obsolete // self.keyed if self.keyed else 0

    @property
    def ratio(self) -> float | None:
        """The compression ratio: decompressed bytes of the records by stored bytes; None without records."""
        stored = sum(codec.stored_bytes for codec in self.codecs.values())
        return sum(codec.plain_bytes for codec in self.codecs.values()) / stored if stored else None


def gather(disk: Disk, place: PartitionPlace, on_damage: OnDamage, advance: Advance) -> PartitionStats:
    """Read a partition and count. StorageError when the disk cannot be read."""
    stats = PartitionStats(place.topic_partition)
    for base_offset in find_files(disk, place.path).logs:
        index_bytes = sum(disk.size(file_path(place.path, base_offset, suffix)) or 0 for suffix in INDEX_SUFFIXES)
        stats.segments.append(SegmentStats(base_offset, disk.size(file_path(place.path, base_offset, ".log")) or 0, index_bytes))
    for entry in walk_partition(disk, place, on_damage):
        before = stats.records
        _count_batch(stats, entry)
        try:
            if entry.header.control:
                stats.control_records += sum(1 for _ in read_records(entry.buffer, entry.at, entry.header, CONTENT_BYTES_MAX))
            else:
                _count_records(stats, entry)
        except BrokerError as error:
            stats.unread += 1
            end = entry.position + entry.header.size
            on_damage(place.path, Damage(entry.position, end, first_offset_of(entry.header), str(error.message)))
        advance(entry.header.size, stats.records - before)
    return stats


def _count_batch(stats: PartitionStats, entry: Entry) -> None:
    header = entry.header
    if stats.start_offset is None:
        stats.start_offset = first_offset_of(header)
    stats.end_offset = header.last_offset + 1
    stats.batches += 1
    stats.transactional += header.transactional
    stats.formats[header.magic] += 1
    stats.batch_sizes[header.size.bit_length()] += 1
    stats.batch_bytes_max = max(stats.batch_bytes_max, header.size)


def _count_records(stats: PartitionStats, entry: Entry) -> None:
    header = entry.header
    codec = stats.codecs.setdefault(header.codec.name.lower(), CodecStats())
    keys, times = stats.keys, stats.times
    count = 0
    for record in read_records(entry.buffer, entry.at, header, CONTENT_BYTES_MAX):
        count += 1
        size = 0 if record.value is None else len(record.value)
        stats.value_bytes += size
        if record.key is None:
            stats.keyless += 1
        else:
            stats.key_bytes += len(record.key)
            stats.keyed_bytes += len(record.key) + size
            stats.tombstones += record.value is None
            keys.add(record.key)
        if record.timestamp >= 0:
            times.add(record.timestamp)
            if stats.first_timestamp is None or record.timestamp < stats.first_timestamp:
                stats.first_timestamp = record.timestamp
            if stats.last_timestamp is None or record.timestamp > stats.last_timestamp:
                stats.last_timestamp = record.timestamp
    stats.records += count
    stats.batch_records[count.bit_length()] += 1
    codec.batches += 1
    codec.records += count
    stored, plain = _sizes(entry)
    codec.stored_bytes += stored
    codec.plain_bytes += plain


def _sizes(entry: Entry) -> tuple[int, int]:
    """The bytes of a batch's records as stored and decompressed."""
    header = entry.header
    if not isinstance(header, BatchHeader):
        plain = len(unwrap(entry.buffer, entry.at, header, CONTENT_BYTES_MAX)) if header.codec is not Codec.NONE else header.size
        return header.size, plain
    return header.size - HEADER_SIZE, payload_size(entry.buffer, entry.at, header, CONTENT_BYTES_MAX)
