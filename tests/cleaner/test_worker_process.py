"""The broker's side of a worker process: its pipes and its watchdog, without a real process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from twisted.internet.error import ProcessTerminated
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from tests.cleaner.logs import NOW, LogMaker
from txbroker.cleaner_process import KILL_S, WATCHDOG_CHECKS, CleanerProcesses, _Process
from txbroker.log.cleaner.cleaning_job import (
    PRODUCERS_PER_LINE,
    CleaningJob,
    Done,
    Event,
    Failed,
    FailureKind,
    GroupCleaned,
    LastRecord,
    Progress,
    job_from_json,
    producers_from_json,
    to_json,
)
from txbroker.maintenance.cleaning_pass import HUNG, WorkerLost

GROUP = GroupCleaned(old_base_offsets=(0,), new_base_offset=0, size=0, max_timestamp=-1, max_timestamp_offset=0, yields=())
DONE = Done(end_offset=1, bytes_read=1, bytes_written=1, seconds=1.0)


class _Pipes:
    pid = 1

    def __init__(self) -> None:
        self.signals: list[str] = []
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def signalProcess(self, name: str) -> None:
        self.signals.append(name)


@pytest.mark.parametrize("line", [to_json(GROUP), to_json(DONE), "not an event"], ids=["swap", "end", "nonsense"])
def test_after_an_event_that_cannot_be_handled_the_last_event_is_a_lost_worker(tmp_path: Path, line: str) -> None:
    """A `Done` after a failed swap must not end the pass as a success."""
    process = _Process(Clock(), 60, lambda _: None)
    pipes: Any = _Pipes()
    process.transport = pipes
    log = LogMaker()
    log.data([(b"a", b"a", NOW)])
    log.write(tmp_path)
    seen: list[str] = []

    def on_event(event: object) -> None:
        seen.append(type(event).__name__)
        if len(seen) == 1 and line != "not an event":
            raise RuntimeError("a bug")

    process.take(log.job(tmp_path), iter(()), on_event, 300)
    process.outReceived(f"{line}\n{to_json(DONE)}\n".encode())
    assert pipes.signals == ["KILL"]
    assert not process.idle
    process.processEnded(Failure(ProcessTerminated(None, 9)))
    assert seen[-1] == "WorkerLost"
    assert "Done" not in seen[1:]


TIMEOUT_S = 100.0


class _Reactor(Clock):
    """Starts processes that do nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.spawned: list[_Process] = []

    def spawnProcess(self, process: _Process, *_: object, **__: object) -> None:
        self.spawned.append(process)
        process.transport = _Pipes()
        process.connectionMade()

    def turn(self) -> None:
        """Run what is due now, and not what that calls for."""
        for call in [call for call in self.getDelayedCalls() if call.getTime() <= self.seconds()]:
            function, args = call.func, call.args
            call.cancel()
            function(*args)


class _Watched:
    """Workers without processes, and the events of their jobs."""

    def __init__(self, folder: Path) -> None:
        log = LogMaker()
        log.data([(b"a", b"a", NOW)])
        log.write(folder)
        self.job: CleaningJob = log.job(folder)
        self.reactor = _Reactor()
        self.workers = CleanerProcesses(self.reactor)
        self.events: list[Event | WorkerLost] = []

    def run(self) -> None:
        self.workers.run(self.job, iter(()), self.events.append, timeout_s=TIMEOUT_S)

    def signals(self) -> list[str]:
        pipes: Any = self.reactor.spawned[0].transport
        return list(pipes.signals)


def progress(process: _Process) -> None:
    process.outReceived(f"{to_json(Progress(bytes_done=1, bytes_total=9))}\n".encode())


