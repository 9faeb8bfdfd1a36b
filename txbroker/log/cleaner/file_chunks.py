"""Reads the file of a closed segment in chunks of whole entries, and checks their sizes, offsets and CRCs."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np

from txbroker.errors import CorruptRecords
from txbroker.lazy_dataclass import lazy_dataclass
from txbroker.log.cleaner.batch_columns import Batches, read_batches
from txbroker.log.cleaner.cleaning_job import CleaningJob, SegmentSpan
from txbroker.log.cleaner.unaligned_reads import PADDING, Ints, Words, words_of
from txbroker.log.disk import Disk, File
from txbroker.log.file_names import LOG, file_path
from txbroker.wire.batch import LOG_OVERHEAD, MAGIC_POSITION
from txbroker.wire.entries import SIZE_MIN

# Each call of numpy takes a microsecond at least: with smaller chunks the calls would take most of the time.
CHUNK_BYTES_MIN = 16 << 20
UNPACKED_BYTES_MIN = 64 << 20  # the limit for batches of producers

_INT32 = struct.Struct(">i")


class StaleSegment(Exception):
    """A file was deleted or truncated after the job was made."""


@lazy_dataclass(slots=True)
class Chunk:
    """Whole entries of one kind: batches of magic 2, or old messages when `batches` is None. `words` are the same bytes as `buffer`.

    `position`: of the buffer in the file. `at`, `size`: of the entries in the buffer.
    """

    buffer: bytes
    words: Words
    position: int
    at: Ints
    size: Ints
    batches: Batches | None

    @property
    def bytes(self) -> int:
        """The size of all entries."""
        return int(self.size.sum())


def unpacked_bytes_max(job: CleaningJob) -> int:
    """The limit of one batch, stored and decompressed: the same as for producers."""
    return max(UNPACKED_BYTES_MIN, 4 * job.settings.max_message_bytes)


class SegmentReader:
    """Reads one segment of a job. `count_read(bytes)` is called after each read; it may sleep, or raise to end the job. StaleSegment."""

    def __init__(self, job: CleaningJob, span: SegmentSpan, disk: Disk, count_read: Callable[[int], None]) -> None:
        self.path = file_path(job.directory, span.base_offset, LOG)
        self._span = span
        self._count_read = count_read
        self._entry_bytes_max = unpacked_bytes_max(job)
        self._chunk_bytes = max(CHUNK_BYTES_MIN, job.settings.io_buffer_bytes)
        self._last_offset = span.base_offset - 1
        file = disk.open_existing(self.path)
        if file is None or file.size < span.size:
            raise StaleSegment(f"{self.path} {'was deleted' if file is None else 'was truncated'}")
        self._file: File = file

    def chunks(self, position: int = 0) -> Iterator[Chunk]:
        """All entries from `position` on, where an entry begins. CorruptRecords with the path and the position."""
        chunk_bytes = self._chunk_bytes
        while position < self._span.size:
            length = min(chunk_bytes, self._span.size - position)
            buffer = self._file.pread(position, length)
            if len(buffer) < length:
                raise StaleSegment(f"{self.path} was truncated")
            self._count_read(length)
            starts, end, needed = self._entries(buffer, position)
            if not starts:
                if position + needed > self._span.size:
                    raise self.corrupt_at(position, f"an entry of {needed} bytes ends beyond the file, which has {len(buffer)} more")
                chunk_bytes = needed
                continue
            if len(buffer) - end < PADDING:
                buffer = b"".join((buffer, bytes(PADDING)))
            yield from self._split_by_magic(buffer, position, starts, end)
            position += end
            chunk_bytes = self._chunk_bytes

    def _entries(self, buffer: bytes, position: int) -> tuple[list[int], int, int]:
        """The starts of whole entries, the end of the last one, and the size of the entry after it."""
        unpack, limit, end = _INT32.unpack_from, len(buffer), 0
        starts: list[int] = []
        add, entry_bytes_max = starts.append, self._entry_bytes_max
        while limit - end >= LOG_OVERHEAD:
            size = unpack(buffer, end + 8)[0] + LOG_OVERHEAD
            if not SIZE_MIN <= size <= entry_bytes_max:
                raise self.corrupt_at(position + end, f"an entry has the size {size}")
            if size > limit - end:
                return starts, end, size
            add(end)
            end += size
        return starts, end, LOG_OVERHEAD

    def _split_by_magic(self, buffer: bytes, position: int, starts: list[int], end: int) -> Iterator[Chunk]:
        at = np.array(starts, dtype=np.int64)
        size = np.diff(at, append=end)
        magic = np.frombuffer(buffer, dtype=np.uint8)[at + MAGIC_POSITION]
        if magic.max() > 2:
            raise self.corrupt_at(position + int(at[np.argmax(magic)]), f"an entry has the unknown magic {magic.max()}")
        words = words_of(buffer)
        old = magic < 2
        borders = [0, *(np.flatnonzero(old[1:] != old[:-1]) + 1).tolist(), len(at)]
        for low, high in pairwise(borders):
            some, sizes = at[low:high], size[low:high]
            batches = None if old[low] else self._batches(words, position, some, sizes)
            yield Chunk(buffer, words, position, some, sizes, batches)

    def _batches(self, words: Words, position: int, at: Ints, size: Ints) -> Batches:
        try:
            batches = read_batches(words, at, size)
        except CorruptRecords as error:
            raise self.corrupt_at(position + int(at[0]), str(error), exactly=False) from None
        previous = np.concatenate(([self._last_offset], batches.last_offset[:-1]))
        wrong = (batches.base_offset <= previous) | (batches.last_offset >= self._span.next_offset)
        if wrong.any():
            first = int(np.argmax(wrong))
            raise self.corrupt_at(position + int(at[first]), f"offset {batches.base_offset[first]} is out of order or not in the segment")
        self._last_offset = int(batches.last_offset[-1])
        return batches

    def check_offset(self, offset: int, position: int) -> None:
        """Check the last offset of an old entry. CorruptRecords."""
        if not self._last_offset < offset < self._span.next_offset:
            raise self.corrupt_at(position, f"offset {offset} is out of order or not in the segment")
        self._last_offset = offset

    def check_crcs(self, chunk: Chunk, which: list[int]) -> None:
        """Check the CRCs of these batches. CorruptRecords."""
        import crc32c

        assert chunk.batches is not None
        view, crc = memoryview(chunk.buffer), crc32c.crc32c
        batches = chunk.batches
        if len(which) < len(batches):
            at, size, expected = batches.at[which], batches.size[which], batches.crc[which]
        else:
            at, size, expected = batches.at, batches.size, batches.crc
        found = [crc(view[start:end]) for start, end in zip((at + 21).tolist(), (at + size).tolist(), strict=True)]
        wrong = np.flatnonzero(np.array(found, dtype=np.int64) != expected)
        if len(wrong):
            raise self.corrupt_at(chunk.position + int(at[wrong[0]]), "a batch has a wrong CRC")

    def corrupt_in(self, chunk: Chunk, problem: str) -> CorruptRecords:
        """The error for invalid records somewhere in a chunk."""
        return self.corrupt_at(chunk.position + int(chunk.at[0]), problem, exactly=False)

    def corrupt_at(self, position: int, problem: str, *, exactly: bool = True) -> CorruptRecords:
        """The error for invalid data at a position of the file, or after it."""
        return CorruptRecords(f"{self.path}, {'' if exactly else 'after '}position {position}: {problem}")
