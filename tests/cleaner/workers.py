"""Workers that carry out real passes in the process of the test, when the test calls them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from txbroker.log.cleaner.cleaning_job import CleaningJob, Event, LastRecord
from txbroker.log.cleaner.compaction_pass import run_job
from txbroker.maintenance.cleaning_pass import WorkerLost


class RealWorkers:
    """Carry out jobs as the worker process does, when the test calls `work`."""

    def __init__(self, disk: Any) -> None:
        self.jobs: list[CleaningJob] = []
        self.done = 0
        self._disk = disk
        self._waiting: list[tuple[CleaningJob, Callable[[Event | WorkerLost], None]]] = []

    stuck = 0

    def run(
        self, job: CleaningJob, producers: Iterator[LastRecord], on_event: Callable[[Event | WorkerLost], None], *, timeout_s: float
    ) -> RealWorkers:
        job = replace(job, producers=tuple(producers))
        self.jobs.append(job)
        self._waiting.append((job, on_event))
        return self

    def stop(self) -> None:
        pass

    def close(self) -> None:
        self._waiting.clear()

    def work(self) -> bool:
        """Carry out the waiting jobs; whether there were any."""
        waiting, self._waiting = self._waiting, []
        for job, on_event in waiting:
            run_job(job, self._disk, on_event, lambda: False, monotonic=time.monotonic, sleep=time.sleep)
            self.done += 1
        return bool(waiting)
