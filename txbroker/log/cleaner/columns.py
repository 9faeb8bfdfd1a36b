"""Batches and their records as columns: a chunk of a log file read by numpy, all of its batches a step at a time.

Only magic 2 comes here. What is read was written by others: every length is checked against what holds it, and nonsense is
CorruptRecords with the batch's offset.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from txbroker.errors import BrokerError, CorruptRecords, ErrorCode
from txbroker.log.cleaner.unaligned_reads import (
    PADDING,
    Bytes,
    Flags,
    Ints,
    Words,
    gather,
    gather_big,
    unzigzag,
    varint_rows,
    varints,
    words_of,
)
from txbroker.log.disk import Buffer
from txbroker.wire.batch import CODEC_MASK, HEADER_SIZE
from txbroker.wire.compression import CODECS, decompress
from txbroker.wire.records import RECORDS_MAX
from txbroker.wire.varint import read_varint

UNPACKED_BYTES = 16 << 20  # decompressed at once, but for a single batch that is larger
LOCKSTEP_MIN = 24  # batches: below that going from record to record one batch at a time is faster

_RECORD_BODY_MIN = 6  # attributes, two deltas, two lengths, the count of headers
_MASK16, _MASK32 = np.uint64(0xFFFF), np.uint64(0xFFFFFFFF)
_INT32_MAX, _INT64_MAX = 2**31 - 1, 2**63 - 1


@dataclass(slots=True)
class Batches:
    """The headers of a chunk's batches, in their order. `at`: position in the chunk; `size`: bytes, the first 12 included."""

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
    """The headers at these positions; CorruptRecords on nonsense. The CRC is not looked at."""
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
        raise CorruptRecords(f"the header of the batch at offset {batches.base_offset[np.argmax(wrong)]} makes no sense")
    batches.last_offset = delta + batches.base_offset
    return batches


@dataclass(slots=True)
class Section:
    """The records of batches `low` to `high` (exclusive), decompressed: `buffer`, `data` and `words` are the same bytes, padded.

    `start` and `end` by batch; batches that are not looked at have empty ones.
    """

    low: int
    high: int
    buffer: bytes
    data: Bytes
    words: Words
    start: Ints
    end: Ints


def sections(buffer: bytes, words: Words, batches: Batches, wanted: Flags, unpacked_bytes_max: int) -> Iterator[Section]:
    """The records of the wanted batches, all of the chunk's batches accounted for in order.

    `unpacked_bytes_max`: of one batch. CorruptRecords, MESSAGE_TOO_LARGE as `decompress`.
    """
    start = batches.at + HEADER_SIZE
    end = np.where(wanted, batches.at + batches.size, start)
    packed = np.flatnonzero(wanted & (batches.attributes & CODEC_MASK != 0) & (batches.count > 0))
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
        if total + len(part) > UNPACKED_BYTES and parts:
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


@dataclass(slots=True)
class Records:
    """The records of a section's wanted batches, in order. `batch` counts from the section's first one.

    `start`, `end`: positions in the section; `time_at`, `offset_at`: of the varints; `time_delta` as it stands there;
    `key_size` -1 for none; `value_at`: of the value's length; `null` says that there is none.
    """

    batch: Ints
    start: Ints
    end: Ints
    offset: Ints
    time_at: Ints
    time_delta: Ints
    offset_at: Ints
    key_at: Ints
    key_size: Ints
    value_at: Ints
    null: Flags

    def __len__(self) -> int:
        return len(self.batch)


def read_records(section: Section, batches: Batches, wanted: Flags) -> Records:
    """The records of the wanted batches of a section; errors as above, and MESSAGE_TOO_LARGE beyond RECORDS_MAX."""
    of = slice(section.low, section.high)
    counts = np.where(wanted[of], batches.count[of], 0)
    sizes = section.end - section.start
    if len(counts) and counts.max() > RECORDS_MAX:
        raise BrokerError(ErrorCode.MESSAGE_TOO_LARGE, f"a batch of {counts.max()} records, where {RECORDS_MAX} can be read")
    crowded = counts * (_RECORD_BODY_MIN + 1) > sizes
    if crowded.any():
        raise _corrupt(batches, section, int(np.argmax(crowded)), "claims more records than it has room for")
    start, ends, short = _starts(section, counts, batches)
    batch = np.repeat(np.arange(len(counts)), counts)
    end = np.empty_like(start)
    end[:-1] = start[1:]
    lasts = np.cumsum(counts) - 1
    filled = counts > 0
    end[lasts[filled]] = ends[filled]
    try:
        records = _fields(section, batch, start, end, short)
    except IndexError:
        raise CorruptRecords(f"a record behind offset {batches.base_offset[section.low]} has lengths that lead out of its batch") from None
    delta = records.offset
    records.offset = delta + batches.base_offset[of][batch]
    following = np.empty(len(delta), dtype=np.bool_)
    following[1:] = batch[1:] == batch[:-1]
    following[:1] = False
    wrong = (delta < 0) | (delta > (batches.last_offset - batches.base_offset)[of][batch])
    wrong[1:] |= following[1:] & (delta[1:] <= delta[:-1])
    if wrong.any():
        raise _corrupt(batches, section, int(batch[np.argmax(wrong)]), "has a record that does not fit it")
    return records


def _corrupt(batches: Batches, section: Section, batch: int, problem: str) -> CorruptRecords:
    return CorruptRecords(f"the batch at offset {batches.base_offset[section.low + batch]} {problem}")


