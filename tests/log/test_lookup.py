"""Offsets by timestamp compared with a linear search over all records."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulation.memory_disk import MemoryDisk
from tests.log.support import NOW, append, batch, open_log, rows
from tests.support.examples import examples
from tests.support.fakes.disk_path import DiskPath
from txbroker.log import time_lookup
from txbroker.log.log import Log
from txbroker.log.log_results import Origin
from txbroker.wire import batch as batches_of
from txbroker.wire.compression import Codec
from txbroker.wire.records import first_of_time


def check(log: Log, timestamps: set[int]) -> None:
    found = rows(log)
    for timestamp in timestamps | {0, 200}:
        expected = next(((row[1], row[0]) for row in found if row[1] >= timestamp), None)
        answer = log.offset_for_timestamp(timestamp)
        assert (answer and answer[:2]) == expected, timestamp


@settings(max_examples=examples(40))
@given(
    st.lists(st.lists(st.integers(-1, 120), min_size=1, max_size=3), min_size=1, max_size=30),
    st.integers(0, 40),
    st.sampled_from([0, 200, 4096]),
)
def test_by_timestamp(batches: list[list[int]], start: int, interval: int) -> None:
    path = DiskPath(MemoryDisk(), "/data")
    log = open_log(path, segment_bytes=600, index_interval_bytes=interval)
    for number, timestamps in enumerate(batches):
        base, steps = timestamps[0], timestamps
        records = batch(*(b"v" for _ in steps), timestamp=base, step_ms=steps[-1] - base if len(steps) == 2 else 1,
                        codec=Codec.GZIP if number % 3 == 0 else Codec.NONE)  # fmt: skip
        log.append(records, leader_epoch=0, now_ms=NOW)
    times = {row[1] + shift for row in rows(log) for shift in (-1, 0, 1)}
    everything = rows(log)
    largest = max(row[1] for row in everything)
    expected = next((row[1], row[0]) for row in everything if row[1] == largest)
    answer = log.offset_of_max_timestamp()
    assert (answer and answer[:2]) == (expected if largest >= 0 else None)
    log.advance_start(min(start, log.log_end_offset))
    check(log, times)
    left = [(row[1], row[0]) for row in rows(log)]
    answer = log.offset_of_max_timestamp()
    assert (answer and answer[:2]) == next((found for found in left if found[0] == max(left)[0] >= 0), None)
    rest = [row for row in everything if row[0] >= log.log_start_offset and row[1] >= 0]
    largest = max((row[1] for row in rest), default=-1)
    answer = log.offset_of_max_timestamp()
    assert (answer and answer[:2]) == next(((row[1], row[0]) for row in rest if row[1] == largest), None)
    log.close()
    check(open_log(path, log_start_offset=log.log_start_offset), times)
    check(open_log(path, log_start_offset=log.log_start_offset, clean=False), times)


def test_the_epoch_of_the_batch_is_returned(directory: DiskPath) -> None:
    log = open_log(directory)
    append(log, b"a", timestamp=NOW, leader_epoch=4)
    append(log, b"b", timestamp=NOW + 5, leader_epoch=6)
    assert log.offset_for_timestamp(NOW + 1) == (NOW + 5, 1, 6)
    assert log.offset_of_max_timestamp() == (NOW + 5, 1, 6)


def test_an_empty_log_has_no_timestamps(directory: DiskPath) -> None:
    log = open_log(directory)
    assert log.offset_for_timestamp(0) is None
    assert log.offset_of_max_timestamp() is None


def test_the_largest_timestamp_is_that_of_a_readable_record(directory: DiskPath) -> None:
    log = open_log(directory, segment_bytes=150)
    for timestamps in ((90, 50), (51, 20), (60, 10), (60, 61)):
        append(log, b"a", b"b", timestamp=timestamps[0], step_ms=timestamps[1] - timestamps[0])
    found = []
    for start in range(9):
        log.advance_start(start)
        answer = log.offset_of_max_timestamp()
        found.append(answer and answer[:2])
    assert found == [(90, 0), *[(61, 7)] * 7, None]


def test_a_wrong_header_does_not_make_a_look_up_read_all_batches(directory: DiskPath, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(directory)
    append(log, b"honest", timestamp=NOW)
    for _ in range(20):
        lie = batch(b"a", b"b", timestamp=NOW, codec=Codec.GZIP)
        lie[35:43] = (NOW + 60).to_bytes(8, "big")
        batches_of.seal(lie, 0, len(lie))
        log.append(lie, leader_epoch=0, now_ms=NOW, origin=Origin.COORDINATOR)  # such batches were written before records were validated
    append(log, b"late", timestamp=NOW + 70)
    opened: list[int] = []

    def counted(buffer: bytes, position: int, header: batches_of.BatchHeader, *wanted: int) -> tuple[int, int] | None:
        opened.append(header.base_offset)
        return first_of_time(buffer, position, header, *wanted)

    monkeypatch.setattr(time_lookup, "first_of_time", counted)
    assert log.offset_for_timestamp(NOW + 50) == (NOW + 60, 1, 0)
    log.advance_start(2)
    assert log.offset_for_timestamp(NOW + 50) == (NOW + 60, 3, 0)
    assert opened == [1, 1, 3]
    assert log.offset_for_timestamp(NOW + 65) == (NOW + 70, 41, 0)
