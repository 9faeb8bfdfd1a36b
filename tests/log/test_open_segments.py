"""Descriptors of closed segments: a look-up by time holds none of other segments, and readers of a long log hold few."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest

from tests.log.support import NOW, append, open_log, values
from tests.support.fakes.worker import Worker
from txbroker.log.log import Log
from txbroker.log.open_segments import OpenSegments

SEGMENTS = 12
OF_SEGMENT = 1500  # batches, so that each index is large enough to be mapped


def descriptors() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def fill(path: Path) -> None:
    """Segments with ascending timestamps, closed cleanly."""
    log = open_log(path, index_interval_bytes=0)
    for number in range(SEGMENTS):
        for index in range(OF_SEGMENT):
            append(log, b"v", timestamp=NOW + number * OF_SEGMENT + index)
        log.roll(NOW)
    append(log, b"last", timestamp=NOW + SEGMENTS * OF_SEGMENT)
    log.close()


def open_again(path: Path, open_segments: OpenSegments) -> Log:
    log = open_log(path, index_interval_bytes=0)
    log.use(open_segments)
    return log


def test_a_look_up_by_time_keeps_no_file_of_earlier_segments_open(tmp_path: Path) -> None:
    fill(tmp_path)
    log = open_log(tmp_path, index_interval_bytes=0)
    before = descriptors()
    found = log.offset_for_timestamp(NOW + SEGMENTS * OF_SEGMENT)
    assert found is not None and found.offset == SEGMENTS * OF_SEGMENT
    assert log.offset_of_max_timestamp() == found
    assert descriptors() - before <= 3


def test_few_segments_are_open_however_many_are_read(tmp_path: Path) -> None:
    fill(tmp_path)
    shared = OpenSegments(4)
    log = open_again(tmp_path, shared)
    before = descriptors()
    for _ in range(2):
        for offset in range(0, SEGMENTS * OF_SEGMENT, 500):
            assert log.offset_for_timestamp(NOW + offset) == (NOW + offset, offset, 0)
            region = log.read(offset, 100, offset_end=log.log_end_offset, whole_first_batch=True).region
            assert region.read()
            assert len(shared) <= 4 and descriptors() - before <= 3 * 4 + 1
    assert len(values(log)) == SEGMENTS * OF_SEGMENT + 1


def test_a_region_can_be_read_after_its_segment_was_closed(tmp_path: Path) -> None:
    fill(tmp_path)
    log = open_again(tmp_path, OpenSegments(1))
    region = log.read(0, 1000, offset_end=log.log_end_offset).region
    expected = region.read()
    for offset in range(0, SEGMENTS * OF_SEGMENT, OF_SEGMENT):
        log.read(offset, 100, offset_end=log.log_end_offset, whole_first_batch=True)
    assert region.read() == expected


def test_segments_that_are_written_to_stay_open(tmp_path: Path) -> None:
    shared = OpenSegments(3)
    logs = [open_log(tmp_path / str(number)) for number in range(10)]
    for log in logs:
        log.use(shared)
    files = []
    for _ in range(3):
        for log in logs:
            append(log, b"v")
        files.append([id(log.segments[0].file) for log in logs])
    assert files[0] == files[1] == files[2]
    assert [values(log) for log in logs] == [[b"v"] * 3] * 10
    assert len(shared) == 0


def test_a_segment_that_is_active_again_after_a_truncation_stays_open(tmp_path: Path) -> None:
    shared = OpenSegments(1)
    log = open_log(tmp_path)
    log.use(shared)
    for _ in range(4):
        append(log, b"a", b"b")
        log.roll(NOW)
    log.truncate_to(4)
    file = log.segments[-1].file
    assert log.read(0, 100, offset_end=4).region.read() and log.read(2, 100, offset_end=4).region.read()
    append(log, b"c")
    assert log.segments[-1].file is file
    assert values(log) == [b"a", b"b", b"a", b"b", b"c"]


@pytest.mark.parametrize("interval", [0, 100, 100_000])
def test_appends_go_on_after_files_were_closed(tmp_path: Path, interval: int) -> None:
    log = open_log(tmp_path, index_interval_bytes=interval)
    for round_number in range(20):
        for number in range(round_number):
            append(log, b"%d" % number, timestamp=NOW + log.log_end_offset)
        log.segments[0].release()
    end = log.log_end_offset
    assert len(values(log)) == end == sum(range(20))
    assert log.segments[0].max_timestamp == (NOW + end - 1, end - 1)
    assert all(log.offset_for_timestamp(NOW + offset) == (NOW + offset, offset, 0) for offset in range(end))
    log.close()
    again = open_log(tmp_path, index_interval_bytes=interval)
    assert all(again.offset_for_timestamp(NOW + offset) == (NOW + offset, offset, 0) for offset in range(end))


def test_the_largest_timestamp_is_stored_when_a_segment_grows_after_a_restart(tmp_path: Path) -> None:
    for number in range(3):
        log = open_log(tmp_path)
        append(log, b"v", timestamp=NOW + number)
        log.close()
    log = open_log(tmp_path)
    assert log.segments[0].max_timestamp == (NOW + 2, 2)
    assert log.offset_for_timestamp(NOW + 2) == (NOW + 2, 2, 0)


def test_an_index_that_lacks_the_largest_timestamp_stays_open(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, b"v")
    log.close()
    log = open_log(tmp_path)
    append(log, b"v", timestamp=NOW + 1)
    log.segments[0].release()
    log.close()
    assert open_log(tmp_path).offset_for_timestamp(NOW + 1) == (NOW + 1, 1, 0)


def test_a_log_that_nothing_uses_is_not_kept_by_the_list(tmp_path: Path) -> None:
    shared = OpenSegments()
    log = open_again(tmp_path, shared)
    append(log, b"v")
    log.roll(NOW)
    assert len(shared) == 1
    del log
    gc.collect()
    assert len(shared) == 0


def test_flushes_of_many_segments_share_their_descriptors(tmp_path: Path) -> None:
    """A disk that syncs slowly: the flush after each roll waits, and has all segments that are not synced."""
    worker = Worker()
    log = open_log(tmp_path, index_interval_bytes=0, later=worker)
    log.use(OpenSegments(2))
    before = descriptors()
    for number in range(20):
        append(log, b"%d" % number)
        log.roll(NOW)
    assert len(worker.waiting) >= 20
    assert 20 <= descriptors() - before <= 20 + 2 * 3 + 1, "a log file each, and the indexes of those that are open"
    worker.run()
    assert log.recovery_point == 20
    assert descriptors() - before <= 3 * 3
    assert values(log) == [b"%d" % number for number in range(20)]


def test_closed_segments_with_open_files_count_and_the_active_one_does_not(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for number in range(3):
        append(log, b"%d" % number)
        log.roll(NOW)
    append(log, b"last")
    shared = OpenSegments()
    log.use(shared)
    assert len(shared) == 3, "those that were open before"
    log.close()
    later = OpenSegments()
    again = open_again(tmp_path, later)
    assert len(later) == 0
    assert values(again) == [b"0", b"1", b"2", b"last"]
    assert len(later) == 3