def test_a_worker_that_reports_nothing_for_the_timeout_is_killed_and_reported_as_hung(tmp_path: Path) -> None:
    watched = _Watched(tmp_path)
    watched.run()
    (process,) = watched.reactor.spawned
    check_s = TIMEOUT_S / WATCHDOG_CHECKS
    for _ in range(3 * WATCHDOG_CHECKS):
        progress(process)
        watched.reactor.advance(check_s)
    watched.reactor.pump([check_s] * (WATCHDOG_CHECKS - 1))
    assert watched.signals() == []
    watched.reactor.advance(check_s)
    assert watched.signals() == ["KILL"]
    assert all(isinstance(event, Progress) for event in watched.events), "the worker is lost once its process has ended"
    process.processEnded(Failure(ProcessTerminated(None, 9)))
    (lost,) = watched.events[3 * WATCHDOG_CHECKS :]
    assert isinstance(lost, WorkerLost) and (lost.kind, "reported no progress for 100 s" in lost.reason) == (HUNG, True)
    assert not watched.reactor.getDelayedCalls()
    watched.run()
    assert len(watched.reactor.spawned) == 2, "the next job gets a new process"


def test_a_timer_that_is_late_for_long_is_not_the_fault_of_the_worker(tmp_path: Path) -> None:
    """As after the suspension of the machine, or of the broker and its workers."""
    watched = _Watched(tmp_path)
    watched.run()
    watched.reactor.advance(1000 * TIMEOUT_S)
    assert watched.signals() == []


def test_no_worker_starts_while_one_cannot_be_killed(tmp_path: Path) -> None:
    watched = _Watched(tmp_path)
    watched.run()
    watched.reactor.pump([TIMEOUT_S / WATCHDOG_CHECKS] * (WATCHDOG_CHECKS + 1))
    assert (watched.signals(), watched.events, watched.workers.stuck) == (["KILL"], [], 0)
    watched.reactor.advance(KILL_S)
    (lost,) = watched.events
    assert isinstance(lost, WorkerLost) and lost.kind == HUNG
    assert watched.workers.stuck == 1
    watched.run()
    watched.reactor.advance(0)
    refused = watched.events[1]
    assert isinstance(refused, Failed) and refused.kind is FailureKind.RESOURCES
    assert len(watched.reactor.spawned) == 1
    watched.reactor.spawned[0].processEnded(Failure(ProcessTerminated(None, 9)))
    assert len(watched.events) == 2, "it was reported already"
    assert watched.workers.stuck == 0
    watched.run()
    assert len(watched.reactor.spawned) == 2


def test_many_producers_are_read_and_sent_in_many_turns_of_the_reactor(tmp_path: Path) -> None:
    watched = _Watched(tmp_path)
    producers = [LastRecord(number, 1, number) for number in range(3 * PRODUCERS_PER_LINE + 5)]
    left = iter(producers)
    run = watched.workers.run(watched.job, left, watched.events.append, timeout_s=TIMEOUT_S)
    pipes: Any = watched.reactor.spawned[0].transport
    for turn in range(1, 5):
        assert len(pipes.written) == turn
        assert left.__length_hint__() == max(len(producers) - turn * PRODUCERS_PER_LINE, 0)
        watched.reactor.turn()
    *lines, job = b"".join(pipes.written).decode().splitlines()
    assert producers_from_json(lines) == tuple(producers)
    assert job_from_json(job) == watched.job
    run.stop()
    assert pipes.written[-1] == b"stop\n"


def test_a_process_that_ends_before_it_has_its_job_gets_no_more_of_it(tmp_path: Path) -> None:
    watched = _Watched(tmp_path)
    left = (LastRecord(number, 1, number) for number in range(3 * PRODUCERS_PER_LINE))
    watched.workers.run(watched.job, left, watched.events.append, timeout_s=TIMEOUT_S)
    (process,) = watched.reactor.spawned
    process.processEnded(Failure(ProcessTerminated(None, 9)))
    watched.reactor.advance(0)
    assert len(process.transport.written) == 1 and not watched.reactor.getDelayedCalls()
    assert [type(event) for event in watched.events] == [WorkerLost]
