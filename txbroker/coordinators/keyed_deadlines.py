"""Deadlines by key: one delayed call of the clock serves them all."""

from __future__ import annotations

import logging
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Generic, TypeVar

from txbroker.clock import Clock, DelayedCall

log = logging.getLogger("txbroker.coordinators")

K = TypeVar("K")


def monotonic_ms(clock: Clock) -> int:
    """The clock's time in milliseconds, rounded: a call that is due at a certain millisecond never finds an earlier time."""
    return round(clock.seconds() * 1000)


class KeyedDeadlines(Generic[K]):
    """Calls `fire(key, monotonic_ms)` at each key's deadline. A key has one deadline; setting it again replaces it."""

    def __init__(self, clock: Clock, fire: Callable[[K, int], None]) -> None:
        self._clock = clock
        self._fire = fire
        self._at: dict[K, int] = {}
        self._heap: list[tuple[int, int, K]] = []  # with deadlines that have been replaced; they are skipped
        self._count = 0
        self._call: DelayedCall | None = None
        self._call_ms = 0

    def __len__(self) -> int:
        return len(self._at)

    def set(self, key: K, at_ms: int) -> None:
        """Set the deadline of `key`, in milliseconds of the monotonic clock."""
        self._at[key] = at_ms
        self._count += 1
        heappush(self._heap, (at_ms, self._count, key))
        if self._call is None or at_ms < self._call_ms:
            self._schedule()

    def cancel(self, key: K) -> None:
        """Remove the deadline of `key`."""
        self._at.pop(key, None)

    def stop(self) -> None:
        """Remove all deadlines."""
        self._at.clear()
        self._heap.clear()
        self._unschedule()

    def _schedule(self) -> None:
        self._unschedule()
        while self._heap and self._at.get(self._heap[0][2]) != self._heap[0][0]:
            heappop(self._heap)
        if self._heap:
            self._call_ms = self._heap[0][0]
            delay_s = max(0.0, self._call_ms / 1000 - self._clock.seconds())
            self._call = self._clock.callLater(delay_s, self._run)

    def _unschedule(self) -> None:
        if self._call is not None and self._call.active():
            self._call.cancel()
        self._call = None

    def _run(self) -> None:
        self._call = None
        present_ms = monotonic_ms(self._clock)
        due: list[K] = []
        while self._heap and self._heap[0][0] <= present_ms:
            at_ms, _, key = heappop(self._heap)
            if self._at.get(key) == at_ms:
                del self._at[key]
                due.append(key)
        for key in due:
            try:
                self._fire(key, present_ms)
            except Exception:
                log.exception("internal error at the deadline of %r", key)
        self._schedule()
