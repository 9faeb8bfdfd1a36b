"""The progress of a long step: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

_TITLE_WIDTH = 36
_BAR_WIDTH = 30
_REDRAW_S = 0.1
_PLAIN_S = 10.0


class Progress:
    """One step. `advance` counts; `note` replaces the text after the bar."""

    def __init__(self, title: str, total: int | None, out: TextIO) -> None:
        self._title = title
        self._total = total
        self._out = out
        self._live = out.isatty()
        self._note = ""
        self._start = time.monotonic()
        self._next_draw = self._start + (0 if self._live else _PLAIN_S)
        self.done = 0

    @property
    def seconds(self) -> float:
        """The seconds since the step began."""
        return time.monotonic() - self._start

    def advance(self, count: int = 1) -> None:
        """Count `count` more items."""
        self.done += count
        if time.monotonic() >= self._next_draw:
            self._draw()

    def note(self, text: str) -> None:
        """Set the text after the bar."""
        self._note = text
        if self._live:
            self._draw()

    def finish(self, text: str) -> None:
        """Print the step's final line."""
        erase = "\r\x1b[K" if self._live else ""
        self._say(f"{erase}{self._title:<{_TITLE_WIDTH}} {text}  ({self.seconds:.1f} s)\n")

    def _draw(self) -> None:
        self._next_draw = time.monotonic() + (_REDRAW_S if self._live else _PLAIN_S)
        counted = f"{self.done:,}" + (f" of {self._total:,}" if self._total else "")
        if not self._live:
            self._say(f"{self._title}: {counted} {self._note}".rstrip() + "\n")
            return
        bar = ""
        if self._total:
            full = min(_BAR_WIDTH, self.done * _BAR_WIDTH // self._total)
            bar = f"[{'#' * full}{'.' * (_BAR_WIDTH - full)}] "
        self._say(f"\r\x1b[K{self._title:<{_TITLE_WIDTH}} {bar}{counted} {self._note}")

    def _say(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()


@contextmanager
def step(title: str, total: int | None = None, *, out: TextIO | None = None) -> Iterator[Progress]:
    """A step that ends with one line: the text passed to `finish`, or the exception."""
    progress = Progress(title, total, out or sys.stdout)
    try:
        yield progress
    except BaseException as problem:
        progress.finish(f"failed: {type(problem).__name__}: {str(problem).splitlines()[0] if str(problem) else ''}")
        raise
