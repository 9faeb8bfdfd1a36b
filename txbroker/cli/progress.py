"""One line on a terminal that says how far a long piece of work is."""

from __future__ import annotations

from collections.abc import Callable
from typing import TextIO

EVERY_S = 0.25
FIRST_S = 0.5

_UNITS = ("B", "kB", "MB", "GB", "TB")


def size_text(count: int) -> str:
    """Bytes for people, in powers of 1000."""
    value, unit = float(count), 0
    while value >= 999.5 and unit < len(_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{value:.0f} {_UNITS[unit]}" if unit == 0 or value >= 99.5 else f"{value:.1f} {_UNITS[unit]}"


class Progress:
    """Counts records and their bytes; writes over its own line, at most every `EVERY_S` seconds and not before `FIRST_S`.

    `total` are the bytes that will come, where that is known. Without a stream it only counts.
    """

    def __init__(self, stream: TextIO | None, clock_s: Callable[[], float], total: int | None = None) -> None:
        self.records = 0
        self.bytes = 0
        self._stream = stream
        self._clock_s = clock_s
        self._total = total or None
        self._start_s = clock_s()
        self._next_s = self._start_s + FIRST_S
        self._shown = False

    def add(self, size: int, records: int = 1) -> None:
        """More records, of `size` bytes together."""
        self.records += records
        self.bytes += size
        if self._stream is not None:
            now_s = self._clock_s()
            if now_s >= self._next_s:
                self._next_s = now_s + EVERY_S
                self._show(now_s)

    def finish(self) -> None:
        """Leave the last state on the terminal, if any was shown."""
        if self._shown and self._stream is not None:
            self._show(self._clock_s())
            self._stream.write("\n")
            self._stream.flush()

    def _show(self, now_s: float) -> None:
        assert self._stream is not None
        rate = self.records / max(now_s - self._start_s, 0.001)
        part = f" of {size_text(self._total)} ({min(100 * self.bytes // self._total, 100)} %)" if self._total else ""
        self._stream.write(f"\r{self.records:,} records, {size_text(self.bytes)}{part}, {rate:,.0f} records/s\x1b[K")
        self._stream.flush()
        self._shown = True
