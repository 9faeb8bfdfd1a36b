"""Progress of several clients that run at the same time: a line for each that has finished, and the status of the others."""

from __future__ import annotations

import shutil
import threading
import time
from typing import TextIO

_TITLE_WIDTH = 24
_PLAIN_S = 10.0


class Board:
    """Used by several threads. On a terminal the last line is redrawn; elsewhere a line is printed every ten seconds."""

    def __init__(self, total: int, out: TextIO) -> None:
        self._total = total
        self._out = out
        self._live = out.isatty()
        self._lock = threading.Lock()
        self._begun: dict[str, float] = {}
        self._now: dict[str, str] = {}
        self._done = 0
        self._next_line = time.monotonic() + _PLAIN_S

    def at(self, title: str, what: str) -> None:
        """The current status of one client."""
        with self._lock:
            self._begun.setdefault(title, time.monotonic())
            self._now[title] = what
            self._draw()

    def finish(self, title: str, text: str, more: str = "") -> None:
        """The final line of one client; `more` follows it."""
        with self._lock:
            self._done += 1
            self._now.pop(title, None)
            seconds = time.monotonic() - self._begun.pop(title, time.monotonic())
            erase = "\r\x1b[K" if self._live else ""
            self._say(f"{erase}{title:<{_TITLE_WIDTH}} {text}  ({seconds:.0f} s){more}\n")
            self._draw()

    def _draw(self) -> None:
        line = f"{self._done} of {self._total} done; " + "; ".join(f"{title}: {what}" for title, what in self._now.items())
        if self._live:
            self._say("\r\x1b[K" + (line[:shutil.get_terminal_size().columns - 1] if self._now else ""))
        elif self._now and time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + _PLAIN_S
            self._say(line + "\n")

    def _say(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()
