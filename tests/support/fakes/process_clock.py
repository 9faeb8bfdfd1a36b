"""The clock of one of several processes that share a reactor in a test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.base import DelayedCall

from tests.support.fakes.reactor import FakeReactor


class ProcessClock:
    """`seconds` and `callLater` of a reactor. The calls end with the process, once `running` is False."""

    def __init__(self, reactor: FakeReactor) -> None:
        self._reactor = reactor
        self.running = True

    def seconds(self) -> float:
        return self._reactor.seconds()

    def callLater(self, delay: float, function: Callable[..., Any], *arguments: Any, **named: Any) -> DelayedCall:
        return self._reactor.callLater(delay, self._call, function, arguments, named)

    def _call(self, function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        if self.running:
            function(*arguments, **named)
