"""The workers of the log cleaner, in the process of the test: it reports events of jobs itself, or lets them carry out real passes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from txbroker.log.cleaner.cleaning_job import CleaningJob, Event, LastRecord
from txbroker.log.cleaner.compaction_pass import run_job
from txbroker.log.disk import Disk
from txbroker.maintenance.cleaning_pass import WorkerLost


class Run:
    """One job that was given to a worker. `tell` reports an event of it."""

    def __init__(self, job: CleaningJob, on_event: Callable[[Event | WorkerLost], None]) -> None:
        self.job = job
        self.tell = on_event
        self.stopped = False

    def stop(self) -> None:
        self.stopped = True

    def is_stopped(self) -> bool:
        return self.stopped


class CleanerWorkers:
    """The `Workers` of a log cleaner. A job waits until the test reports its events, or calls `work`.

    `done`: how many jobs `work` has carried out.
    """

    stuck = 0

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self.done = 0
        self.closed = False
        self._waiting: list[Run] = []

    @property
    def jobs(self) -> list[CleaningJob]:
        return [run.job for run in self.runs]

    def run(self, job: CleaningJob, producers: Iterator[LastRecord], on_event: Callable[[Event | WorkerLost], None], *,
            timeout_s: float) -> Run:  # fmt: skip
        assert timeout_s == 300
        run = Run(replace(job, producers=tuple(producers)), on_event)
        self.runs.append(run)
        self._waiting.append(run)
        return run

    def close(self) -> None:
        self.closed = True
        self._waiting.clear()

    def work(self, disk: Disk) -> bool:
        """Carry out the waiting jobs as the worker process does; whether there were any."""
        waiting, self._waiting = self._waiting, []
        for run in waiting:
            run_job(run.job, disk, run.tell, run.is_stopped, monotonic=time.monotonic, sleep=time.sleep)
            self.done += 1
        return bool(waiting)
