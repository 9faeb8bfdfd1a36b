"""The latest record of each key in one partition, and the latest of those before each committed offset, in bounded memory.

Which record of a key is the latest is a matter of the topic's `compaction.strategy` (`CompactionOrder`).

A table has one row for each key's latest record, and one more for each committed offset that has records of the key on both sides: of a
key's records between two neighbouring committed offsets only the latest can be in an answer. Rows are columns of numpy, sorted by the
key's hash and then by offset; new records are collected until there are enough of them for a sort.

A table takes the keys whose hash is in [low, high). A sample is a range of hashes, so that it has the same keys each time. A topic
with more keys than fit into the memory is read in several passes: a table that becomes too large drops the upper half of its range.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from txbroker.log.cleaner.cleaning_job import Strategy
from txbroker.log.cleaner.compaction_order import CompactionOrder
from txbroker.log.cleaner.compaction_strategy import sort_keys

Ints = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]

HASH_END = 2**64
DELETED, VERSIONED = 1, 2  # bits of `flags`: no value (a tombstone); a version in a header
# A sort needs the columns, their order, and the columns in their order.
COPIES = 3
_PENDING_ROWS = 64 * 1024
_GATHERED_ROWS = 16 * 1024


class MemoryExceeded(Exception):
    """Not even the smallest part of the keys fits into the memory."""


@dataclass(slots=True)
class Rows:
    """Records as columns of one length: 128 bits of hash, offset, timestamp (ms), version, flags, and where in `keys` the key is."""

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
        """Bytes of the columns and the keys."""
        return sum(int(getattr(self, field.name).nbytes) for field in fields(self))

    def take(self, chosen: npt.NDArray[Any]) -> Rows:
        """These rows (indexes or a mask), with a copy of only their keys."""
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
    """The keys at these positions, joined, and their new positions."""
    ends = np.cumsum(size, dtype=np.int64)
    new_start = ends - size
    found = np.empty(int(ends[-1]) if len(ends) else 0, np.uint8)
    # The index of each byte takes eight bytes: only some rows at a time.
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
    """What was delivered before a committed offset: of each key the index of a row, or -1 for none, and whether it is not the latest."""

    row: Ints
    unseen: npt.NDArray[np.bool_]


class Latest:
    """The table of one partition. Records are added in the order of their offsets.

    `committed`: the groups' offsets that matter. `low`, `high`: the range of the upper 64 bits of the hash that is accepted; `high` falls
    when the table is about to need more than `bytes_max`. MemoryExceeded when that does not help.
    """

    def __init__(self, order: CompactionOrder, committed: Sequence[int], low: int, high: int, bytes_max: int) -> None:
        self.low, self.high = low, high
        self._order = order
        self._borders = np.array(sorted(set(committed)), np.int64)
        self._bytes_max = bytes_max
        self._rows = empty()
        self._pending: list[Rows] = []
        self._pending_bytes = self._pending_count = 0
        self._by_rank: Ints = np.empty(0, np.int64)
        self._rank: Ints = self._by_rank

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
        """All records are added; the methods below need this first."""
        self._merge()
        rows = self._rows
        if self._order.strategy is Strategy.OFFSET:
            self._by_rank = np.arange(len(rows), dtype=np.int64)  # a key's rows are sorted by offset
            self._rank = self._by_rank
        else:
            self._by_rank = np.lexsort(self._sort_keys(rows))
            self._rank = np.empty(len(rows), np.int64)
            self._rank[self._by_rank] = np.arange(len(rows), dtype=np.int64)

    def _merge(self) -> None:
        if not self._pending:
            return
        together = joined([self._rows, *self._pending])
        self._rows = empty()
        self._pending.clear()
        self._pending_bytes = self._pending_count = 0
        epoch = np.searchsorted(self._borders, together.offset, side="right")
        if self._order.strategy is Strategy.OFFSET:
            order = _order_by_hash(together)
        else:
            order = np.lexsort((*self._sort_keys(together), epoch, together.low, together.high))
        high, low, epoch = together.high[order], together.low[order], epoch[order]
        last = np.ones(len(order), np.bool_)
        last[:-1] = (high[1:] != high[:-1]) | (low[1:] != low[:-1]) | (epoch[1:] != epoch[:-1])
        del high, low, epoch
        self._rows = together.take(order[last])
        # Half of the room is for what is added next: a table that fills all of it would be sorted again for every few records.
        while self._rows.nbytes > self._bytes_max // COPIES // 2:
            self._narrow()

    def _sort_keys(self, rows: Rows) -> tuple[npt.NDArray[Any], ...]:
        return sort_keys(self._order, rows.offset, rows.timestamp, rows.version, rows.flags & VERSIONED != 0)

    def _narrow(self) -> None:
        """Drop the upper half of the keys."""
        middle = int(self._rows.high[len(self._rows) // 2])
        if middle <= self.low:
            raise MemoryExceeded
        self.high = middle
        self._rows = self._rows.take(np.arange(int(np.searchsorted(self._rows.high, np.uint64(middle)))))

    @property
    def rows(self) -> Rows:
        """The table: by hash, the records of a key by offset."""
        return self._rows

    def starts(self) -> Ints:
        """The index of the first row of each key."""
        rows = self._rows
        first = np.ones(len(rows), np.bool_)
        first[1:] = (rows.high[1:] != rows.high[:-1]) | (rows.low[1:] != rows.low[:-1])
        return np.flatnonzero(first)

    def latest(self, starts: Ints) -> Ints:
        """The index of the row of each key's latest record."""
        return self._by_rank[np.maximum.reduceat(self._rank, starts)] if len(starts) else starts

    def delivered(self, starts: Ints, committed: int) -> Delivered:
        """Of each key, the latest of the records before a committed offset."""
        latest = self.latest(starts)
        if not len(starts):
            return Delivered(latest, np.empty(0, np.bool_))
        before = np.maximum.reduceat(np.where(self._rows.offset < committed, self._rank, -1), starts)
        row = np.where(before < 0, -1, self._by_rank[before])
        return Delivered(row, row != latest)


def _order_by_hash(rows: Rows) -> Ints:
    """By hash; equal ones keep their order."""
    order = np.argsort(rows.high, kind="stable")
    high, low = rows.high[order], rows.low[order]
    same = high[1:] == high[:-1]
    if bool((low[1:][same] != low[:-1][same]).any()):  # two keys that agree in 64 bits are rare
        order = np.lexsort((rows.low, rows.high))
    return order
