"""The task of a reader, and when it has read everything."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from compat.demo.failure import DemoFailed

# A record that was read: partition, offset, key, value.
Take = Callable[[int, int, bytes | None, bytes | None], None]

STALL_S = 60.0


@dataclass(frozen=True)
class Source:
    """The topic to be read from its start up to `ends`, one offset per partition. With `group`, as its only member; otherwise by offset."""

    address: str
    topic: str
    ends: Mapping[int, int]
    group: str | None = None

    @property
    def count(self) -> int:
        """The number of records: each partition starts at 0."""
        return sum(self.ends.values())


class Countdown:
    """Passes records on up to the end of every partition; DemoFailed after a minute without records."""

    def __init__(self, source: Source, take: Take) -> None:
        self._open = dict(source.ends)
        self._take = take
        self._last = time.monotonic()

    def __bool__(self) -> bool:
        """Whether records are missing."""
        if self._open and time.monotonic() - self._last > STALL_S:
            raise DemoFailed(f"no record arrived for {STALL_S:.0f} s; partitions {sorted(self._open)} are not read to their ends")
        return bool(self._open)

    def take(self, partition: int, offset: int, key: bytes | None, value: bytes | None) -> None:
        """One record."""
        self._take(partition, offset, key, value)
        self._last = time.monotonic()
        if offset + 1 >= self._open.get(partition, offset + 2):
            del self._open[partition]
