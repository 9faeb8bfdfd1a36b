"""The records inside a batch (magic 2): reading them within limits, and building batches from them.

`record_loops.py` describes the layout of a record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from txbroker.errors import BrokerError, CorruptRecords, ErrorCode
from txbroker.names import amount
from txbroker.wire import record_loops
from txbroker.wire.batch import (
    CODEC_MASK,
    CONTROL,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    TRANSACTIONAL,
    BatchHeader,
    Buffer,
    seal,
)
from txbroker.wire.compression import Codec, compress, decompress
from txbroker.wire.record_loops import HEADERS_MAX, RECORDS_MAX, Decoded, check_records, decode_records, find_time
from txbroker.wire.varint import encode_varint

WALK_IS_COMPILED = not record_loops.__file__.endswith((".py", ".pyc"))
_DECODED_AT_ONCE = 256  # records in memory while they are iterated

INT32_MAX = 2**31 - 1
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


class Record(NamedTuple):
    """One record. Header names are UTF-8; bytes that are not survive as surrogate escapes, so that a rebuilt batch is the same."""

    offset: int
    timestamp: int  # ms; -1: none (magic 0)
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def read_records(buffer: Buffer, position: int, header: BatchHeader, bytes_max: int) -> Iterator[Record]:
    """The records of the batch at `position`. The caller checks its CRC (`check_crc`).

    CorruptRecords when any length, count or delta is wrong, also in the middle of the iteration; MESSAGE_TOO_LARGE when the
    records have more than `bytes_max` bytes once decompressed, or are more than RECORDS_MAX.
    """
    _check_count(header)
    data = _payload(buffer, position, header, bytes_max)
    base_offset = header.base_offset
    if header.last_offset > INT64_MAX:
        raise CorruptRecords(f"the batch at offset {base_offset} ends above the largest offset")
    at, left, headers_left = 0, header.count, HEADERS_MAX
    while left:
        decoded: list[Decoded] = []
        problem: BrokerError | None = None
        try:
            at = decode_records(data, at, min(left, _DECODED_AT_ONCE), headers_left, decoded)
        except IndexError:
            problem = CorruptRecords(f"the batch at offset {base_offset} ends before its last record (of {header.count})")
        except BrokerError as error:
            problem = error
        left -= len(decoded)
        headers_left -= sum(len(headers) for _, _, _, _, headers in decoded)
        yield from _records(decoded, header)
        if problem is not None:
            raise problem
    if at != len(data):
        raise CorruptRecords(f"the batch at offset {base_offset} has {amount(len(data) - at, 'byte')} after its last record")


def _records(decoded: list[Decoded], header: BatchHeader) -> Iterator[Record]:
    """Deltas become offsets and timestamps."""
    base_offset, base_timestamp, offset_delta_max = header.base_offset, header.base_timestamp, header.last_offset_delta
    append_time = header.max_timestamp if header.log_append_time else None
    new = tuple.__new__  # takes half the time of Record(...)
    for offset_delta, time_delta, key, value, headers in decoded:
        if not 0 <= offset_delta <= offset_delta_max:
            raise CorruptRecords(f"a record's offset delta {offset_delta} is outside the batch at offset {base_offset}")
        timestamp = base_timestamp + time_delta if append_time is None else append_time
        if not INT64_MIN <= timestamp <= INT64_MAX:
            raise CorruptRecords(f"a record's timestamp in the batch at offset {base_offset} exceeds 64 bits")
        yield new(Record, (base_offset + offset_delta, timestamp, key, value, headers))


def first_of_time(
    buffer: Buffer, position: int, header: BatchHeader, timestamp: int, offset_min: int, bytes_max: int
) -> tuple[int, int] | None:
    """Timestamp and offset of the first record of `timestamp` or later at `offset_min` or above; None when there is none.

    Errors as `read_records`, as far as it walks.
    """
    _check_count(header)
    if header.log_append_time:
        if header.max_timestamp < timestamp:
            return None
        time_delta_min = INT64_MIN
    else:
        time_delta_min = min(max(timestamp - header.base_timestamp, INT64_MIN), INT64_MAX)
    offset_delta_min = min(max(offset_min - header.base_offset, 0), INT64_MAX)
    if header.attributes & CODEC_MASK:
        buffer = _payload(buffer, position, header, bytes_max)
        start, end = 0, len(buffer)
    else:
        start, end = position + HEADER_SIZE, position + header.size
    try:
        index, time_delta, offset_delta = find_time(buffer, start, end, header.count, time_delta_min, offset_delta_min)
    except IndexError:
        raise CorruptRecords(f"the batch at offset {header.base_offset} ends before its last record (of {header.count})") from None
    if index < 0:
        return None
    if offset_delta > header.last_offset_delta:
        raise CorruptRecords(f"a record's offset delta {offset_delta} is outside the batch at offset {header.base_offset}")
    found = header.max_timestamp if header.log_append_time else header.base_timestamp + time_delta
    if found > INT64_MAX or header.base_offset + offset_delta > INT64_MAX:
        raise CorruptRecords(f"a record in the batch at offset {header.base_offset} exceeds 64 bits")
    return found, header.base_offset + offset_delta


class Walked(NamedTuple):
    """What a walk over all records of a batch found."""

    earliest: int
    """The smallest timestamp by the records' own deltas, in milliseconds."""
    latest: int
    """The largest."""
    content_bytes: int
    """Bytes of all keys and values."""
    first_without_key: int
    """The index of the first record without a key; -1 when all have one."""


_new_walked: Callable[[type[Walked], tuple[int, int, int, int]], Walked] = tuple.__new__  # half the time of Walked(...)


