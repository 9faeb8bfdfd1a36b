"""How many closed segments keep files and mappings open.

A segment opens its log file and its indexes when they are needed. A consumer that reads a long log from its start, or look-ups by
time, would open those of every segment, each up to three descriptors. When more than `count_max` closed segments are open, the one
that was opened first closes its files. Active segments stay open: there are as many as partitions that are written to.
"""

from __future__ import annotations

import weakref
from typing import Protocol

OPEN_MAX = 256


class Releasable(Protocol):
    """A segment, as far as its open files go."""

    def release(self) -> None:
        """Close the files until they are needed again."""


class OpenSegments:
    """Shared by all logs of a broker that are in use, and used in their thread only."""

    def __init__(self, count_max: int = OPEN_MAX) -> None:
        self._count_max = count_max
        self._open: dict[int, weakref.ref[Releasable]] = {}  # by identity, in the order of opening

    def __len__(self) -> int:
        return len(self._open)

    def opened(self, segment: Releasable) -> None:
        """A closed segment has opened a file or a mapping, or a segment with open files was closed."""
        opened, key = self._open, id(segment)
        if key in opened:
            return
        opened[key] = weakref.ref(segment, lambda _: opened.pop(key, None))
        if len(opened) > self._count_max:
            oldest = opened.pop(next(iter(opened)))()
            if oldest is not None:
                oldest.release()
