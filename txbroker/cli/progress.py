"""One line on a terminal that shows the progress of a long command."""

from __future__ import annotations

from collections.abc import Callable
from typing import TextIO

from txbroker.console.texts import duration, size_text
from txbroker.names import amount

EVERY_S = 0.25
FIRST_S = 0.5


class Progress:
    """Counts records and their bytes; rewrites its line at most every `EVERY_S` seconds, and not before `FIRST_S`.

    `total` is the expected number of bytes, where it is known. Without a stream it only counts.
    """

    def __init__(self, stream: TextIO | None, clock_s: Callable[[], float], total: int | None = None) -> None:
        self.records = 0
        self.bytes = 0
        self._stream = stream
        self._clock_s = clock_s
        self._total = total or None
        self._fraction: float | None = None
        self._start_s = clock_s()
        self._next_s = self._start_s + FIRST_S
        self._shown = False

    def add(self, size: int, records: int = 1, fraction: float | None = None) -> None:
        """More records, of `size` bytes together. `fraction` of the work is done, where bytes are no measure of it."""
        self.records += records
        self.bytes += size
        if fraction is not None:
            self._fraction = max(fraction, self._fraction or 0.0)
        elif self._total:
            self._fraction = self.bytes / self._total
        if self._stream is not None:
            now_s = self._clock_s()
            if now_s >= self._next_s:
                self._next_s = now_s + EVERY_S
                self._show(now_s)

    def finish(self) -> None:
        """Leave the last state on the terminal, if any was shown."""
        if self._shown and self._stream is not None:
            self._show(self._clock_s(), finished=True)
            self._stream.write("\n")
            self._stream.flush()

    def _show(self, now_s: float, *, finished: bool = False) -> None:
        assert self._stream is not None
        elapsed_s = now_s - self._start_s
        text = f"{amount(self.records, 'record')}, {size_text(self.bytes)}"
        if self._total:
            text += f" of {size_text(self._total)}"
        fraction = None if self._fraction is None else min(self._fraction, 1.0)
        if fraction is not None:
            text += f" ({100 * fraction:.0f} %)"
        text += f", {self.records / max(elapsed_s, 0.001):,.0f} records/s"
        if fraction and not finished:
            left_s = elapsed_s / fraction * (1 - fraction)
            text += f", {duration(max(round(left_s), 1) * 1000)} left"
        self._stream.write(f"\r{text}\x1b[K")
        self._stream.flush()
        self._shown = True
