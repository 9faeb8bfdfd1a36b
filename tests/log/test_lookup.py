"""Offsets by timestamp against a plain search over all records."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.log.support import NOW, append, batch, open_log, rows
from txbroker.log.log import Log
from txbroker.wire.compression import Codec


def check(log: Log, timestamps: set[int]) -> None:
    found = rows(log)
    for timestamp in timestamps | {0, 200}:
        expected = next(((row[1], row[0]) for row in found if row[1] >= timestamp), None)
        answer = log.offset_for_timestamp(timestamp)
        assert (answer and answer[:2]) == expected, timestamp


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.lists(st.integers(-1, 120), min_size=1, max_size=3), min_size=1, max_size=30),
    st.integers(0, 40),
    st.sampled_from([0, 200, 4096]),
)
def test_by_timestamp(tmp_path_factory: pytest.TempPathFactory, batches: list[list[int]], start: int, interval: int) -> None:
    path = tmp_path_factory.mktemp("log")
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
    log.close(NOW)
    check(open_log(path, log_start_offset=log.log_start_offset), times)
    check(open_log(path, log_start_offset=log.log_start_offset, clean=False), times)


def test_the_epoch_of_the_batch_is_told(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, b"a", timestamp=NOW, leader_epoch=4)
    append(log, b"b", timestamp=NOW + 5, leader_epoch=6)
    assert log.offset_for_timestamp(NOW + 1) == (NOW + 5, 1, 6)
    assert log.offset_of_max_timestamp() == (NOW + 5, 1, 6)


def test_an_empty_log_has_no_timestamps(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    assert log.offset_for_timestamp(0) is None
    assert log.offset_of_max_timestamp() is None
