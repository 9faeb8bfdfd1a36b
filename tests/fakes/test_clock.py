"""Reactors of tests keep time as Twisted's reactor does: one suite for all, and random operations on several side by side."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, Protocol, cast

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule
from twisted.internet.error import AlreadyCalled, AlreadyCancelled
from twisted.internet.task import Clock
from twisted.logger import LogEvent, globalLogPublisher

from simulation.chance import stream
from simulation.network import Network
from simulation.process import Process
from simulation.scheduler import Scheduler
from tests.support.fakes.process_clock import ProcessClock
from tests.support.fakes.reactor import FakeReactor
from tests.support.running_reactor import RunningReactor

SOON_S = 0.01  # the simulation makes calls without a delay within this time


class Timed(Protocol):
    """A reactor, and a way to let its time pass. `problems`: the exceptions of calls."""

    reactor: Any
    problems: list[BaseException]

    def advance(self, by_s: float) -> None: ...

    def close(self) -> None: ...


class TwistedTime:
    """Twisted's reactor logs the exceptions of calls."""

    def __init__(self) -> None:
        self._running = RunningReactor()
        self.reactor = self._running.reactor
        self.advance = self._running.advance
        self.problems: list[BaseException] = []
        self._observer = cast(Any, self._observe)  # an ILogObserver by what it does
        globalLogPublisher.addObserver(self._observer)

    def _observe(self, event: LogEvent) -> None:
        if "log_failure" in event:
            self.problems.append(event["log_failure"].value)

    def close(self) -> None:
        globalLogPublisher.removeObserver(self._observer)
        self._running.close()


class HandTime:
    """The reactors of tests raise the exceptions of calls to the test."""

    def __init__(self, clock: FakeReactor | Clock, reactor: Any = None) -> None:
        self.reactor = reactor or clock
        self._clock = clock
        self.problems: list[BaseException] = []

    def advance(self, by_s: float) -> None:
        end_s = self.reactor.seconds() + by_s
        while True:
            try:
                self._clock.advance(end_s - self.reactor.seconds())
                return
            except Exception as error:
                self.problems.append(error)

    def close(self) -> None:
        pass


class SimulatedTime:
    """A process of the simulation."""

    def __init__(self) -> None:
        self._scheduler = Scheduler()
        self.problems: list[BaseException] = []
        network = Network(self._scheduler, stream(1, "network"), latency_s=0.001)
        self.reactor = Process("p", "p", self._scheduler, network, stream(1, "process"), on_step=lambda: None,
                               on_crash=self.problems.append)  # fmt: skip

    def advance(self, by_s: float) -> None:
        self._scheduler.run(self._scheduler.now_s + by_s)

    def close(self) -> None:
        pass


def of_process() -> Timed:
    reactor = FakeReactor()
    return HandTime(reactor, ProcessClock(reactor))


KINDS: dict[str, Callable[[], Timed]] = {
    "twisted": TwistedTime,
    "fake": lambda: HandTime(FakeReactor()),
    "process": of_process,
    "simulated": SimulatedTime,
    "task": lambda: HandTime(Clock()),
}


@pytest.fixture(params=KINDS)
def timed(request: pytest.FixtureRequest) -> Iterator[Timed]:
    made = KINDS[request.param]()
    yield made
    made.close()


exact = pytest.mark.parametrize("timed", ["twisted", "fake", "process", "simulated"], indirect=True)  # task.Clock does not promise it


def test_calls_are_made_in_the_order_of_their_times(timed: Timed) -> None:
    made: list[float] = []
    for delay_s in (3, 1, 2, 0.5, 2.5):
        timed.reactor.callLater(delay_s, made.append, delay_s)
    timed.advance(10)
    assert made == [0.5, 1, 2, 2.5, 3]


@pytest.mark.parametrize("delay_s", [0, 1])
def test_calls_with_the_same_delay_are_made_in_the_order_in_which_they_were_scheduled(timed: Timed, delay_s: float) -> None:
    made: list[int] = []
    for number in range(50):
        timed.reactor.callLater(delay_s, made.append, number)
    assert made == [], "no call is made before callLater returns"
    timed.advance(delay_s + SOON_S)
    assert made == list(range(50))


