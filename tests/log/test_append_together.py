"""Batches that are appended together leave the same results and the same files as batches that are appended one by one."""

from __future__ import annotations

import errno
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.log.support import NOW, batch, open_log, values
from tests.support.fakes.disk_path import DiskPath
from tests.support.fakes.faulty_disk import WRITES, FaultyDisk
from txbroker.errors import BrokerError, StorageError
from txbroker.log.index_file import PENDING_BYTES_MAX
from txbroker.log.log import Log
from txbroker.log.log_results import Appended
from txbroker.testing.simulation.memory_disk import MemoryDisk
from txbroker.wire import legacy
from txbroker.wire.compression import Codec
from txbroker.wire.records import Record

HOUR = 3_600_000


def _broken(records: memoryview) -> memoryview:
    records[-1] ^= 1
    return records


BATCHES: Any = st.one_of(
    st.builds(
        lambda contents, hours, codec: ("plain", contents, hours, codec),
        st.lists(st.binary(max_size=60), min_size=1, max_size=4),
        st.integers(0, 4),
        st.sampled_from([Codec.NONE, Codec.NONE, Codec.LZ4]),
    ),
    st.tuples(st.just("old"), st.integers(0, 1)),
    st.tuples(st.just("broken")),
    st.tuples(st.just("short"), st.integers(0, 70)),
    st.tuples(st.just("large")),
    st.tuples(st.just("offset")),
)


def made(kind: tuple[Any, ...]) -> memoryview:
    if kind[0] == "plain":
        return batch(*kind[1], timestamp=NOW + kind[2] * HOUR, codec=kind[3])
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


def _described(results: list[Appended | BrokerError]) -> list[object]:
    return [result if isinstance(result, Appended) else (result.code, result.message) for result in results]


def _files(log: Log, path: DiskPath) -> dict[str, bytes]:
    log.close()
    return {entry.name: entry.read_bytes() for entry in path.iterdir()}


@settings(max_examples=150)
@given(st.lists(st.lists(BATCHES, min_size=1, max_size=8), max_size=6), st.booleans(), st.sampled_from([300, 1000, 100_000]))
def test_together_is_as_one_by_one(turns: list[list[tuple[Any, ...]]], stamped: bool, segment_bytes: int) -> None:
    options = {"segment_bytes": segment_bytes, "index_interval_bytes": 100, "max_message_bytes": 1500, "segment_ms": 2 * HOUR}
    options["message_timestamp_log_append"] = stamped
    one, other = DiskPath(MemoryDisk(), "/one").made(), DiskPath(MemoryDisk(), "/other").made()
    apart, together = open_log(one, **options), open_log(other, **options)  # type: ignore[arg-type]
    for number, turn in enumerate(turns):
        now_ms = NOW + number * HOUR // 2
        expected = [_alone(apart, made(kind), now_ms) for kind in turn]
        found = together.append_together([made(kind) for kind in turn], leader_epoch=3, now_ms=now_ms)
        assert _described(found) == _described(expected)
        assert together.log_end_offset == apart.log_end_offset
    assert values(together) == values(apart)
    assert [together.segments[-1].locate(offset) for offset in range(together.log_end_offset)] == [
        apart.segments[-1].locate(offset) for offset in range(apart.log_end_offset)
    ]
    assert _files(together, other) == _files(apart, one)


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_a_failed_write_leaves_the_log_as_it_was(directory: DiskPath, code: int) -> None:
    disk = FaultyDisk(directory.disk)
    log = open_log(directory, disk=disk)
    log.append_together([batch(b"a"), batch(b"b")], leader_epoch=0, now_ms=NOW)
    disk.fail(WRITES, error=code)
    results = log.append_together([batch(b"lost"), _broken(batch(b"refused")), batch(b"lost too")], leader_epoch=0, now_ms=NOW)
    assert [type(result) is not Appended for result in results] == [True, True, True]
    assert isinstance(results[0], StorageError) and isinstance(results[2], StorageError) and not isinstance(results[1], StorageError)
    assert (log.log_end_offset, values(log)) == (2, [b"a", b"b"])
    disk.repair()
    (again,) = log.append_together([batch(b"c")], leader_epoch=0, now_ms=NOW)
    assert isinstance(again, Appended) and again.first_offset == 2
    assert values(log) == [b"a", b"b", b"c"]


def test_what_was_written_before_a_failed_roll_is_kept(directory: DiskPath) -> None:
    disk = FaultyDisk(directory.disk)
    log = open_log(directory, disk=disk, segment_bytes=300)
    disk.fail(WRITES, f"{directory}/00000000000000000003.log")
    results = log.append_together([batch(bytes(20)) for _ in range(6)], leader_epoch=0, now_ms=NOW)
    assert [isinstance(result, Appended) for result in results] == [True, True, True, False, False, False]
    assert log.log_end_offset == 3 and len(values(log)) == 3


def test_batches_of_producers_are_not_taken(directory: DiskPath) -> None:
    log = open_log(directory)
    with pytest.raises(ValueError, match="producer 7"):
        log.append_together([batch(b"p", producer_id=7, producer_epoch=0, base_sequence=0)], leader_epoch=0, now_ms=NOW)
    assert log.log_end_offset == 0


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
            (failed,) = log.append_together([batch(b"lost", timestamp=NOW + count)], leader_epoch=0, now_ms=NOW)
            assert isinstance(failed, BrokerError)
            raise failed
        log.append(batch(b"lost", timestamp=NOW + count), leader_epoch=0, now_ms=NOW)
    log.append(batch(b"kept", timestamp=NOW + count), leader_epoch=0, now_ms=NOW)
    offsets = [header.base_offset for _, _, _, header in log.segments[0].walk(0)]
    assert offsets == list(range(count + 1))
    assert values(log)[-2:] == [b"v", b"kept"]
