"""The batches of a chunk of a log file as columns of numpy, and their decompressed records.

Magic 2 only. The chunk may be hostile: each length is checked against what holds it, and CorruptRecords names the offset of the batch.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from txbroker.errors import CorruptRecords
from txbroker.lazy_dataclass import lazy_dataclass
from txbroker.log.cleaner.unaligned_reads import PADDING, Bytes, Flags, Ints, Words, gather_big, words_of
from txbroker.log.disk import Buffer
from txbroker.wire.batch import CODEC_MASK, HEADER_SIZE
from txbroker.wire.compression import CODECS, decompress

SECTION_BYTES = 16 << 20  # of decompressed records in one section, unless a single batch has more

_MASK16, _MASK32 = np.uint64(0xFFFF), np.uint64(0xFFFFFFFF)
_INT32_MAX, _INT64_MAX = 2**31 - 1, 2**63 - 1


@lazy_dataclass(slots=True)
class Batches:
    """The headers of the batches in a chunk, in order. `at`: position in the chunk; `size`: bytes, with base offset and length."""

    at: Ints
    size: Ints
    base_offset: Ints
    last_offset: Ints
    crc: Ints
    attributes: Ints
    base_timestamp: Ints
    max_timestamp: Ints
    producer_id: Ints
    producer_epoch: Ints
    count: Ints

    def __len__(self) -> int:
        return len(self.at)


def read_batches(words: Words, at: Ints, size: Ints) -> Batches:
    """The headers at these positions; CorruptRecords when a field is impossible. CRCs are not checked."""
    flags = gather_big(words, at + 16)
    delta = (gather_big(words, at + 23) >> np.uint64(32)).view(np.int64)
    epoch = gather_big(words, at + 51)
    batches = Batches(
        at=at,
        size=size,
        base_offset=gather_big(words, at).view(np.int64),
        last_offset=delta,
        crc=((flags >> np.uint64(24)) & _MASK32).view(np.int64),
        attributes=((flags >> np.uint64(8)) & _MASK16).view(np.int64),
        base_timestamp=gather_big(words, at + 27).view(np.int64),
        max_timestamp=gather_big(words, at + 35).view(np.int64),
        producer_id=gather_big(words, at + 43).view(np.int64),
        producer_epoch=(epoch >> np.uint64(48)).astype(np.uint16).view(np.int16).astype(np.int64),
        count=(gather_big(words, at + 53) & _MASK32).view(np.int64),
    )
    wrong = (
        (size < HEADER_SIZE)
        | (delta > _INT32_MAX)
        | (batches.count > _INT32_MAX)
        | (batches.base_offset < 0)
        | (batches.base_offset > _INT64_MAX - _INT32_MAX)
        | (batches.attributes & CODEC_MASK >= len(CODECS))
    )
    if wrong.any():
        raise CorruptRecords(f"the header of the batch at offset {batches.base_offset[np.argmax(wrong)]} is invalid")
    batches.last_offset = delta + batches.base_offset
    return batches


@lazy_dataclass(slots=True)
class Section:
    """The decompressed records of the batches [low, high): `buffer`, `data` and `words` are the same bytes, padded.

    `start`, `end`: the range of each batch's records; empty for batches that were not selected.
    """

    low: int
    high: int
    buffer: bytes
    data: Bytes
    words: Words
    start: Ints
    end: Ints


def sections(buffer: bytes, words: Words, batches: Batches, selected: Flags, unpacked_bytes_max: int) -> Iterator[Section]:
    """The records of the selected batches. The sections cover all batches of the chunk, in order.

    `unpacked_bytes_max`: of one decompressed batch. Errors as of `decompress`: CorruptRecords, MESSAGE_TOO_LARGE.
    """
    start = batches.at + HEADER_SIZE
    end = np.where(selected, batches.at + batches.size, start)
    packed = np.flatnonzero(selected & (batches.attributes & CODEC_MASK != 0) & (batches.count > 0))
    if not len(packed):
        yield Section(0, len(batches), buffer, np.frombuffer(buffer, dtype=np.uint8), words, start, end)
        return
    view, low = memoryview(buffer), 0
    parts: list[Buffer] = []
    lengths: list[int] = []
    total = 0
    for number, (codec, first, last, count) in enumerate(
        zip((batches.attributes & CODEC_MASK).tolist(), start.tolist(), end.tolist(), batches.count.tolist(), strict=True)
    ):
        part: Buffer = view[first:last]
        if codec and first < last and count:
            part = decompress(CODECS[codec], part, unpacked_bytes_max)
        if total + len(part) > SECTION_BYTES and parts:
            yield _joined(low, number, parts, lengths)
            low, total = number, 0
            parts, lengths = [], []
        parts.append(part)
        lengths.append(len(part))
        total += len(part)
    yield _joined(low, len(batches), parts, lengths)


def _joined(low: int, high: int, parts: list[Buffer], lengths: list[int]) -> Section:
    size = sum(lengths)
    joined = b"".join((*parts, bytes(PADDING + -size % 8)))
    end = np.cumsum(np.array(lengths, dtype=np.int64))
    return Section(low, high, joined, np.frombuffer(joined, dtype=np.uint8), words_of(joined), end - lengths, end)