def test_a_call_is_made_once_with_its_arguments_and_not_before_its_time(timed: Timed) -> None:
    made: list[object] = []
    timed.reactor.callLater(1, lambda *arguments, **named: made.append((arguments, named)), 1, "two", three=3)
    timed.advance(0.9)
    assert made == []
    timed.advance(0.2)
    timed.advance(5)
    assert made == [((1, "two"), {"three": 3})]


def test_time_never_goes_back(timed: Timed) -> None:
    reactor = timed.reactor
    start_s = reactor.seconds()
    read: list[float] = [start_s]
    early: list[bool] = []

    def call(due_s: float) -> None:
        read.append(reactor.seconds())
        early.append(read[-1] < due_s)

    for delay_s in (0.3, 0, 0.2, 0.1, 0):
        reactor.callLater(delay_s, call, start_s + delay_s)
    for by_s in (0.25, 0, 0.25):
        timed.advance(by_s)
        read.append(reactor.seconds())
    assert read == sorted(read)
    assert early == [False] * 5


@exact
def test_the_delay_of_a_call_within_a_call_counts_from_that_call(timed: Timed) -> None:
    reactor = timed.reactor
    made: list[Any] = []

    def first() -> None:
        made.append("first")
        reactor.callLater(0.5, made.append, "within")
        reactor.callLater(5, made.append, "after the end")

    reactor.callLater(1, first)
    reactor.callLater(2, made.append, "last")
    timed.advance(3)
    assert made == ["first", "within", "last"]


def test_a_call_within_a_call_is_made_after_those_that_are_due(timed: Timed) -> None:
    reactor = timed.reactor
    made: list[Any] = []

    def first() -> None:
        reactor.callLater(0, made.append, "within")
        made.append("first")

    reactor.callLater(1, first)
    reactor.callLater(1, made.append, "second")
    timed.advance(1 + SOON_S)
    assert made == ["first", "second", "within"]


def test_a_call_that_schedules_itself_goes_on(timed: Timed) -> None:
    reactor = timed.reactor
    made: list[Any] = []

    def again() -> None:
        made.append(reactor.seconds())
        reactor.callLater(1, again)

    again()
    for _ in range(5):
        timed.advance(1 + SOON_S)
    assert len(made) == 6


def test_a_cancelled_call_is_not_made(timed: Timed) -> None:
    made: list[str] = []
    call = timed.reactor.callLater(1, made.append, "cancelled")
    timed.reactor.callLater(1, made.append, "kept")
    assert call.active()
    call.cancel()
    assert not call.active()
    timed.advance(2)
    assert made == ["kept"]


def test_a_call_cancels_another_one_that_is_due(timed: Timed) -> None:
    made: list[str] = []

    def first() -> None:
        made.append("first")
        second.cancel()

    timed.reactor.callLater(1, first)
    second: Any = timed.reactor.callLater(1, made.append, "second")
    timed.advance(2)
    assert made == ["first"]
    assert not second.active()


def test_a_call_is_not_active_while_it_is_made(timed: Timed) -> None:
    seen: list[object] = []

    def look() -> None:
        seen.append(call.active())
        with pytest.raises(AlreadyCalled):
            call.cancel()

    call = timed.reactor.callLater(1, look)
    timed.advance(2)
    assert (seen, timed.problems) == ([False], [])


def test_a_call_that_was_made_or_cancelled_cannot_be_changed(timed: Timed) -> None:
    was_made = timed.reactor.callLater(1, lambda: None)
    cancelled = timed.reactor.callLater(1, lambda: None)
    cancelled.cancel()
    timed.advance(2)
    changes: list[Callable[[Any], object]] = [lambda call: call.cancel(), lambda call: call.reset(1), lambda call: call.delay(1)]
    for change in changes:
        with pytest.raises(AlreadyCalled):
            change(was_made)
        with pytest.raises(AlreadyCancelled):
            change(cancelled)
    assert not was_made.active() and not cancelled.active()


