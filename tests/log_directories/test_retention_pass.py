"""A retention pass: in slices, one pass at a time, with few concurrent searches; it always ends."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from twisted.internet.task import Clock

from tests.log_directories.support import NOW, DirectoryHarness, append
from tests.support.fakes.disk_path import DiskPath
from txbroker.errors import StorageError
from txbroker.maintenance.retention import SEARCHES_MAX, SLICE_S, Retention
from txbroker.names import TopicPartition

HOUR = 3_600_000
COUNT = 40


class SlowClock(Clock):
    """Time passes with each reading: a part of a slice."""

    def seconds(self) -> float:
        self.rightNow += SLICE_S / 4
        return float(super().seconds())


class Partitions:
    """The part of `Replicas` that a pass uses: high watermarks, and partitions that are notified of a new start."""

    def __init__(self, broker: DirectoryHarness) -> None:
        self._broker = broker
        self.moved: list[TopicPartition] = []

    def high_watermark(self, topic_partition: TopicPartition) -> int:
        log = self._broker.directories.get(topic_partition)
        return 0 if log is None else log.log_end_offset

    def find(self, topic: str, partition: int) -> Any:
        return SimpleNamespace(start_moved=lambda: self.moved.append(TopicPartition(topic, partition)))


def prepared(path: DiskPath, clock: Clock, directories: int = 1) -> tuple[DirectoryHarness, Partitions, Retention]:
    broker = DirectoryHarness(path, directories, retention_ms=HOUR, retention_precise=True)
    broker.start()
    for number in range(COUNT):
        log = broker.create(TopicPartition("t", number))
        append(log, b"old", timestamp=NOW - 2 * HOUR)
        append(log, b"new", timestamp=NOW)
    broker.worker.run()
    partitions = Partitions(broker)
    return broker, partitions, Retention(clock, broker.directories, cast(Any, partitions), lambda: NOW)


def test_a_pass_runs_in_slices_and_searches_a_few_logs_at_a_time(directory: DiskPath) -> None:
    clock = SlowClock()
    broker, partitions, retention = prepared(directory, clock)
    retention.begin()
    turns = 0
    while retention.pass_s is None:
        assert broker.worker.run(3) or clock.getDelayedCalls(), "the pass does not continue"
        assert len(broker.worker.waiting) <= SEARCHES_MAX
        clock.advance(0)
        turns += 1
    assert turns > COUNT / SEARCHES_MAX
    assert sorted(partitions.moved) == [TopicPartition("t", number) for number in range(COUNT)]
    assert {log.log_start_offset for log in broker.directories.logs().values()} == {1}
    assert retention.pass_s > 0
    assert retention.lag_ms(TopicPartition("t", 0)) == 0


def test_one_pass_at_a_time(directory: DiskPath) -> None:
    clock = Clock()
    broker, partitions, retention = prepared(directory, clock)
    retention.begin()
    retention.begin()
    while retention.pass_s is None:
        broker.worker.run()
        clock.advance(0)
    assert len(partitions.moved) == COUNT
    retention.begin()  # nothing has expired since then: no search starts
    clock.advance(0)
    assert broker.worker.run() == 0
    assert len(partitions.moved) == COUNT


def test_a_directory_that_fails_does_not_end_the_pass(directory: DiskPath) -> None:
    clock = Clock()
    broker, partitions, retention = prepared(directory, clock, directories=2)
    retention.begin()
    log = next(log for log in broker.directories.logs().values() if log.directory.startswith(broker.paths[0]))
    broker.directories.fail(log, StorageError("gone"))
    while retention.pass_s is None:
        assert broker.worker.run() or clock.getDelayedCalls(), "the pass does not continue"
        clock.advance(0)
    assert len(partitions.moved) == COUNT // 2


def test_a_pass_that_is_stopped_starts_no_more_searches(directory: DiskPath) -> None:
    clock = SlowClock()
    broker, _, retention = prepared(directory, clock)
    retention.begin()
    retention.stop()
    broker.worker.run()
    assert clock.getDelayedCalls() == []
    assert sum(log.log_start_offset for log in broker.directories.logs().values()) <= SEARCHES_MAX


def test_an_internal_error_of_one_log_does_not_end_the_pass(
    directory: DiskPath, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    broker, partitions, retention = prepared(directory, clock)
    bad = TopicPartition("t", 3)
    expire = broker.directories.expire

    def fails(topic_partition: TopicPartition, *arguments: Any) -> None:
        if topic_partition == bad:
            raise KeyError("a defect")
        expire(topic_partition, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(broker.directories, "expire", fails)
        retention.begin()
        for _ in range(2 * COUNT):
            broker.worker.run()
            clock.advance(0)
    assert retention.pass_s is not None and len(partitions.moved) == COUNT - 1
    assert "internal error while records of t-3 expire" in caplog.text
    retention.begin()
    for _ in range(2 * COUNT):
        broker.worker.run()
        clock.advance(0)
    assert bad in partitions.moved
