"""Which segments retention deletes, when, and with which files."""

from __future__ import annotations

from typing import Any

import pytest

from tests.log.support import NOW, append, fill, names, open_log, values
from tests.support.fakes.disk_path import DiskPath
from tests.support.fakes.worker import Worker
from txbroker.errors import BrokerError, ErrorCode
from txbroker.log.log import Log

HOUR = 3_600_000
COMPACT = frozenset({"compact"})


def segmented(path: DiskPath, count: int = 5, **options: Any) -> Log:
    """A log of `count` segments of two records each, with timestamps an hour apart, and no empty segment."""
    log = open_log(path, **options)
    for number in range(count):
        if number:
            log.roll(NOW)
        fill(log, 2, timestamp=NOW + number * HOUR)
    return log


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def test_retention_by_size(directory: DiskPath) -> None:
    log = segmented(directory, retention_ms=-1)
    size = log.segments[0].size
    for retention_bytes, expected in ((5 * size, 0), (4 * size + 1, 0), (4 * size, 2), (3 * size - 1, 4)):
        log.reconfigure(open_log(directory / "x", retention_ms=-1, retention_bytes=retention_bytes).config)
        log.delete_expired(NOW, log.log_end_offset)
        assert bases(log)[0] == log.log_start_offset == expected


def test_retention_by_time(directory: DiskPath) -> None:
    log = segmented(directory, retention_ms=HOUR)
    assert log.delete_expired(NOW + HOUR + 1, 10) == 0  # the last record of the segment is 1 ms newer
    assert log.delete_expired(NOW + HOUR + 2, 10) == 1
    assert log.delete_expired(NOW + 3 * HOUR + 2, 10) == 2
    assert log.log_start_offset == 6
    assert bases(log) == [6, 8]


def test_an_active_segment_that_expired_is_rolled(directory: DiskPath) -> None:
    log = segmented(directory, retention_ms=HOUR)
    assert log.delete_expired(NOW + 100 * HOUR, 10) == 5
    assert bases(log) == [10]
    assert (log.log_start_offset, log.log_end_offset, log.size) == (10, 10, 0)
    assert log.delete_expired(NOW + 200 * HOUR, 10) == 0
    log.close()
    log = open_log(directory, log_start_offset=10)
    assert append(log, b"x").first_offset == 10


def test_segments_above_the_high_watermark_are_kept(directory: DiskPath) -> None:
    log = segmented(directory, retention_ms=HOUR, retention_bytes=0)
    assert log.delete_expired(NOW + 100 * HOUR, 5) == 2
    assert bases(log) == [4, 6, 8]


def test_segments_after_a_kept_segment_are_kept(directory: DiskPath) -> None:
    log = open_log(directory, retention_ms=HOUR)
    for age in (0, 5, 0):
        append(log, b"x", timestamp=NOW + age * HOUR)
        log.roll(NOW)
    assert log.delete_expired(NOW + 3 * HOUR, 3) == 1
    assert bases(log) == [1, 2, 3]


def test_segments_without_timestamps_expire_by_file_modification_time(directory: DiskPath) -> None:
    log = open_log(directory, retention_ms=HOUR)
    append(log, b"x", timestamp=-1)
    written_ms = (directory / f"{0:020d}.log").modified_ms()
    assert log.delete_expired(written_ms + HOUR - 1000, 1) == 0
    assert log.delete_expired(written_ms + HOUR + 1000, 1) == 1


def test_nothing_expires_without_limits(directory: DiskPath) -> None:
    log = segmented(directory, retention_ms=-1, retention_bytes=-1)
    assert log.delete_expired(NOW + 10**6 * HOUR, 10) == 0


@pytest.mark.parametrize("policy", [frozenset({"delete"}), COMPACT, COMPACT | {"delete"}])
def test_segments_below_the_start_are_deleted_with_every_policy(directory: DiskPath, policy: frozenset[str]) -> None:
    log = segmented(directory, cleanup_policy=policy, retention_ms=-1)
    log.advance_start(5)
    assert log.delete_expired(NOW, 10) == 2
    assert (bases(log), log.log_start_offset) == ([4, 6, 8], 5)
    log.advance_start(10)
    assert log.delete_expired(NOW, 10) == 2  # the active segment is kept
    assert bases(log) == [8]


def test_a_compacted_topic_has_no_retention(directory: DiskPath) -> None:
    log = segmented(directory, cleanup_policy=COMPACT, retention_ms=HOUR, retention_bytes=0)
    assert log.delete_expired(NOW + 100 * HOUR, 10) == 0


def test_files_are_renamed_at_once_and_removed_later(directory: DiskPath) -> None:
    worker = Worker()
    log = segmented(directory, later=worker, retention_ms=HOUR, file_delete_delay_ms=1234)
    worker.run()
    log.delete_expired(NOW + 2 * HOUR + 2, 10)
    gone = [f"{base:020d}{suffix}" for base in (0, 2) for suffix in (".log", ".index", ".timeindex")] + [f"{2:020d}.snapshot"]
    assert names(directory, ".deleted") == sorted(f"{name}.deleted" for name in gone)
    assert [job.due_ms for job in worker.waiting] == [1234, 1234]
    worker.wait(1234)
    assert names(directory, ".deleted") == []
    assert values(log)[0] == b"0.0.................", values(log)


def test_a_start_above_the_end_is_refused(directory: DiskPath) -> None:
    log = segmented(directory)
    with pytest.raises(BrokerError) as caught:
        log.advance_start(11)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.log_start_offset == 0
