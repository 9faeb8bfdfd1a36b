"""One segment of a log: a file of batches with its indexes, named by the first offset that it may hold (Kafka's LogSegment)."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Iterator

from txbroker.errors import CorruptRecords, MissingFile
from txbroker.log.batch_positions import BatchPositions
from txbroker.log.disk import Buffer, Disk, File
from txbroker.log.file_names import INDEX_SUFFIXES, LOG, OFFSET_INDEX, SEGMENT_SUFFIXES, TIME_INDEX, TXN_INDEX, file_path
from txbroker.log.log_config import LogConfig
from txbroker.log.offset_index import ENTRY as OFFSET_ENTRY
from txbroker.log.offset_index import RELATIVE_OFFSET_MAX, OffsetIndex
from txbroker.log.open_segments import OpenSegments
from txbroker.log.scan import FIND_CHUNK_BYTES, Entry, Place, Walk, find
from txbroker.log.time_index import ENTRY as TIME_ENTRY
from txbroker.log.time_index import TimeIndex
from txbroker.log.txn_index import TxnIndex
from txbroker.wire.entries import read_header

logger = logging.getLogger("txbroker.log")

NO_TIMESTAMP = -1


class Segment:
    """Files and indexes are opened on first use, so that thousands of idle partitions cost nothing.

    `size`: bytes of the log file. `created_ms`: when this process created or opened it (for rolls by time). `open_segments`: of a
    closed segment; is notified when files are opened, and closes them (`release`) when too many segments have open files.
    """

    __slots__ = (
        "__weakref__",
        "_bytes_since_index",
        "_disk",
        "_file",
        "_first_timestamp",
        "_max_timestamp",
        "_offset_index",
        "_places",
        "_released",
        "_time_index",
        "_txn_index",
        "base_offset",
        "created_ms",
        "directory",
        "index_interval_bytes",
        "jitter_ms",
        "open_segments",
        "size",
    )

    def __init__(
        self, disk: Disk, directory: str, base_offset: int, *, size: int, created_ms: int, index_interval_bytes: int, jitter_ms: int = 0
    ) -> None:
        self.base_offset = base_offset
        self.size = size
        self.created_ms = created_ms
        self.directory = directory
        self.index_interval_bytes = index_interval_bytes
        self.jitter_ms = jitter_ms
        self.open_segments: OpenSegments | None = None
        self._disk = disk
        self._file: File | None = None
        self._released: weakref.ref[File] | None = None
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._txn_index: TxnIndex | None = None
        self._max_timestamp: tuple[int, int] | None = None
        self._first_timestamp: int | None = None
        self._bytes_since_index = 0
        self._places = BatchPositions()

    def create(self) -> None:
        """Create the files of a new, empty segment; existing files of these names are removed."""
        for suffix in SEGMENT_SUFFIXES:
            self._disk.remove(self.path(suffix))
        self.begin_indexes()
        self._file = self._disk.create(self.path(LOG))
        self.size = 0

    def renamed(self, base_offset: int) -> Segment:
        """This segment, which is empty, with another base offset; it must not be used afterwards."""
        moved = Segment(
            self._disk, self.directory, base_offset, size=0, created_ms=self.created_ms,
            index_interval_bytes=self.index_interval_bytes, jitter_ms=self.jitter_ms,
        )  # fmt: skip
        for suffix in INDEX_SUFFIXES:
            self._disk.remove(self.path(suffix))
            self._disk.remove(moved.path(suffix))
        self._disk.rename(self.path(LOG), moved.path(LOG))
        moved.begin_indexes()
        return moved

    def path(self, suffix: str) -> str:
        return file_path(self.directory, self.base_offset, suffix)

    @property
    def file(self) -> File:
        if self._file is None:
            # A flush or a response may still use the one that was released: a second descriptor is not needed.
            released = None if self._released is None else self._released()
            self._file = self._open_file() if released is None else released
            self._released = None
            self._opened()
        return self._file

    def _open_file(self) -> File:
        """MissingFile: an empty or shorter file in the place of the one that was written would look like a compacted segment."""
        file = self._disk.open(self.path(LOG))
        if file.size < self.size:
            raise MissingFile(f"{self.path(LOG)} has {file.size} bytes, but {self.size} were written to it")
        return file

    def _opened(self) -> None:
        if self.open_segments is not None:
            self.open_segments.opened(self)

    @property
    def is_open(self) -> bool:
        """Whether `release` would close anything."""
        return self._file is not None or self._offset_index is not None

    def release(self) -> None:
        """Close the files until they are needed again. Readers of a region, and flushes, keep the log file open."""
        if self._file is not None:
            self._released = weakref.ref(self._file)
            self._file = None
        offset_index, time_index = self._offset_index, self._time_index
        if offset_index is None or time_index is None or offset_index.pending or time_index.pending:
            return
        # An index without the largest timestamp is not complete; an empty one holds no descriptor, and opened again it would be rebuilt.
        if time_index.count and time_index.last == self.max_timestamp:
            self._offset_index = self._time_index = None

    # Indexes

    @property
    def offset_index(self) -> OffsetIndex:
        if self._offset_index is None:
            self._open_indexes()
            assert self._offset_index is not None
        return self._offset_index

    @property
    def time_index(self) -> TimeIndex:
        if self._time_index is None:
            self._open_indexes()
            assert self._time_index is not None
        return self._time_index

    @property
    def txn_index(self) -> TxnIndex:
        if self._txn_index is None:
            self._txn_index = TxnIndex(self._disk, self.path(TXN_INDEX))
        return self._txn_index

    def _open_indexes(self) -> None:
        missing = [suffix for suffix in (OFFSET_INDEX, TIME_INDEX) if self._disk.size(self.path(suffix)) is None]
        self._offset_index = OffsetIndex(self._disk, self.path(OFFSET_INDEX), self.base_offset)
        self._time_index = TimeIndex(self._disk, self.path(TIME_INDEX), self.base_offset)
        self._opened()
        if missing:
            self.rebuild_indexes(f"{' and '.join(missing)} is missing")
        elif not self._offset_index.plausible(self.size) or not self._time_index.plausible():
            self.rebuild_indexes("an index file is damaged")
        elif self._time_index.count == 0 and self.first_timestamp >= 0:
            self.rebuild_indexes("the time index is empty")

    def check_indexes(self) -> None:
        """Rebuild the indexes now, and not at their first use, if their files are missing or have impossible sizes."""
        if self._offset_index is not None or not self.size:
            return
        offset_bytes, time_bytes = self._disk.size(self.path(OFFSET_INDEX)), self._disk.size(self.path(TIME_INDEX))
        if offset_bytes is None or not time_bytes or offset_bytes % OFFSET_ENTRY.size or time_bytes % TIME_ENTRY.size:
            self._open_indexes()

    def begin_indexes(self) -> None:
        """Empty the indexes; `note` fills them and `seal` completes them."""
        self._offset_index = OffsetIndex(self._disk, self.path(OFFSET_INDEX), self.base_offset)
        self._time_index = TimeIndex(self._disk, self.path(TIME_INDEX), self.base_offset)
        self._offset_index.rewrite()
        self._time_index.rewrite()
        self._max_timestamp = (NO_TIMESTAMP, self.base_offset)
        self._first_timestamp = None
        self._bytes_since_index = 0

    def rebuild_indexes(self, reason: str) -> None:
        """Rebuild offset and time index from the log file, up to the first damaged batch."""
        file = self.file  # without it the indexes that are there must stay: they show what it had
        logger.warning("%s: rebuilding indexes: %s", file.path, reason)
        self.begin_indexes()
        for position, _, _, header in self.walk(0):
            self.note(position, header.size, header.last_offset, header.max_timestamp)
        self.seal()

    def note(self, position: int, size: int, last_offset: int, max_timestamp: int) -> None:
        """Update the indexes for a batch that is in the file, or is about to be, with an entry every `index_interval_bytes`."""
        largest = self._max_timestamp or self.max_timestamp
        if max_timestamp > largest[0]:
            self._max_timestamp = largest = max_timestamp, last_offset
        if self._bytes_since_index > self.index_interval_bytes:
            self.offset_index.add(last_offset, position)
            self.time_index.add(*largest)
            self._bytes_since_index = 0
        self._bytes_since_index += size

    def seal(self) -> bool:
        """Complete the time index and write both indexes; whether the files changed. StorageError.

        Bytes that a failed append left are removed first: recovery would take them for damage in a closed segment, and remove the segments
        after it.
        """
        if self._file is not None:
            self._file.cut_tail()
        if self._time_index is None or self._offset_index is None:
            return False
        self._time_index.add(*self.max_timestamp)
        written = self._offset_index.write_out()
        return self._time_index.write_out() or written

    # Timestamps

    @property
    def max_timestamp(self) -> tuple[int, int]:
        """The largest timestamp and the last offset of its batch; (-1, base offset) when no record has one."""
        if self._max_timestamp is None:
            found = None
            if self._time_index is None:  # the last entry is enough: a look-up by time needs it of every segment
                found = TimeIndex.last_in_file(self._disk, self.path(TIME_INDEX), self.base_offset)
            self._max_timestamp = found or self.time_index.last
        return self._max_timestamp

    @property
    def largest_timestamp_ms(self) -> int:
        """The time for retention: the largest timestamp, or when the file was last written if there is none."""
        timestamp = self.max_timestamp[0]
        return timestamp if timestamp >= 0 else self._disk.modified_ms(self.path(LOG))

    @property
    def first_timestamp(self) -> int:
        """The largest timestamp of the first batch, from which rolls by time count; -1 when there is none."""
        if self._first_timestamp is None:
            if self.size == 0:
                return NO_TIMESTAMP
            walk = Walk(self.file, 0, self.size, chunk_bytes=FIND_CHUNK_BYTES)
            self._first_timestamp = next((entry.header.max_timestamp for entry in walk), NO_TIMESTAMP)
        return self._first_timestamp

    # Writing

    def append(self, records: Buffer, last_offset: int, max_timestamp: int, base_offset: int) -> None:
        """Write one batch. StorageError leaves file and indexes as they were."""
        if self._time_index is None:
            self._open_indexes()  # before the write: `seal` completes open indexes
        position, size = self.size, len(records)
        indexed = self._bytes_since_index > self.index_interval_bytes
        if indexed:
            self.offset_index.make_room()
            self.time_index.make_room()
        (self._file or self.file).append(records)
        self.size = position + size
        if position == 0:
            self._first_timestamp = max_timestamp
        if indexed:
            self.note(position, size, last_offset, max_timestamp)
        else:
            if max_timestamp > (self._max_timestamp or self.max_timestamp)[0]:
                self._max_timestamp = max_timestamp, last_offset
            self._bytes_since_index += size
        self._places.written(base_offset, last_offset, position, size)

    def append_all(
        self, records: Buffer, first_offsets: list[int], last_offsets: list[int], places: list[int], max_timestamps: list[int]
    ) -> None:
        """Write several batches at once: the first and the last offset of each, position << 32 | size, and the largest timestamp.

        Errors as `append`.
        """
        position = self.size
        self.offset_index.make_room()
        self.time_index.make_room()
        self.file.append(records)
        self.size = position + len(records)
        if position == 0:
            self._first_timestamp = max_timestamps[0]
        latest = max(max_timestamps)
        known = self.max_timestamp[0]
        if self._bytes_since_index + len(records) <= self.index_interval_bytes:
            self._bytes_since_index += len(records)
            if latest > known:
                self._max_timestamp = latest, last_offsets[max_timestamps.index(latest)]
        else:
            for last_offset, place, max_timestamp in zip(last_offsets, places, max_timestamps, strict=True):
                self.note(place >> 32, place & 0xFFFFFFFF, last_offset, max_timestamp)
        self._places.written_all(first_offsets, last_offsets, places)

    def should_roll(self, size: int, max_timestamp: int, last_offset: int, now_ms: int, config: LogConfig, pending: int = 0) -> bool:
        """Whether a batch of `size` bytes must go into a new segment; `pending` bytes are about to be written before it."""
        if last_offset - self.base_offset > RELATIVE_OFFSET_MAX:
            return True
        filled = self.size + pending
        if filled == 0:
            return False
        if filled > config.segment_bytes - size:
            return True
        offset_index, time_index = self._offset_index, self._time_index
        if offset_index is not None and time_index is not None:
            index_bytes_max = config.segment_index_bytes
            if offset_index.count >= index_bytes_max // 8 or time_index.count >= index_bytes_max // 12 - 1:
                return True
        first = self.first_timestamp if self._first_timestamp is None else self._first_timestamp
        waited = max_timestamp - first if first >= 0 and max_timestamp >= 0 else now_ms - self.created_ms
        return waited > config.roll_ms - self.jitter_ms

    # Reading

    def locate(self, offset: int) -> tuple[int, int] | None:
        """Position and size of the batch that holds `offset`, or of the first one after it; None after the last one."""
        place = self._places.get(offset)
        if place is None:
            found = self.find(offset)
            if found is None:
                return None
            place = found.position, found.size
            self._places.looked_up(min(offset, found.base_offset), found.last_offset, *place)
        return place

    def find(self, offset: int) -> Place | None:
        """As `locate`, with offsets. A damaged index is rebuilt. CorruptRecords with the path and the position."""
        start = self.offset_index.lookup(offset)
        if start:
            try:
                found = find(self.file, start, self.size, offset)
                # The batch at an index position may be the right one, but only if it does not begin after the offset.
                if start < self.size and (found is None or found.position > start or found.base_offset <= offset):
                    return found
                problem = f"offset {offset} is not at position {start}"
            except CorruptRecords as error:
                problem = str(error)
            self.rebuild_indexes(problem)
        try:
            return find(self.file, 0, self.size, offset)
        except CorruptRecords as error:
            raise CorruptRecords(f"{self.path(LOG)}: {error.message}") from None

    def end_position(self, offset_end: int) -> int:
        """The position at which the batches end that are wholly below `offset_end`."""
        place = self.locate(offset_end)
        return self.size if place is None else place[0]

    def walk(self, position: int, *, check_crc: bool = False) -> Walk:
        """All batches from a position on at which a batch begins."""
        return Walk(self.file, position, self.size, check_crc=check_crc)

    def batch_at(self, offset: int) -> bytes:
        """The bytes of the batch that holds `offset`, or of the first one after it, unchecked; empty after the last one."""
        place = self.locate(offset)
        return b"" if place is None else self.file.pread(*place)

    def batches_from(self, offset: int) -> Iterator[Entry]:
        """The batches from the one on that holds `offset`, up to one that cannot be read."""
        place = self.locate(offset)
        if place is None:
            return
        position, size = place
        data = self.file.pread(position, size)
        try:
            header = read_header(data)
        except CorruptRecords:
            return
        yield Entry(position, data, 0, header)
        # Most callers need only the first batch.
        yield from Walk(self.file, position + size, self.size, chunk_bytes=max(size, FIND_CHUNK_BYTES))

    def next_offset(self) -> int:
        """One above the last offset in the file, or the base offset; CorruptRecords when the file does not end with a batch."""
        start = self.offset_index.last[1]
        walk, last_offset = self.walk(start), self.base_offset - 1
        for _, _, _, header in walk:
            last_offset = header.last_offset
        if walk.problem:
            raise CorruptRecords(walk.problem)
        return last_offset + 1

    # Truncating and removing

    def cut_file(self, position: int) -> None:
        """Truncate the file only: the indexes are cut or rebuilt afterwards."""
        self.file.truncate(position)
        self.size = position
        self._places.clear()

    def cut_indexes(self, offset: int) -> None:
        """Truncate the indexes at `offset`, with which the file ends now."""
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.txn_index.truncate_to(offset)
        self._bytes_since_index = 0
        if not self.size:
            self._first_timestamp = None
        self._max_timestamp = self._scan_max_timestamp()

    def _scan_max_timestamp(self) -> tuple[int, int]:
        """The largest timestamp after a truncation: that of the last time index entry, or of a batch after it."""
        largest = self.time_index.last
        indexed = find(self.file, self.offset_index.lookup(largest[1]), self.size, largest[1]) if self.size else None
        for _, _, _, header in self.walk(indexed.position if indexed else 0) if self.size else ():
            if header.max_timestamp > largest[0]:
                largest = header.max_timestamp, header.last_offset
        return largest

    def move(self, directory: str) -> None:
        """The log's directory was renamed."""
        self.directory = directory
        for file in (self._file, None if self._released is None else self._released()):
            if file is not None:
                file.path = self.path(LOG)
        for index, suffix in ((self._offset_index, OFFSET_INDEX), (self._time_index, TIME_INDEX), (self._txn_index, TXN_INDEX)):
            if index is not None:
                index.path = self.path(suffix)

    def paths(self) -> list[str]:
        """The paths of the files that it may have, the log file first."""
        return [self.path(suffix) for suffix in SEGMENT_SUFFIXES]

    def index_paths(self) -> list[str]:
        """The paths of the index files, with the transaction index if there is one."""
        paths = [self.path(OFFSET_INDEX), self.path(TIME_INDEX)]
        return [*paths, self.path(TXN_INDEX)] if self.txn_index.entries else paths
