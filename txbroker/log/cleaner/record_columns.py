"""The records of a section as columns of numpy: all batches of the section are read at once, a step at a time.

The records may be hostile: each length is checked against what holds it, and CorruptRecords names the offset of the batch.
"""

from __future__ import annotations

import numpy as np

from txbroker.errors import BrokerError, CorruptRecords, ErrorCode
from txbroker.lazy_dataclass import lazy_dataclass
from txbroker.log.cleaner.batch_columns import Batches, Section
from txbroker.log.cleaner.unaligned_reads import Flags, Ints, Words, gather, unzigzag, varint_rows, varints
from txbroker.wire.record_loops import RECORDS_MAX
from txbroker.wire.varint import read_varint

LOCKSTEP_MIN = 24  # batches: with fewer it is faster to walk one batch after the other

_RECORD_BODY_MIN = 6  # attributes, two deltas, two lengths, the count of headers
_INT32_MAX = 2**31 - 1


@lazy_dataclass(slots=True)
class Records:
    """The records of the selected batches of a section, in order. `batch`: the index of the batch within the section.

    `start`, `end`, and the fields `..._at` are positions in the section: `time_at` and `offset_at` of the varints, `value_at` of the
    value's length. `time_delta` is the stored one. `key_size` is -1 without a key. `null`: the value is null.
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


def read_records(section: Section, batches: Batches, selected: Flags) -> Records:
    """The records of the selected batches of a section. CorruptRecords; MESSAGE_TOO_LARGE for a batch of more than RECORDS_MAX."""
    of = slice(section.low, section.high)
    counts = np.where(selected[of], batches.count[of], 0)
    sizes = section.end - section.start
    if len(counts) and counts.max() > RECORDS_MAX:
        raise BrokerError(ErrorCode.MESSAGE_TOO_LARGE, f"a batch of {counts.max()} records, where {RECORDS_MAX} can be read")
    crowded = counts * (_RECORD_BODY_MIN + 1) > sizes
    if crowded.any():
        raise _corrupt(batches, section, int(np.argmax(crowded)), "has a count of records that does not fit its size")
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
        raise CorruptRecords(f"a record after offset {batches.base_offset[section.low]} has lengths beyond the end of its batch") from None
    delta = records.offset
    records.offset = delta + batches.base_offset[of][batch]
    following = np.empty(len(delta), dtype=np.bool_)
    following[1:] = batch[1:] == batch[:-1]
    following[:1] = False
    wrong = (delta < 0) | (delta > (batches.last_offset - batches.base_offset)[of][batch])
    wrong[1:] |= following[1:] & (delta[1:] <= delta[:-1])
    if wrong.any():
        raise _corrupt(batches, section, int(batch[np.argmax(wrong)]), "has record offsets that are out of order or outside of the batch")
    return records


def _corrupt(batches: Batches, section: Section, batch: int, problem: str) -> CorruptRecords:
    return CorruptRecords(f"the batch at offset {batches.base_offset[section.low + batch]} {problem}")


def _fields(section: Section, batch: Ints, start: Ints, end: Ints, short: bool) -> Records:
    """The fields of the records up to their values. `short`: the length of each record takes one or two bytes."""
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
    """Read the three varints of records where they take more than one word together."""
    position = at[which]
    for values, lengths in zip(raw, sizes, strict=True):
        values[which], lengths[which] = varints(words, position)
        position += lengths[which]


def headers_at(section: Section, records: Records) -> Ints:
    """The position of each record's header count; CorruptRecords when a value ends beyond its record."""
    raw, size = varints(section.words, records.value_at)
    value_size = unzigzag(raw)
    at = records.value_at + size
    if ((value_size < -1) | (value_size >= records.end - at)).any():
        raise CorruptRecords("a value ends beyond its record")
    at += np.maximum(value_size, 0)
    return at


def _size_table() -> Ints:
    """The size of a record by its first two bytes; 0 when its length takes more bytes, -1 when it is too small for a record."""
    first, second = np.arange(65536) & 255, np.arange(65536) >> 8
    long = first >= 128
    raw = np.where(long, (first & 127) | (second << 7), first)
    body = (raw >> 1) ^ -(raw & 1)
    sizes = np.where(body < _RECORD_BODY_MIN, -1, body + 1 + long)
    return np.where(long & (second >= 128), 0, sizes)


_SIZES = _size_table()


def _starts(section: Section, counts: Ints, batches: Batches) -> tuple[Ints, Ints, bool]:
    """The start of each record, the end of each batch's last record, and whether all lengths take one or two bytes.

    Each step advances all batches by one record.
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
        raise CorruptRecords(f"the records of a batch after offset {batches.base_offset[section.low]} end too early") from None
    ends = np.empty_like(at)
    ends[order] = at
    wrong = (ends != section.end) & (counts > 0)
    if wrong.any():
        raise _corrupt(batches, section, int(np.argmax(wrong)), "has bytes after its last record, or records beyond its end")
    return starts, ends, short


def _measure(section: Section, at: Ints, sizes: Ints) -> None:
    """Fill in the sizes of records whose length takes more than two bytes; IndexError for an invalid length."""
    long = np.flatnonzero(sizes == 0)
    raw, size = varints(section.words, at[long])
    body = unzigzag(raw)
    sizes[long] = np.where((body < _RECORD_BODY_MIN) | (body > len(section.data)), -1, body + size)
    if sizes.min() < 0:
        raise IndexError


def _walk(section: Section, at: int, starts: Ints, slot: int, count: int) -> tuple[int, bool]:
    """Store the starts of `count` records of one batch from `at` on; the end of the last, and whether a length took over two bytes."""
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
