"""Moving logs between directories: the content stays the same, also with changes during a move; refused moves."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.log_directories.moving import check_arrived, filled, finish
from tests.log_directories.support import NOW, T0, T1, U0, DirectoryHarness, append, content, zero_watermark
from tests.support.fakes.disk_path import DiskPath
from tests.support.fakes.worker import Worker
from txbroker.errors import BrokerError, ErrorCode, StorageError
from txbroker.log import appending
from txbroker.log.flush import FlushPlan
from txbroker.log.log import Log
from txbroker.log.open_segments import OpenSegments
from txbroker.log.region import Region
from txbroker.log.replica_moves import Move
from txbroker.log.segment import Segment
from txbroker.wire.records import Record, build


def test_a_log_moves_with_all_its_state(directory: DiskPath, small_steps: None) -> None:
    broker = DirectoryHarness(directory, 2, segment_bytes=500)
    directories = broker.start()
    log = filled(broker)
    expected = content(log)
    directories.moves.begin(T0, broker.paths[1], NOW)
    assert directories.get(T0) is log
    moved = check_arrived(broker, expected)
    assert (moved.log_start_offset, moved.log_end_offset) == (0, 40)
    assert len(moved.segments) > 1
    append(moved, b"more")
    broker.stop()
    assert broker.checkpoint("recovery-point-offset-checkpoint", "b") == ["t 0 41"]
    assert broker.checkpoint("recovery-point-offset-checkpoint", "a") == []
    again = DirectoryHarness(directory, 2).start().get(T0)
    assert again is not None
    assert again.log_end_offset == 41


def test_a_log_that_lacks_records_moves_with_the_file_that_says_so(directory: DiskPath, small_steps: None) -> None:
    broker = DirectoryHarness(directory, 2, segment_bytes=500)
    broker.start()
    log = filled(broker)
    lost, end = log.segments[-1].base_offset, log.log_end_offset
    broker.stop()
    for suffix in (".log", ".index", ".timeindex"):
        (directory / "a" / "t-0" / f"{lost:020d}{suffix}").unlink()
    for _ in range(2):
        broker = DirectoryHarness(directory, 2, segment_bytes=500)
        directories = broker.start()
        started = directories.get(T0)
        assert started is not None
        assert [(missing.start, missing.end) for missing in started.missing] == [(lost, end)]
        if started.directory.startswith(broker.paths[0]):
            directories.moves.begin(T0, broker.paths[1], NOW)
            moved = finish(broker)
            assert moved.directory == f"{broker.paths[1]}/t-0"
            assert moved.missing == started.missing
        broker.stop()


def test_a_worker_closes_no_files_of_other_logs(directory: DiskPath, small_steps: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The logs' thread may be using them."""
    working: list[bool] = []
    released: list[str] = []
    submit, release = Worker.__call__, Segment.release

    def flagged(self: Worker, delay_ms: int, work: Callable[[], None], done: Callable[[], None] | None = None) -> None:
        def run() -> None:
            working.append(True)
            work()
            working.pop()

        submit(self, delay_ms, run, done)

    def noted(self: Segment) -> None:
        if working:
            released.append(self.directory)
        release(self)

    monkeypatch.setattr(Worker, "__call__", flagged)
    monkeypatch.setattr(Segment, "release", noted)
    monkeypatch.setattr(OpenSegments.__init__, "__defaults__", (3,))
    broker = DirectoryHarness(directory, 2, segment_bytes=500)
    directories = broker.start()
    log, other = filled(broker, 60), broker.create(T1)
    for number in range(60):
        append(other, b"%d" % number, b"x" * 20)
        broker.worker.run()
    assert min(len(log.segments), len(other.segments)) > 4
    directories.moves.begin(T0, broker.paths[1], NOW)
    moved = finish(broker)
    assert moved is not log
    assert all(path.startswith(broker.paths[1]) for path in released)
    shared = other.segments[0].open_segments
    assert shared is not None and all(segment.open_segments is shared for segment in moved.segments[:-1])
    assert len(shared) <= 3


