"""How far a step of an import or export is, in one line of the terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from txbroker.cli.progress import EVERY_S, FIRST_S


class Steps:
    """Writes over its own line, and only where standard error is a terminal."""

    def __init__(self) -> None:
        self._shows = sys.stderr.isatty()
        self._next_s = time.monotonic() + FIRST_S
        self._shown = False

    def step(self, what: str) -> Callable[[int, int], None]:
        """The function to be told of `(done, total)`."""

        def told(done: int, total: int) -> None:
            if self._shows and time.monotonic() >= self._next_s:
                self._next_s = time.monotonic() + EVERY_S
                sys.stderr.write(f"\r{what}: {done:,} of {total:,} ({100 * done // max(total, 1)} %)\x1b[K")
                sys.stderr.flush()
                self._shown = True

        return told

    def finish(self) -> None:
        """Leave the line empty."""
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._shown = False