@pytest.mark.parametrize(
    ("change", "due_s"),
    [
        (lambda call: call.reset(5), 6),
        (lambda call: call.reset(1), 2),
        (lambda call: call.delay(2), 5),
        (lambda call: call.delay(-0.5), 2.5),
        (lambda call: (call.reset(5), call.reset(1)), 2),
        (lambda call: (call.reset(1), call.reset(5)), 6),
        (lambda call: (call.delay(3), call.delay(-4)), 2),
        (lambda call: (call.delay(3), call.delay(-4), call.reset(4), call.reset(2)), 3),
    ],
)
def test_a_call_is_made_at_another_time(timed: Timed, change: Callable[[Any], object], due_s: float) -> None:
    made: list[str] = []
    call = timed.reactor.callLater(3, made.append, "changed")
    timed.advance(1)
    change(call)
    assert call.getTime() == pytest.approx(due_s)
    timed.advance(due_s - 1 - SOON_S)
    assert (made, call.active()) == ([], True)
    timed.advance(2 * SOON_S)
    assert (made, call.active()) == (["changed"], False)
    timed.advance(10)
    assert made == ["changed"]


def test_a_call_that_was_delayed_is_made_earlier_again(timed: Timed) -> None:
    """The reactor has passed the time for which the call was scheduled first."""
    made: list[str] = []
    call = timed.reactor.callLater(1, made.append, "changed")
    call.delay(5)
    timed.advance(2)
    call.reset(1)
    timed.advance(1 - SOON_S)
    assert made == []
    timed.advance(2 * SOON_S)
    assert made == ["changed"]


def test_an_exception_of_a_call_is_reported_and_stops_no_other_call(timed: Timed) -> None:
    made: list[object] = []
    error = ValueError("the test raises it")

    def fail() -> None:
        raise error

    failing = timed.reactor.callLater(1, fail)
    timed.reactor.callLater(1, made.append, "of the same time")
    timed.reactor.callLater(2, made.append, "later")
    timed.advance(3)
    assert (made, timed.problems, failing.active()) == (["of the same time", "later"], [error], False)


@exact
def test_a_negative_delay_is_refused(timed: Timed) -> None:
    timed.advance(1)
    with pytest.raises(AssertionError):
        timed.reactor.callLater(-0.001, lambda: None)


def test_task_clock_makes_all_calls_at_the_end_of_an_advance() -> None:
    """So one of its steps is a late turn of the reactor. `FakeReactor` is never late."""
    for reactor, seen in ((Clock(), [3.0, 3.0]), (FakeReactor(), [1.0, 2.0])):
        read: list[float] = []
        for delay_s in (1, 2):
            reactor.callLater(delay_s, lambda reactor=reactor, read=read: read.append(reactor.seconds()))
        reactor.advance(3)
        assert read == seen


def test_the_calls_of_a_process_end_with_it() -> None:
    reactor = FakeReactor()
    ended, other = ProcessClock(reactor), ProcessClock(reactor)
    made: list[str] = []
    for process, name in ((ended, "ended"), (other, "other")):
        process.callLater(1, made.append, name)
    ended.running = False
    ended.callLater(1, made.append, "after its end")
    reactor.advance(2)
    assert made == ["other"]


def test_the_shutdown_of_a_reactor() -> None:
    """The triggers are called by their phases, and calls that wait are never made."""
    running, fake = RunningReactor(), FakeReactor()
    for reactor, stop in ((running.reactor, running.close), (fake, fake.stop)):
        events: list[str] = []
        for phase in ("after", "during", "before", "during"):
            reactor.addSystemEventTrigger(phase, "shutdown", events.append, phase)
        reactor.addSystemEventTrigger("during", "shutdown", reactor.callLater, 0, events.append, "call")
        reactor.callLater(1, events.append, "call")
        stop()
        assert events == ["before", "during", "during", "after"]
    running.clock.now_s = 10
    fake.advance(10)
    assert events == ["before", "during", "during", "after"]


