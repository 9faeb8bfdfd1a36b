"""Workers that run jobs in the test's own thread: when the test says so, or at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from twisted.internet.defer import Deferred


class Job(NamedTuple):
    """`work`, due at `due_ms` of the worker's time, and what follows it in the reactor."""

    due_ms: int
    work: Callable[[], None]
    done: Callable[[], None] | None


class Worker:
    """A `Later`: jobs run one after the other, in the order in which they were given, when the test calls `run` or `wait`."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.waiting: list[Job] = []

    def __call__(self, delay_ms: int, work: Callable[[], None], done: Callable[[], None] | None = None) -> None:
        self.waiting.append(Job(self.now_ms + delay_ms, work, done))

    def run(self, jobs: int = 10**6) -> int:
        """Run what is due, also what is given meanwhile; how many jobs that were."""
        ran = 0
        while ran < jobs:
            due = next((job for job in self.waiting if job.due_ms <= self.now_ms), None)
            if due is None:
                break
            self.waiting.remove(due)
            ran += 1
            due.work()
            if due.done is not None:
                due.done()
        return ran

    def wait(self, ms: int) -> None:
        """Let time pass, and run what is due then."""
        self.now_ms += ms
        self.run()


class JobWorker:
    """An `in_worker`: jobs wait until the test calls `work`, which fires their Deferreds with None."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Callable[[], None], Deferred[None]]] = []

    def __call__(self, job: Callable[[], None]) -> Deferred[None]:
        done: Deferred[None] = Deferred()
        self.jobs.append((job, done))
        return done

    def work(self) -> None:
        """Run the jobs that wait now."""
        jobs, self.jobs = self.jobs, []
        for job, done in jobs:
            job()
            done.callback(None)


def one_by_one(jobs: Mapping[str, Sequence[Callable[[], None]]], *, at_once: int | None = None) -> None:
    """A `RunAll` without threads."""
    for of_directory in jobs.values():
        for job in of_directory:
            job()
