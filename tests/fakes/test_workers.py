"""The workers of tests and of the simulation behave as thread pools: one suite for `in_worker`, one for `later`, one for `run_all`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Protocol

import pytest
from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure

from simulation.chance import stream
from simulation.workers import SimulatedWorkers, one_by_one
from tests.fakes.service_environment import ServiceEnvironment
from tests.support.fakes.reactor import FakeReactor
from tests.support.fakes.turns import Turns
from tests.support.fakes.worker import JobWorker, Worker
from txbroker.log.directories import RunAll


class Workers(Protocol):
    """An `in_worker`, and a way to wait until a condition holds."""

    def in_worker(self, job: Callable[[], Any]) -> Deferred[Any]: ...

    def until(self, condition: Callable[[], Any], what: str) -> None: ...


class Threads:
    """One of the service's thread pools."""

    def __init__(self, service: ServiceEnvironment, pool: str) -> None:
        self.reactor = service.running.reactor
        self.in_worker = service.pools[pool]
        self.until = service.running.until
        self.stop = service.running.stop
        self.turns = service.running.turns


class InTheTest:
    """Workers that the test lets work."""

    def __init__(self, in_worker: Callable[[Callable[[], Any]], Deferred[Any]], work: Callable[[], object]) -> None:
        self.in_worker = in_worker
        self._work = work

    def until(self, condition: Callable[[], Any], what: str) -> None:
        for _ in range(100):
            if condition():
                return
            self._work()
        raise AssertionError(f"still not: {what}")


class OnFakeReactor(InTheTest):
    """The workers of `fake_environment`, or slower ones, whose jobs take different times."""

    def __init__(self, *, slow: bool = False) -> None:
        self.reactor = FakeReactor()
        chance = stream(1, "durations")
        workers = SimulatedWorkers(self.reactor.callLater, lambda: chance.random() if slow else 0.0)
        self.reactor.addSystemEventTrigger("during", "shutdown", workers.shut_down)
        super().__init__(workers.in_worker, lambda: self.reactor.advance(1))
        self.stop = self.reactor.stop
        self.turns = lambda: self.reactor.advance(1)


def job_worker() -> InTheTest:
    worker = JobWorker()
    return InTheTest(worker, worker.work)


def turns() -> InTheTest:
    queue = Turns()
    return InTheTest(queue.worker, queue.run)


MADE: dict[str, Callable[[], InTheTest]] = {
    "jobs": job_worker,
    "turns": turns,
    "simulated": OnFakeReactor,
    "slow simulated": lambda: OnFakeReactor(slow=True),
}
POOLS = ["read", "disk", "tree"]
stopping = pytest.mark.parametrize("workers", [*POOLS, "simulated", "slow simulated"], indirect=True)  # those that a reactor stops
in_order = pytest.mark.parametrize("workers", ["tree", "jobs", "turns", "simulated"], indirect=True)  # one job at a time


@pytest.fixture
def service() -> Iterator[ServiceEnvironment]:
    made = ServiceEnvironment()
    yield made
    made.close()


@pytest.fixture(params=[*POOLS, *MADE])
def workers(request: pytest.FixtureRequest) -> Any:
    if request.param in POOLS:
        return Threads(request.getfixturevalue("service"), request.param)
    return MADE[request.param]()


def collect(deferred: Deferred[Any], into: list[Any]) -> None:
    deferred.addBoth(into.append)


def test_a_deferred_fires_with_the_result_of_its_job(workers: Workers) -> None:
    results: list[Any] = []
    jobs: list[Callable[[], Any]] = [lambda: 1, lambda: None, lambda: b"bytes"]
    for job in jobs:
        collect(workers.in_worker(job), results)
        assert results == [], "it never fires before in_worker returns, nor outside of the reactor's turns"
        workers.until(lambda: results, "the job has run")
        assert results.pop() == job()


def test_a_deferred_fires_with_the_exception_of_its_job(workers: Workers) -> None:
    error = ValueError("the test raises it")
    results: list[Any] = []

    def fail() -> None:
        raise error

    collect(workers.in_worker(fail), results)
    collect(workers.in_worker(lambda: "the next job"), results)
    workers.until(lambda: len(results) == 2, "both jobs have run")
    failed = [result for result in results if isinstance(result, Failure)]
    assert [failure.value for failure in failed] == [error]
    assert "in fail" in failed[0].getTraceback()
    assert "the next job" in results


