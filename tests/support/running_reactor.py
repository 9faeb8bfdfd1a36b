"""Twisted's reactor with its threads, which the test turns by hand, so that it ends within the test."""

from __future__ import annotations

import time
from collections.abc import Callable
from math import inf
from typing import Any

from twisted.internet.epollreactor import EPollReactor

from tests.support.waiting import PATIENCE_S

TICK_S = 1e-9


class HandClock:
    """Seconds that pass when the test says so. Each reading is a little later than the one before, as with a real monotonic clock."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        self.now_s += TICK_S
        return self.now_s


class RunningReactor:
    """`reactor` runs from the beginning to `stop`. Its clock is the test's."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.reactor: Any = EPollReactor()
        self.reactor.seconds = self.clock
        self.reactor.startRunning(installSignalHandlers=False)
        self.stopped = False
        self.reactor.addSystemEventTrigger("after", "shutdown", self._set_stopped)

    def _set_stopped(self) -> None:
        self.stopped = True

    def turn(self, wait_s: float = 0.0) -> None:
        """One turn: timers, results of threads, and sockets, for which it waits up to `wait_s`. After the shutdown there are none."""
        if not self.stopped:
            self.reactor.runUntilCurrent()
            self.reactor.doIteration(wait_s)

    def turns(self, count: int = 20) -> None:
        """Several turns that wait for nothing."""
        for _ in range(count):
            self.turn()

    def until(self, condition: Callable[[], Any], what: str) -> None:
        """Turn until the condition holds."""
        deadline_s = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline_s, f"still not: {what}"
            self.turn(0.005)

    def advance(self, by_s: float, settle: Callable[[], None] = lambda: None) -> None:
        """Let time pass, and make each call at its time. `settle` is called after each, and waits for what follows from it."""
        end_s = self.clock.now_s + by_s
        settle()
        while (due_s := min((call.getTime() for call in self.reactor.getDelayedCalls()), default=inf)) <= end_s:
            self.clock.now_s = max(self.clock.now_s, due_s)
            self.turn()
            settle()
        self.clock.now_s = max(self.clock.now_s, end_s)

    def stop(self) -> None:
        """Shut down, if it has not yet."""
        if not self.stopped:
            self.reactor.stop()
            self.until(lambda: self.stopped, "the reactor has stopped")

    def close(self) -> None:
        """Shut down, and close all descriptors."""
        self.stop()
        self.reactor.removeAll()
        self.reactor.waker.connectionLost(None)
        self.reactor._poller.close()
