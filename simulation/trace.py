"""The trace of a run: one line for each transition, and a hash of all of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from zlib import crc32

KEPT = 4000


class Trace:
    """`digest` is the same for two runs exactly if their transitions are. `keep_all`: keep all lines, not only the last ones."""

    def __init__(self, seconds: Callable[[], float], *, keep_all: bool = False) -> None:
        self.digest = 0
        self.lines: deque[str] = deque(maxlen=None if keep_all else KEPT)
        self.count = 0
        self._seconds = seconds

    def add(self, who: str, what: str) -> None:
        """One transition."""
        line = f"{self._seconds():11.6f}  {who:<8} {what}"
        self.digest = crc32(line.encode(), self.digest)
        self.count += 1
        self.lines.append(line)