def test_callbacks_are_called_in_the_thread_of_the_reactor(workers: Workers) -> None:
    threads: list[int] = []
    for _ in range(20):
        workers.in_worker(threading.get_ident).addCallback(lambda _: threads.append(threading.get_ident()))
    workers.until(lambda: len(threads) == 20, "all jobs have run")
    assert set(threads) == {threading.get_ident()}


def test_every_job_runs_once_and_gets_its_own_result(workers: Workers) -> None:
    runs: list[int] = []
    results: list[Any] = []

    def job(number: int) -> int:
        runs.append(number)
        return number

    for number in range(100):
        workers.in_worker(partial(job, number)).addCallback(lambda result, number: results.append((number, result)), number)
    workers.until(lambda: len(results) == 100, "all jobs have run")
    assert sorted(runs) == list(range(100))
    assert sorted(results) == [(number, number) for number in range(100)]


@in_order
def test_one_worker_runs_jobs_in_the_order_in_which_they_were_given(workers: Workers) -> None:
    runs: list[int] = []
    results: list[int] = []
    for number in range(100):
        workers.in_worker(partial(runs.append, number)).addCallback(lambda _, number: results.append(number), number)
    workers.until(lambda: len(results) == 100, "all jobs have run")
    assert runs == results == list(range(100))


def test_a_job_that_is_given_by_a_callback_runs(workers: Workers) -> None:
    results: list[Any] = []
    workers.in_worker(lambda: 1).addCallback(lambda one: workers.in_worker(partial(int.__add__, one, 1))).addCallback(results.append)
    workers.until(lambda: results, "both jobs have run")
    assert results == [2]


def test_a_job_runs_although_its_deferred_was_cancelled(workers: Workers) -> None:
    runs: list[str] = []
    results: list[Any] = []
    deferred = workers.in_worker(lambda: runs.append("cancelled"))
    collect(deferred, results)
    deferred.cancel()
    assert isinstance(results[0].value, CancelledError)
    others: list[Any] = []
    collect(workers.in_worker(lambda: "another"), others)
    workers.until(lambda: runs and others, "both jobs have run")
    assert (runs, len(results), others) == (["cancelled"], 1, ["another"])


@stopping
def test_jobs_that_wait_at_the_shutdown_run_and_their_results_are_dropped(workers: Any) -> None:
    runs: list[int] = []
    results: list[Any] = []
    may_go_on = threading.Event()

    def job(number: int) -> None:
        may_go_on.wait()
        runs.append(number)

    for number in range(50):
        collect(workers.in_worker(partial(job, number)), results)
    workers.reactor.addSystemEventTrigger("before", "shutdown", may_go_on.set)
    workers.stop()
    assert (sorted(runs), results) == (list(range(50)), [])
    workers.turns()
    assert results == []


@stopping
def test_jobs_that_follow_the_shutdown_never_run(workers: Any) -> None:
    workers.stop()
    outcomes: list[Any] = []
    collect(workers.in_worker(lambda: outcomes.append("run")), outcomes)
    workers.turns()
    assert outcomes == []


class Delayed(Protocol):
    """A `Later`, and a way to let time pass and its jobs end. `problems`: the exceptions of jobs, which are reported somewhere."""

    problems: list[str]

    def later(self, delay_ms: int, work: Callable[[], None], done: Callable[[], None] | None = None) -> None: ...

    def wait(self, ms: int) -> None: ...

    def now_ms(self) -> int: ...


class DelayedByTest:
    """A `Later` whose time the test lets pass. Exceptions are raised to the test."""

    def __init__(self, later: Any, wait: Callable[[int], object], now_ms: Callable[[], int]) -> None:
        self.later = later
        self.now_ms = now_ms
        self.problems: list[str] = []
        self._wait = wait

    def wait(self, ms: int) -> None:
        end_ms = self.now_ms() + ms
        while True:
            try:
                self._wait(end_ms - self.now_ms())
                return
            except Exception as error:
                self.problems.append(str(error))


