"""The clock of durations and deadlines, as Twisted's IReactorTime in a form that type checkers understand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class DelayedCall(Protocol):
    """The part of Twisted's IDelayedCall that is used here."""

    def active(self) -> bool: ...
    def cancel(self) -> None: ...


class Clock(Protocol):
    """A reactor, or `task.Clock`. `seconds` is monotonic: its zero has no meaning, and changes of the wall clock do not move it."""

    def seconds(self) -> float: ...
    def callLater(self, delay_s: float, call: Callable[..., Any], /, *arguments: object) -> Any: ...  # a DelayedCall
