"""Snapshots of many producers: encoded in slices while appends go on, as the producers were when the segment was rolled."""

from __future__ import annotations

import pytest

from tests.log.support import NOW, append, open_log
from tests.support.fakes.disk_path import DiskPath
from tests.support.fakes.worker import Worker
from txbroker.log.file_names import SNAPSHOT, file_path
from txbroker.log.log import Log
from txbroker.log.log_results import Later
from txbroker.log.open_segments import OpenSegments
from txbroker.log.producer_snapshots import SLICE, parse_snapshot
from txbroker.wire.batch import BatchHeader

PRODUCERS = 5 * SLICE


class _Seen(dict[int, tuple[int, int]]):
    """The last sequence and the last offset of each producer."""


def seen(states: object) -> _Seen:
    return _Seen({state.producer_id: (state.last_sequence, state.last_offset) for state in states})  # type: ignore[attr-defined]


def send(log: Log, producer_id: int, sequence: int) -> None:
    append(log, b"v", producer_id=producer_id, producer_epoch=0, base_sequence=sequence)


def filled(directory: DiskPath, later: Later, count: int = PRODUCERS) -> Log:
    log = open_log(directory, later=later)
    log.use(OpenSegments())
    for producer_id in range(count):
        log.producers.update(BatchHeader(0, 100, 0, 2, 0, 0, 0, NOW, NOW, producer_id, 0, 0, 1), 0)
    send(log, count, 0)
    return log


def stored(log: Log, directory: DiskPath, offset: int) -> _Seen | None:
    content = directory.disk.read(file_path(str(directory), offset, SNAPSHOT))
    return None if content is None else seen(parse_snapshot(content))


def test_a_roll_encodes_no_more_than_a_slice_at_once(directory: DiskPath, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker()
    log = filled(directory, worker)
    expected = seen(log.producers)
    log.roll(NOW)
    assert stored(log, directory, 1) is None
    turns = 0
    while worker.run(1):
        turns += 1
        producer_id = turns * 97 % PRODUCERS  # some producers are encoded by now, others are not
        send(log, producer_id, expected[producer_id][0] + 1)
        send(log, PRODUCERS + turns, 0)
    assert turns > PRODUCERS // SLICE
    assert stored(log, directory, 1) == expected
    log.close()
    assert stored(log, directory, log.log_end_offset) == seen(log.producers) != expected


def test_recovery_uses_the_snapshot(directory: DiskPath) -> None:
    worker = Worker()
    log = filled(directory, worker)
    log.roll(NOW)
    worker.run()
    send(log, 3, 1)
    expected = seen(log.producers)
    assert log.recovery_point == 1
    assert seen(open_log(directory, clean=False, recovery_point=1).producers) == expected


def test_a_log_that_ends_before_the_snapshot_is_written(directory: DiskPath) -> None:
    worker = Worker()
    log = filled(directory, worker)
    expected = seen(log.producers)
    log.roll(NOW)
    worker.run(3)
    log.close()
    worker.run()
    assert stored(log, directory, log.log_end_offset) == expected
    assert seen(open_log(directory).producers) == expected


@pytest.mark.parametrize("steps", range(0, 9, 2))
def test_a_truncation_cancels_the_snapshot(directory: DiskPath, steps: int) -> None:
    worker = Worker()
    log = filled(directory, worker)
    log.roll(NOW)
    worker.run(steps)
    log.truncate_fully_at(0, now_ms=NOW)
    worker.run()
    assert stored(log, directory, 1) is None
    assert len(log.producers) == 0


@pytest.mark.parametrize("steps", range(9))
def test_a_log_whose_directory_is_renamed_meanwhile(directory: DiskPath, steps: int) -> None:
    """As for a deletion, or when a copy takes the place of a log that was moved."""
    worker = Worker()
    log = filled(directory / "a", worker)
    log.roll(NOW)
    worker.run(steps)
    log.rename_directory(str(directory / "b"))
    worker.run()
    send(log, 3, 1)
    log.roll(NOW)
    worker.run()
    log.advance_start(log.log_end_offset)
    assert log.delete_expired(NOW, log.log_end_offset) == 2, "with their snapshots, where there are any"
    log.close()
    assert seen(open_log(directory / "b").producers) == seen(log.producers)


@pytest.mark.parametrize("steps", range(9))
def test_a_log_that_ends_where_it_was_rolled(directory: DiskPath, steps: int) -> None:
    worker = Worker()
    log = filled(directory, worker)
    expected = seen(log.producers)
    log.roll(NOW)
    worker.run(steps)
    log.close()
    worker.run()
    assert stored(log, directory, 1) == expected


def test_the_next_roll_does_not_start_a_second_snapshot(directory: DiskPath) -> None:
    worker = Worker()
    log = filled(directory, worker)
    log.roll(NOW)
    send(log, 7, 1)
    log.roll(NOW)
    worker.run()
    assert stored(log, directory, 1) is not None and stored(log, directory, 2) is None
    send(log, 7, 2)
    log.roll(NOW)
    worker.run()
    assert stored(log, directory, 3) == seen(log.producers)


def test_few_producers_are_written_with_the_roll(directory: DiskPath) -> None:
    worker = Worker()
    log = filled(directory, worker, SLICE - 1)
    log.roll(NOW)
    assert stored(log, directory, 1) == seen(log.producers)
