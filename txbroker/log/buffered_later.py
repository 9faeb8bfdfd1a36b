"""A `Later` that collects calls while a worker uses the object that makes them, because only the logs' thread may call the real one."""

from __future__ import annotations

from collections.abc import Callable

from txbroker.log.log_results import Later


class BufferedLater:
    """Forwards calls to `later`, or collects them while it is held. `hold` and `release` are for the logs' thread."""

    def __init__(self, later: Later, *, held: bool = False) -> None:
        self._later = later
        self._held = held
        self._collected: list[tuple[int, Callable[[], None], Callable[[], None] | None]] = []

    def __call__(self, delay_ms: int, work: Callable[[], None], done: Callable[[], None] | None = None) -> None:
        if self._held:
            self._collected.append((delay_ms, work, done))
        else:
            self._later(delay_ms, work, done)

    def hold(self) -> None:
        """Collect calls from now on."""
        self._held = True

    def release(self) -> None:
        """Forward the collected calls, and those that follow."""
        self._held = False
        collected, self._collected = self._collected, []
        for delay_ms, work, done in collected:
            self._later(delay_ms, work, done)
