"""The environment of the Twisted service and that of fakes make the same promises, and a broker starts and stops in both."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Protocol

import pytest
import twisted.internet
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from simulation.memory_disk import MemoryDisk
from tests.fakes.service_environment import ServiceEnvironment
from tests.support.fakes.environment import fake_environment
from tests.support.fakes.reactor import FakeReactor
from tests.support.running_reactor import RunningReactor
from txbroker.broker.environment import Environment
from txbroker.broker.service import Broker
from txbroker.broker_service import monotonic_reactor
from txbroker.config.load import load_broker_config
from txbroker.config.properties import parse_overrides


class Surroundings(Protocol):
    """An environment, a directory of its disk, and ways to wait for what happens in it and to end it."""

    environment: Environment
    directory: str

    def until(self, condition: Callable[[], Any], what: str) -> None: ...

    def turns(self) -> None: ...

    def stop(self) -> None: ...

    def close(self) -> None: ...


class OfService:
    """The environment of `broker_service.py`, also with its monotonic clock."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        running = RunningReactor()
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, "twisted.internet.reactor", running.reactor)
            patch.setattr(twisted.internet, "reactor", running.reactor, raising=False)
            assert monotonic_reactor() is running.reactor
        self._service = ServiceEnvironment(running)
        self.environment = self._service.environment
        self.directory = str(directory)
        self.until = running.until
        self.turns = running.turns
        self.stop = running.stop
        self.close = self._service.close


class OfFakes:
    """The environment of tests."""

    def __init__(self) -> None:
        self._reactor = FakeReactor()
        self.environment = fake_environment(self._reactor, MemoryDisk(), Random(1))
        self.directory = "/data"
        self.environment.disk.make_directory(self.directory)
        self.stop = self._reactor.stop

    def until(self, condition: Callable[[], Any], what: str) -> None:
        for _ in range(10_000):
            if condition():
                return
            self._reactor.advance(0.01)
        raise AssertionError(f"still not: {what}")

    def turns(self) -> None:
        self._reactor.advance(10_000)

    def close(self) -> None:
        pass


@pytest.fixture(params=["service", "fakes"])
def surroundings(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Surroundings]:
    made = OfService(tmp_path, monkeypatch) if request.param == "service" else OfFakes()
    yield made
    made.close()


def result(surroundings: Surroundings, deferred: Deferred[Any]) -> Any:
    """What a Deferred fires with, which is not yet known."""
    outcomes: list[Any] = []
    deferred.addBoth(outcomes.append)
    assert outcomes == [], "it fires in a later turn of the reactor"
    surroundings.until(lambda: outcomes, "the Deferred fires")
    if isinstance(outcomes[0], Failure):
        outcomes[0].raiseException()
    return outcomes[0]


def test_the_reactor_has_the_monotonic_clock(surroundings: Surroundings) -> None:
    environment = surroundings.environment
    read: list[float] = []

    def call(due_s: float) -> None:
        assert environment.monotonic_s() >= due_s
        read.extend((environment.monotonic_s(), environment.reactor.seconds(), environment.monotonic_s()))

    for _ in range(20):
        read.extend((environment.reactor.seconds(), environment.monotonic_s()))
        environment.reactor.callLater(0.01, call, environment.monotonic_s() + 0.01)
    surroundings.until(lambda: len(read) == 100, "all calls are made")
    assert read == sorted(read), "both are the same clock, and it never goes back"


def test_the_wall_clock_counts_milliseconds_since_1970(surroundings: Surroundings) -> None:
    now_ms = surroundings.environment.now_ms()
    assert isinstance(now_ms, int)
    assert 2020 < 1970 + now_ms / 1000 / 3600 / 24 / 365.25 < 2100


