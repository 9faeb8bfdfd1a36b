"""The last record of each key in one partition, and what of it lay before each committed offset, in bounded memory.

A table has one row for a key's last record, and one more for each committed offset that the key was written on both sides of: of all
records of a key between two neighbouring committed offsets only the last can be anybody's answer. Rows are columns of numpy, sorted by
the key's hash and then by offset; new records wait until there are enough of them to be worth a sort.

A table takes the keys whose hash lies in [low, high). That is how a sample is taken, the same one each time, and how a topic with more
keys than the memory holds is read in several passes: a table that has become too large gives up the upper half of its range.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]

HASH_END = 2**64
DELETED, VERSIONED = 1, 2  # bits of `flags`: no value (a tombstone); a version in a header
# While a table is sorted it is there more than twice: the columns, their order, and the columns in their order.
COPIES = 3
_PENDING_ROWS = 64 * 1024
_GATHERED_ROWS = 16 * 1024


class MemoryExceeded(Exception):
    """Not even the smallest part of the keys fits."""


@dataclass(slots=True)
class Rows:
    """Records as columns of one length: 128 bits of hash, offset, timestamp (ms), version, flags, and where in `keys` the key lies."""

    high: Hashes
    low: Hashes
    offset: Ints
    timestamp: Ints
    version: Ints
    flags: npt.NDArray[np.uint8]
    key_start: Ints
    key_size: npt.NDArray[np.int32]
    keys: npt.NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.offset)

    @property
    def nbytes(self) -> int:
        """What the columns and the keys take."""
        return sum(int(getattr(self, field.name).nbytes) for field in fields(self))

    def take(self, chosen: npt.NDArray[Any]) -> Rows:
        """These rows (indexes or a mask), with a copy of their keys alone."""
        size = self.key_size[chosen]
        keys, start = _gathered(self.keys, self.key_start[chosen], size)
        columns: dict[str, Any] = {name: getattr(self, name)[chosen] for name in _NUMBERS}
        return Rows(**columns, key_start=start, key_size=size, keys=keys)

    def key(self, index: int) -> bytes:
        """The key of one row."""
        start = int(self.key_start[index])
        return self.keys[start : start + int(self.key_size[index])].tobytes()


_NUMBERS = ("high", "low", "offset", "timestamp", "version", "flags")


def _gathered(keys: npt.NDArray[np.uint8], start: Ints, size: npt.NDArray[np.int32]) -> tuple[npt.NDArray[np.uint8], Ints]:
    """The bytes at these places, one behind the other, and where each begins then."""
    ends = np.cumsum(size, dtype=np.int64)
    new_start = ends - size
    found = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
    # The place of a byte takes eight: some at a time.
    for at in range(0, len(size), _GATHERED_ROWS):
        some = slice(at, at + _GATHERED_ROWS)
        first, last = int(new_start[at]), int(ends[some][-1])
        places = np.repeat(start[some] - new_start[some] + first, size[some])
        places += np.arange(last - first, dtype=np.int64)
        found[first:last] = keys[places]
    return found, new_start


def joined(parts: Sequence[Rows]) -> Rows:
    """Several as one, in this order."""
    if len(parts) == 1:
        return parts[0]
    before = np.cumsum([0, *(len(part.keys) for part in parts[:-1])])
    start = np.concatenate([part.key_start + int(shift) for part, shift in zip(parts, before, strict=True)])
    columns: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _NUMBERS}
    size = np.concatenate([part.key_size for part in parts])
    return Rows(**columns, key_start=start, key_size=size, keys=np.concatenate([part.keys for part in parts]))


def empty() -> Rows:
    """No rows."""
    ints, hashes = np.empty(0, np.int64), np.empty(0, np.uint64)
    return Rows(hashes, hashes, ints, ints, ints, np.empty(0, np.uint8), ints, np.empty(0, np.int32), np.empty(0, np.uint8))


class Delivered(NamedTuple):
    """What was delivered before a committed offset: of each key the index of a row, or -1 for nothing, and whether it is not the latest."""

    row: Ints
    unseen: npt.NDArray[np.bool_]


class Latest:
    """The table of one partition. Records are added in the order of their offsets.

    `committed`: the groups' offsets that matter. `low`, `high`: the range of the upper 64 bits of the hash that is taken in; `high` falls
    when the table is about to need more than `bytes_max`. MemoryExceeded when that does not help.
    """

    def __init__(self, committed: Sequence[int], low: int, high: int, bytes_max: int) -> None:
        self.low, self.high = low, high
        self._borders = np.array(sorted(set(committed)), np.int64)
        self._bytes_max = bytes_max
        self._rows = empty()
        self._pending: list[Rows] = []
        self._pending_bytes = self._pending_count = 0

    def chosen(self, high: Hashes) -> npt.NDArray[np.bool_]:
        """Which hashes are in the range."""
        found: npt.NDArray[np.bool_] = high >= np.uint64(self.low)
        if self.high < HASH_END:
            found &= high < np.uint64(self.high)
        return found

    def add(self, taken: Rows) -> None:
        """More records, all of them chosen."""
        if not len(taken):
            return
        self._pending.append(taken)
        self._pending_count += len(taken)
        self._pending_bytes += taken.nbytes
        room = self._bytes_max // COPIES - self._rows.nbytes
        if self._pending_bytes >= room or self._pending_count >= max(_PENDING_ROWS, len(self._rows)):
            self._merge()

    def finish(self) -> None:
        """All records are added."""
        self._merge()

    def _merge(self) -> None:
        if not self._pending:
            return
        together = joined([self._rows, *self._pending])
        self._rows = empty()
        self._pending.clear()
        self._pending_bytes = self._pending_count = 0
        order = _order(together)
        epoch = np.searchsorted(self._borders, together.offset[order], side="right")
        high, low = together.high[order], together.low[order]
        last = np.ones(len(order), np.bool_)
        last[:-1] = (high[1:] != high[:-1]) | (low[1:] != low[:-1]) | (epoch[1:] != epoch[:-1])
        del high, low, epoch
        self._rows = together.take(order[last])
        # Half of the room is for what is added next: a table that fills it all would be sorted again for every few records.
        while self._rows.nbytes > self._bytes_max // COPIES // 2:
            self._narrow()

    def _narrow(self) -> None:
        """Give up the upper half of the keys."""
        middle = int(self._rows.high[len(self._rows) // 2])
        if middle <= self.low:
            raise MemoryExceeded
        self.high = middle
        self._rows = self._rows.take(np.arange(int(np.searchsorted(self._rows.high, np.uint64(middle)))))

    @property
    def rows(self) -> Rows:
        """The table, once it is finished: by hash, the records of a key by offset."""
        return self._rows

    def starts(self) -> Ints:
        """The index of the first row of each key."""
        rows = self._rows
        first = np.ones(len(rows), np.bool_)
        first[1:] = (rows.high[1:] != rows.high[:-1]) | (rows.low[1:] != rows.low[:-1])
        return np.flatnonzero(first)

    def last(self, starts: Ints) -> Ints:
        """The index of the last row of each key, by the first ones."""
        return np.append(starts[1:], len(self._rows)).astype(np.int64) - 1 if len(starts) else starts

    def delivered(self, starts: Ints, committed: int) -> Delivered:
        """Of each key, what lies before a committed offset."""
        last = self.last(starts)
        if not len(starts):
            return Delivered(last, np.empty(0, np.bool_))
        before = np.where(self._rows.offset < committed, np.arange(len(self._rows), dtype=np.int64), -1)
        row = np.maximum.reduceat(before, starts)
        return Delivered(row, row != last)


def _order(rows: Rows) -> Ints:
    """By hash; equal ones as they come."""
    order = np.argsort(rows.high, kind="stable")
    high, low = rows.high[order], rows.low[order]
    same = high[1:] == high[:-1]
    if bool((low[1:][same] != low[:-1][same]).any()):  # two keys that agree in 64 bits: one among billions of pairs of keys
        order = np.lexsort((rows.low, rows.high))
    return order