def test_calls_of_the_monotonic_clock_are_made_in_order_however_late() -> None:
    running = RunningReactor()
    reactor = running.reactor
    reactor.seconds = time.monotonic
    made: list[tuple[int, bool]] = []
    for number in range(200):
        due_s = time.monotonic() + (0.01 if number % 2 else 0)
        reactor.callLater(0.01 if number % 2 else 0, lambda number=number, due_s=due_s: made.append((number, time.monotonic() >= due_s)))
    running.until(lambda: len(made) == 200, "all calls are made")
    numbers = [number for number, _ in made]
    assert [number for number in numbers if number % 2 == 0] == list(range(0, 200, 2))
    assert [number for number in numbers if number % 2] == list(range(1, 200, 2))
    assert all(in_time for _, in_time in made)
    running.close()


DELAYS = st.sampled_from([0.0, 0.5, 1.0, 2.5])
NUMBERS = st.integers(0, 8)


class SideBySide(RuleBasedStateMachine):
    """The same operations on Twisted's reactor, the fake and a process of the simulation: the same calls and errors, in the same order."""

    def __init__(self) -> None:
        super().__init__()
        self.times = [KINDS[kind]() for kind in ("twisted", "fake", "simulated")]
        self.calls: list[list[Any]] = [[] for _ in self.times]
        self.happened: list[list[object]] = [[] for _ in self.times]
        self.serial = 0

    def teardown(self) -> None:
        self.advance(20)
        for timed in self.times:
            timed.close()

    def distinct(self, delay_s: float) -> float:
        """A delay whose end is that of no other call: no reactor promises an order of different delays that end together."""
        self.serial += 1
        return delay_s + 0.01 + Random(self.serial).random() * 0.4

    def schedule(self, at: int, delay_s: float, within_s: float | None = None, fails: bool = False) -> None:
        happened, number = self.happened[at], len(self.calls[at])

        def call() -> None:
            happened.append(number)
            if within_s is not None:
                self.calls[at].append(self.times[at].reactor.callLater(within_s, happened.append, f"within {number}"))
            if fails:
                raise ValueError(number)

        self.calls[at].append(self.times[at].reactor.callLater(delay_s, call))

    def change(self, number: int, change: Callable[[Any], object]) -> None:
        for at, calls in enumerate(self.calls):
            if number < len(calls):
                try:
                    change(calls[number])
                except (AlreadyCalled, AlreadyCancelled) as error:
                    self.happened[at].append(type(error))
                self.happened[at].append(calls[number].active())

    @rule(delay_s=DELAYS, fails=st.booleans())
    def call(self, delay_s: float, fails: bool) -> None:
        delay_s = self.distinct(delay_s)
        for at in range(3):
            self.schedule(at, delay_s, fails=fails)

    @rule(delay_s=DELAYS, within_s=DELAYS)
    def call_within(self, delay_s: float, within_s: float) -> None:
        delay_s, within_s = self.distinct(delay_s), self.distinct(within_s)
        for at in range(3):
            self.schedule(at, delay_s, within_s)

    @rule(number=NUMBERS)
    def cancel(self, number: int) -> None:
        self.change(number, lambda call: call.cancel())

    @rule(number=NUMBERS, delay_s=DELAYS)
    def reset(self, number: int, delay_s: float) -> None:
        delay_s = self.distinct(delay_s)
        self.change(number, lambda call: call.reset(delay_s))

    @rule(number=NUMBERS, by_s=DELAYS)
    def delay(self, number: int, by_s: float) -> None:
        self.change(number, lambda call: call.delay(by_s))

    @rule(by_s=DELAYS)
    def advance(self, by_s: float) -> None:
        for timed in self.times:
            timed.advance(by_s)
        assert self.happened[0] == self.happened[1] == self.happened[2]
        errors = [[(type(error), str(error)) for error in timed.problems] for timed in self.times]
        assert errors[0] == errors[1] == errors[2]


TestSideBySide = SideBySide.TestCase
