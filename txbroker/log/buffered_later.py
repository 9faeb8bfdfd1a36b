"""A `Later` for work that goes on in a worker, from where the real one must not be called."""

from __future__ import annotations

from collections.abc import Callable

from txbroker.log.log_results import Later


class HeldLater:
    """Passes calls on to `later`, but collects them while it is held. `hold` and `release` belong to the logs' thread."""

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
        """A worker is about to begin."""
        self._held = True

    def release(self) -> None:
        """The worker is done: pass on what was collected."""
        self._held = False
        collected, self._collected = self._collected, []
        for delay_ms, work, done in collected:
            self._later(delay_ms, work, done)
