"""What a leader checks before it appends (Kafka's LogValidator), and the rewriting that a topic's settings ask for.

The good case, one batch of magic 2 that stays as it is, is a chain of comparisons of header fields: records are looked at only
where the header cannot tell (keys on a compacted topic, a lower bound of timestamps) or has told that something is wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from txbroker.errors import BrokerError, ErrorCode
from txbroker.log.cleaner.cleaning_job import Strategy
from txbroker.log.log_config import FOREVER_MS, LogConfig
from txbroker.log.log_results import Origin, RecordError, RejectedRecords
from txbroker.wire.batch import CONTROL, LOG_APPEND_TIME, MAGIC_POSITION, BatchHeader, check_crc, read_header, stamp_append_time
from txbroker.wire.conversion import to_v2
from txbroker.wire.entries import size_of
from txbroker.wire.records import RECORDS_MAX, Record, keys_present, read_records, recompress

# Records that must be looked at may take this much memory, or four times max.message.bytes where that is more.
_UNPACKED_BYTES_MIN = 64 << 20
# Whoever reads the records must be able to trust their count, and a bomb must be as large as its work: every record has another offset
# delta, so that no codec packs more than one or two of the smallest into a byte (zstd, the densest, comes to 1.9).
_RECORDS_PER_BYTE_MAX = 4
_RECORD_ERRORS_MAX = 1000  # as many are told of; a batch may hold a million records without a key


# A batch fit to be stamped and written, its header, and its append time (-1 unless the topic stamps LogAppendTime).
Validated: TypeAlias = tuple[memoryview, BatchHeader, int]


def validate(records: memoryview, config: LogConfig, now_ms: int, origin: Origin) -> Validated:
    """Check one produced batch (or an old message set, which becomes one), and rewrite it where the topic says so.

    BrokerError: CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, INVALID_RECORD, INVALID_TIMESTAMP.
    """
    if len(records) > MAGIC_POSITION and records[MAGIC_POSITION] < 2:
        records = _convert(records, config)
    header = read_header(records)
    size = header.size
    if size != len(records):
        records = _only_batch(records, size)
    if size > config.max_message_bytes:
        raise BrokerError(ErrorCode.MESSAGE_TOO_LARGE, f"a record batch has {size} bytes, max.message.bytes is {config.max_message_bytes}")
    if size > config.segment_bytes:
        raise BrokerError(ErrorCode.RECORD_LIST_TOO_LARGE, f"a record batch has {size} bytes, segment.bytes is {config.segment_bytes}")
    check_crc(records, 0, header)
    if origin is Origin.CLIENT:
        if (
            header.base_offset != 0
            or header.count != header.last_offset_delta + 1
            or header.count > RECORDS_MAX
            or header.count > size * _RECORDS_PER_BYTE_MAX
            or header.attributes & (CONTROL | LOG_APPEND_TIME)
            or (header.base_sequence < 0 <= header.producer_id)
        ):
            raise _not_a_clients(header)
        if config.compact:
            _check_keys(records, header, config)
    elif header.attributes & CONTROL:
        return records, header, -1  # markers keep their time, and are never compressed
    wanted = config.compression_type
    if wanted is not None and header.codec is not wanted:
        records = _recompressed(records, header, config)
        header = read_header(records)
    if config.message_timestamp_log_append:
        stamp_append_time(records, 0, now_ms)
        return records, read_header(records), now_ms
    # The header tells the largest timestamp, and nothing of the smallest.
    if header.max_timestamp - now_ms > config.message_timestamp_after_max_ms or config.message_timestamp_before_max_ms != FOREVER_MS:
        _check_timestamps(records, header, config, now_ms)
    return records, header, -1


def _convert(records: memoryview, config: LogConfig) -> memoryview:
    """A message set of magic 0 or 1 as one batch, its own checksums and sizes checked."""
    if len(records) > config.max_message_bytes and (size_of(records) or 0) > config.max_message_bytes:
        raise BrokerError(ErrorCode.MESSAGE_TOO_LARGE, f"a message is larger than max.message.bytes, {config.max_message_bytes}")
    converted = to_v2(records, bytes_max=unpacked_bytes_max(config), codec=config.compression_type, level=config.compression_level)
    if not converted:
        raise BrokerError(ErrorCode.INVALID_RECORD, "a message set has no whole message")
    return memoryview(bytearray(converted))


def _only_batch(records: memoryview, size: int) -> memoryview:
    """The first batch, if what follows is not another one (Kafka overlooks a torn end)."""
    following = size_of(records, size)
    if following is not None and following <= len(records) - size:
        raise BrokerError(ErrorCode.INVALID_RECORD, "more than one record batch for one partition")
    return records[:size]


def _not_a_clients(header: BatchHeader) -> BrokerError:
    """Why a client may not send this, in a sentence."""
    code = ErrorCode.INVALID_RECORD
    if header.base_offset != 0:
        problem = f"its base offset is {header.base_offset} and not 0"
    elif header.count != header.last_offset_delta + 1:
        problem = f"it counts {header.count} records and its last offset delta is {header.last_offset_delta}"
    elif header.count > RECORDS_MAX:
        code, problem = ErrorCode.MESSAGE_TOO_LARGE, f"it has {header.count} records, {RECORDS_MAX} are allowed"
    elif header.count > header.size * _RECORDS_PER_BYTE_MAX:
        problem = f"it counts {header.count} records in {header.size} bytes"
    elif header.attributes & CONTROL:
        problem = "clients may not write control batches"
    elif header.attributes & LOG_APPEND_TIME:
        code, problem = ErrorCode.INVALID_TIMESTAMP, "its timestamp type is LogAppendTime, which is for the broker to set"
    else:
        problem = f"producer {header.producer_id} gave it the sequence {header.base_sequence}"
    return BrokerError(code, f"a record batch was refused: {problem}")


def _check_timestamps(records: memoryview, header: BatchHeader, config: LogConfig, now_ms: int) -> None:
    """INVALID_TIMESTAMP for records too far from now."""
    low, high = now_ms - config.message_timestamp_before_max_ms, now_ms + config.message_timestamp_after_max_ms

    def problem(record: Record) -> str | None:
        timestamp = record.timestamp
        return f"timestamp {timestamp} is not within [{low}, {high}]" if timestamp != -1 and not low <= timestamp <= high else None

    _check_records(records, header, config, ErrorCode.INVALID_TIMESTAMP, problem)
    if header.max_timestamp > high:
        raise BrokerError(ErrorCode.INVALID_TIMESTAMP, f"a record batch claims the timestamp {header.max_timestamp}, {high} is allowed")


def _check_keys(records: memoryview, header: BatchHeader, config: LogConfig) -> None:
    """INVALID_RECORD for records without a key, CORRUPT_MESSAGE for what the cleaner could not read: it would be put aside for that."""
    every_key = keys_present(records, 0, header, unpacked_bytes_max(config))
    if every_key and config.compaction_strategy is not Strategy.HEADER:
        return

    def problem(record: Record) -> str | None:
        return "a compacted topic takes no record without a key" if record.key is None else None

    _check_records(records, header, config, ErrorCode.INVALID_RECORD, problem)


def _check_records(
    records: memoryview, header: BatchHeader, config: LogConfig, code: ErrorCode, problem_of: Callable[[Record], str | None]
) -> None:
    """Refuse the whole batch if any of its records has a problem, and say which ones."""
    errors: list[RecordError] = []
    for index, record in enumerate(read_records(records, 0, header, unpacked_bytes_max(config))):
        problem = problem_of(record)
        if problem is not None:
            errors.append(RecordError(index, problem))
            if len(errors) == _RECORD_ERRORS_MAX:
                break
    if errors:
        raise RejectedRecords(code, errors)


def _recompressed(records: memoryview, header: BatchHeader, config: LogConfig) -> memoryview:
    assert config.compression_type is not None
    made = recompress(records, 0, header, config.compression_type, unpacked_bytes_max(config), level=config.compression_level)
    if len(made) > config.max_message_bytes:
        raise BrokerError(
            ErrorCode.MESSAGE_TOO_LARGE, f"a record batch has {len(made)} bytes as {config.compression_type.name.lower()}"
        )
    return memoryview(bytearray(made))


def unpacked_bytes_max(config: LogConfig) -> int:
    """How much memory the records of one batch may take once decompressed."""
    return max(_UNPACKED_BYTES_MIN, 4 * config.max_message_bytes)
