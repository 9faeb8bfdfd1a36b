"""Workers that run jobs in the test's own thread, when the test says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure


class Job(NamedTuple):
    """`work`, due at `due_ms` of the worker's time, and what follows it in the reactor."""

    due_ms: int
    work: Callable[[], None]
    done: Callable[[], None] | None


class Worker:
    """A `Later`: jobs run one after the other when the test calls `run` or `wait`, in the order of the times at which they are due.

    An exception of a job is raised to the test, and the jobs that wait run at the next call.
    """

    def __init__(self) -> None:
        self.now_ms = 0
        self.waiting: list[Job] = []

    def __call__(self, delay_ms: int, work: Callable[[], None], done: Callable[[], None] | None = None) -> None:
        self.waiting.append(Job(self.now_ms + max(delay_ms, 0), work, done))

    def run(self, jobs: int = 10**6) -> int:
        """Run what is due, also what is given meanwhile; how many jobs that were."""
        ran = 0
        while ran < jobs and self._run_next(self.now_ms):
            ran += 1
        return ran

    def wait(self, ms: int) -> None:
        """Let time pass, and run each job when it is due."""
        end_ms = self.now_ms + ms
        while self._run_next(end_ms):
            pass
        self.now_ms = end_ms

    def _run_next(self, until_ms: int) -> bool:
        """Run the first job that is due until then; whether there was one."""
        job = min(self.waiting, key=lambda job: job.due_ms, default=None)
        if job is None or job.due_ms > until_ms:
            return False
        self.waiting.remove(job)
        self.now_ms = max(self.now_ms, job.due_ms)
        job.work()
        if job.done is not None:
            job.done()
        return True


class JobWorker:
    """An `in_worker`: jobs wait until the test calls `work`, which fires their Deferreds with results and exceptions."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Callable[[], Any], Deferred[Any]]] = []

    def __call__(self, job: Callable[[], Any]) -> Deferred[Any]:
        done: Deferred[Any] = Deferred()
        self.jobs.append((job, done))
        return done

    def work(self) -> None:
        """Run the jobs that wait now."""
        jobs, self.jobs = self.jobs, []
        for job, done in jobs:
            try:
                result: Any = job()
            except Exception:
                result = Failure()
            done.callback(result)
