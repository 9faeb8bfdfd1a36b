"""The positions of a segment's batches that were written or looked up recently.

Cython compiles the module where it can (`setup.py`; types in `batch_positions.pxd`).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left

# An entry takes 24 bytes. Written batches are remembered in every partition, for readers at the end of the log and for the ends of reads;
# looked-up batches only in partitions that are read at random.
WRITTEN_MAX = 1024
LOOKED_UP_MAX = 8192


class BatchPositions:
    """Batches in ascending order: the offsets whose look-up finds each, its position and its size. There may be gaps between them."""

    __slots__ = ("_first_offsets", "_last_offsets", "_where")

    def __init__(self) -> None:
        self._first_offsets = array("q")
        self._last_offsets = array("q")
        self._where = array("q")  # position and size, both below 2**31

    def get(self, offset: int) -> tuple[int, int] | None:
        """Position and size of the batch that holds `offset`, or of the first one after it; None if that is not known."""
        last_offsets = self._last_offsets
        at = bisect_left(last_offsets, offset)
        if at == len(last_offsets) or self._first_offsets[at] > offset:
            return None
        where = self._where[at]
        return where >> 32, where & 0xFFFFFFFF

    def written(self, first_offset: int, last_offset: int, position: int, size: int) -> None:
        """Remember a batch that follows all others."""
        self._last_offsets.append(last_offset)
        self._first_offsets.append(first_offset)
        self._where.append(position << 32 | size)
        if len(self._where) > WRITTEN_MAX:
            self._forget_first(WRITTEN_MAX // 2)

    def written_all(self, first_offsets: list[int], last_offsets: list[int], places: list[int]) -> None:
        """Remember batches that follow all others; `places`: position << 32 | size."""
        self._last_offsets.fromlist(last_offsets)
        self._first_offsets.fromlist(first_offsets)
        self._where.fromlist(places)
        if len(self._where) > WRITTEN_MAX:
            self._forget_first(len(self._where) - WRITTEN_MAX // 2)

    def looked_up(self, first_offset: int, last_offset: int, position: int, size: int) -> None:
        """Remember a batch that ends with `last_offset` and that a look-up of `first_offset` finds."""
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
