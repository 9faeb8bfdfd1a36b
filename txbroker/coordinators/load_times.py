"""How long partitions of an internal topic took to load, for Kafka's metrics partition-load-time-max and -avg."""

from __future__ import annotations

from collections import deque

from txbroker.clock import Clock

WINDOW_S = 30.0  # as metrics.sample.window.ms
LOADS_KEPT = 1_000


class LoadTimes:
    """The durations of the loads that ended in the last `WINDOW_S`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._loads: deque[tuple[float, float]] = deque(maxlen=LOADS_KEPT)  # when each ended, and how long it took

    def add(self, begun_s: float) -> None:
        """A load that began then has ended now."""
        ended_s = self._clock.seconds()
        self._loads.append((ended_s, ended_s - begun_s))

    def recent_s(self) -> list[float]:
        """The durations, the oldest first; empty if no partition was loaded."""
        first_s = self._clock.seconds() - WINDOW_S
        return [took_s for ended_s, took_s in self._loads if ended_s >= first_s]
