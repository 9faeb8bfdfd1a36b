"""Where batches of a segment are, as far as somebody has asked or they were just written."""

from __future__ import annotations

from array import array
from bisect import bisect_left

# A place takes 24 bytes. What is written is remembered for readers at the log's end and for the borders of reads, in every
# partition; what is looked up only in those that are read here and there.
WRITTEN_MAX = 1024
LOOKED_UP_MAX = 8192


class Places:
    """Batches by offset, ascending: the offsets that each is the answer to, position and size. Gaps between them are not known."""

    __slots__ = ("_first_offsets", "_last_offsets", "_where")

    def __init__(self) -> None:
        self._first_offsets = array("q")
        self._last_offsets = array("q")
        self._where = array("q")  # position and size, both below 2**31

    def get(self, offset: int) -> tuple[int, int] | None:
        """Position and size of the batch that holds `offset`, or of the first one behind it, if that is known."""
        last_offsets = self._last_offsets
        at = bisect_left(last_offsets, offset)
        if at == len(last_offsets) or self._first_offsets[at] > offset:
            return None
        where = self._where[at]
        return where >> 32, where & 0xFFFFFFFF

    def written(self, first_offset: int, last_offset: int, position: int, size: int) -> None:
        """Remember a batch behind all others."""
        self._last_offsets.append(last_offset)
        self._first_offsets.append(first_offset)
        self._where.append(position << 32 | size)
        if len(self._where) > WRITTEN_MAX:
            self._forget_first(WRITTEN_MAX // 2)

    def looked_up(self, first_offset: int, last_offset: int, position: int, size: int) -> None:
        """Remember a batch: it ends with `last_offset`, and is what a look-up of `first_offset` finds."""
        last_offsets = self._last_offsets
        if len(last_offsets) >= LOOKED_UP_MAX:
            self._forget_first(LOOKED_UP_MAX // 2)
        at = bisect_left(last_offsets, last_offset)
        if at < len(last_offsets) and last_offsets[at] == last_offset:
            self._first_offsets[at] = min(first_offset, self._first_offsets[at])
            return
        last_offsets.insert(at, last_offset)
        self._first_offsets.insert(at, first_offset)
        self._where.insert(at, position << 32 | size)

    def _forget_first(self, count: int) -> None:
        for numbers in (self._last_offsets, self._first_offsets, self._where):
            del numbers[:count]

    def clear(self) -> None:
        """Forget everything."""
        self._forget_first(len(self._where))
