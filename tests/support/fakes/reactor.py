"""A reactor without sockets and real time: calls are made when a test lets time pass."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import Any

from twisted.internet.base import DelayedCall


class FakeReactor:
    """Time in seconds begins at 0. Each call is made at its time; Twisted's `task.Clock` makes all calls of an `advance` at its end.

    Calls of the same time are made in the order in which they were scheduled. An exception of a call is raised to the test, and the next
    `advance` makes the calls that wait. Calls are kept in a heap; `task.Clock` sorts all of them at each new one.

    A listening port is remembered, and its socket is never read.
    """

    port: Any = None

    def __init__(self) -> None:
        self._now = 0.0
        self._calls: list[tuple[float, int, DelayedCall]] = []
        self._serial = count()
        self._stopped = False
        self._triggers: list[tuple[str, Callable[[], object]]] = []

    def seconds(self) -> float:
        return self._now

    def callLater(self, delay: float, function: Callable[..., Any], *arguments: Any, **named: Any) -> DelayedCall:
        assert callable(function), f"{function} is not callable"
        assert delay >= 0, f"{delay} is not a delay"
        call = DelayedCall(self._now + delay, function, arguments, named, lambda _: None, self._put, self.seconds)
        self._put(call)
        return call

    def _put(self, call: DelayedCall) -> None:
        heappush(self._calls, (call.getTime(), next(self._serial), call))

    def advance(self, by_s: float) -> None:
        """Let time pass, and make every call that is due."""
        assert by_s >= 0, "time does not go back"
        end = self._now + by_s
        while self._calls and self._calls[0][0] <= end and not self._stopped:
            at, _, call = heappop(self._calls)
            if not call.active():
                continue
            if call.getTime() > at:  # it was delayed meanwhile
                call.activate_delay()
                self._put(call)
                continue
            self._now = at
            call.called = 1
            call.func(*call.args, **call.kw)
        self._now = end

    def addSystemEventTrigger(self, phase: str, event: str, function: Callable[..., Any], *arguments: Any, **named: Any) -> None:
        assert event == "shutdown", "a FakeReactor is running from its beginning"
        self._triggers.append((phase, partial(function, *arguments, **named)))

    def stop(self) -> None:
        """Call the triggers of the shutdown. No call is made any more."""
        for now in ("before", "during", "after"):
            for phase, trigger in self._triggers:
                if phase == now:
                    trigger()
        self._stopped = True

    def addReader(self, reader: Any) -> None:
        self.port = reader

    def removeReader(self, reader: Any) -> None:
        pass

    def removeWriter(self, writer: Any) -> None:
        pass
