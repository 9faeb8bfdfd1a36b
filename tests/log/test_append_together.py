"""Batches that are appended together leave the same results and the same files as batches that are appended one by one."""

from __future__ import annotations

import errno
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulation.memory_disk import MemoryDisk
from tests.log.support import NOW, batch, open_log, values
from tests.support.compressed_forms import Form, forms
from tests.support.fakes.disk_path import DiskPath
from tests.support.fakes.faulty_disk import WRITES, FaultyDisk
from tests.support.joined import joined
from txbroker.errors import BrokerError, StorageError
from txbroker.log.index_file import PENDING_BYTES_MAX
from txbroker.log.log import Log
from txbroker.log.log_results import Appended
from txbroker.wire import legacy
from txbroker.wire.batch import seal
from txbroker.wire.compression import Codec
from txbroker.wire.records import Record

HOUR = 3_600_000

FORMS = [form for form in forms() if len(form.data) < 1000]


def _broken(records: memoryview) -> memoryview:
    records[-1] ^= 1
    return records


PLAIN: Any = st.builds(
    lambda contents, hours, codec, step, key: ("plain", contents, hours, codec, step, key),
    st.lists(st.binary(max_size=60), min_size=1, max_size=4),
    st.integers(0, 2),
    st.sampled_from([Codec.NONE, Codec.NONE, Codec.NONE, Codec.LZ4]),
    st.sampled_from([0, 0, 7, -7]),
    st.sampled_from([b"k", b"k", b"k", None]),
)
BATCHES: Any = st.one_of(
    PLAIN,
    PLAIN,
    PLAIN,
    st.builds(lambda at, value, fix: ("damaged", at, value, fix), st.integers(0, 85), st.integers(0, 255), st.booleans()),
    st.tuples(st.just("form"), st.integers(0, len(FORMS) - 1)),
    st.tuples(st.just("old"), st.integers(0, 1)),
    st.tuples(st.just("broken")),
    st.tuples(st.just("short"), st.integers(0, 70)),
    st.tuples(st.just("large")),
    st.tuples(st.just("offset")),
)


def made(kind: tuple[Any, ...]) -> memoryview:
    if kind[0] == "plain":
        return batch(*kind[1], timestamp=NOW + kind[2] * HOUR, codec=kind[3], step_ms=kind[4], key=kind[5])
    if kind[0] == "damaged":
        _, at, value, fixed = kind
        records = batch(b"a value", b"another one")
        records[at] = value
        if fixed:
            seal(records, 0, len(records))
        return records
    if kind[0] == "form":
        return memoryview(bytearray(FORMS[kind[1]].batch(NOW)))
    if kind[0] == "old":
        return memoryview(bytearray(legacy.build([Record(0, NOW, None, b"old")], magic=kind[1])))
    if kind[0] == "broken":
        return _broken(batch(b"a wrong checksum"))
    if kind[0] == "short":
        return batch(b"cut off")[: kind[1]]
    return batch(bytes(2000)) if kind[0] == "large" else batch(b"an offset of its own", base_offset=5)


def _alone(log: Log, records: memoryview, now_ms: int) -> Appended | BrokerError:
    try:
        return log.append(records, leader_epoch=3, now_ms=now_ms)
    except BrokerError as error:
        return error


def _together(log: Log, batches: list[memoryview], now_ms: int) -> list[Appended | BrokerError]:
    """Append as many at once as possible, and those that must be appended alone one by one."""
    results: list[Appended | BrokerError] = []
    while len(results) < len(batches):
        rest = batches[len(results) :]
        firsts, lasts, append_time_ms, start, size = log.append_together(joined(rest), leader_epoch=3, now_ms=now_ms)
        assert size == sum(map(len, rest[: len(firsts)]))
        results += [Appended(first, last, append_time_ms, start) for first, last in zip(firsts, lasts, strict=True)]
        if len(firsts) < len(rest):
            results.append(_alone(log, rest[len(firsts)], now_ms))
    return results


def _described(results: list[Appended | BrokerError]) -> list[object]:
    return [result if isinstance(result, Appended) else (result.code, result.message) for result in results]


def _files(log: Log, path: DiskPath) -> dict[str, bytes]:
    log.close()
    return {entry.name: entry.read_bytes() for entry in path.iterdir()}


@settings(max_examples=200)
@given(
    turns=st.lists(st.lists(BATCHES, min_size=1, max_size=8), max_size=6),
    stamped=st.booleans(),
    compact=st.booleans(),
    full=st.booleans(),
    codec=st.sampled_from([None, None, Codec.NONE, Codec.LZ4]),
    days=st.sampled_from([1, 10_000]),
    segment_bytes=st.sampled_from([300, 1000, 100_000]),
)
def test_together_is_as_one_by_one(
    turns: list[list[tuple[Any, ...]]], stamped: bool, compact: bool, full: bool, codec: Codec | None, days: int, segment_bytes: int
) -> None:
    options: dict[str, Any] = {
        "segment_bytes": segment_bytes,
        "index_interval_bytes": 100,
        "max_message_bytes": 1500,
        "segment_ms": 2 * HOUR,
        "message_timestamp_log_append": stamped,
        "compression_type": codec,
        "message_timestamp_before_max_ms": days * 24 * HOUR,
        "message_timestamp_after_max_ms": HOUR,
        "record_validation_full": full,
        "cleanup_policy": frozenset({"compact" if compact else "delete"}),
    }
    one, other = DiskPath(MemoryDisk(), "/one").made(), DiskPath(MemoryDisk(), "/other").made()
    apart, together = open_log(one, **options), open_log(other, **options)
    for number, turn in enumerate(turns):
        now_ms = NOW + number * HOUR // 2
        expected = [_alone(apart, made(kind), now_ms) for kind in turn]
        found = _together(together, [made(kind) for kind in turn], now_ms)
        assert _described(found) == _described(expected)
        assert together.log_end_offset == apart.log_end_offset
    assert values(together) == values(apart)
    assert [together.segments[-1].locate(offset) for offset in range(together.log_end_offset)] == [
        apart.segments[-1].locate(offset) for offset in range(apart.log_end_offset)
    ]
    assert together.segments[-1].max_timestamp == apart.segments[-1].max_timestamp
    assert _files(together, other) == _files(apart, one)


