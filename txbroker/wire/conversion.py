"""Conversion between record batches and older message sets: up for old producers (Produce v0-2), down for old consumers (Fetch v0-3)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from txbroker.errors import BrokerError, CorruptRecords, ErrorCode
from txbroker.wire import entries, legacy, records
from txbroker.wire.batch import BatchHeader
from txbroker.wire.compression import Buffer, Codec
from txbroker.wire.entries import EntryHeader
from txbroker.wire.records import Record


def to_v2(
    buffer: Buffer,
    *,
    bytes_max: int,
    codec: Codec | None = None,
    level: int | None = None,
) -> bytes:
    """A produced message set (magic 0 or 1) as one record batch, its offsets counted from 0.

    `codec`: None keeps the set's own. `bytes_max` limits the messages of a wrapper once decompressed. A torn tail is dropped, as in
    Kafka; b"" when nothing is left. If a message has the timestamp type LogAppendTime, the batch has it too. Errors: CORRUPT_MESSAGE
    for a wrong CRC, size or magic, MESSAGE_TOO_LARGE (also for more than legacy.MESSAGES_MAX messages), INVALID_TIMESTAMP for a timestamp
    below -1, and INVALID_RECORD for everything else that clients could not read, when the set mixes formats, or has more than one wrapper
    (Kafka's LogValidator). Offsets in the set do not matter, except that a wrapper's may not be below that of its last message.
    """
    try:
        return _to_v2(buffer, bytes_max, codec, level)
    except legacy.DamagedMessage:
        raise
    except CorruptRecords as error:  # its producer would send the same again, and repeats CORRUPT_MESSAGE
        raise BrokerError(ErrorCode.INVALID_RECORD, f"a message set was refused: {error.message}") from None


def _to_v2(buffer: Buffer, bytes_max: int, codec: Codec | None, level: int | None) -> bytes:
    found: list[Record] = []
    magic, own_codec, append_time = None, Codec.NONE, None
    for position, header in legacy.iterate(buffer):
        legacy.check_crc(buffer, position, header)
        if magic is not None and (header.magic != magic or header.codec is not Codec.NONE or own_codec is not Codec.NONE):
            raise BrokerError(ErrorCode.INVALID_RECORD, "a message set must hold one wrapper, or plain messages of one format")
        magic, own_codec = header.magic, header.codec
        if header.log_append_time:
            append_time = header.max_timestamp
        found += legacy.read_records(buffer, position, header, bytes_max, True)
        if len(found) > legacy.MESSAGES_MAX:
            raise legacy.too_many()
    if not found:
        return b""
    if min(record.timestamp for record in found) < -1:
        raise BrokerError(ErrorCode.INVALID_TIMESTAMP, "a message has a negative timestamp")
    return records.build(
        [record._replace(offset=index) for index, record in enumerate(found)],
        codec=own_codec if codec is None else codec,
        level=level,
        log_append_time=append_time,
    )


def from_v2(buffer: Buffer, magic: int, *, first_offset: int, bytes_max: int, records_max: int = legacy.MESSAGES_MAX) -> bytes:
    """The log entries in `buffer` for a fetch from `first_offset` by a consumer that supports formats up to `magic` (0 or 1).

    Kafka's rules (RecordsUtil): offsets stay; headers and control batches are left out; entries of supported formats stay as they
    are; records of an uncompressed batch below `first_offset` are left out, because such a consumer may not skip them. A torn tail
    is dropped. The result ends early, and the next fetch continues, after `records_max` records, or once `bytes_max` bytes were
    read (a single batch may have as many). Errors: UNSUPPORTED_COMPRESSION_TYPE for zstd; CorruptRecords and
    MESSAGE_TOO_LARGE as `read_records`.
    """
    parts: list[bytes] = []
    bytes_left, records_left = bytes_max, records_max
    scan = entries.Scan(buffer)
    for position, header in scan:
        if bytes_left <= 0 or records_left <= 0:
            return b"".join(parts)
        if header.control:
            continue
        if header.magic <= magic:
            parts.append(bytes(buffer[position : position + header.size]))
            continue
        if header.codec is Codec.ZSTD:
            raise BrokerError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "records compressed with zstd need Fetch v10 or newer")
        found = entries.read_records(buffer, position, header, bytes_max)
        if header.codec is Codec.NONE or _has_more_than(header, records_left):
            found = _from(first_offset, found)
        kept = list(islice(found, records_left))
        records_left -= len(kept)
        bytes_left -= sum(map(_content_bytes, kept))
        append_time = header.max_timestamp if header.log_append_time else None
        parts.append(legacy.build(kept, magic=magic, codec=header.codec, log_append_time=append_time))
    scan.raise_if_corrupt()
    return b"".join(parts)


def _has_more_than(header: EntryHeader, count: int) -> bool:
    """Whether a batch has too many records for one response, so that the first returned one must be the requested one."""
    return isinstance(header, BatchHeader) and header.count > count


def _from(first_offset: int, found: Iterator[Record]) -> Iterator[Record]:
    return (record for record in found if record.offset >= first_offset)


def _content_bytes(record: Record) -> int:
    """About how many bytes a record had in its batch."""
    _, _, key, value, headers = record
    return len(key or b"") + len(value or b"") + sum(len(name) + len(content or b"") for name, content in headers)
