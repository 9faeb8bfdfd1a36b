"""The records inside a batch (magic 2): reading them, bounded, and building batches from them.

A record, all numbers zigzag varints: length of what follows | attributes (one byte, unused) | timestamp delta | offset delta |
key length, key | value length, value | header count, and for each name length, name, value length, value. A negative length is
null; a header's name cannot be.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from txbroker.errors import BrokerError, CorruptRecords, ErrorCode
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
from txbroker.wire.varint import encode_varint, read_varint, read_varlong

# The broker reads no batch with more records than this, nor more headers than this in one batch: each costs it a microsecond, in which
# it serves nobody else, and a codec packs millions of equal ones into a few kilobytes. The default of max.message.bytes holds 150,000 of
# the smallest records uncompressed; a producer with more in a batch is told MESSAGE_TOO_LARGE, on which Java's splits it.
RECORDS_MAX = 500_000

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
    """The records of the batch at `position`; its CRC is the caller's matter (`check_crc`).

    CorruptRecords when any length, count or delta does not hold, also in the middle of the iteration; MESSAGE_TOO_LARGE when the
    records take more than `bytes_max` bytes once decompressed, or there are more than RECORDS_MAX.
    """
    _check_count(header)
    data = _payload(buffer, position, header, bytes_max)
    try:
        yield from _decode(data, header)
    except IndexError:
        raise CorruptRecords(f"the {header.count} records of the batch at offset {header.base_offset} end early") from None


def first_of_time(
    buffer: Buffer, position: int, header: BatchHeader, timestamp: int, offset_min: int, bytes_max: int
) -> tuple[int, int] | None:
    """Timestamp and offset of the first record of `timestamp` or later at `offset_min` or above; None when there is none.

    As `read_records`, and in a third of its time, as it goes from record to record without looking at what they hold.
    """
    _check_count(header)
    append_time = header.max_timestamp if header.log_append_time else None
    if append_time is not None and append_time < timestamp:
        return None
    data = _payload(buffer, position, header, bytes_max)
    wanted, delta_min = timestamp - header.base_timestamp, offset_min - header.base_offset
    end = 0
    try:
        for _ in range(header.count):
            length, at = read_varint(data, end) if data[end] > 127 else (data[end] >> 1 ^ -(data[end] & 1), end + 1)
            end = at + length
            raw = data[at + 1]  # behind the attributes
            if raw > 127:
                time_delta, at = read_varlong(data, at + 1)
            else:
                time_delta, at = raw >> 1 ^ -(raw & 1), at + 2
            if length < 0 or at >= end:
                raise CorruptRecords(f"a record of the batch at offset {header.base_offset} does not fill its length")
            if time_delta >= wanted or append_time is not None:
                delta = read_varint(data, at)[0]
                if delta >= delta_min:
                    if not 0 <= delta <= header.last_offset_delta:
                        raise CorruptRecords(f"a record's offset delta {delta} is outside its batch at offset {header.base_offset}")
                    found = header.base_timestamp + time_delta if append_time is None else append_time
                    if found > INT64_MAX or header.base_offset + delta > INT64_MAX:
                        raise CorruptRecords(f"a record in the batch at offset {header.base_offset} is beyond 64 bits")
                    return found, header.base_offset + delta
    except IndexError:
        raise CorruptRecords(f"the {header.count} records of the batch at offset {header.base_offset} end early") from None
    return None


def _check_count(header: BatchHeader) -> None:
    if header.count > RECORDS_MAX:
        raise BrokerError(ErrorCode.MESSAGE_TOO_LARGE, f"a batch of {header.count} records, where {RECORDS_MAX} can be read")


def payload_size(buffer: Buffer, position: int, header: BatchHeader, bytes_max: int) -> int:
    """Bytes of the batch's records once decompressed; errors as `read_records`, without looking at them."""
    return len(_payload(buffer, position, header, bytes_max))


def _payload(buffer: Buffer, position: int, header: BatchHeader, bytes_max: int) -> bytes:
    """The batch's records section, decompressed."""
    if not header.count and header.size == HEADER_SIZE:  # compaction keeps such, whatever their codec
        return b""
    return decompress(header.codec, memoryview(buffer)[position + HEADER_SIZE : position + header.size], bytes_max)


