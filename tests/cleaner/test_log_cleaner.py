"""The log cleaner in the broker: which partition is cleaned when, and what follows from each end of a pass. The workers are fakes."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from itertools import count

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from tests.cleaner.workers import CleanerWorkers, Run
from tests.log.cleaned import write_cleaned
from tests.log_directories.support import NOW, T0, T1, U0, DirectoryHarness, append, content
from tests.support.fakes.disk_path import DiskPath
from txbroker.config.load import load_broker_config
from txbroker.config.properties import parse_overrides
from txbroker.errors import BrokerError, ErrorCode, NoSpace
from txbroker.log.cleaner.cleanable import Why
from txbroker.log.cleaner.cleaning_job import (
    Done,
    Failed,
    FailureKind,
    GroupCleaned,
    Mapped,
    Progress,
    SegmentYield,
)
from txbroker.log.cleaner.cleaning_status import CleaningStatus, State, Totals
from txbroker.log.log import Log
from txbroker.maintenance.cleaning_pass import CRASHED, HUNG, WorkerLost
from txbroker.maintenance.log_cleaner import LogCleaner
from txbroker.names import TopicPartition

BACKOFF_S = 15.0


class Cleaner:
    """Log directories with a log cleaner, and a clock that the test advances."""

    def __init__(
        self, root: DiskPath, *overrides: str, directories: int = 1, expire: Callable[[TopicPartition], None] = lambda _: None,
        **config: object,
    ) -> None:
        config = {"cleanup_policy": frozenset({"compact"}), "file_delete_delay_ms": 0, **config}
        self.broker = DirectoryHarness(root, directories, **config)
        self.directories = self.broker.start()
        self.clock = Clock()
        self.workers = CleanerWorkers()
        self.config = load_broker_config(parse_overrides(overrides, {}))
        self.aside = root / "aside"
        seeds = count(1)
        self.cleaning = LogCleaner(self.clock, self.config, self.directories, self.high_watermark, lambda: NOW, lambda: next(seeds),
                                 self.workers, expire)  # fmt: skip
        self.cleaning.start()

    def high_watermark(self, topic_partition: TopicPartition) -> int:
        log = self.directories.get(topic_partition)
        return 0 if log is None else log.log_end_offset

    def log(self, topic_partition: TopicPartition, *segments: int) -> Log:
        """A log with closed segments of so many batches each, and an empty active one."""
        log = self.broker.create(topic_partition)
        for batches in segments:
            for _ in range(batches):
                append(log, b"%d" % log.log_end_offset)
            log.roll(NOW)
        self.broker.worker.run()
        return log

    def wait(self, seconds: float = BACKOFF_S) -> None:
        for delay_s in (seconds, 0.0):  # a pass ends once workers have synced, and then the next one begins
            self.clock.advance(delay_s)
            self.broker.worker.run()

    @property
    def jobs(self) -> list[TopicPartition]:
        return [TopicPartition(run.job.topic, run.job.partition) for run in self.workers.runs]

    def group(self, log: Log, bases: tuple[int, ...], keep_from: int) -> GroupCleaned:
        """The report of a worker that has kept the batches of these segments from an offset on."""
        size = write_cleaned(log, bases, lambda header: header.last_offset >= keep_from, self.aside)
        before = sum(segment.size for segment in log.segments if segment.base_offset in bases)
        gone = SegmentYield(base_offset=bases[0], records_before=9, records_after=5, bytes_before=before, bytes_after=size, obsolete=4,
                            deleted=0, aborted=0, invalid=0)
        return GroupCleaned(old_base_offsets=bases, new_base_offset=bases[0], size=size, max_timestamp=NOW, max_timestamp_offset=0,
                            yields=(gone,))  # fmt: skip

    def finish(self, run: Run, log: Log, end: int | None = None, keep_from: int = 0) -> None:
        """Let a pass succeed."""
        end = run.job.first_uncleanable_offset if end is None else end
        bases = tuple(span.base_offset for span in run.job.segments if span.base_offset < end)
        run.tell(Mapped(end_offset=end, keys=1, missed_keys=2, records=9, bytes_read=100, invalid_headers=3))
        run.tell(self.group(log, bases, keep_from))
        run.tell(Done(end_offset=end, bytes_read=1000, bytes_written=500, seconds=2.0))
        self.wait(0)

    def status(self, topic_partition: TopicPartition) -> CleaningStatus:
        found = self.cleaning.status(topic_partition)
        assert found is not None
        return found

    def why(self, topic_partition: TopicPartition) -> Why | None:
        found = self.status(topic_partition).why_not_now
        return None if found is None else found.why

    def leftovers(self, topic_partition: TopicPartition) -> list[str]:
        log = self.directories.get(topic_partition)
        assert log is not None
        return [name for name in self.broker.disk.names(log.directory) if name.endswith((".cleaned", ".swap", ".deleted"))]


@pytest.fixture
def cleaner(directory: DiskPath) -> Iterator[Cleaner]:
    made = Cleaner(directory)
    yield made
    made.broker.worker.run()


def outcome(done: Deferred[Totals]) -> Totals | BrokerError:
    results: list[object] = []
    done.addBoth(results.append)
    assert results, "it has not fired"
    value = getattr(results[0], "value", results[0])
    assert isinstance(value, Totals | BrokerError)
    return value


def is_done(done: Deferred[Totals]) -> bool:
    return done.called


def test_a_dirty_log_is_cleaned_after_the_backoff(cleaner: Cleaner) -> None:
    log = cleaner.log(T0, 3, 3)
    size, whole = log.size, content(log)
    assert cleaner.why(T0) is None
    cleaner.wait(BACKOFF_S - 1)
    assert cleaner.jobs == []
    cleaner.wait(1)
    assert cleaner.jobs == [T0]
    (run,) = cleaner.workers.runs
    job = run.job
    assert (job.first_dirty_offset, job.first_uncleanable_offset, job.log_end_offset) == (0, 6, 6)
    assert [(span.base_offset, span.next_offset) for span in job.segments] == [(0, 3), (3, 6)]
    assert sum(span.size for span in job.segments) == size
    assert job.directory == log.directory
    assert job.settings.map_bytes == 128 << 20
    assert job.settings.max_message_bytes == 1_048_588
    cleaner.wait()
    assert cleaner.jobs == [T0], "one pass at a time"
    run.tell(Progress(bytes_done=5, bytes_total=10))
    assert (cleaner.status(T0).state, cleaner.status(T0).progress, cleaner.why(T0)) == (State.CLEANING, (5, 10), None)
    cleaner.finish(run, log, keep_from=4)
    assert whole.endswith(content(log))
    assert 0 < len(content(log)) < len(whole)
    assert cleaner.broker.checkpoint("cleaner-offset-checkpoint") == ["t 0 6"]
    status = cleaner.status(T0)
    assert (status.state, status.dirty_ratio, status.first_dirty_offset, status.last_ms) == (State.IDLE, 0.0, 6, NOW)
    assert status.last is not None
    assert (status.last.records_before, status.last.obsolete, status.last.missed_keys, status.last.invalid_headers) == (9, 4, 2, 3)
    assert (status.last.segments_before, status.last.segments_after, status.last.bytes_after) == (2, 1, log.size)
    assert cleaner.why(T0) is Why.NOTHING_DIRTY
    assert cleaner.leftovers(T0) == []
    cleaner.wait()
    assert len(cleaner.jobs) == 1
    append(log, b"more")
    assert cleaner.why(T0) is Why.ACTIVE_SEGMENT
    log.roll(NOW)
    assert cleaner.why(T0) is Why.RATIO
    assert cleaner.status(T0).expected_s == pytest.approx((status.last.bytes_after + 2 * log.segments[1].size) / 500)


def test_the_dirtiest_log_is_cleaned_first_and_the_next_one_follows_at_once(cleaner: Cleaner) -> None:
    first, second = cleaner.log(T0, 1, 1, 1), cleaner.log(T1, 1, 1, 1)
    cleaner.log(U0)
    cleaner.directories.cleaning.set_offset(T0, 1)
    cleaner.wait()
    assert cleaner.jobs == [T1]
    assert cleaner.why(T0) is Why.NO_FREE_THREAD
    cleaner.finish(cleaner.workers.runs[0], second)
    assert cleaner.jobs == [T1, T0]
    cleaner.finish(cleaner.workers.runs[1], first)
    assert cleaner.jobs == [T1, T0]


def test_workers_share_memory_and_bandwidth(directory: DiskPath) -> None:
    cleaner = Cleaner(
        directory, "log.cleaner.threads=2", "log.cleaner.dedupe.buffer.size=4194304", "log.cleaner.io.max.bytes.per.second=1000",
        "log.cleaner.io.buffer.size=100000", "log.cleaner.io.buffer.load.factor=0.5", "message.max.bytes=2000000",
        "log.cleaner.backoff.ms=0")
    for topic_partition in (T0, T1, U0):
        cleaner.log(topic_partition, 2)
    cleaner.wait(0.1)
    assert len(cleaner.jobs) == 2
    settings = cleaner.workers.runs[0].job.settings
    assert (settings.map_bytes, settings.io_bytes_per_second, settings.io_buffer_bytes) == (2097152, 500.0, 25000)
    assert (settings.load_factor, settings.max_message_bytes) == (0.5, 2000000)
    cleaner.config.set_dynamic({"log.cleaner.threads": "3"}, {})
    cleaner.wait(0.1)
    assert len(cleaner.jobs) == 3, "a third worker may begin without a restart"


@pytest.mark.parametrize("override", ["log.cleaner.enable=false", "log.cleaner.threads=0"])
def test_nothing_is_cleaned_when_the_cleaner_is_off(directory: DiskPath, override: str) -> None:
    cleaner = Cleaner(directory, override)
    cleaner.log(T0, 2)
    cleaner.wait(100)
    assert cleaner.jobs == []
    assert cleaner.why(T0) is Why.DISABLED
    refused = outcome(cleaner.cleaning.clean_now(T0, roll=True))
    assert isinstance(refused, BrokerError)
    assert (refused.code, override.split("=")[0] in str(refused)) == (ErrorCode.POLICY_VIOLATION, True)


def test_logs_that_are_not_compacted_are_not_cleaned(directory: DiskPath) -> None:
    cleaner = Cleaner(directory, cleanup_policy=frozenset({"delete"}))
    cleaner.log(T0, 2)
    cleaner.wait()
    assert cleaner.jobs == []
    assert cleaner.why(T0) is Why.NOT_COMPACTED
    assert isinstance(outcome(cleaner.cleaning.clean_now(T0, roll=False)), BrokerError)
    assert cleaner.cleaning.status(TopicPartition("other", 0)) is None


def test_a_corrupt_log_is_uncleanable_until_it_changes_or_a_cleaning_is_requested(cleaner: Cleaner) -> None:
    log = cleaner.log(T0, 2, 2)
    cleaner.wait()
    cleaner.group(log, (0,), 0)  # unfinished files
    cleaner.workers.runs[0].tell(Failed(kind=FailureKind.CORRUPT, reason="the batch at offset 1 has a wrong CRC"))
    cleaner.wait(0)
    assert cleaner.leftovers(T0) == []
    assert (cleaner.status(T0).state, cleaner.why(T0)) == (State.UNCLEANABLE, Why.UNCLEANABLE)
    assert cleaner.status(T0).uncleanable_reason == "the batch at offset 1 has a wrong CRC"
    assert (len(cleaner.cleaning.uncleanable), cleaner.cleaning.counts.failures) == (1, {"corrupt": 1})
    append(log, b"more")
    log.roll(NOW)
    cleaner.wait(100)
    assert len(cleaner.jobs) == 1, "more records do not make it cleanable"
    done = cleaner.cleaning.clean_now(T0, roll=False)
    assert len(cleaner.jobs) == 2
    cleaner.workers.runs[1].tell(Failed(kind=FailureKind.CORRUPT, reason="it still has"))
    error = outcome(done)
    assert isinstance(error, BrokerError)
    assert (error.code, "it still has" in str(error)) == (ErrorCode.CORRUPT_MESSAGE, True)
    cleaner.wait(100)
    assert cleaner.status(T0).next_run_ms is None
    assert len(cleaner.jobs) == 2
    log.advance_start(2)
    log.delete_expired(NOW, log.log_end_offset)
    cleaner.wait()
    assert len(cleaner.jobs) == 3, "the corrupt segment was deleted"
    assert cleaner.cleaning.uncleanable == []


def test_a_partition_is_uncleanable_after_two_lost_workers_in_a_row(cleaner: Cleaner) -> None:
    log = cleaner.log(T0, 2, 2)
    cleaner.wait()
    cleaner.workers.runs[0].tell(WorkerLost(CRASHED, "signal 9"))
    cleaner.wait(0)
    assert (len(cleaner.jobs), cleaner.why(T0)) == (1, Why.BACKOFF), "not at once"
    cleaner.wait()
    assert len(cleaner.jobs) == 2
    cleaner.workers.runs[1].tell(WorkerLost(HUNG, "no progress"))
    cleaner.wait(100)
    assert (len(cleaner.jobs), cleaner.why(T0)) == (2, Why.UNCLEANABLE)
    assert "2 workers in a row crashed or hung" in (cleaner.status(T0).uncleanable_reason or "")
    assert "no progress" in (cleaner.status(T0).uncleanable_reason or "")
    assert cleaner.cleaning.counts.failures == {"crashed": 1, "hung": 1}
    done = cleaner.cleaning.clean_now(T0, roll=False)
    cleaner.finish(cleaner.workers.runs[2], log)
    assert isinstance(outcome(done), Totals)
    append(log, b"x" * 1000)
    log.roll(NOW)
    cleaner.wait()
    cleaner.workers.runs[3].tell(WorkerLost(HUNG, "again"))
    cleaner.wait(0)
    assert cleaner.why(T0) is Why.BACKOFF, "the pass that succeeded has cleared the count"


@pytest.mark.parametrize("kind", [FailureKind.RESOURCES, FailureKind.STALE, FailureKind.STOPPED])
def test_temporary_failures_are_retried_in_the_next_round(cleaner: Cleaner, kind: FailureKind) -> None:
    cleaner.log(T0, 2)
    cleaner.wait()
    cleaner.workers.runs[0].tell(Failed(kind=kind, reason="the test says so"))
    cleaner.wait(0)
    assert (len(cleaner.jobs), cleaner.why(T0)) == (1, Why.BACKOFF)
    cleaner.wait()
    assert len(cleaner.jobs) == 2


def test_a_pass_that_cleaned_nothing_is_repeated_in_the_next_round(cleaner: Cleaner, caplog: pytest.LogCaptureFixture) -> None:
    cleaner.log(T0, 2)
    cleaner.wait()
    (run,) = cleaner.workers.runs
    run.tell(Mapped(end_offset=0, keys=0, missed_keys=0, records=0, bytes_read=0, invalid_headers=0))
    run.tell(Done(end_offset=0, bytes_read=0, bytes_written=0, seconds=2.0))
    cleaner.wait(0)
    assert (cleaner.jobs, cleaner.why(T0)) == ([T0], Why.BACKOFF)
    assert "t-0: a pass cleaned nothing: the map of keys is too small; raise log.cleaner.dedupe.buffer.size" in caplog.text
    cleaner.wait()
    assert cleaner.jobs == [T0, T0]


def test_a_pass_that_cannot_begin_without_descriptors_is_left_to_the_next_round(cleaner: Cleaner) -> None:
    """The others are cleaned meanwhile, and the directory stays online."""
    cleaner.log(T0, 3)
    other = cleaner.log(T1, 2)
    fault = cleaner.broker.disk.fail("modified_ms", cleaner.broker.paths[0] + "/t-0", error=errno.EMFILE, times=1)
    cleaner.wait()
    assert (fault.failed, cleaner.jobs, cleaner.why(T0)) == (1, [T1], Why.BACKOFF)
    cleaner.finish(cleaner.workers.runs[0], other)
    assert (cleaner.jobs, cleaner.directories.offline()) == ([T1], [])
    cleaner.wait()
    assert cleaner.jobs == [T1, T0]


def test_an_internal_error_at_the_begin_of_a_round_does_not_end_the_rounds(
    cleaner: Cleaner, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cleaner.log(T0, 2)
    with monkeypatch.context() as patch:
        patch.setattr(cleaner.cleaning._failed, "begin_round", lambda exists: {}["a defect"])
        cleaner.wait()
    assert cleaner.jobs == [] and "internal error at the begin of a round" in caplog.text
    cleaner.wait()
    assert cleaner.jobs == [T0]


def test_a_request_fails_with_a_full_disk(cleaner: Cleaner) -> None:
    log = cleaner.log(T0, 2)
    done = cleaner.cleaning.clean_now(T0, roll=False)
    cleaner.workers.runs[0].tell(Failed(kind=FailureKind.RESOURCES, reason="no space left on device"))
    error = outcome(done)
    assert isinstance(error, BrokerError)
    assert (error.code, "no space left on device" in str(error)) == (ErrorCode.KAFKA_STORAGE_ERROR, True)
    assert cleaner.directories.offline() == [], "the directory stays online"
    cleaner.wait()
    cleaner.wait(0)
    cleaner.finish(cleaner.workers.runs[1], log)
    assert cleaner.why(T0) is Why.NOTHING_DIRTY, "the next round tries again"


def test_a_pass_whose_log_cannot_be_synced_does_not_begin(directory: DiskPath) -> None:
    cleaner = Cleaner(directory, directories=2)
    log = cleaner.log(T0, 2)
    cleaner.log(T1, 2)
    append(log, b"more")
    log.roll(NOW)
    cleaner.broker.disk.fail(path=cleaner.broker.paths[0])
    cleaner.clock.advance(BACKOFF_S)
    assert (cleaner.jobs, cleaner.cleaning.running) == ([], [T0])
    cleaner.broker.worker.run()
    assert cleaner.directories.offline() == [cleaner.broker.paths[0]]
    cleaner.wait()
    assert (cleaner.jobs, cleaner.cleaning.running) == ([T1], [T1])
    assert cleaner.cleaning.counts.failures == {"stale": 1}


def test_a_broken_disk_takes_its_directory_offline(directory: DiskPath) -> None:
    cleaner = Cleaner(directory, directories=2)
    cleaner.log(T0, 2)
    other = cleaner.log(T1, 2)
    cleaner.wait()
    first = cleaner.workers.runs[0]
    done = cleaner.cleaning.clean_now(T0, roll=False)
    assert cleaner.jobs == [T0]
    first.tell(Failed(kind=FailureKind.STORAGE, reason="cannot read it: input/output error"))
    cleaner.wait(0)
    error = outcome(done)
    assert isinstance(error, BrokerError)
    assert error.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert cleaner.directories.offline() == [str(directory / "a")]
    assert cleaner.cleaning.status(T0) is None
    assert cleaner.jobs == [T0, T1], "the other directory is cleaned"
    cleaner.broker.disk.fail(path=str(directory / "b"))
    cleaner.workers.runs[1].tell(GroupCleaned(old_base_offsets=(0,), new_base_offset=0, size=other.segments[0].size, max_timestamp=0,
                                              max_timestamp_offset=0, yields=()))  # fmt: skip
    assert cleaner.workers.runs[1].stopped


def test_a_swap_without_disk_space_is_retried(cleaner: Cleaner, monkeypatch: pytest.MonkeyPatch) -> None:
    log = cleaner.log(T0, 2)
    cleaner.wait()
    group = cleaner.group(log, (0,), 1)

    def full(old: str, new: str) -> None:
        raise NoSpace(f"cannot rename {old}: no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(cleaner.broker.disk, "rename", full)
        cleaner.workers.runs[0].tell(group)
    assert cleaner.workers.runs[0].stopped
    cleaner.workers.runs[0].tell(Failed(kind=FailureKind.STOPPED, reason="stopped"))
    cleaner.wait(0)
    assert (cleaner.directories.offline(), cleaner.leftovers(T0)) == ([], [])
    assert cleaner.cleaning.counts.failures == {"resources": 1}
    cleaner.wait()
    cleaner.finish(cleaner.workers.runs[1], log)
    assert cleaner.why(T0) is Why.NOTHING_DIRTY


def _truncate(cleaner: Cleaner, log: Log) -> None:
    log.truncate_to(3)


def _delete(cleaner: Cleaner, log: Log) -> None:
    cleaner.directories.delete(T0)


def _recreate(cleaner: Cleaner, log: Log) -> None:
    cleaner.directories.delete(T0)
    cleaner.log(T0, 2, 2)


def _move(cleaner: Cleaner, log: Log) -> None:
    cleaner.directories.moves.begin(T0, str(cleaner.broker.paths[1]), NOW)


def _reconfigure(cleaner: Cleaner, log: Log) -> None:
    cleaner.broker.config = type(log.config)()
    cleaner.directories.reconfigure(["t"])


@pytest.mark.parametrize("change", [_truncate, _delete, _recreate, _move, _reconfigure])
def test_results_for_a_log_that_has_changed_are_dropped(directory: DiskPath, change: Callable[[Cleaner, Log], None]) -> None:
    cleaner = Cleaner(directory, directories=2)
    log = cleaner.log(T0, 2, 2)
    if change is _recreate:
        cleaner.log(U0)  # so that the new log is created in the same directory
    cleaner.wait()
    (run,) = cleaner.workers.runs
    group = cleaner.group(log, (0, 2), 3)
    change(cleaner, log)
    now = cleaner.directories.get(T0)
    before = content(now) if now is not None else b""
    run.tell(group)
    assert run.stopped
    run.tell(Failed(kind=FailureKind.STOPPED, reason="stopped"))
    assert cleaner.cleaning.counts.failures == {"stale": 1}
    now = cleaner.directories.get(T0)
    assert (content(now) if now is not None else b"") == before
    assert not log.being_cleaned
    cleaner.wait()
    assert cleaner.directories.cleaning.offset(T0) is None


def test_a_log_that_is_being_moved_is_not_cleaned(directory: DiskPath) -> None:
    cleaner = Cleaner(directory, directories=2)
    cleaner.log(T0, 2, 2)
    cleaner.directories.cleaning.set_offset(T0, 2)
    cleaner.directories.moves.begin(T0, str(cleaner.broker.paths[1]), NOW)
    cleaner.clock.advance(BACKOFF_S)
    assert (cleaner.jobs, cleaner.why(T0)) == ([], Why.MOVING)
    cleaner.broker.worker.run()
    moved = cleaner.directories.get(T0)
    assert moved is not None
    assert moved.directory.startswith(cleaner.broker.paths[1])
    assert cleaner.broker.checkpoint("cleaner-offset-checkpoint", "b") == ["t 0 2"], "the checkpoint moves with the log"
    assert cleaner.broker.checkpoint("cleaner-offset-checkpoint", "a") == []


def test_a_new_topic_with_the_name_of_a_deleted_one_is_dirty(cleaner: Cleaner) -> None:
    log = cleaner.log(T0, 2, 2)
    cleaner.wait()
    cleaner.finish(cleaner.workers.runs[0], log)
    assert cleaner.broker.checkpoint("cleaner-offset-checkpoint") == ["t 0 4"]
    cleaner.directories.delete(T0)
    cleaner.broker.worker.run()
    assert cleaner.broker.checkpoint("cleaner-offset-checkpoint") == []
    cleaner.wait()
    cleaner.log(T0, 1)
    assert (cleaner.status(T0).first_dirty_offset, cleaner.status(T0).last) == (0, None)


def test_an_impossible_checkpoint_is_corrected(cleaner: Cleaner) -> None:
    cleaner.log(T0, 2)
    cleaner.directories.cleaning.set_offset(T0, 77)
    cleaner.wait()
    assert cleaner.workers.runs[0].job.first_dirty_offset == 0
    assert cleaner.broker.checkpoint("cleaner-offset-checkpoint") == ["t 0 0"]


def test_checkpoints_survive_a_restart(directory: DiskPath) -> None:
    cleaner = Cleaner(directory)
    log = cleaner.log(T0, 2, 2)
    cleaner.wait()
    cleaner.finish(cleaner.workers.runs[0], log, end=3)
    cleaner.cleaning.stop()
    assert cleaner.workers.closed
    cleaner.broker.stop()
    again = DirectoryHarness(directory).start()
    assert again.cleaning.offset(T0) == 3


# clean_now


def test_clean_now_rolls_and_ignores_the_dirty_ratio(cleaner: Cleaner) -> None:
    log = cleaner.log(T0, 5, 5)
    cleaner.directories.cleaning.set_offset(T0, 10)
    append(log, b"last")
    assert cleaner.why(T0) is Why.ACTIVE_SEGMENT
    nothing = cleaner.cleaning.clean_now(T0, roll=False)
    assert outcome(nothing) == Totals(end_offset=10)
    assert cleaner.jobs == []
    done, joined = cleaner.cleaning.clean_now(T0, roll=True), cleaner.cleaning.clean_now(T0, roll=True)
    assert cleaner.jobs == [], "the log is flushed first"
    cleaner.broker.worker.run()
    assert cleaner.jobs == [T0]
    assert cleaner.workers.runs[0].job.first_uncleanable_offset == 11
    assert not is_done(done)
    cleaner.finish(cleaner.workers.runs[0], log, keep_from=7)
    totals = outcome(done)
    assert isinstance(totals, Totals)
    assert (totals.end_offset, totals.passes, totals.obsolete, totals.segments_before) == (11, 1, 4, 3)
    assert outcome(joined) == totals
    assert len(cleaner.jobs) == 1


def test_clean_now_takes_as_many_passes_as_the_map_needs(cleaner: Cleaner) -> None:
    log = cleaner.log(T0, 4, 4)
    done = cleaner.cleaning.clean_now(T0, roll=False)
    cleaner.finish(cleaner.workers.runs[0], log, end=3)
    assert not is_done(done)
    assert cleaner.workers.runs[1].job.first_dirty_offset == 3
    cleaner.finish(cleaner.workers.runs[1], log)
    totals = outcome(done)
    assert isinstance(totals, Totals)
    assert (totals.end_offset, totals.passes) == (8, 2)


def test_clean_now_joins_a_running_pass_and_starts_another_one_if_needed(cleaner: Cleaner) -> None:
    log = cleaner.log(T0, 2, 2)
    cleaner.wait()
    append(log, b"later")
    short, further = cleaner.cleaning.clean_now(T0, roll=False), cleaner.cleaning.clean_now(T0, roll=True)
    assert cleaner.jobs == [T0]
    cleaner.finish(cleaner.workers.runs[0], log)
    assert cleaner.jobs == [T0, T0]
    cleaner.finish(cleaner.workers.runs[1], log)
    for done in (short, further):
        totals = outcome(done)
        assert isinstance(totals, Totals)
        assert (totals.end_offset, totals.passes) == (5, 2)


def test_clean_now_respects_min_compaction_lag(directory: DiskPath) -> None:
    cleaner = Cleaner(directory, min_compaction_lag_ms=1)
    cleaner.log(T0, 2)
    assert cleaner.why(T0) is Why.LAG
    assert outcome(cleaner.cleaning.clean_now(T0, roll=True)) == Totals()
    assert cleaner.jobs == []


def test_requested_partitions_are_cleaned_first(cleaner: Cleaner) -> None:
    first, second = cleaner.log(T0, 1), cleaner.log(T1, 3, 3)
    cleaner.log(U0, 5)
    cleaner.directories.cleaning.set_offset(T1, 3)
    cleaner.wait()
    assert cleaner.jobs == [T0]
    done = cleaner.cleaning.clean_now(T1, roll=False)
    cleaner.finish(cleaner.workers.runs[0], first)
    assert cleaner.jobs == [T0, T1]
    cleaner.finish(cleaner.workers.runs[1], second)
    assert isinstance(outcome(done), Totals)
    assert cleaner.jobs == [T0, T1, U0]


def test_clean_now_fails_when_the_log_is_deleted_or_the_broker_stops(cleaner: Cleaner) -> None:
    cleaner.log(T0, 2)
    cleaner.log(T1, 2)
    deleted, stopped = cleaner.cleaning.clean_now(T0, roll=False), cleaner.cleaning.clean_now(T1, roll=False)
    _delete(cleaner, cleaner.log(U0))
    cleaner.workers.runs[0].tell(Failed(kind=FailureKind.STALE, reason="a file was deleted"))
    cleaner.wait(0)
    error = outcome(deleted)
    assert isinstance(error, BrokerError)
    assert error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert error.message == "its log is no longer on this broker"
    cleaner.cleaning.stop()
    error = outcome(stopped)
    assert isinstance(error, BrokerError)
    assert error.code is ErrorCode.BROKER_NOT_AVAILABLE
    assert isinstance(outcome(cleaner.cleaning.clean_now(T1, roll=False)), BrokerError)
    cleaner.clock.advance(1000)
    assert len(cleaner.jobs) == 2, "no pass begins after the stop"


def test_retention_of_a_log_runs_after_a_pass(directory: DiskPath) -> None:
    expired: list[TopicPartition] = []
    cleaner = Cleaner(directory, expire=expired.append)
    log = cleaner.log(T0, 3, 3)
    cleaner.wait()
    (run,) = cleaner.workers.runs
    over: list[None] = []
    cleaner.cleaning.until_pass_ended(T0).addCallback(over.append)
    assert (expired, over) == ([], [])
    cleaner.finish(run, log)
    assert (expired, over) == ([T0], [None])
    cleaner.cleaning.until_pass_ended(T0).addCallback(over.append)
    assert len(over) == 2
    cleaner.broker.worker.run()
