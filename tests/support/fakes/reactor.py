"""A reactor without sockets and real time: calls are made when a test lets time pass."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Any

from twisted.internet.base import DelayedCall


class FakeReactor:
    """Time in seconds begins at 0. Calls are kept in a heap; Twisted's own `Clock` sorts all of them at each new one.

    A listening port is remembered, and its socket is never read.
    """

    port: Any = None

    def __init__(self) -> None:
        self._now = 0.0
        self._calls: list[tuple[float, int, DelayedCall]] = []
        self._serial = count()

    def seconds(self) -> float:
        return self._now

    def callLater(self, delay: float, function: Callable[..., Any], *arguments: Any, **named: Any) -> DelayedCall:
        call = DelayedCall(self._now + delay, function, arguments, named, lambda _: None, self._put, self.seconds)
        self._put(call)
        return call

    def _put(self, call: DelayedCall) -> None:
        heappush(self._calls, (call.getTime(), next(self._serial), call))

    def advance(self, by_s: float) -> None:
        """Let time pass, and make every call that is due."""
        end = self._now + by_s
        while self._calls and self._calls[0][0] <= end:
            at, _, call = heappop(self._calls)
            if call.active() and call.getTime() <= at:
                self._now = at
                call.called = 1
                call.func(*call.args, **call.kw)
        self._now = end

    def addReader(self, reader: Any) -> None:
        self.port = reader

    def removeReader(self, reader: Any) -> None:
        pass

    def removeWriter(self, writer: Any) -> None:
        pass