def _decode(data: bytes, header: BatchHeader) -> Iterator[Record]:
    """Records one by one; IndexError when `data` ends early. Varints of one and two bytes, nearly all of them, are read inline."""
    base_offset, offset_delta_max = header.base_offset, header.last_offset_delta
    base_timestamp = header.base_timestamp
    append_time = header.max_timestamp if header.log_append_time else None
    if base_offset + offset_delta_max > INT64_MAX:
        raise CorruptRecords(f"a batch at offset {base_offset} reaches beyond the last offset there can be")
    new = tuple.__new__  # what Record(…) comes down to, in half its time
    position = 0
    headers_left = RECORDS_MAX
    for _ in range(header.count):
        raw = data[position]
        position += 1
        if raw > 127:
            if data[position] > 127:
                length, position = read_varint(data, position - 1)
            else:
                raw += (data[position] << 7) - 128
                length = raw >> 1 ^ -(raw & 1)
                position += 1
        else:
            length = raw >> 1 ^ -(raw & 1)
        end = position + length

        position += 1  # attributes
        raw = data[position]
        if raw > 127:
            timestamp, position = read_varlong(data, position)
            timestamp += base_timestamp
        else:
            timestamp = base_timestamp + (raw >> 1 ^ -(raw & 1))
            position += 1
        raw = data[position]
        if raw > 127:
            offset_delta, position = read_varint(data, position)
        else:
            offset_delta = raw >> 1 ^ -(raw & 1)
            position += 1

        raw = data[position]
        if raw > 127:
            length, position = read_varint(data, position)
        else:
            length = raw >> 1 ^ -(raw & 1)
            position += 1
        key = None
        if length >= 0:
            key = data[position : position + length]
            position += length

        raw = data[position]
        position += 1
        if raw > 127:
            if data[position] > 127:
                length, position = read_varint(data, position - 1)
            else:
                raw += (data[position] << 7) - 128
                length = raw >> 1 ^ -(raw & 1)
                position += 1
        else:
            length = raw >> 1 ^ -(raw & 1)
        value = None
        if length >= 0:
            value = data[position : position + length]
            position += length

        if data[position]:
            headers, position = _decode_headers(data, position, headers_left)
            headers_left -= len(headers)
        else:
            headers = ()
            position += 1
        # Slices stop at the end of data in silence, but then position is beyond any `end` that data can hold.
        if position != end or end > len(data):
            raise CorruptRecords(f"a record of the batch at offset {base_offset} does not fill its length")
        if not 0 <= offset_delta <= offset_delta_max:
            raise CorruptRecords(f"a record's offset delta {offset_delta} is outside its batch at offset {base_offset}")
        if append_time is not None:
            timestamp = append_time
        elif not INT64_MIN <= timestamp <= INT64_MAX:
            raise CorruptRecords(f"a record's timestamp in the batch at offset {base_offset} is beyond 64 bits")
        yield new(Record, (base_offset + offset_delta, timestamp, key, value, headers))
    if position != len(data):
        raise CorruptRecords(f"the batch at offset {base_offset} has {len(data) - position} bytes after its {header.count} records")


def _decode_headers(data: bytes, position: int, count_max: int) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    count, position = read_varint(data, position)
    if not 0 <= 2 * count <= len(data) - position:
        raise CorruptRecords(f"a record claims {count} headers")
    if count > count_max:
        raise BrokerError(ErrorCode.MESSAGE_TOO_LARGE, f"the records of a batch have more than {RECORDS_MAX} headers")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        length, position = read_varint(data, position)
        if length < 0:
            raise CorruptRecords("a record header has no name")
        name = data[position : position + length].decode("utf-8", "surrogateescape")
        length, position = read_varint(data, position + length)
        if length < 0:
            headers.append((name, None))
        else:
            headers.append((name, data[position : position + length]))
            position += length
    return tuple(headers), position


def keys_present(buffer: Buffer, position: int, header: BatchHeader, bytes_max: int) -> bool:
    """Whether every record of the batch has a key (a compacted topic demands it). Errors as `read_records`, as far as it looks.

    Offset deltas must ascend within the batch: the cleaner could make nothing of others.
    """
    _check_count(header)
    data = _payload(buffer, position, header, bytes_max)
    end, previous = 0, -1
    try:
        for _ in range(header.count):
            length, at = read_varint(data, end)
            end = at + length
            at += 1  # attributes
            while data[at] > 127:  # timestamp delta
                at += 1
            at += 1
            delta, at = read_varint(data, at)
            if not previous < delta <= header.last_offset_delta:
                raise CorruptRecords(f"a record of the batch at offset {header.base_offset} has the offset delta {delta}")
            previous = delta
            if data[at] & 1:  # the key's length: zigzag has the sign in its lowest bit
                return False
            key_size, at = read_varint(data, at)
            if at + key_size > end:
                raise CorruptRecords(f"a record of the batch at offset {header.base_offset} has no room for its key")
    except IndexError:
        end = -1
    if end != len(data):
        raise CorruptRecords(f"the {header.count} records of the batch at offset {header.base_offset} do not fill it")
    return True


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

    With `log_append_time` (ms) that is every record's timestamp; their own stay readable in the deltas, as Kafka leaves them.
    ValueError when the records cannot stand in one batch.
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
        raise BrokerError(ErrorCode.MESSAGE_TOO_LARGE, f"a batch of {length} bytes is more than its length field can say")
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
            raise ValueError(f"timestamps {base_timestamp} and {timestamp} cannot stand in one batch")
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