def delayed_worker() -> DelayedByTest:
    worker = Worker()
    return DelayedByTest(worker, worker.wait, lambda: worker.now_ms)


def delayed_simulated() -> DelayedByTest:
    reactor = FakeReactor()
    later = SimulatedWorkers(reactor.callLater).later
    return DelayedByTest(later, lambda ms: reactor.advance(ms / 1000), lambda: round(reactor.seconds() * 1000))


@pytest.fixture(params=["service", "worker", "simulated"])
def delayed(request: pytest.FixtureRequest) -> Any:
    if request.param == "service":
        return request.getfixturevalue("service")
    return {"worker": delayed_worker, "simulated": delayed_simulated}[request.param]()


def test_done_is_called_after_the_work_and_not_within_later(delayed: Delayed) -> None:
    events: list[str] = []
    thread = threading.get_ident()
    delayed.later(0, lambda: events.append("work"), lambda: events.append("done" if threading.get_ident() == thread else "wrong thread"))
    assert "done" not in events
    delayed.later(0, lambda: events.append("without done"))
    delayed.wait(1)
    assert sorted(events) == ["done", "without done", "work"]
    assert events.index("work") < events.index("done")


def test_work_begins_when_its_delay_is_over(delayed: Delayed) -> None:
    events: list[str] = []
    delayed.later(2000, lambda: events.append("2000"))
    delayed.later(1000, lambda: events.append("1000"))
    delayed.later(-5, lambda: events.append("at once"))
    delayed.wait(999)
    assert events == ["at once"]
    delayed.wait(2)
    assert events == ["at once", "1000"]
    delayed.wait(1000)
    assert events == ["at once", "1000", "2000"]


def test_work_that_is_due_earlier_runs_first_in_one_long_wait(delayed: Delayed) -> None:
    events: list[str] = []
    start_ms = delayed.now_ms()
    delayed.later(3000, lambda: events.append("3000"))
    delayed.later(1000, lambda: events.append("1000"), lambda: delayed.later(500, lambda: events.append("1500")))
    delayed.later(2000, lambda: events.append(f"2000: {delayed.now_ms() - start_ms}"))
    delayed.wait(5000)
    assert events == ["1000", "1500", "2000: 2000", "3000"]


def test_done_is_not_called_when_the_work_failed_and_other_work_goes_on(delayed: Delayed) -> None:
    events: list[str] = []

    def fail() -> None:
        raise ValueError("the test raises it")

    delayed.later(0, fail, lambda: events.append("done"))
    delayed.later(0, lambda: None, fail)
    delayed.later(0, lambda: events.append("other"))
    delayed.later(10, lambda: events.append("later"))
    delayed.wait(20)
    assert events == ["other", "later"]
    assert delayed.problems == ["the test raises it"] * 2


@pytest.fixture(params=["service", "one by one"])
def run_all(request: pytest.FixtureRequest) -> RunAll:
    if request.param == "one by one":
        return one_by_one
    service: ServiceEnvironment = request.getfixturevalue("service")
    return service.environment.run_all


@pytest.mark.parametrize("at_once", [None, 1, 4])
def test_run_all_returns_when_all_jobs_of_all_directories_are_done(run_all: RunAll, at_once: int | None) -> None:
    runs: list[str] = []
    jobs: dict[str, list[Callable[[], None]]] = {
        directory: [partial(runs.append, f"{directory}{number}") for number in range(20)] for directory in ("/a", "/b")
    }
    run_all({**jobs, "/empty": []}, at_once=at_once)
    run_all({})
    assert sorted(runs) == sorted(f"{directory}{number}" for directory in jobs for number in range(20))


def test_run_all_raises_the_first_error_when_all_jobs_are_done(run_all: RunAll) -> None:
    runs: list[int] = []

    def fail(why: str) -> None:
        raise ValueError(why)

    def job(number: int) -> Callable[[], None]:
        return lambda: runs.append(number)

    with pytest.raises(ValueError, match=r"^first$"):
        run_all({"/a": [job(1), lambda: fail("first"), job(2)], "/b": [lambda: fail("second"), job(3)]})
    assert sorted(runs) == [1, 2, 3]
