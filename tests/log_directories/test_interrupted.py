"""A start that is interrupted while logs are loaded: recovered logs are kept, and the next start recovers the others."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from simulation.workers import one_by_one
from tests.log_directories.support import IDENTITY, NOW, DirectoryHarness, append, content
from tests.support.fakes.disk_path import DiskPath
from txbroker.errors import StartInterrupted
from txbroker.log.clean_shutdown import FILE_NAME as CLEAN
from txbroker.names import TopicPartition

PARTITIONS = [TopicPartition("t", number) for number in range(3)]
SEGMENTS = 4


class Interruption:
    """Returns True from call number `at` on, which interrupts the start."""

    def __init__(self, at: int) -> None:
        self._at = at
        self.asked = 0

    def __call__(self) -> bool:
        self.asked += 1
        return self.asked > self._at


def filled(root: DiskPath) -> dict[TopicPartition, bytes]:
    """Write logs of several segments, one with a log start offset, and stop cleanly; their content."""
    broker = DirectoryHarness(root, segment_bytes=200)
    broker.start()
    for topic_partition in PARTITIONS:
        log = broker.create(topic_partition)
        log.flush()
        for number in range(SEGMENTS):
            append(log, b"%d" % number * 100)
            broker.worker.run()
        assert len(log.segments) == SEGMENTS
    broker.directories.logs()[PARTITIONS[1]].advance_start(2)
    found = {topic_partition: content(log) for topic_partition, log in broker.directories.logs().items()}
    broker.stop()
    return found


def crashed(root: DiskPath) -> dict[TopicPartition, bytes]:
    """The same after a crash without a recovery point checkpoint, so that everything must be recovered."""
    found = filled(root)
    (root / "a" / CLEAN).unlink()
    (root / "a" / "recovery-point-offset-checkpoint").unlink()
    return found


def load(broker: DirectoryHarness, interrupted: Callable[[], bool]) -> None:
    broker.directories.open()
    broker.directories.claim(IDENTITY)
    broker.directories.load(NOW, one_by_one, lambda *progress: None, interrupted)


def given_up(root: DiskPath, interruption: Interruption) -> DirectoryHarness:
    broker = DirectoryHarness(root, segment_bytes=200)
    with pytest.raises(StartInterrupted, match=r"could be loaded; the next start continues"):
        load(broker, interruption)
    broker.stop()
    return broker


def held(root: DiskPath) -> dict[TopicPartition, bytes]:
    broker = DirectoryHarness(root, segment_bytes=200)
    logs = broker.start().logs()
    found = {topic_partition: content(log) for topic_partition, log in logs.items()}
    broker.stop()
    return found


# The callback is called once for each log and once for each segment.
QUESTIONS = len(PARTITIONS) * (1 + SEGMENTS)


@pytest.mark.parametrize("at", range(QUESTIONS))
def test_an_interrupted_recovery_loses_nothing(directory: DiskPath, at: int) -> None:
    before = crashed(directory)
    broker = given_up(directory, Interruption(at))
    assert CLEAN not in broker.names(), "some logs are not recovered"
    assert held(directory) == before


def test_recovery_continues_where_it_was_interrupted(directory: DiskPath) -> None:
    before = crashed(directory)
    whole_log = 1 + SEGMENTS
    broker = given_up(directory, Interruption(whole_log))
    (recovered,) = broker.checkpoint("recovery-point-offset-checkpoint")
    assert recovered.endswith(f" {SEGMENTS}")
    interruption = Interruption(10**6)
    again = DirectoryHarness(directory, segment_bytes=200)
    load(again, interruption)
    assert interruption.asked < QUESTIONS, "the recovered log is not recovered again"
    assert {topic_partition: content(log) for topic_partition, log in again.directories.logs().items()} == before


def test_recovery_points_of_logs_that_were_not_loaded_are_kept(directory: DiskPath) -> None:
    filled(directory)
    (directory / "a" / CLEAN).unlink()
    written = (directory / "a" / "recovery-point-offset-checkpoint").read_text()
    starts = (directory / "a" / "log-start-offset-checkpoint").read_text()
    given_up(directory, Interruption(0))
    assert sorted((directory / "a" / "recovery-point-offset-checkpoint").read_text().split()) == sorted(written.split())
    assert (directory / "a" / "log-start-offset-checkpoint").read_text() == starts


@pytest.mark.parametrize("at", range(len(PARTITIONS)))
def test_an_interrupted_load_of_a_clean_directory_keeps_it_clean(directory: DiskPath, at: int) -> None:
    """No log needs recovery, so logs that were not loaded are as clean as the others."""
    before = filled(directory)
    broker = given_up(directory, Interruption(at))
    assert CLEAN in broker.names()
    again = DirectoryHarness(directory, segment_bytes=200)
    interruption = Interruption(10**6)
    load(again, interruption)
    assert interruption.asked == len(PARTITIONS), "no segment is recovered"
    assert {topic_partition: content(log) for topic_partition, log in again.directories.logs().items()} == before


def test_a_damaged_log_in_a_clean_directory_removes_the_clean_shutdown_file(directory: DiskPath) -> None:
    """Recovery of one log in spite of the clean shutdown file, interrupted."""
    filled(directory)
    damaged = max((directory / "a" / "t-0").glob("*.log"))
    damaged.write_bytes(damaged.read_bytes()[:-1])
    for at in range(1, len(PARTITIONS) + 1):
        broker = DirectoryHarness(directory, segment_bytes=200)
        with pytest.raises(StartInterrupted):
            load(broker, Interruption(at))
        reached_the_damage = any(not whole for whole in broker.directories._interrupted.values())
        broker.stop()
        assert (CLEAN in broker.names()) is not reached_the_damage
        if reached_the_damage:
            return
    raise AssertionError("the damage was never reached")


def test_an_interruption_after_loading_has_no_effect(directory: DiskPath) -> None:
    before = crashed(directory)
    broker = DirectoryHarness(directory, segment_bytes=200)
    load(broker, Interruption(10**6))
    assert {topic_partition: content(log) for topic_partition, log in broker.directories.logs().items()} == before
