"""Validation of records in produced batches: which batches, refusals, corrections, and the effect on retention and look-ups."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.log.support import NOW, append, entries, open_log, rows, values
from tests.support.odd_batches import CASES, HOUR_MS, PLAIN, batch, latest_of, record, sized, uncompressed_as
from txbroker.errors import BrokerError, ErrorCode
from txbroker.log.log import Log
from txbroker.wire.compression import Codec

INVALID = ErrorCode.INVALID_RECORD
COMPACT = frozenset({"compact"})


def produce(log: Log, data: bytes, *, now_ms: int = NOW) -> ErrorCode:
    """Append a copy; the error code. A refused batch must change nothing."""
    before = log.log_end_offset, log.size
    try:
        log.append(memoryview(bytearray(data)), leader_epoch=0, now_ms=now_ms)
    except BrokerError as error:
        assert (log.log_end_offset, log.size) == before
        assert error.message
        return error.code
    return ErrorCode.NONE


def many(count: int, *, last: bytes | None = None, **options: Any) -> bytes:
    """A batch of `count` records; `last` replaces the last one."""
    records = [record(offset=index, value=bytes(100)) for index in range(count)]
    if last is not None:
        records[-1] = last
    return batch(*records, now_ms=NOW, **options)


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
@pytest.mark.parametrize("name", list(CASES))
def test_small_batches(tmp_path: Path, name: str, codec: Codec, full: bool) -> None:
    case = CASES[name]
    data = case.make(NOW, codec)
    if codec is not Codec.NONE and not full and int.from_bytes(data[57:61], "big") != 1:
        pytest.skip("not walked")
    log = open_log(tmp_path, record_validation_full=full)
    assert produce(log, data) is case.answer
    if case.answer is ErrorCode.NONE:
        ((_, stored),) = entries(log)
        assert latest_of(stored) == NOW + case.latest
        assert log.segments[0].max_timestamp[0] == NOW + case.latest == log.segments[0].largest_timestamp_ms
        assert log.offset_of_max_timestamp() == (NOW + case.latest, max(rows(log), key=lambda row: row[1])[0], 0)


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE])
def test_batches_that_cannot_be_decompressed_are_refused(tmp_path: Path, codec: Codec) -> None:
    log = open_log(tmp_path, record_validation_full=True)
    assert produce(log, uncompressed_as(codec, PLAIN, 1, now_ms=NOW)) is INVALID
    assert produce(log, uncompressed_as(codec, b"", 1, now_ms=NOW)) is INVALID


BAD_LAST = sized(b"\0\0" + b"\x98\x0f" + b"\xff\xff\xff")  # of record 972; its key has no length


@pytest.mark.parametrize(
    ("data", "config", "bounded", "full"),
    [
        (many(64, last=PLAIN), {}, INVALID, INVALID),  # its offset delta is 0
        (many(65, last=PLAIN), {}, None, INVALID),
        (many(30, last=PLAIN), {}, INVALID, INVALID),
        (many(65, last=PLAIN), {"cleanup_policy": COMPACT}, INVALID, INVALID),
        (many(65, last=PLAIN), {"message_timestamp_before_max_ms": HOUR_MS}, INVALID, INVALID),
        (many(65, last=PLAIN, latest=NOW - 1), {}, INVALID, INVALID),  # below the base
        (many(65, last=PLAIN, latest=NOW + HOUR_MS), {}, INVALID, INVALID),
        (many(65, last=PLAIN, base=0, latest=NOW - HOUR_MS), {}, INVALID, INVALID),
        (many(65, last=PLAIN, attributes=8), {}, INVALID, INVALID),
        (many(2, last=PLAIN, codec=Codec.ZSTD), {}, None, INVALID),
        (many(1, last=record(offset=1), codec=Codec.ZSTD), {}, INVALID, INVALID),
        (many(2000, last=BAD_LAST), {}, None, INVALID),
        (many(2000, last=BAD_LAST, codec=Codec.GZIP), {}, None, INVALID),
    ],
)
def test_which_batches_are_validated_record_by_record(
    tmp_path: Path, data: bytes, config: dict[str, Any], bounded: ErrorCode | None, full: ErrorCode | None
) -> None:
    for validation, expected in ((False, bounded), (True, full)):
        log = open_log(tmp_path / str(validation), record_validation_full=validation, **config)
        assert produce(log, data) is (expected or ErrorCode.NONE)


def test_batches_of_4_kib_are_validated_with_any_record_count(tmp_path: Path) -> None:
    def small(count: int) -> bytes:
        return batch(*(record(offset=index, key=None, value=None) for index in range(count - 1)), PLAIN, now_ms=NOW)

    log = open_log(tmp_path, record_validation_full=False)
    assert len(small(400)) < 4096 < len(small(600))
    assert produce(log, small(400)) is INVALID
    assert produce(log, small(600)) is ErrorCode.NONE


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize(
    "make",
    [
        lambda codec: many(100, codec=codec, latest=0),
        lambda codec: many(100, codec=codec, latest=-1),
        lambda codec: batch(*(record(offset=n, time=NOW) for n in range(100)), now_ms=NOW, codec=codec, base=0, latest=0),
        lambda codec: batch(*(record(offset=n, time=NOW) for n in range(100)), now_ms=NOW, codec=codec, base=0, latest=NOW - HOUR_MS),
    ],
)
def test_a_header_with_old_timestamps_does_not_expire_current_records(
    tmp_path: Path, make: Callable[[Codec], bytes], codec: Codec, full: bool
) -> None:
    log = open_log(tmp_path, record_validation_full=full, retention_ms=HOUR_MS // 2)
    assert produce(log, make(codec)) is ErrorCode.NONE
    assert log.delete_expired(NOW, log.log_end_offset) == 0
    assert len(values(log)) == 100
    found = log.offset_for_timestamp(NOW)
    assert found is not None and found[:2] == (NOW, 0)
    assert log.offset_of_max_timestamp() == found
    assert log.offset_for_timestamp(NOW + 1) is None


@pytest.mark.parametrize("full", [False, True])
def test_a_header_with_future_timestamps_does_not_keep_old_records(tmp_path: Path, full: bool) -> None:
    log = open_log(tmp_path, record_validation_full=full, retention_ms=HOUR_MS)
    old = NOW - 2 * HOUR_MS
    assert produce(log, batch(*(record(offset=n) for n in range(1000)), now_ms=old, latest=NOW + 10**9)) is ErrorCode.NONE
    assert log.segments[0].largest_timestamp_ms == old
    assert log.delete_expired(NOW, log.log_end_offset) == 1


@pytest.mark.parametrize("full", [False, True])
def test_timestamp_limits_apply_to_each_record(tmp_path: Path, full: bool) -> None:
    def shifted(ms: int, latest: int) -> bytes:
        records = [record(offset=index) for index in range(100)]
        records[50] = record(offset=50, time=ms)
        return batch(*records, now_ms=NOW, latest=NOW + latest)

    after = open_log(tmp_path / "after", record_validation_full=full, message_timestamp_after_max_ms=HOUR_MS)
    assert produce(after, shifted(HOUR_MS, HOUR_MS)) is ErrorCode.NONE
    assert produce(after, shifted(HOUR_MS + 1, HOUR_MS + 1)) is ErrorCode.INVALID_TIMESTAMP
    before = open_log(tmp_path / "before", record_validation_full=full, message_timestamp_before_max_ms=HOUR_MS)
    assert produce(before, shifted(-HOUR_MS, 0)) is ErrorCode.NONE
    assert produce(before, shifted(-HOUR_MS - 1, 0)) is ErrorCode.INVALID_TIMESTAMP
    assert produce(before, shifted(-NOW - 1, 0)) is ErrorCode.NONE, "a record without a timestamp"


def test_log_append_time_ignores_the_timestamps_of_the_producer(tmp_path: Path) -> None:
    log = open_log(tmp_path, message_timestamp_log_append=True, message_timestamp_after_max_ms=0, message_timestamp_before_max_ms=0)
    for data in (many(3, latest=0), many(100, base=5, latest=-1), many(1, base=2**62, latest=2**62)):
        assert produce(log, data) is ErrorCode.NONE
    assert {timestamp for _, timestamp, _, _ in rows(log)} == {NOW}
    assert produce(log, many(3, last=PLAIN)) is INVALID


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_producers_may_not_claim_log_append_time(tmp_path: Path, codec: Codec) -> None:
    stamping = open_log(tmp_path / "stamping", message_timestamp_log_append=True)
    assert produce(stamping, many(100, codec=codec, attributes=8)) is ErrorCode.INVALID_TIMESTAMP
    log = open_log(tmp_path / "log", message_timestamp_before_max_ms=HOUR_MS, message_timestamp_after_max_ms=HOUR_MS)
    for latest in (-1, NOW - HOUR_MS - 1, NOW + HOUR_MS + 1):
        assert produce(log, many(100, codec=codec, latest=latest, attributes=8)) is ErrorCode.INVALID_TIMESTAMP
    assert produce(log, many(100, codec=codec, latest=NOW + 5, attributes=8)) is ErrorCode.NONE
    ((header, _),) = entries(log)
    assert not header.log_append_time and header.max_timestamp == NOW


def test_a_corrected_header_has_a_correct_crc_and_the_rest_is_kept(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    data = many(100, latest=7)
    assert produce(log, data) is ErrorCode.NONE
    ((header, stored),) = entries(log)  # checks the CRC
    assert header.max_timestamp == NOW
    assert stored[43:] == data[43:] and stored[21:35] == data[21:35]


def test_recompressed_batches_are_corrected(tmp_path: Path) -> None:
    log = open_log(tmp_path, compression_type=Codec.ZSTD)
    assert produce(log, many(100, latest=7)) is ErrorCode.NONE
    ((header, _),) = entries(log)
    assert (header.codec, header.max_timestamp) == (Codec.ZSTD, NOW)


def test_old_message_sets_are_validated_record_by_record(tmp_path: Path) -> None:
    log = open_log(tmp_path, record_validation_full=True)
    append(log, b"a", b"b")
    assert values(log) == [b"a", b"b"]
