"""Simulated time: events in the order of their times; events of the same time in the order in which they were scheduled."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush


class Scheduler:
    """`now_s` begins at 0, and only advances from event to event."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.events = 0
        self._heap: list[tuple[float, int, Callable[[], object]]] = []
        self._serial = 0
        self._stopped = False

    def seconds(self) -> float:
        """The time."""
        return self.now_s

    def at(self, time_s: float, call: Callable[[], object]) -> None:
        """Call at a time, which must not be in the past."""
        self._serial = serial = self._serial + 1
        heappush(self._heap, (time_s, serial, call))

    def after(self, delay_s: float, call: Callable[[], object]) -> None:
        """Call after a delay."""
        self.at(self.now_s + delay_s, call)

    def stop(self) -> None:
        """End `run` after the event of now."""
        self._stopped = True

    def pending(self) -> list[Callable[[], object]]:
        """The calls that are to be made, in no order."""
        return [call for _, _, call in self._heap]

    def clear(self) -> None:
        """Make no more calls."""
        self._heap.clear()

    def run(self, until_s: float) -> None:
        """Make the calls that are due until a time; fewer if `stop` is called."""
        self._stopped = False
        heap = self._heap
        while heap and heap[0][0] <= until_s:
            self.now_s, _, call = heappop(heap)
            self.events += 1
            call()
            if self._stopped:
                return
        self.now_s = max(self.now_s, until_s)