def test_the_clock_of_durations_does_not_follow_the_wall_clock(surroundings: Surroundings, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = surroundings.environment
    made: list[float] = []
    environment.reactor.callLater(0.01, lambda: made.append(environment.monotonic_s()))
    before_s = environment.monotonic_s()
    monkeypatch.setattr(time, "time", lambda: 0.0)
    monkeypatch.setattr(time, "time_ns", lambda: 0)
    surroundings.until(lambda: made, "the call is made")
    assert made[0] >= before_s


def test_random_numbers(surroundings: Surroundings) -> None:
    environment = surroundings.environment
    assert all(0 <= environment.random.random() < 1 for _ in range(100))
    assert len({environment.random.randrange(10**9) for _ in range(100)}) > 90
    assert [len(environment.random_bytes(length)) for length in (0, 1, 16, 100)] == [0, 1, 16, 100]
    ids = {environment.unique_id() for _ in range(100)}
    assert len(ids) == 100
    assert all(len(bytes.fromhex(unique)) == 16 for unique in ids)


def test_the_host_has_a_name(surroundings: Surroundings) -> None:
    name = surroundings.environment.host_name()
    assert name and isinstance(name, str)


def test_workers_use_the_disk(surroundings: Surroundings) -> None:
    environment, path = surroundings.environment, f"{surroundings.directory}/file"
    result(surroundings, environment.in_worker(partial(environment.disk.write, path, b"written")))
    assert result(surroundings, environment.in_worker(partial(environment.disk.read, path))) == b"written"
    removed: list[bool] = []
    environment.later(0, partial(environment.disk.remove, path), lambda: removed.append(True))
    assert removed == []
    surroundings.until(lambda: removed, "the file is removed")
    assert environment.disk.read(path) is None


def test_a_worker_runs_all_jobs(surroundings: Surroundings) -> None:
    """As the broker does with the logs of its directories."""
    environment = surroundings.environment
    runs: list[int] = []
    jobs = {"/a": [partial(runs.append, 1), partial(runs.append, 2)], "/b": [partial(runs.append, 3)]}
    result(surroundings, environment.in_worker(partial(environment.run_all, jobs)))
    assert sorted(runs) == [1, 2, 3]


def test_the_tree_survives_its_session(surroundings: Surroundings) -> None:
    environment, path = surroundings.environment, f"{surroundings.directory}/metadata"
    full: list[bool] = []
    tree = environment.open_tree(path, lambda: full.append(True), True)
    assert result(surroundings, tree.create("/topic", b"data")) == "/topic"
    result(surroundings, tree.create("/broker", b"", ephemeral=True))
    result(surroundings, tree.close())
    again = environment.open_tree(path, lambda: full.append(True), True)
    data, _ = result(surroundings, again.get("/topic"))
    assert data == b"data"
    assert result(surroundings, again.exists("/broker")) is None
    result(surroundings, again.close())
    assert full == []


def test_the_number_of_replicas_may_be_reported(surroundings: Surroundings) -> None:
    surroundings.environment.replicas_changed(5)


def test_at_the_shutdown_waiting_jobs_run_and_waiting_calls_are_not_made(surroundings: Surroundings) -> None:
    environment = surroundings.environment
    events: list[str] = []
    for number in range(50):
        environment.in_worker(partial(events.append, f"job {number}")).addCallback(lambda _: events.append("result"))
        environment.later(0, partial(events.append, f"later {number}"), lambda: events.append("done"))
    environment.later(1000, lambda: events.append("after a delay"))
    environment.reactor.callLater(1000, events.append, "call")
    surroundings.stop()
    given = {f"{kind} {number}" for kind in ("job", "later") for number in range(50)}
    assert given <= set(events)
    assert not {"after a delay", "call"} & set(events)
    ended = len(events)
    environment.later(0, lambda: events.append("after the shutdown"))
    surroundings.turns()
    assert len(events) == ended


def test_a_broker_starts_and_stops(surroundings: Surroundings) -> None:
    environment, directory = replace(surroundings.environment, instruments=None), f"{surroundings.directory}/logs"  # without metrics
    config = load_broker_config(parse_overrides(["listeners=PLAINTEXT://127.0.0.1:0", f"log.dirs={directory}", "broker.id=1"], {}))
    fatal: list[str] = []
    identities: list[str] = []
    for _ in range(2):
        broker = Broker(config, environment, [directory], fatal.append)
        result(surroundings, broker.start())
        assert list(broker.bound) == ["PLAINTEXT"]
        properties = environment.disk.read(f"{directory}/meta.properties")
        assert properties is not None
        identities += [line for line in properties.decode().splitlines() if line.startswith("cluster.id=")]
        result(surroundings, broker.stop())
    assert fatal == []
    assert len(identities) == 2 and len(set(identities)) == 1, "the second start finds the cluster of the first"
