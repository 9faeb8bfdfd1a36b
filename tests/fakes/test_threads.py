"""What a tree on ZooKeeper takes from the reactor and its threads: one suite for the service, the simulation and the tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import pytest
from twisted.python.failure import Failure

from simulation.chance import stream
from simulation.hosts import SimulatedThreads
from simulation.network import Network
from simulation.process import Process
from simulation.scheduler import Scheduler
from simulation.workers import SimulatedWorkers
from tests.fakes.service_environment import ServiceEnvironment
from tests.support.zookeeper_threads import QueuedThreads
from txbroker.cluster.tree.zookeeper_session import Threads


class Kind(Protocol):
    """Threads, and a way to wait for what they do."""

    threads: Threads

    def until(self, condition: Callable[[], Any]) -> None: ...


class OfService:
    def __init__(self, service: ServiceEnvironment) -> None:
        assert service.environment.threads is not None
        self.threads: Threads = service.environment.threads
        self._service = service

    def until(self, condition: Callable[[], Any]) -> None:
        for _ in range(1000):
            self._service.wait(100)
            if condition():
                return
        raise AssertionError("the condition never became true")


class OfSimulation:
    def __init__(self) -> None:
        scheduler = self._scheduler = Scheduler()
        network = Network(scheduler, stream(1, "network"), latency_s=0.001)
        process = Process("p", "p", scheduler, network, stream(1, "process"), on_step=lambda: None, on_crash=self._crashed)
        self.threads: Threads = SimulatedThreads(process, SimulatedWorkers(process.callLater).in_worker)

    def _crashed(self, error: Exception) -> None:
        raise error

    def until(self, condition: Callable[[], Any]) -> None:
        for _ in range(1000):
            self._scheduler.run(self._scheduler.now_s + 0.1)
            if condition():
                return
        raise AssertionError("the condition never became true")


class OfTests:
    def __init__(self) -> None:
        queued = QueuedThreads()
        self.threads: Threads = queued
        self.until = queued.run_until


@pytest.fixture(params=["service", "simulation", "tests"])
def kind(request: pytest.FixtureRequest) -> Iterator[Kind]:
    if request.param == "service":
        service = ServiceEnvironment()
        yield OfService(service)
        service.close()
    else:
        yield OfSimulation() if request.param == "simulation" else OfTests()


def test_calls_of_another_thread_keep_their_order(kind: Kind) -> None:
    made: list[int] = []

    def job() -> None:
        for number in range(50):
            kind.threads.call_from_thread(made.append, number)

    kind.threads.worker(job)
    kind.until(lambda: len(made) == 50)
    assert made == list(range(50))


def test_a_worker_has_results_and_exceptions(kind: Kind) -> None:
    outcomes: list[Any] = []
    error = ValueError("the test raises it")

    def fail() -> None:
        raise error

    kind.threads.worker(lambda: "result").addBoth(outcomes.append)
    kind.until(lambda: outcomes)
    kind.threads.worker(fail).addErrback(outcomes.append)
    kind.until(lambda: len(outcomes) == 2)
    assert outcomes[0] == "result"
    assert isinstance(outcomes[1], Failure) and outcomes[1].value is error


def test_a_call_is_made_after_its_delay_and_can_be_cancelled_at_any_time(kind: Kind) -> None:
    made: list[str] = []
    due_s = kind.threads.seconds() + 0.02
    early: list[bool] = []

    def call() -> None:
        made.append("made")
        early.append(kind.threads.seconds() < due_s)

    cancels = [kind.threads.call_later(0.01, lambda: made.append("cancelled"))]
    cancels[0]()
    cancels.append(kind.threads.call_later(0.02, call))
    kind.until(lambda: made)
    for cancel in cancels * 2:
        cancel()  # it does nothing after the call, nor after another cancel
    assert (made, early) == (["made"], [False])


def test_a_call_may_cancel_itself(kind: Kind) -> None:
    made: list[str] = []

    def call() -> None:
        cancel()
        made.append("made")

    cancel = kind.threads.call_later(0.01, call)
    kind.until(lambda: made)
    assert made == ["made"]
