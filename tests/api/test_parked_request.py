"""A parked request has one answer, for one listener, however it ends."""

from __future__ import annotations

import weakref

import pytest
from twisted.internet.defer import CancelledError
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from txbroker.api.parking import ParkedRequest
from txbroker.purgatory import Purgatory

TIMEOUT_MS = 1000


class Parked(ParkedRequest[str]):
    """Responds with `ready` once there is one; `broken`: it raises an exception after its response."""

    def __init__(self) -> None:
        self.ready = ""
        self.broken = False

    def try_complete(self) -> bool:
        if self.ready:
            self.respond(self.ready)
        if self.broken:
            raise ValueError
        return bool(self.ready)

    def on_expired(self) -> None:
        self.respond("expired")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def purgatory(clock: Clock) -> Purgatory:
    return Purgatory(clock, "test")


@pytest.fixture
def parked(purgatory: Purgatory) -> Parked:
    return Parked().park(purgatory, ["key"], TIMEOUT_MS)


def test_it_responds_when_it_completes(parked: Parked, purgatory: Purgatory) -> None:
    heard: list[tuple[str, int]] = []
    parked.when_answered(lambda response, number: heard.append((response, number)), 7)
    purgatory.check("key")
    assert heard == []
    parked.ready = "ready"
    purgatory.check("key")
    assert heard == [("ready", 7)]
    assert len(purgatory) == 0


def test_it_responds_when_it_expires(parked: Parked, clock: Clock) -> None:
    heard: list[str] = []
    parked.when_answered(heard.append)
    clock.advance(TIMEOUT_MS / 1000)
    assert heard == ["expired"]


def test_one_that_is_cancelled_does_not_keep_its_listener(parked: Parked) -> None:
    """A connection refers to the requests that wait on it."""

    class Connection:
        def answered(self, response: str) -> None:
            raise AssertionError(response)

    connection = Connection()
    parked.when_answered(connection.answered)
    gone = weakref.ref(connection)
    del connection
    assert gone() is not None
    parked.cancel()
    assert gone() is None


def test_one_that_ends_while_it_is_parked_responds_to_a_later_listener(clock: Clock) -> None:
    heard: list[str] = []
    Parked().park(Purgatory(clock, "test", parked_max=0), ["key"], TIMEOUT_MS).when_answered(heard.append)
    assert heard == ["expired"]


def test_it_responds_once_even_if_it_expires_because_of_an_error(parked: Parked, purgatory: Purgatory) -> None:
    heard: list[str] = []
    parked.when_answered(heard.append)
    parked.ready, parked.broken = "ready", True
    purgatory.check("key")
    assert heard == ["ready"]


def test_after_its_cancellation_it_does_not_respond(parked: Parked, purgatory: Purgatory, clock: Clock) -> None:
    heard: list[str] = []
    parked.when_answered(heard.append)
    parked.cancel()
    assert len(purgatory) == 0
    parked.ready = "ready"
    purgatory.check("key")
    clock.advance(TIMEOUT_MS / 1000)
    assert heard == []


def test_its_deferred_fires_and_cancels_it(purgatory: Purgatory) -> None:
    heard: list[object] = []

    def heard_failure(failure: Failure) -> None:
        heard.append(failure.check(CancelledError))

    first, second = (Parked().park(purgatory, ["key"], TIMEOUT_MS) for _ in range(2))
    first.deferred().addCallback(heard.append)
    cancelled = second.deferred()
    cancelled.addErrback(heard_failure)
    cancelled.cancel()
    first.ready = second.ready = "ready"
    purgatory.check("key")
    assert heard == [CancelledError, "ready"]
