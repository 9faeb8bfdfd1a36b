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
    assert len(clock.getDelayedCalls()) == 1
    assert len(deadlines) == 1_000


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
    with caplog.at_level(logging.CRITICAL, "txbroker"):
        clock.advance(1)
    assert fired == ["good"]


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
