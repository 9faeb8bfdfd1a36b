"""A start that is given up while logs are loaded: what was recovered counts, and the next start does the rest."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.log_directories.support import IDENTITY, NOW, DirectoryHarness, append, content
from tests.support.fakes.disk_path import DiskPath
from txbroker.errors import StartInterrupted
from txbroker.log.clean_shutdown import FILE_NAME as CLEAN
from txbroker.log.directories import one_by_one
from txbroker.names import TopicPartition

PARTITIONS = [TopicPartition("t", number) for number in range(3)]
SEGMENTS = 4


class Interruption:
    """Says that the start is to end from the question number `at` on."""

    def __init__(self, at: int) -> None:
        self._at = at
        self.asked = 0

    def __call__(self) -> bool:
        self.asked += 1
        return self.asked > self._at


def filled(root: DiskPath) -> dict[TopicPartition, bytes]:
    """Logs of several segments each, one with a log start offset of its own, and what they hold. The broker is stopped cleanly."""
    broker = DirectoryHarness(root, segment_bytes=200)
    broker.start()
    for topic_partition in PARTITIONS:
        log = broker.create(topic_partition)
        for number in range(SEGMENTS):
            append(log, b"%d" % number * 100)
        assert len(log.segments) == SEGMENTS
    broker.directories.logs()[PARTITIONS[1]].advance_start(2)
    found = {topic_partition: content(log) for topic_partition, log in broker.directories.logs().items()}
    broker.stop()
    return found


def crashed(root: DiskPath) -> dict[TopicPartition, bytes]:
    """The same after a crash that no checkpoint of recovery points was written before: all of it is to be recovered."""
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
    with pytest.raises(StartInterrupted, match=r"logs were loaded; the next start loads them"):
        load(broker, interruption)
    broker.stop()
    return broker


def held(root: DiskPath) -> dict[TopicPartition, bytes]:
    broker = DirectoryHarness(root, segment_bytes=200)
    logs = broker.start().logs()
    found = {topic_partition: content(log) for topic_partition, log in logs.items()}
    broker.stop()
    return found


# Each log is asked for once, and once a segment.
QUESTIONS = len(PARTITIONS) * (1 + SEGMENTS)


@pytest.mark.parametrize("at", range(QUESTIONS))
def test_nothing_is_lost_wherever_a_recovery_is_interrupted(directory: DiskPath, at: int) -> None:
    before = crashed(directory)
    broker = given_up(directory, Interruption(at))
    assert CLEAN not in broker.names(), "logs are left that nobody has recovered"
    assert held(directory) == before


def test_recovery_goes_on_where_it_was_interrupted(directory: DiskPath) -> None:
    before = crashed(directory)
    whole_log = 1 + SEGMENTS
    broker = given_up(directory, Interruption(whole_log))
    (recovered,) = broker.checkpoint("recovery-point-offset-checkpoint")
    assert recovered.endswith(f" {SEGMENTS}")
    interruption = Interruption(10**6)
    again = DirectoryHarness(directory, segment_bytes=200)
    load(again, interruption)
    assert interruption.asked < QUESTIONS, "the log that was recovered is not read from its start again"
    assert {topic_partition: content(log) for topic_partition, log in again.directories.logs().items()} == before


def test_recovery_points_of_logs_that_were_left_stay(directory: DiskPath) -> None:
    filled(directory)
    (directory / "a" / CLEAN).unlink()
    written = (directory / "a" / "recovery-point-offset-checkpoint").read_text()
    starts = (directory / "a" / "log-start-offset-checkpoint").read_text()
    given_up(directory, Interruption(0))
    assert sorted((directory / "a" / "recovery-point-offset-checkpoint").read_text().split()) == sorted(written.split())
    assert (directory / "a" / "log-start-offset-checkpoint").read_text() == starts


@pytest.mark.parametrize("at", range(len(PARTITIONS)))
def test_a_directory_that_was_closed_cleanly_stays_so(directory: DiskPath, at: int) -> None:
    """Nothing was to be recovered, so that what was not opened is still as whole as what was."""
    before = filled(directory)
    broker = given_up(directory, Interruption(at))
    assert CLEAN in broker.names()
    again = DirectoryHarness(directory, segment_bytes=200)
    interruption = Interruption(10**6)
    load(again, interruption)
    assert interruption.asked == len(PARTITIONS), "no segment is recovered"
    assert {topic_partition: content(log) for topic_partition, log in again.directories.logs().items()} == before


def test_a_log_that_is_damaged_after_all_takes_the_mark_away(directory: DiskPath) -> None:
    """A recovery that was begun in spite of the mark, and not finished."""
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


def test_what_comes_too_late_changes_nothing(directory: DiskPath) -> None:
    before = crashed(directory)
    broker = DirectoryHarness(directory, segment_bytes=200)
    load(broker, Interruption(10**6))
    assert {topic_partition: content(log) for topic_partition, log in broker.directories.logs().items()} == before