def walk_records(
    buffer: Buffer, position: int, header: BatchHeader, bytes_max: int, consecutive: bool, produced: bool = False
) -> Walked:
    """Look at every record of the batch at `position` without making any. Errors as `read_records`.

    With `consecutive` the offset deltas must be 0, 1, 2 and so on, as a producer writes them; without, they are not checked. `produced`:
    as of `decompress`.
    """
    count = header.count
    if count > RECORDS_MAX:
        _check_count(header)
    start, end = position + HEADER_SIZE, position + header.size
    if header.attributes & CODEC_MASK:
        buffer = _payload(buffer, position, header, bytes_max, produced)
        start, end = 0, len(buffer)
    try:
        earliest, latest, content_bytes, first_without_key = check_records(buffer, start, end, count, consecutive)
    except IndexError:
        raise CorruptRecords(f"the batch ends before its last record (of {count})") from None
    base = header.base_timestamp
    return _new_walked(Walked, (base + earliest, base + latest, content_bytes, first_without_key))


def _check_count(header: BatchHeader) -> None:
    if header.count > RECORDS_MAX:
        raise BrokerError(ErrorCode.MESSAGE_TOO_LARGE, f"a batch has {amount(header.count, 'record')}, at most {RECORDS_MAX:,} can be read")


def payload_size(buffer: Buffer, position: int, header: BatchHeader, bytes_max: int) -> int:
    """Bytes of the batch's records once decompressed. Errors as `read_records`; the records are not read."""
    return len(_payload(buffer, position, header, bytes_max))


def _payload(buffer: Buffer, position: int, header: BatchHeader, bytes_max: int, produced: bool = False) -> bytes:
    """The batch's records section, decompressed."""
    if not header.count and header.size == HEADER_SIZE:  # compaction keeps such batches with any codec
        return b""
    return decompress(header.codec, memoryview(buffer)[position + HEADER_SIZE : position + header.size], bytes_max, produced=produced)


def build(
    records: Sequence[Record],
    *,
    base_offset: int | None = None,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    leader_epoch: int = -1,
    transactional: bool = False,
    control: bool = False,
    log_append_time: int | None = None,
) -> bytes:
    """One batch of `records` (at least one, offsets ascending from `base_offset`, which is the first record's unless given).

    `log_append_time` (ms) becomes every record's timestamp; their own stay in the deltas, as in Kafka. ValueError when the records
    cannot be in one batch.
    """
    if not records:
        raise ValueError("a batch has at least one record")
    if base_offset is None:
        base_offset = records[0].offset
    base_timestamp = records[0].timestamp
    payload = compress(codec, _encode(records, base_offset, base_timestamp), level)
    attributes = int(codec) | (TRANSACTIONAL if transactional else 0) | (CONTROL if control else 0)
    if log_append_time is not None:
        attributes |= LOG_APPEND_TIME
    batch = bytearray(HEADER_SIZE + len(payload))
    HEADER.pack_into(
        batch,
        0,
        base_offset,
        _length_of(payload),
        leader_epoch,
        2,
        0,
        attributes,
        records[-1].offset - base_offset,
        base_timestamp,
        max(record.timestamp for record in records) if log_append_time is None else log_append_time,
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    batch[HEADER_SIZE:] = payload
    seal(batch, 0, len(batch))
    return bytes(batch)


def _length_of(payload: bytes) -> int:
    """The header's length field for a batch with this records section."""
    length = HEADER_SIZE - LOG_OVERHEAD + len(payload)
    if length > INT32_MAX:
        raise BrokerError(ErrorCode.MESSAGE_TOO_LARGE, f"a batch of {length} bytes is too large for its length field")
    return length


def _encode(records: Iterable[Record], base_offset: int, base_timestamp: int) -> bytes:
    parts: list[bytes] = []
    previous = -1
    for offset, timestamp, key, value, headers in records:
        delta = offset - base_offset
        if not previous < delta <= INT32_MAX:
            raise ValueError(f"offset {offset} cannot follow {base_offset + previous} in a batch at {base_offset}")
        previous = delta
        timestamp_delta = timestamp - base_timestamp
        if not INT64_MIN <= timestamp_delta <= INT64_MAX:
            raise ValueError(f"timestamps {base_timestamp} and {timestamp} cannot be in one batch")
        body = [
            b"\0",
            encode_varint(timestamp_delta),
            encode_varint(delta),
            *_sized(key),
            *_sized(value),
            encode_varint(len(headers)),
        ]
        for name, content in headers:
            body += (*_sized(name.encode("utf-8", "surrogateescape")), *_sized(content))
        joined = b"".join(body)
        parts += (encode_varint(len(joined)), joined)
    return b"".join(parts)


def _sized(content: bytes | None) -> tuple[bytes, bytes]:
    return (b"\x01", b"") if content is None else (encode_varint(len(content)), content)  # 1 is zigzag for -1: null


def recompress(buffer: Buffer, position: int, header: BatchHeader, codec: Codec, bytes_max: int, *, level: int | None = None) -> bytes:
    """The batch at `position` with its records compressed by another codec, nothing else changed (topic config `compression.type`)."""
    payload = compress(codec, _payload(buffer, position, header, bytes_max), level)
    batch = bytearray(HEADER_SIZE + len(payload))
    HEADER.pack_into(
        batch,
        0,
        header.base_offset,
        _length_of(payload),
        header.leader_epoch,
        2,
        0,
        header.attributes & ~CODEC_MASK | codec,
        header.last_offset_delta,
        header.base_timestamp,
        header.max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.count,
    )
    batch[HEADER_SIZE:] = payload
    seal(batch, 0, len(batch))
    return bytes(batch)
