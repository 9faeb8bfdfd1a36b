"""The workers of a broker's log cleaner: the worker's own code, as jobs of the scheduler instead of processes.

A job reads and writes its files in one step. What it reports reaches the broker later, one event at a time, so that anything may happen to
the log in between. A worker may also end in the middle of its files, as a process that is killed does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random
from typing import Any

from simulation.host_disk import HostDisk
from simulation.process import Killed, Process
from txbroker.log.cleaner.cleaning_job import CleaningJob, Event, GroupCleaned, LastRecord, event_from_json, job_from_json, to_json
from txbroker.log.cleaner.compaction_pass import run_job
from txbroker.maintenance.cleaning_pass import CRASHED, WorkerLost
from txbroker.names import TopicPartition

OnEvent = Callable[[Event | WorkerLost], None]

REPORT_S = 0.1  # the mean time between two events
CRASH_CHANCE = 0.3  # that one worker of a process crashes: two in a row make a partition uncleanable
CHANGES_MAX = 12  # of the disk before a crash


class SimulatedCleaners:
    """See `Workers`. `swapped` is called some time after cleaned segments have replaced others, `before_swap` before the next time."""

    stuck = 0

    def __init__(
        self,
        process: Process,
        disk: HostDisk,
        chance: Random,
        slow_s: Callable[[], float],
        swapped: Callable[[TopicPartition], None],
    ) -> None:
        self._process = process
        self._disk = disk
        self._chance = chance
        self._slow_s = slow_s
        self._swapped = swapped
        self._crashes_in = chance.randrange(1, 6) if chance.random() < CRASH_CHANCE else 0
        self._closed = False
        self.before_swap: Callable[[], None] = _nothing

    def run(self, job: CleaningJob, producers: Iterator[LastRecord], on_event: OnEvent, *, timeout_s: float) -> _Run:
        """See `Workers`."""
        made = job_from_json(to_json(replace(job, producers=tuple(producers))))
        run = _Run()
        self._crashes_in -= 1
        disk = HostDisk(self._disk.disk, self._process)
        if self._crashes_in == 0:
            disk.faults.changes_left = self._chance.randrange(CHANGES_MAX)

        def work() -> None:
            if not self._closed:
                disk.faults.fails = self._disk.faults.fails
                self._report(made, run_whole(made, disk, run), on_event)

        self._later(work)
        return run

    def close(self) -> None:
        """See `Workers`."""
        self._closed = True

    def disarm(self) -> None:
        """The faults have ended."""
        self.before_swap = _nothing
        self._crashes_in = 0

    def _later(self, call: Callable[[], None]) -> None:
        self._process.callLater(self._chance.expovariate(1 / REPORT_S) + self._chance.random() * self._slow_s(), call)

    def _report(self, job: CleaningJob, events: list[Event | WorkerLost], on_event: OnEvent) -> None:
        swapping = False

        def next_one() -> None:
            nonlocal swapping
            if self._closed:
                return
            event = events.pop(0)
            if isinstance(event, GroupCleaned):
                before_swap, self.before_swap = self.before_swap, _nothing
                before_swap()
            on_event(event)
            if swapping:  # since the event before, and workers had to sync names
                self._swapped(TopicPartition(job.topic, job.partition))
            swapping = isinstance(event, GroupCleaned)
            if events:
                self._later(next_one)

        self._later(next_one)


def _nothing() -> None:
    """No fault."""


class _Run:
    """See `Run`."""

    def __init__(self) -> None:
        self.stopped = False

    def stop(self) -> None:
        self.stopped = True


def run_whole(job: CleaningJob, disk: HostDisk, run: _Run) -> list[Event | WorkerLost]:
    """Run a job; what it reports, as it comes out of the pipe of a worker."""
    events: list[Event | WorkerLost] = []
    slept = [0.0]

    def sleep(seconds: float) -> None:
        slept[0] += seconds

    def report(event: Any) -> None:
        events.append(event_from_json(to_json(event)))

    try:
        run_job(job, disk, report, lambda: run.stopped, monotonic=lambda: slept[0], sleep=sleep)
    except Killed:
        if not disk.process.alive:
            raise
        events.append(WorkerLost(CRASHED, "it was killed"))
    return events
