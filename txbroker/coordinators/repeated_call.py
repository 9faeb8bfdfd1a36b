"""A call that a coordinator repeats at an interval."""

from __future__ import annotations

import logging
from collections.abc import Callable

from txbroker.clock import Clock, DelayedCall

log = logging.getLogger("txbroker.coordinators")


class RepeatedCall:
    """Calls `call` every `interval_ms`, counted from the end of the call before. An exception is logged, and does not end it."""

    def __init__(self, clock: Clock, interval_ms: int, call: Callable[[], object]) -> None:
        self._clock = clock
        self._interval_ms = interval_ms
        self._call = call
        self._next: DelayedCall | None = None

    def start(self) -> None:
        """Call for the first time after the interval."""
        self._next = self._clock.callLater(self._interval_ms / 1000, self._run)

    def stop(self) -> None:
        """Call no more."""
        if self._next is not None and self._next.active():
            self._next.cancel()
        self._next = None

    def _run(self) -> None:
        self.start()
        try:
            self._call()
        except Exception:
            log.exception("internal error in a periodic check of a coordinator; it is repeated after its interval")
