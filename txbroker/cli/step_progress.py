"""Progress of the steps of a command, on one line of a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from txbroker.cli.progress import EVERY_S, FIRST_S
from txbroker.console.texts import duration

# Called with `(done, total)`.
OnProgress = Callable[[int, int], None]


class Steps:
    """Overwrites its own line, if standard error is a terminal."""

    def __init__(self) -> None:
        self._shows = sys.stderr.isatty()
        self._next_s = time.monotonic() + FIRST_S
        self._shown = False

    def step(self, what: str) -> OnProgress:
        """Begin a step; call the result as it proceeds."""
        start_s = time.monotonic()

        def show(done: int, total: int) -> None:
            now_s = time.monotonic()
            if self._shows and now_s >= self._next_s:
                self._next_s = now_s + EVERY_S
                left_ms = max(round((now_s - start_s) * (total - done) / max(done, 1)), 1) * 1000
                sys.stderr.write(f"\r{what}: {done:,} of {total:,} ({100 * done // max(total, 1)} %), {duration(left_ms)} left\x1b[K")
                sys.stderr.flush()
                self._shown = True

        return show

    def finish(self) -> None:
        """Clear the line."""
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._shown = False