def test_a_flush_that_ends_while_a_worker_appends_to_the_copy_is_counted_later(
    directory: DiskPath, small_steps: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The flush of a rolled segment runs in one worker, the next step of the move in another."""
    broker = DirectoryHarness(directory, 2, segment_bytes=500)
    directories = broker.start()
    log = filled(broker)
    working: list[bool] = []
    flushed: list[bool] = []
    in_place: list[bool] = []
    transfer, count, sync = Move._transfer, Log.flushed, Log._sync_names

    def transfer_noted(self: Move, region: Region) -> None:
        if self._busy:  # otherwise it is the rest, in the logs' thread
            working.append(True)
            broker.worker.run()
        transfer(self, region)
        working.clear()

    def count_noted(self: Log, plan: FlushPlan) -> None:
        if not in_place:  # else the worker itself syncs the copy
            flushed.append(bool(working))
        count(self, plan)

    def sync_noted(self: Log) -> None:
        in_place.append(True)
        sync(self)
        in_place.pop()

    monkeypatch.setattr(Move, "_transfer", transfer_noted)
    monkeypatch.setattr(Log, "flushed", count_noted)
    monkeypatch.setattr(Log, "_sync_names", sync_noted)
    directories.moves.begin(T0, broker.paths[1], NOW)
    while broker.worker.waiting and not broker.watcher.moved:
        step = broker.worker.waiting.pop()  # the flush, which was given before it, ends during this step
        step.work()
        assert step.done is not None
        step.done()
    moved = check_arrived(broker, content(log))
    assert len(flushed) >= len(moved.segments) - 1 > 2 and not any(flushed)
    assert moved.recovery_point > 0


def test_a_copy_takes_snapshots_of_producers_at_once(directory: DiskPath, small_steps: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slices run in the logs' thread, while a worker may append to the copy."""
    monkeypatch.setattr(appending, "SLICE", 1)
    broker = DirectoryHarness(directory, 2, segment_bytes=500)
    directories = broker.start()
    log = broker.create(T0)
    for number in range(40):
        records = [Record(0, NOW, b"k", b"x" * 20)]
        batch = build(records, producer_id=number % 4, producer_epoch=0, base_sequence=number // 4)
        log.append(memoryview(bytearray(batch)), leader_epoch=0, now_ms=NOW)
    broker.worker.run()
    directories.moves.begin(T0, broker.paths[1], NOW)
    copies = broker.directories._list.by_path[broker.paths[1]].copies
    copy = copies[T0].log
    while T0 in copies:
        assert copy.producers.capture is None
        assert broker.worker.run(1) == 1
    moved = finish(broker)
    assert moved is copy and len(moved.segments) > 2
    expected = {f"{segment.base_offset:020}.snapshot" for segment in moved.segments[1:]}
    assert {path.name for path in (broker.root / "b" / "t-0").iterdir() if path.name.endswith(".snapshot")} == expected
    for _ in range(4):
        append(moved, b"x" * 100)
    assert moved.producers.capture is not None, "now that it is in use"


def test_an_empty_log_moves(directory: DiskPath) -> None:
    broker = DirectoryHarness(directory, 2)
    directories = broker.start()
    broker.create(T0).truncate_fully_at(7, now_ms=NOW)
    directories.moves.begin(T0, broker.paths[1], NOW)
    moved = check_arrived(broker, b"")
    assert (moved.log_start_offset, moved.log_end_offset) == (7, 7)


def test_records_appended_during_a_move_are_moved(directory: DiskPath, small_steps: None) -> None:
    broker = DirectoryHarness(directory, 2, segment_bytes=500)
    directories = broker.start()
    log = filled(broker)
    directories.moves.begin(T0, broker.paths[1], NOW)
    number = 0
    while not broker.watcher.moved:
        assert broker.worker.run(1) == 1
        if not broker.watcher.moved and number < 30:
            append(log, b"new %d" % number)
            number += 1
    assert number > 3
    check_arrived(broker, content(log))


def test_a_log_that_begins_in_the_middle_of_a_batch(directory: DiskPath, small_steps: None) -> None:
    broker = DirectoryHarness(directory, 2)
    directories = broker.start()
    log = filled(broker)
    log.advance_start(5)
    expected = content(log)
    directories.moves.begin(T0, broker.paths[1], NOW)
    moved = check_arrived(broker, expected)
    assert moved.log_start_offset == 5
    assert moved.segments[0].base_offset == 4


def test_a_truncation_during_a_move(directory: DiskPath, small_steps: None) -> None:
    broker = DirectoryHarness(directory, 2, segment_bytes=500)
    directories = broker.start()
    log = filled(broker)
    directories.moves.begin(T0, broker.paths[1], NOW)
    broker.worker.run(4)
    assert directories.describe(zero_watermark)[1].replicas[0].size > 0
    log.truncate_to(6)
    log.append(memoryview(bytearray(batch_of(b"another history"))), leader_epoch=3, now_ms=NOW)
    check_arrived(broker, content(log))


def test_copied_records_that_a_new_epoch_replaced(directory: DiskPath, small_steps: None) -> None:
    """The log end offset is the same with other records; the leader epochs differ."""
    broker = DirectoryHarness(directory, 2)
    directories = broker.start()
    log = filled(broker, 10)
    directories.moves.begin(T0, broker.paths[1], NOW)
    broker.worker.run(3)
    log.truncate_to(2)
    while log.log_end_offset < 30:
        log.append(memoryview(bytearray(batch_of(b"another", b"history"))), leader_epoch=2, now_ms=NOW)
    check_arrived(broker, content(log))


def batch_of(*values: bytes) -> bytes:
    from txbroker.wire.records import Record, build

    return build([Record(index, NOW, b"k", value) for index, value in enumerate(values)])


def test_retention_during_a_move(directory: DiskPath, small_steps: None) -> None:
    broker = DirectoryHarness(directory, 2, segment_bytes=500, retention_bytes=600)
    directories = broker.start()
    log = filled(broker)
    directories.moves.begin(T0, broker.paths[1], NOW)
    broker.worker.run(1)
    done: list[object] = []
    directories.expire(T0, NOW, log.log_end_offset, done.append)
    while not done:
        assert broker.worker.run(1) == 1
    assert log.log_start_offset > 0 and not broker.watcher.moved
    moved = check_arrived(broker, content(log))
    assert moved.log_start_offset == log.log_start_offset > 0


def test_offsets_removed_by_compaction_at_the_end_are_not_reused(directory: DiskPath) -> None:
    broker = DirectoryHarness(directory, 2)
    directories = broker.start()
    log = filled(broker, 3)
    log.skip_to(100, NOW)
    directories.moves.begin(T0, broker.paths[1], NOW)
    moved = finish(broker)
    assert moved is not log
    assert moved.log_end_offset == 100
    append(moved, b"next")
    broker.stop()
    again = DirectoryHarness(directory, 2).start().get(T0)
    assert again is not None
    assert again.log_end_offset == 101


def test_a_move_is_described(directory: DiskPath, small_steps: None) -> None:
    broker = DirectoryHarness(directory, 2)
    directories = broker.start()
    log = filled(broker)
    directories.moves.begin(T0, broker.paths[1], NOW)
    broker.worker.run(2)
    a, b = directories.describe(zero_watermark)
    assert a.replicas == [(T0, log.size, 0, False)]
    ((topic_partition, size, lag, is_future),) = b.replicas
    assert (topic_partition, is_future) == (T0, True)
    assert 0 < size < log.size
    assert 0 < lag < 40


# Requests


def test_moves_that_are_refused(directory: DiskPath) -> None:
    broker = DirectoryHarness(directory, 3)
    directories = broker.start()

    def refused(topic_partition: object, directory: str) -> ErrorCode:
        with pytest.raises(BrokerError) as caught:
            directories.moves.begin(T0, directory, NOW)
        return caught.value.code

    assert refused(T0, "/elsewhere") == ErrorCode.LOG_DIR_NOT_FOUND
    assert refused(T0, broker.paths[2]) == ErrorCode.REPLICA_NOT_AVAILABLE
    assert broker.create(T0).directory == f"{broker.paths[2]}/t-0"  # the requested directory is used later
    directories.fail(broker.create(U0), StorageError("broken"))
    assert refused(T0, broker.paths[0]) == ErrorCode.KAFKA_STORAGE_ERROR


def test_moving_to_the_current_or_target_directory_changes_nothing(directory: DiskPath) -> None:
    broker = DirectoryHarness(directory, 2)
    directories = broker.start()
    filled(broker)
    directories.moves.begin(T0, broker.paths[0], NOW)
    assert broker.partitions("b") == []
    directories.moves.begin(T0, broker.paths[1], NOW)
    directories.moves.begin(T0, broker.paths[1], NOW)
    assert len(broker.partitions("b")) == 1


@pytest.mark.parametrize("steps", range(5))
def test_moving_back_cancels_a_move(directory: DiskPath, small_steps: None, steps: int) -> None:
    broker = DirectoryHarness(directory, 2)
    directories = broker.start()
    log = filled(broker)
    directories.moves.begin(T0, broker.paths[1], NOW)
    broker.worker.run(steps)
    directories.moves.begin(T0, broker.paths[0], NOW)
    assert finish(broker) is log
    broker.worker.wait(60_000)
    assert (broker.partitions("a"), broker.partitions("b")) == (["t-0"], [])


@pytest.mark.parametrize("steps", range(5))
def test_deleting_a_log_during_a_move_removes_both_copies(directory: DiskPath, small_steps: None, steps: int) -> None:
    broker = DirectoryHarness(directory, 2)
    directories = broker.start()
    filled(broker)
    directories.moves.begin(T0, broker.paths[1], NOW)
    broker.worker.run(steps)
    directories.delete(T0)
    broker.worker.run()
    broker.worker.wait(60_000)
    broker.worker.wait(60_000)
    assert (broker.partitions("a"), broker.partitions("b")) == ([], [])
    assert directories.logs() == {}


def test_the_number_of_concurrent_moves_is_that_of_directories(directory: DiskPath) -> None:
    broker = DirectoryHarness(directory, 2)
    directories = broker.start()
    logs = [T0, U0, T1]
    for topic_partition in logs:
        directories_of_new = broker.create(topic_partition)
        append(directories_of_new, b"one")
    broker.worker.run()
    for topic_partition in logs:
        log = directories.get(topic_partition)
        assert log is not None
        directories.moves.begin(topic_partition, next(path for path in broker.paths if not log.directory.startswith(f"{path}/")), NOW)
    # Each started move waits for one job; other jobs sync names of directories.
    assert sum(move.started for move in directories.moves._moves._moves.values()) == 2
    broker.worker.run()
    assert set(broker.watcher.moved) == set(logs)
