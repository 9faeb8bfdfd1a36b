"""The workers of a process that has one thread and simulated time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure


def no_time() -> float:
    """The duration of a job of a worker that is as fast as possible."""
    return 0.0


class SimulatedWorkers:
    """`in_worker` and `later` of a broker's environment. A job is a call of the reactor, and its result arrives in another call.

    So the broker may do anything else between the two, as with threads. `duration_s` gives how long the next job takes.
    """

    def __init__(self, call_later: Callable[..., object], duration_s: Callable[[], float] = no_time) -> None:
        self._call_later = call_later
        self._duration_s = duration_s
        self._waiting: dict[Callable[[], None], None] = {}  # the jobs whose delays are over, in order
        self._stopped = False

    def in_worker(self, job: Callable[[], Any]) -> Deferred[Any]:
        """Run a job; fires with its result or its exception."""
        done: Deferred[Any] = Deferred()

        def run() -> None:
            try:
                result: Any = job()
            except Exception:
                result = Failure()
            self._call_later(0, done.callback, result)

        self._begin(0, run)
        return done

    def later(self, delay_ms: int, work: Callable[[], None], done: Callable[[], None] | None = None) -> None:
        """See `Later` of `log/log_results.py`. An exception of `work` is one of the reactor's call."""

        def run() -> None:
            work()
            if done is not None:
                self._call_later(0, done)

        self._begin(delay_ms, run)

    def shut_down(self) -> None:
        """Run the jobs that wait, as thread pools do when the reactor stops. Jobs that follow never run."""
        self._stopped = True
        while self._waiting:
            self._run(next(iter(self._waiting)))

    def _begin(self, delay_ms: int, run: Callable[[], None]) -> None:
        if self._stopped:
            return
        if delay_ms <= 0:
            self._waiting[run] = None
            self._call_later(self._duration_s(), self._run, run)
        else:
            self._call_later(delay_ms / 1000 + self._duration_s(), self._run_delayed, run)

    def _run(self, run: Callable[[], None]) -> None:
        if run in self._waiting:
            del self._waiting[run]
            run()

    def _run_delayed(self, run: Callable[[], None]) -> None:
        if not self._stopped:
            run()


def one_by_one(jobs: Mapping[str, Sequence[Callable[[], None]]], *, at_once: int | None = None) -> None:
    """A `RunAll` without threads: see `log/directories.py`. It raises the first error when all jobs have run."""
    errors: list[Exception] = []
    for of_directory in jobs.values():
        for job in of_directory:
            try:
                job()
            except Exception as error:
                errors.append(error)
    if errors:
        raise errors[0]
