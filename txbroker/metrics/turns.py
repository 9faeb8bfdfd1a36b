"""The reactor watched by itself: once a second, how late a timer fires, and how much of the second its thread computed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

INTERVAL_S = 1.0
SAMPLES_KEPT = 300  # five minutes


class Turns:
    """`lateness`: seconds that a timer was late, the last ones; `idle`: the part of the last second that was not computed through."""

    def __init__(self, reactor: Any, monotonic_s: Callable[[], float], thread_cpu_s: Callable[[], float]) -> None:
        self._reactor = reactor
        self._monotonic_s = monotonic_s
        self._thread_cpu_s = thread_cpu_s
        self._call: Any = None
        self._due = 0.0
        self._asked = 0.0
        self._computed = 0.0
        self.lateness: deque[float] = deque(maxlen=SAMPLES_KEPT)
        self.idle = 1.0

    def start(self) -> None:
        """Begin to look."""
        self._asked, self._computed = self._monotonic_s(), self._thread_cpu_s()
        self._wait()

    def stop(self) -> None:
        """Look no more."""
        if self._call is not None and self._call.active():
            self._call.cancel()

    def _wait(self) -> None:
        self._due = self._monotonic_s() + INTERVAL_S
        self._call = self._reactor.callLater(INTERVAL_S, self._look)

    def _look(self) -> None:
        now, computed = self._monotonic_s(), self._thread_cpu_s()
        self.lateness.append(max(now - self._due, 0.0))
        self.idle = min(max(1.0 - (computed - self._computed) / max(now - self._asked, 1e-9), 0.0), 1.0)
        self._asked, self._computed = now, computed
        self._wait()
