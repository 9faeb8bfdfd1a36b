"""Checks before a leader appends (Kafka's LogValidator), and the changes to a batch that a topic's settings require.

Every batch of a client: length, magic, codec, CRC-32C; base offset 0; as many records as offsets; no control batch; a sequence if it
has a producer id. Then its records:

- `txbroker.record.validation=full`: all are walked, decompressed within `LogConfig.unpacked_bytes_max`. The fields of each must fill its
  length, and the records the batch; offset deltas must be 0, 1, 2 and so on; each timestamp must be within
  message.timestamp.before.max.ms and message.timestamp.after.max.ms; on a compacted topic each record has a key.
- `bounded` walks, in the same way, batches of one record, uncompressed batches of at most 4 KiB or 64 records, and all batches of
  compacted topics and of topics with message.timestamp.before.max.ms. It also walks a batch whose header has a largest
  timestamp more than five minutes from the broker's clock, or below the base timestamp: batches that it does not walk can
  mislead retention and look-ups by time by five minutes at most.
- `auto`, the default, is `full` where the walk is compiled (`wire/record_loops.py`) and `bounded` otherwise.

Records that cannot be read or decompressed are INVALID_RECORD. As in Kafka, a header whose largest timestamp is not that of its
records is corrected, not refused: some clients never set it.
docs/record-validation.md compares the answers with Kafka's.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import TypeAlias

from txbroker.errors import BrokerError, CorruptRecords, ErrorCode
from txbroker.log.log_config import FOREVER_MS, LogConfig
from txbroker.log.log_results import Origin, RecordError, RejectedRecords
from txbroker.log.produced_batch import RECORDS_PER_BYTE_MAX, WALKED_BYTES_MAX, WALKED_RECORDS_MAX
from txbroker.names import amount
from txbroker.wire.batch import (
    CODEC_MASK,
    CONTROL,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    MAGIC_POSITION,
    TRANSACTIONAL,
    BatchHeader,
    check_crc,
    crc32c_function,
    read_header,
    stamp_max_timestamp,
)
from txbroker.wire.compression import refuse_unless_java_reads
from txbroker.wire.conversion import to_v2
from txbroker.wire.entries import size_of
from txbroker.wire.record_loops import RECORDS_MAX
from txbroker.wire.records import INT64_MAX, INT64_MIN, Record, read_records, recompress, walk_records

_RECORD_ERRORS_MAX = 1000  # in one error; a batch may hold 500,000 records without a key

# How far a header's largest timestamp may be from now in a batch that `bounded` validation does not walk.
_TRUSTED_MS = 5 * 60 * 1000


# A batch that is ready to be stamped and written, its header, and its append time (-1 unless the topic stamps LogAppendTime).
Validated: TypeAlias = tuple[memoryview, BatchHeader, int]


def validate(records: memoryview, config: LogConfig, now_ms: int, origin: Origin) -> Validated:
    """Check one produced batch (or an old message set, which is converted), and rewrite it where the topic's settings require it.

    BrokerError: CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, INVALID_RECORD, INVALID_TIMESTAMP.
    """
    if len(records) > MAGIC_POSITION and records[MAGIC_POSITION] < 2:
        records = _convert(records, config)
    try:
        header = read_header(records)
    except CorruptRecords as error:
        raise _unreadable(records, error) from None
    size = header.size
    if size != len(records):
        records = _only_batch(records, size)
    if size > config.max_message_bytes or size > config.segment_bytes:
        raise _too_large(size, config)
    check_crc(records, 0, header)
    if origin is Origin.CLIENT:
        count = header.count
        if (
            header.base_offset != 0
            or count != header.last_offset_delta + 1
            or count > RECORDS_MAX
            or count > size * RECORDS_PER_BYTE_MAX
            or header.attributes & CONTROL
            or (header.base_sequence < 0 <= header.producer_id)
        ):
            raise _not_from_client(header)
        if (
            config.record_validation_full
            or count == 1
            or config.compact
            or config.message_timestamp_before_max_ms != FOREVER_MS
            or ((size <= WALKED_BYTES_MAX or count <= WALKED_RECORDS_MAX) and not header.attributes & CODEC_MASK)
            or header.attributes & LOG_APPEND_TIME
            or header.max_timestamp < header.base_timestamp
            or not -_TRUSTED_MS <= header.max_timestamp - now_ms <= min(_TRUSTED_MS, config.message_timestamp_after_max_ms)
        ):
            header = _check_records(records, header, config, now_ms)
        elif header.attributes & CODEC_MASK:
            _check_frames(records, header)
    elif header.attributes & CONTROL:
        return records, header, -1  # markers keep their time, and are never compressed
    codec = config.compression_type
    if codec is not None and header.codec is not codec:
        records = _recompressed(records, header, config)
        header = read_header(records)
    if config.message_timestamp_log_append:
        stamp_max_timestamp(records, 0, now_ms, log_append_time=True)
        return records, read_header(records), now_ms
    return records, header, -1


def _too_large(size: int, config: LogConfig) -> BrokerError:
    if size > config.max_message_bytes:
        return BrokerError(ErrorCode.MESSAGE_TOO_LARGE, f"a record batch has {size} bytes, max.message.bytes is {config.max_message_bytes}")
    return BrokerError(ErrorCode.RECORD_LIST_TOO_LARGE, f"a record batch has {size} bytes, segment.bytes is {config.segment_bytes}")


def _unreadable(records: memoryview, error: CorruptRecords) -> BrokerError:
    """The error for a batch whose header cannot be read: CORRUPT_MESSAGE, on which producers send it again, only if it was damaged."""
    size = size_of(records)
    if size is None or size > len(records):
        return BrokerError(ErrorCode.INVALID_RECORD, "a record batch was refused: it is incomplete")
    if size < HEADER_SIZE or int.from_bytes(records[17:21], "big") != crc32c_function()(records[21:size]):
        return error
    return BrokerError(ErrorCode.INVALID_RECORD, f"a record batch was refused: {error.message}")


def validate_copied(records: memoryview, config: LogConfig) -> BatchHeader:
    """Check one batch of `txbroker mirror`, which keeps its offsets; its records may have gaps, as after compaction.

    Nothing is changed in it: its timestamps and its codec are the source's. Retention and look-ups by time use the header's largest
    timestamp, so it must be that of the records. BrokerError: CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, INVALID_RECORD.
    """
    header = read_header(records)
    if header.size != len(records):
        raise BrokerError(ErrorCode.INVALID_RECORD, "a copied record batch is followed by other bytes")
    if header.size > config.max_message_bytes or header.size > config.segment_bytes:
        raise _too_large(header.size, config)
    check_crc(records, 0, header)
    count = header.count
    if (
        header.base_offset < 0
        or header.last_offset > INT64_MAX - 1
        or not 0 < count <= min(header.last_offset_delta + 1, RECORDS_MAX, header.size * RECORDS_PER_BYTE_MAX)
        or header.attributes & (CONTROL | TRANSACTIONAL)
        or header.producer_id >= 0
    ):
        problem = f"a copied batch at offset {header.base_offset} has a producer, is a control batch, or has impossible counts"
        raise BrokerError(ErrorCode.INVALID_RECORD, problem)
    try:
        if count == header.last_offset_delta + 1:
            latest = walk_records(records, 0, header, config.unpacked_bytes_max, True).latest
        else:
            found = list(read_records(records, 0, header, config.unpacked_bytes_max))
            if any(following.offset <= record.offset for record, following in pairwise(found)):
                raise CorruptRecords("its offsets do not ascend")
            latest = max(record.timestamp for record in found)
    except CorruptRecords as error:
        raise BrokerError(ErrorCode.INVALID_RECORD, f"a copied record batch was refused: {error.message}") from None
    if abs(header.max_timestamp - latest) > _TRUSTED_MS and not header.attributes & LOG_APPEND_TIME:
        problem = f"a copied batch at offset {header.base_offset} has the largest timestamp {header.max_timestamp}, records have {latest}"
        raise BrokerError(ErrorCode.INVALID_RECORD, problem)
    return header


def _check_records(records: memoryview, header: BatchHeader, config: LogConfig, now_ms: int) -> BatchHeader:
    """Walk all records of a batch, and refuse it or correct its header, which is returned."""
    if header.attributes & LOG_APPEND_TIME:
        header = _with_create_time(records, header, config, now_ms)
    try:
        earliest, latest, _, first_without_key = walk_records(records, 0, header, config.unpacked_bytes_max, True, True)
    except CorruptRecords as error:
        raise BrokerError(ErrorCode.INVALID_RECORD, f"a record batch was refused: {error.message}") from None
    if first_without_key >= 0 and config.compact:
        _refuse_keyless(records, header, config)
    if config.message_timestamp_log_append:
        return header  # the topic does not use the records' own timestamps
    if latest > INT64_MAX or earliest < INT64_MIN:
        raise BrokerError(ErrorCode.INVALID_TIMESTAMP, "a record batch was refused: the timestamp of a record exceeds 64 bits")
    if latest - now_ms > config.message_timestamp_after_max_ms or now_ms - earliest > config.message_timestamp_before_max_ms:
        _refuse_timestamps(records, header, config, now_ms)
    if latest != header.max_timestamp:
        stamp_max_timestamp(records, 0, latest, log_append_time=False)
        return read_header(records)
    return header


def _check_frames(records: memoryview, header: BatchHeader) -> None:
    """Refuse a batch that is not walked if its frames show that Java clients cannot read it."""
    try:
        refuse_unless_java_reads(header.codec, records[HEADER_SIZE:])
    except CorruptRecords as error:
        raise BrokerError(ErrorCode.INVALID_RECORD, f"a record batch was refused: {error.message}") from None


def _with_create_time(records: memoryview, header: BatchHeader, config: LogConfig, now_ms: int) -> BatchHeader:
    """Clear the timestamp type LogAppendTime, which only brokers may set; returns the header.

    As in Kafka, INVALID_TIMESTAMP if the topic has this type, or if the header's largest timestamp, which is that of all records, is
    missing or too far from now.
    """
    latest = header.max_timestamp
    if (
        config.message_timestamp_log_append
        or latest == -1
        or latest - now_ms > config.message_timestamp_after_max_ms
        or now_ms - latest > config.message_timestamp_before_max_ms
    ):
        raise BrokerError(ErrorCode.INVALID_TIMESTAMP, "a record batch was refused: producers may not set the timestamp type LogAppendTime")
    stamp_max_timestamp(records, 0, latest, log_append_time=False)
    return read_header(records)


def _convert(records: memoryview, config: LogConfig) -> memoryview:
    """A message set of magic 0 or 1 as one batch, its own checksums and sizes checked."""
    if len(records) > config.max_message_bytes and (size_of(records) or 0) > config.max_message_bytes:
        raise BrokerError(ErrorCode.MESSAGE_TOO_LARGE, f"a message is larger than max.message.bytes, {config.max_message_bytes}")
    converted = to_v2(records, bytes_max=config.unpacked_bytes_max, codec=config.compression_type, level=config.compression_level)
    if not converted:
        raise BrokerError(ErrorCode.INVALID_RECORD, "a message set has no whole message")
    return memoryview(bytearray(converted))


def _only_batch(records: memoryview, size: int) -> memoryview:
    """The first batch; INVALID_RECORD when another whole one follows. Kafka ignores a torn end."""
    following = size_of(records, size)
    if following is not None and following <= len(records) - size:
        raise BrokerError(ErrorCode.INVALID_RECORD, "more than one record batch for one partition")
    return records[:size]


def _not_from_client(header: BatchHeader) -> BrokerError:
    """Why a client may not send this header."""
    code = ErrorCode.INVALID_RECORD
    if header.base_offset != 0:
        problem = f"its base offset is {header.base_offset} and not 0"
    elif header.count != header.last_offset_delta + 1:
        problem = f"it counts {amount(header.count, 'record')} and its last offset delta is {header.last_offset_delta}"
    elif header.count > RECORDS_MAX:
        code, problem = ErrorCode.MESSAGE_TOO_LARGE, f"it has {amount(header.count, 'record')}, {RECORDS_MAX:,} are allowed"
    elif header.count > header.size * RECORDS_PER_BYTE_MAX:
        problem = f"it counts {amount(header.count, 'record')} in {header.size} bytes"
    elif header.attributes & CONTROL:
        problem = "clients may not write control batches"
    else:
        problem = f"producer {header.producer_id} gave it the sequence {header.base_sequence}"
    return BrokerError(code, f"a record batch was refused: {problem}")


def _refuse_timestamps(records: memoryview, header: BatchHeader, config: LogConfig, now_ms: int) -> None:
    """INVALID_TIMESTAMP if a record is too far from now. Records without a timestamp (-1) are not checked."""
    low, high = now_ms - config.message_timestamp_before_max_ms, now_ms + config.message_timestamp_after_max_ms

    def problem(record: Record) -> str | None:
        timestamp = record.timestamp
        return f"timestamp {timestamp} is not within [{low}, {high}]" if timestamp != -1 and not low <= timestamp <= high else None

    _refuse_records(records, header, config, ErrorCode.INVALID_TIMESTAMP, problem)


def _refuse_keyless(records: memoryview, header: BatchHeader, config: LogConfig) -> None:
    """INVALID_RECORD for the records without a key."""

    def problem(record: Record) -> str | None:
        return "a compacted topic takes no record without a key" if record.key is None else None

    _refuse_records(records, header, config, ErrorCode.INVALID_RECORD, problem)


def _refuse_records(
    records: memoryview, header: BatchHeader, config: LogConfig, code: ErrorCode, problem_of: Callable[[Record], str | None]
) -> None:
    """RejectedRecords with each record that has a problem (KIP-467); nothing when none has."""
    errors: list[RecordError] = []
    for index, record in enumerate(read_records(records, 0, header, config.unpacked_bytes_max)):
        problem = problem_of(record)
        if problem is not None:
            errors.append(RecordError(index, problem))
            if len(errors) == _RECORD_ERRORS_MAX:
                break
    if errors:
        raise RejectedRecords(code, errors)


def _recompressed(records: memoryview, header: BatchHeader, config: LogConfig) -> memoryview:
    assert config.compression_type is not None
    made = recompress(records, 0, header, config.compression_type, config.unpacked_bytes_max, level=config.compression_level)
    if len(made) > config.max_message_bytes:
        raise BrokerError(
            ErrorCode.MESSAGE_TOO_LARGE, f"a record batch has {len(made)} bytes as {config.compression_type.name.lower()}"
        )
    return memoryview(bytearray(made))
