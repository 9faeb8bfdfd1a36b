"""How long to wait before the next attempt: exponential back-off with jitter, as in Kafka's `ExponentialBackoff`.

The defaults are those of reconnect.backoff.ms and reconnect.backoff.max.ms.
"""

from __future__ import annotations

from collections.abc import Callable

FACTOR = 2.0
JITTER = 0.2


class Backoff:
    """`chance` returns numbers from 0 to 1; times are seconds of a monotonic clock. `failures`: those in succession."""

    def __init__(self, chance: Callable[[], float], base_s: float = 0.05, max_s: float = 1.0) -> None:
        self.failures = 0
        self._chance = chance
        self._base_s = base_s
        self._max_s = max_s
        self._next_s: float | None = None

    def failed(self, now_s: float) -> None:
        """An attempt failed, or what it began has ended."""
        # The exponent is bounded: 2.0 ** 1024 is an OverflowError.
        wait_s = min(self._base_s * FACTOR ** min(self.failures, 60), self._max_s)
        self.failures += 1
        self._next_s = now_s + wait_s * (1 + JITTER * (2 * self._chance() - 1))

    def succeeded(self) -> None:
        """What was attempted works: the next failure waits for the shortest time again."""
        self.failures = 0
        self._next_s = None

    def wait_s(self, now_s: float) -> float:
        """Seconds until the next attempt; 0 when it may be made now."""
        return 0.0 if self._next_s is None else max(self._next_s - now_s, 0.0)
