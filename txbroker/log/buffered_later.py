"""A `Later` that waits while a worker uses the object that makes its calls, because only the logs' thread may use that object otherwise."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from txbroker.log.log_results import Later


class BufferedLater:
    """Forwards calls to `later`. While it is held it collects them, and each `done` of work that ends, until it is released.

    `hold` and `release` are for the logs' thread.
    """

    def __init__(self, later: Later, *, held: bool = False) -> None:
        self._later = later
        self._held = held
        self._collected: list[tuple[int, Callable[[], None], Callable[[], None] | None]] = []
        self._ended: list[Callable[[], None]] = []

    def __call__(self, delay_ms: int, work: Callable[[], None], done: Callable[[], None] | None = None) -> None:
        if self._held:
            self._collected.append((delay_ms, work, done))
        else:
            self._later(delay_ms, work, None if done is None else partial(self._end, done))

    def _end(self, done: Callable[[], None]) -> None:
        if self._held:
            self._ended.append(done)
        else:
            done()

    def hold(self) -> None:
        """Collect from now on."""
        self._held = True

    def release(self) -> None:
        """Call what was collected, first each `done`, and forward the calls that follow."""
        self._held = False
        ended, self._ended = self._ended, []
        collected, self._collected = self._collected, []
        for done in ended:
            done()
        for delay_ms, work, collected_done in collected:
            self(delay_ms, work, collected_done)