def test_batches_that_hold_nothing_unusual_are_written_at_once(directory: DiskPath) -> None:
    log = open_log(directory, record_validation_full=True)
    first = log.append_together(joined([batch(b"a"), batch(b"b")]), leader_epoch=0, now_ms=NOW)
    assert first.first_offsets == [], "rolls by time are counted from the first batch of a segment"
    log.append(batch(b"a"), leader_epoch=0, now_ms=NOW)
    batches = [batch(b"b"), batch(b"c", b"d", timestamp=NOW + 1), batch(b"e", codec=Codec.LZ4), batch(None), batch(b"f" * 2000)]
    found = log.append_together(joined(batches), leader_epoch=0, now_ms=NOW)
    assert (found.first_offsets, found.last_offsets) == ([1, 2, 4, 5, 6], [1, 3, 4, 5, 6])
    assert found.size == sum(map(len, batches))
    assert log.segments[-1].max_timestamp == (NOW + 1, 3)


def test_batches_that_get_their_append_time_are_written_at_once(directory: DiskPath) -> None:
    log = open_log(directory, record_validation_full=True, message_timestamp_log_append=True)
    log.append(batch(b"a"), leader_epoch=0, now_ms=NOW)
    found = log.append_together(joined([batch(b"b"), batch(b"c", b"d", codec=Codec.LZ4)]), leader_epoch=0, now_ms=NOW + 5)
    assert (found.first_offsets, found.last_offsets, found.append_time_ms) == ([1, 2], [1, 3], NOW + 5)
    assert log.segments[-1].max_timestamp == (NOW + 5, 1)


def test_batches_of_the_codec_of_the_topic_are_written_at_once(directory: DiskPath) -> None:
    log = open_log(directory, record_validation_full=True, compression_type=Codec.LZ4)
    log.append(batch(b"a"), leader_epoch=0, now_ms=NOW)
    batches = [batch(b"b", codec=Codec.LZ4), batch(b"c", codec=Codec.LZ4), batch(b"d")]
    assert log.append_together(joined(batches), leader_epoch=0, now_ms=NOW).first_offsets == [1, 2]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_unusual_compressed_records_are_taken_or_refused_as_alone(directory: DiskPath, form: Form) -> None:
    log = open_log(directory, record_validation_full=True)
    log.append(batch(b"a"), leader_epoch=0, now_ms=NOW)
    together = joined([memoryview(bytearray(form.batch(NOW)))])
    assert log.append_together(together, leader_epoch=0, now_ms=NOW).first_offsets == ([1] if form.read else [])


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_a_failed_write_leaves_the_log_as_it_was(directory: DiskPath, code: int) -> None:
    disk = FaultyDisk(directory.disk)
    log = open_log(directory, disk=disk)
    log.append(batch(b"a"), leader_epoch=0, now_ms=NOW)
    log.append_together(joined([batch(b"b"), batch(b"c")]), leader_epoch=0, now_ms=NOW)
    disk.fail(WRITES, error=code)
    with pytest.raises(StorageError):
        log.append_together(joined([batch(b"lost"), batch(b"lost too")]), leader_epoch=0, now_ms=NOW)
    assert (log.log_end_offset, values(log)) == (3, [b"a", b"b", b"c"])
    disk.repair()
    again = log.append_together(joined([batch(b"d"), batch(b"e")]), leader_epoch=0, now_ms=NOW)
    assert again.first_offsets == [3, 4]
    assert values(log) == [b"a", b"b", b"c", b"d", b"e"]


@pytest.mark.parametrize("together", [False, True])
def test_a_failed_mapping_of_an_index_leaves_the_log_as_it_was(directory: DiskPath, together: bool) -> None:
    disk = FaultyDisk(directory.disk)
    log = open_log(directory, disk=disk, index_interval_bytes=0)
    count = PENDING_BYTES_MAX // 8 + 1  # the offset index writes its entries out before the next one
    for number in range(count):
        log.append(batch(b"v", timestamp=NOW + number), leader_epoch=0, now_ms=NOW)
    disk.fail("map", error=errno.ENOMEM, times=1)
    with pytest.raises(StorageError):
        if together:
            log.append_together(joined([batch(b"lost", timestamp=NOW + count)]), leader_epoch=0, now_ms=NOW)
        log.append(batch(b"lost", timestamp=NOW + count), leader_epoch=0, now_ms=NOW)
    log.append(batch(b"kept", timestamp=NOW + count), leader_epoch=0, now_ms=NOW)
    offsets = [header.base_offset for _, _, _, header in log.segments[0].walk(0)]
    assert offsets == list(range(count + 1))
    assert values(log)[-2:] == [b"v", b"kept"]
