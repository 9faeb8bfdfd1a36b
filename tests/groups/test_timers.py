from __future__ import annotations

import logging

from twisted.internet.task import Clock

from txbroker.groups.timers import Timers, monotonic_ms

NOW_S = 1_700_000_000.123


def make() -> tuple[Clock, Timers[str], list[tuple[str, int]]]:
    clock = Clock()
    clock.advance(NOW_S)
    fired: list[tuple[str, int]] = []
    return clock, Timers(clock, lambda key, now_ms: fired.append((key, now_ms))), fired


def test_times_fire_in_order_each_once():
    clock, timers, fired = make()
    now_ms = monotonic_ms(clock)
    for key, after_ms in [("c", 300), ("a", 100), ("b", 200)]:
        timers.set(key, now_ms + after_ms)
    for _ in range(40):
        clock.advance(0.01)
    assert [key for key, _ in fired] == ["a", "b", "c"]
    assert all(abs(at - now_ms - after) <= 10 for (_, at), after in zip(fired, (100, 200, 300), strict=True))
    assert not clock.getDelayedCalls()


def test_one_call_of_the_clock_serves_all():
    clock, timers, _ = make()
    for n in range(1_000):
        timers.set(str(n), monotonic_ms(clock) + 1_000_000 - n)
    assert len(clock.getDelayedCalls()) == 1
    assert len(timers) == 1_000


def test_setting_again_replaces():
    clock, timers, fired = make()
    now_ms = monotonic_ms(clock)
    timers.set("later", now_ms + 100)
    timers.set("later", now_ms + 500)
    timers.set("sooner", now_ms + 500)
    timers.set("sooner", now_ms + 100)
    clock.advance(0.2)
    assert [key for key, _ in fired] == ["sooner"]
    clock.advance(0.4)
    assert [key for key, _ in fired] == ["sooner", "later"]


def test_cancelled_and_stopped_times_never_fire():
    clock, timers, fired = make()
    timers.set("a", monotonic_ms(clock) + 10)
    timers.set("b", monotonic_ms(clock) + 20)
    timers.cancel("a")
    clock.advance(0.015)
    timers.stop()
    clock.advance(1)
    assert not fired
    assert not clock.getDelayedCalls()


def test_a_time_in_the_past_fires_at_once_and_may_be_set_again_while_firing():
    clock = Clock()
    clock.advance(NOW_S)
    fired: list[int] = []

    def fire(key: str, now_ms: int) -> None:
        fired.append(now_ms)
        if len(fired) < 3:
            timers.set(key, now_ms)

    timers: Timers[str] = Timers(clock, fire)
    timers.set("a", monotonic_ms(clock) - 5)
    assert not fired
    clock.advance(0)
    clock.advance(0.001)
    assert len(fired) == 3


def test_what_fails_does_not_stop_the_others(caplog):
    clock = Clock()
    fired: list[str] = []

    def fire(key: str, now_ms: int) -> None:
        if key == "bad":
            raise ValueError(key)
        fired.append(key)

    timers: Timers[str] = Timers(clock, fire)
    timers.set("bad", 10)
    timers.set("good", 10)
    with caplog.at_level(logging.CRITICAL, "txbroker.groups"):
        clock.advance(1)
    assert fired == ["good"]


def test_every_millisecond_is_reached():
    """However the clock's floats round, a call for a millisecond finds that it has come."""
    clock = Clock()
    fired: list[int] = []
    timers: Timers[int] = Timers(clock, lambda key, now_ms: fired.append(now_ms - key))
    clock.advance(NOW_S)
    for _ in range(300):
        at_ms = monotonic_ms(clock) + 7
        timers.set(at_ms, at_ms)
        clock.advance(clock.getDelayedCalls()[0].getTime() - clock.seconds())
    assert fired == [0] * 300
