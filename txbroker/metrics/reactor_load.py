"""Measures the reactor's load once a second: the lateness of a timer, and the CPU time of its thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

INTERVAL_S = 1.0
SAMPLES_KEPT = 300  # five minutes


class ReactorLoad:
    """`lateness`: how late the timer was, in seconds, at the last measurements; `idle`: idle part of the last second, 0 to 1."""

    def __init__(self, reactor: Any, monotonic_s: Callable[[], float], thread_cpu_s: Callable[[], float]) -> None:
        self._reactor = reactor
        self._monotonic_s = monotonic_s
        self._thread_cpu_s = thread_cpu_s
        self._call: Any = None
        self._due_s = 0.0
        self._measured_s = 0.0
        self._cpu_s = 0.0
        self.lateness: deque[float] = deque(maxlen=SAMPLES_KEPT)
        self.idle = 1.0

    def start(self) -> None:
        """Start measuring."""
        self._measured_s, self._cpu_s = self._monotonic_s(), self._thread_cpu_s()
        self._wait()

    def stop(self) -> None:
        """Stop measuring."""
        if self._call is not None and self._call.active():
            self._call.cancel()

    def _wait(self) -> None:
        self._due_s = self._monotonic_s() + INTERVAL_S
        self._call = self._reactor.callLater(INTERVAL_S, self._measure)

    def _measure(self) -> None:
        now_s, cpu_s = self._monotonic_s(), self._thread_cpu_s()
        self.lateness.append(max(now_s - self._due_s, 0.0))
        self.idle = min(max(1.0 - (cpu_s - self._cpu_s) / max(now_s - self._measured_s, 1e-9), 0.0), 1.0)
        self._measured_s, self._cpu_s = now_s, cpu_s
        self._wait()