def _fields(section: Section, batch: Ints, start: Ints, end: Ints, short: bool) -> Records:
    """What is in the records up to their values. `short`: all of their lengths take one or two bytes."""
    words, data = section.words, section.data
    time_at = start + (data[start] >> 7) if short else start + varints(words, start)[1] - 1
    time_at += 2  # the length's last byte, and the attributes
    raw, sizes, whole = varint_rows(gather(words, time_at), 3)
    if not whole.all():
        _read_long(words, time_at, np.flatnonzero(~whole), raw, sizes)
    offset_at = time_at + sizes[0]
    key_size = unzigzag(raw[2])
    key_at = offset_at + sizes[1]
    key_at += sizes[2]
    value_at = key_at + np.maximum(key_size, 0)
    if ((key_size < -1) | (key_size > _INT32_MAX) | (value_at >= end - 1)).any():
        raise IndexError
    null = data[value_at] & 1 != 0  # of a varint in zigzag form the lowest bit is the sign
    return Records(batch, start, end, unzigzag(raw[1]), time_at, unzigzag(raw[0]), offset_at, key_at, key_size, value_at, null)


def _read_long(words: Words, at: Ints, which: Ints, raw: list[Words], sizes: list[Ints]) -> None:
    """Read the numbers of some records that take more than a word together."""
    position = at[which]
    for values, lengths in zip(raw, sizes, strict=True):
        values[which], lengths[which] = varints(words, position)
        position += lengths[which]


def headers_at(section: Section, records: Records) -> Ints:
    """Where the count of each record's headers is; CorruptRecords when its value leads out of it."""
    raw, size = varints(section.words, records.value_at)
    value_size = unzigzag(raw)
    at = records.value_at + size
    if ((value_size < -1) | (value_size >= records.end - at)).any():
        raise CorruptRecords("a record's value leads out of it")
    at += np.maximum(value_size, 0)
    return at


def _size_table() -> Ints:
    """By the first two bytes of a record: how many it has in all; 0 where its length takes more, -1 where it cannot be one."""
    first, second = np.arange(65536) & 255, np.arange(65536) >> 8
    long = first >= 128
    raw = np.where(long, (first & 127) | (second << 7), first)
    body = (raw >> 1) ^ -(raw & 1)
    sizes = np.where(body < _RECORD_BODY_MIN, -1, body + 1 + long)
    return np.where(long & (second >= 128), 0, sizes)


_SIZES = _size_table()


def _starts(section: Section, counts: Ints, batches: Batches) -> tuple[Ints, Ints, bool]:
    """Where each record starts, and where each batch's last one ends: all batches go forward by a record at once.

    Also whether all lengths take one or two bytes.
    """
    total = int(counts.sum())
    starts = np.empty(total, dtype=np.int64)
    order = np.argsort(-counts, kind="stable")
    sorted_counts = counts[order]
    at = section.start[order]
    slot = (np.cumsum(counts) - counts)[order]
    longest = int(sorted_counts[0]) if len(counts) else 0
    active = np.searchsorted(-sorted_counts, -np.arange(longest + 1), side="left").tolist()
    data, done, short, smallest = section.data, 0, True, np.minimum.reduce
    try:
        for width in active[:longest]:
            if width < LOCKSTEP_MIN:
                break
            now = at[:width]
            starts[slot[:width]] = now
            slot[:width] += 1
            sizes = _SIZES[data[now] | data[now + 1].astype(np.int64) << 8]
            if smallest(sizes) <= 0:
                _measure(section, now, sizes)
                short = False
            now += sizes
            done += 1
        else:
            done = longest
        for number in range(active[done] if done < longest else 0):
            at[number], long = _walk(section, int(at[number]), starts, int(slot[number]), int(sorted_counts[number]) - done)
            short = short and not long
    except IndexError:
        raise CorruptRecords(f"the records of a batch behind offset {batches.base_offset[section.low]} end early") from None
    ends = np.empty_like(at)
    ends[order] = at
    wrong = (ends != section.end) & (counts > 0)
    if wrong.any():
        raise _corrupt(batches, section, int(np.argmax(wrong)), "is not filled by its records")
    return starts, ends, short


def _measure(section: Section, at: Ints, sizes: Ints) -> None:
    """Fill in the sizes of records that are long; CorruptRecords for what is no record."""
    long = np.flatnonzero(sizes == 0)
    raw, size = varints(section.words, at[long])
    body = unzigzag(raw)
    sizes[long] = np.where((body < _RECORD_BODY_MIN) | (body > len(section.data)), -1, body + size)
    if sizes.min() < 0:
        raise IndexError


def _walk(section: Section, at: int, starts: Ints, slot: int, count: int) -> tuple[int, bool]:
    """The starts of `count` records of one batch from `at` on; where the last one ends, and whether a length took more than two bytes."""
    buffer, found, long = section.buffer, [], False
    for _ in range(count):
        found.append(at)
        raw = buffer[at]
        if raw < 128:
            body, at = raw >> 1 ^ -(raw & 1), at + 1
        else:
            second = buffer[at + 1]
            if second < 128:
                raw += (second << 7) - 128
                body, at = raw >> 1 ^ -(raw & 1), at + 2
            else:
                body, at = read_varint(buffer, at)
                long = True
        if body < _RECORD_BODY_MIN:
            raise IndexError
        at += body
    starts[slot : slot + count] = found
    return at, long


