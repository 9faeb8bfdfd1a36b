"""The counts of rules, and the numbers of the journal: of one broker, or of all brokers of a cluster together."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager

_COUNT = struct.Struct("=q")
JOURNAL = 0


def calls_of(rule: int) -> int:
    """The place of the calls of the rule with this number, from 1 on."""
    return 2 * rule


def hits_of(rule: int) -> int:
    """The place of its hits."""
    return 2 * rule + 1


class Tally:
    """Counts by place, 0 at first. `increase` is called while the counts are locked. Those of removed rules stay: `after` may name them."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}

    @contextmanager
    def locked(self) -> Iterator[None]:
        """No other process changes the counts meanwhile."""
        yield

    def get(self, place: int) -> int:
        """A count."""
        return self._counts.get(place, 0)

    def increase(self, place: int, by: int = 1) -> int:
        """Add one, or another number; the new count."""
        count = self._counts[place] = self._counts.get(place, 0) + by
        return count


class SharedTally(Tally):
    """In a file that the brokers of a cluster share. The lock of a process that is killed is released by the operating system."""

    def __init__(self, path: str) -> None:
        import fcntl  # not on Windows, which has no such clusters

        super().__init__()
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._flock = fcntl.flock
        self._exclusive, self._unlock = fcntl.LOCK_EX, fcntl.LOCK_UN

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Held for some microseconds."""
        self._flock(self._descriptor, self._exclusive)
        try:
            yield
        finally:
            self._flock(self._descriptor, self._unlock)

    def get(self, place: int) -> int:
        """A count."""
        found = os.pread(self._descriptor, _COUNT.size, place * _COUNT.size)
        return int(_COUNT.unpack(found)[0]) if len(found) == _COUNT.size else 0

    def increase(self, place: int, by: int = 1) -> int:
        """Add one, or another number; the new count."""
        count = self.get(place) + by
        os.pwrite(self._descriptor, _COUNT.pack(count), place * _COUNT.size)
        return count
