from __future__ import annotations

import logging

from twisted.internet.task import Clock

from txbroker.coordinators.keyed_deadlines import KeyedDeadlines, monotonic_ms

START_S = 1_700_000.123


def make() -> tuple[Clock, KeyedDeadlines[str], list[tuple[str, int]]]:
    clock = Clock()
    clock.advance(START_S)
    fired: list[tuple[str, int]] = []
    return clock, KeyedDeadlines(clock, lambda key, due_ms: fired.append((key, due_ms))), fired


def test_times_fire_in_order_each_once():
    clock, deadlines, fired = make()
    start_ms = monotonic_ms(clock)
    for key, after_ms in [("c", 300), ("a", 100), ("b", 200)]:
        deadlines.set(key, start_ms + after_ms)
    for _ in range(40):
        clock.advance(0.01)
    assert [key for key, _ in fired] == ["a", "b", "c"]
    assert all(abs(at - start_ms - after) <= 10 for (_, at), after in zip(fired, (100, 200, 300), strict=True))
    assert not clock.getDelayedCalls()


def test_one_call_of_the_clock_serves_all():
    clock, deadlines, _ = make()
    for n in range(1_000):
        deadlines.set(str(n), monotonic_ms(clock) + 1_000_000 - n)
    (call,) = clock.getDelayedCalls()
    assert len(deadlines) == 1_000
    deadlines.set("another", monotonic_ms(clock) + 1_000_000 - 999)
    assert clock.getDelayedCalls() == [call], "no other call for a deadline that is as early"


def test_deadlines_of_the_same_time_fire_in_the_order_in_which_they_were_set():
    """Also of keys that have no order."""
    clock = Clock()
    fired: list[object] = []
    deadlines: KeyedDeadlines[object] = KeyedDeadlines(clock, lambda key, due_ms: fired.append(key))
    keys = [object(), "text", 3, None, ("a", 1)]
    for key in keys:
        deadlines.set(key, 10)
    clock.advance(1)
    assert fired == keys


def test_the_clock_calls_at_the_next_deadline_that_is_not_cancelled():
    clock, deadlines, fired = make()
    start_ms = monotonic_ms(clock)
    for key, after_ms in [("a", 100), ("cancelled", 200), ("replaced", 250), ("b", 300)]:
        deadlines.set(key, start_ms + after_ms)
    deadlines.cancel("cancelled")
    deadlines.set("replaced", start_ms + 400)
    clock.advance(0.15)
    (call,) = clock.getDelayedCalls()
    assert round((call.getTime() - START_S) * 1000) == 300
    clock.advance(1)
    assert [key for key, _ in fired] == ["a", "b", "replaced"]


def test_setting_again_replaces():
    clock, deadlines, fired = make()
    start_ms = monotonic_ms(clock)
    deadlines.set("later", start_ms + 100)
    deadlines.set("later", start_ms + 500)
    deadlines.set("sooner", start_ms + 500)
    deadlines.set("sooner", start_ms + 100)
    clock.advance(0.2)
    assert [key for key, _ in fired] == ["sooner"]
    clock.advance(0.4)
    assert [key for key, _ in fired] == ["sooner", "later"]


def test_cancelled_and_stopped_times_never_fire():
    clock, deadlines, fired = make()
    deadlines.set("a", monotonic_ms(clock) + 10)
    deadlines.set("b", monotonic_ms(clock) + 20)
    deadlines.cancel("a")
    deadlines.cancel("never set")
    clock.advance(0.015)
    deadlines.stop()
    clock.advance(1)
    assert not fired
    assert not clock.getDelayedCalls()


def test_a_time_in_the_past_fires_at_once_and_may_be_set_again_while_firing():
    clock = Clock()
    clock.advance(START_S)
    fired: list[int] = []

    def fire(key: str, due_ms: int) -> None:
        fired.append(due_ms)
        if len(fired) < 3:
            deadlines.set(key, due_ms)

    deadlines: KeyedDeadlines[str] = KeyedDeadlines(clock, fire)
    deadlines.set("a", monotonic_ms(clock) - 5)
    assert not fired
    clock.advance(0)
    clock.advance(0.001)
    assert len(fired) == 3


def test_what_fails_does_not_stop_the_others(caplog):
    clock = Clock()
    fired: list[str] = []

    def fire(key: str, due_ms: int) -> None:
        if key == "bad":
            raise ValueError(key)
        fired.append(key)

    deadlines: KeyedDeadlines[str] = KeyedDeadlines(clock, fire)
    deadlines.set("bad", 10)
    deadlines.set("good", 10)
    with caplog.at_level(logging.ERROR, "txbroker"):
        clock.advance(1)
    assert fired == ["good"]
    (line,) = caplog.records
    assert line.getMessage() == "internal error at the deadline of 'bad'" and line.exc_info is not None


def test_every_millisecond_is_reached():
    """However the clock's floats round, a call for a millisecond finds that it has come."""
    clock = Clock()
    fired: list[int] = []
    deadlines: KeyedDeadlines[int] = KeyedDeadlines(clock, lambda key, due_ms: fired.append(due_ms - key))
    clock.advance(START_S)
    for _ in range(300):
        at_ms = monotonic_ms(clock) + 7
        deadlines.set(at_ms, at_ms)
        clock.advance(clock.getDelayedCalls()[0].getTime() - clock.seconds())
    assert fired == [0] * 300


def test_a_late_call_reports_the_present_time():
    clock, deadlines, fired = make()
    start_ms = monotonic_ms(clock)
    deadlines.set("a", start_ms + 100)
    clock.advance(30)  # the reactor was busy
    assert fired == [("a", start_ms + 30_000)]
