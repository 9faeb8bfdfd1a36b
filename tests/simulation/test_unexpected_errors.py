"""An error of a broker that no fault explains is a violation, also one that no code has looked at."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace

import pytest
from twisted.internet.defer import Deferred
from twisted.logger import globalLogBeginner, globalLogPublisher

from simulation.environment import Violation
from simulation.plan import Fault, Plan, draw_plain
from simulation.run import run_plan
from txbroker.broker.service import Broker


@pytest.fixture(autouse=True)
def _no_buffer() -> Iterator[None]:
    """Until a program begins its log Twisted keeps the last events, and the brokers to which they refer."""
    buffer = globalLogBeginner._temporaryObserver
    globalLogPublisher.removeObserver(buffer)
    yield
    if globalLogBeginner._temporaryObserver is not None:
        globalLogPublisher.addObserver(buffer)


def small_plan(*faults: Fault) -> Plan:
    topics = tuple(replace(topic, replicas=1, min_in_sync=1) for topic in draw_plain(1).topics)
    return replace(draw_plain(1), brokers=1, topics=topics, consumers=(), committers=(), faults=faults, left_out=None, duration_s=6.0)


def violation(plan: Plan) -> Violation | None:
    return run_plan(plan)[0].violation


async def defect() -> None:
    raise KeyError("a defect of the broker")


class FirstBroker:
    """Does something more when the first broker of the simulation starts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.started = False
        start = Broker.start

        def starting(broker: Broker) -> Deferred[None]:
            if not self.started:
                self.started = True
                self.does(broker)
            return start(broker)

        monkeypatch.setattr(Broker, "start", starting)

    def does(self, broker: Broker) -> None:
        """Something."""


class FailsInACycle(FirstBroker):
    def does(self, broker: Broker) -> None:
        failed = Deferred.fromCoroutine(defect())
        failed.itself = failed  # type: ignore[attr-defined]


class KeepsAFailure(FirstBroker):
    def does(self, broker: Broker) -> None:
        broker.kept = Deferred.fromCoroutine(defect())  # type: ignore[attr-defined]


KILL = Fault(2.0, "kill", 0, 0.5, 0.5)
STOP = KILL._replace(kind="stop")


@pytest.mark.parametrize(
    ("broker", "faults"), [(FailsInACycle, ()), (FailsInACycle, (KILL,)), (KeepsAFailure, ()), (KeepsAFailure, (STOP,))]
)
def test_a_failure_that_no_code_handles_is_found(
    monkeypatch: pytest.MonkeyPatch, broker: type[FirstBroker], faults: tuple[Fault, ...]
) -> None:
    broker(monkeypatch)
    found = violation(small_plan(*faults))
    assert found is not None and found.invariant == "I12" and "a defect of the broker" in found.text, found


def test_a_failure_that_a_killed_broker_might_have_handled_is_no_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = KeepsAFailure(monkeypatch)
    assert violation(small_plan(KILL)) is None and broker.started


def test_a_run_without_errors_is_clean() -> None:
    assert violation(small_plan(KILL, STOP._replace(at_s=4.0))) is None


class CannotStart(FirstBroker):
    def does(self, broker: Broker) -> None:
        broker._start = defect  # type: ignore[method-assign]


class CannotStop(FirstBroker):
    def does(self, broker: Broker) -> None:
        broker._stop = defect  # type: ignore[method-assign]


class EndsItself(FirstBroker):
    def does(self, broker: Broker) -> None:
        broker._environment.reactor.callLater(2.0, broker._fail, "a defect of the broker")


@pytest.mark.parametrize(
    ("broker", "what"),
    [(CannotStart, "b1 cannot start: "), (CannotStop, "b1 cannot stop: "), (EndsItself, "b1 ends itself: ")],
)
def test_a_start_or_stop_that_fails_is_found(monkeypatch: pytest.MonkeyPatch, broker: type[FirstBroker], what: str) -> None:
    broker(monkeypatch)
    found = violation(small_plan(STOP))
    assert found is not None and found.invariant == "I12" and found.text.startswith(what), found


class ReportsALackOfSpace(FirstBroker):
    def does(self, broker: Broker) -> None:
        broker._environment.reactor.callLater(5.5, logging.getLogger("txbroker").error, "No space left on device")


FULL = Fault(0.1, "full", 0, 0.5, 0.5)


@pytest.mark.parametrize(("faults", "clean"), [((FULL,), False), ((FULL._replace(at_s=3.5, length_s=4.0),), True)])
def test_a_lack_of_space_is_excused_only_while_the_disk_is_full(
    monkeypatch: pytest.MonkeyPatch, faults: tuple[Fault, ...], clean: bool
) -> None:
    ReportsALackOfSpace(monkeypatch)
    found = violation(small_plan(*faults))
    assert (found is None) is clean, found
    assert clean or (found is not None and "No space left" in found.text)
