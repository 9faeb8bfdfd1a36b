"""A closed segment's file in chunks of whole entries, checked as far as their sizes and CRCs go."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from txbroker.errors import CorruptRecords
from txbroker.log.cleaner.cleaning_job import CleaningJob, SegmentSpan
from txbroker.log.cleaner.columns import Batches, read_batches
from txbroker.log.cleaner.unaligned_reads import PADDING, Ints, Words, words_of
from txbroker.log.disk import Disk, File
from txbroker.log.file_names import LOG, file_path
from txbroker.wire.batch import LOG_OVERHEAD, MAGIC_POSITION
from txbroker.wire.entries import SIZE_MIN

# Numpy's calls cost a microsecond each, however little they have to do: below this they would take most of the time.
CHUNK_BYTES_MIN = 16 << 20
UNPACKED_BYTES_MIN = 64 << 20  # as for a producer's batches

_INT32 = struct.Struct(">i")


class StaleSegment(Exception):
    """A file is not there any more, or is shorter than it was."""


@dataclass(slots=True)
class Chunk:
    """Some whole entries of one kind: `batches` of magic 2 with the same bytes as `words`; or old messages, which `batches` None tells.

    `position` is where the buffer begins in the file; `at` and `size` say where the entries are in the buffer.
    """

    buffer: bytes
    words: Words
    position: int
    at: Ints
    size: Ints
    batches: Batches | None

    @property
    def bytes(self) -> int:
        """Of all entries."""
        return int(self.size.sum())


def unpacked_bytes_max(job: CleaningJob) -> int:
    """How much memory one batch may take decompressed, or as it is in the file: as much as a producer's."""
    return max(UNPACKED_BYTES_MIN, 4 * job.settings.max_message_bytes)


class SegmentReader:
    """Reads one segment of a job. `took(bytes)` is called for each read: it may wait, or raise to end the job."""

    def __init__(self, job: CleaningJob, span: SegmentSpan, disk: Disk, took: Callable[[int], None]) -> None:
        self.path = file_path(job.directory, span.base_offset, LOG)
        self._span = span
        self._took = took
        self._entry_bytes_max = unpacked_bytes_max(job)
        self._chunk_bytes = max(CHUNK_BYTES_MIN, job.settings.io_buffer_bytes)
        self._last_offset = span.base_offset - 1
        file = disk.open_existing(self.path)
        if file is None or file.size < span.size:
            raise StaleSegment(f"{self.path} is {'gone' if file is None else 'shorter than it was'}")
        self._file: File = file

    def chunks(self, position: int = 0) -> Iterator[Chunk]:
        """All entries from a border on. CorruptRecords names the file and the position."""
        wanted = self._chunk_bytes
        while position < self._span.size:
            length = min(wanted, self._span.size - position)
            buffer = self._file.pread(position, length)
            if len(buffer) < length:
                raise StaleSegment(f"{self.path} became shorter")
            self._took(length)
            starts, end, needed = self._borders(buffer, position)
            if not starts:
                if position + needed > self._span.size:
                    raise self.corrupt_at(position, f"of an entry of {needed} bytes only {len(buffer)} are there")
                wanted = needed
                continue
            if len(buffer) - end < PADDING:
                buffer = b"".join((buffer, bytes(PADDING)))
            yield from self._kinds(buffer, position, starts, end)
            position += end
            wanted = self._chunk_bytes

    def _borders(self, buffer: bytes, position: int) -> tuple[list[int], int, int]:
        """Where whole entries start, where the last of them ends, and how many bytes the one behind it needs."""
        unpack, limit, end = _INT32.unpack_from, len(buffer), 0
        starts: list[int] = []
        add, entry_bytes_max = starts.append, self._entry_bytes_max
        while limit - end >= LOG_OVERHEAD:
            size = unpack(buffer, end + 8)[0] + LOG_OVERHEAD
            if not SIZE_MIN <= size <= entry_bytes_max:
                raise self.corrupt_at(position + end, f"an entry claims {size} bytes")
            if size > limit - end:
                return starts, end, size
            add(end)
            end += size
        return starts, end, LOG_OVERHEAD

    def _kinds(self, buffer: bytes, position: int, starts: list[int], end: int) -> Iterator[Chunk]:
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
            raise self.corrupt_at(position + int(at[first]), f"the offset {batches.base_offset[first]} does not belong there")
        self._last_offset = int(batches.last_offset[-1])
        return batches

    def follows(self, offset: int, position: int) -> None:
        """An old entry's last offset, which must be above all before it."""
        if not self._last_offset < offset < self._span.next_offset:
            raise self.corrupt_at(position, f"the offset {offset} does not belong there")
        self._last_offset = offset

    def check_crcs(self, chunk: Chunk, which: list[int]) -> None:
        """CorruptRecords unless the CRCs of these batches are those of their bytes."""
        import crc32c

        assert chunk.batches is not None
        view, crc = memoryview(chunk.buffer), crc32c.crc32c
        batches = chunk.batches
        if len(which) < len(batches):
            at, size, wanted = batches.at[which], batches.size[which], batches.crc[which]
        else:
            at, size, wanted = batches.at, batches.size, batches.crc
        found = [crc(view[start:end]) for start, end in zip((at + 21).tolist(), (at + size).tolist(), strict=True)]
        wrong = np.flatnonzero(np.array(found, dtype=np.int64) != wanted)
        if len(wrong):
            raise self.corrupt_at(chunk.position + int(at[wrong[0]]), "the CRC of a batch is not that of its bytes")

    def corrupt_in(self, chunk: Chunk, problem: str) -> CorruptRecords:
        """The error for nonsense in records, somewhere in a chunk."""
        return self.corrupt_at(chunk.position + int(chunk.at[0]), problem, exactly=False)

    def corrupt_at(self, position: int, problem: str, *, exactly: bool = True) -> CorruptRecords:
        """The error for nonsense at a position of the file, or behind it."""
        return CorruptRecords(f"{self.path}, {'' if exactly else 'behind '}position {position}: {problem}")
