"""The map of the log cleaner: from the hash of a key to the offset of its latest record (Kafka's SkimpyOffsetMap).

Two parallel arrays: 16 bytes of hash; and 8 bytes (the offset), or 16 (version and offset) when a strategy of KIP-280 compares versions.
Keys are not stored; `key_hash` gives the probability that two keys have the same hash. A key is probed at up to `probes_max` slots, in a
sequence that its hash determines. A key that finds no free slot, or comes when the load factor is reached, is not added, and the caller
learns how many records were taken. The next pass cleans the rest, with other hashes.
"""

from __future__ import annotations

import numpy as np

from txbroker.log.cleaner.compaction_order import NO_VERSION
from txbroker.log.cleaner.unaligned_reads import Flags, Ints, Words

HASH_BYTES = 16
PROBES_MAX = 256  # one key in 5 * 10^11 needs more at the default load factor of 0.9

_HALF, _LOW_HALF = np.uint64(32), np.uint64(0xFFFFFFFF)
_VERSIONED = 1 << 62  # added to the offset of a record with a version, so that it wins over records without one


class OffsetMap:
    """`count`: the keys in the map. `missed`: keys that found no slot.

    `records_max`: how many records can come at most; a smaller map is faster. `versioned`: entries have a version. `position_bits`: how
    many bits of the hash determine the slot (for tests).
    """

    def __init__(
        self,
        memory_bytes: int,
        load_factor: float,
        *,
        versioned: bool = False,
        records_max: int | None = None,
        position_bits: int = 64,
        probes_max: int = PROBES_MAX,
    ) -> None:
        slots = max(memory_bytes // (HASH_BYTES + (16 if versioned else 8)), 2)
        if records_max is not None:
            slots = min(slots, max(int(records_max / load_factor) + 1, 64))
        self.slots = min(slots, 2**31)
        self.count = 0
        self.missed = 0
        self._capacity = max(int(self.slots * load_factor), 1)
        self._probes_max = probes_max
        self._position_mask = np.uint64(((1 << position_bits) - 1) << (64 - position_bits))
        self._hashes = np.zeros(self.slots, dtype=np.complex128)  # as two words: one gather takes both
        self._offsets = np.full(self.slots, -1, dtype=np.int64) if versioned else np.zeros(self.slots, dtype=np.int64)
        self._versions = np.full(self.slots, NO_VERSION, dtype=np.int64) if versioned else None

    def put(self, first: Words, second: Words, offsets: Ints, versions: Ints | None = None, has_version: Flags | None = None) -> int:
        """Add records with ascending offsets; how many of them the map covers, from the first on.

        The last record of a key wins; with versions the one with the largest version, and of equal ones the last.
        """
        taken = len(first)
        if self.count + taken > self._capacity:
            taken = self._fitting(first, second)
            first, second, offsets = first[:taken], second[:taken], offsets[:taken]
        slot = self._find_or_claim(first, second)
        placed = slot >= 0
        if not placed.all():
            self.missed += len(np.unique(first[~placed]))
            taken = int(np.argmin(placed))
            slot, offsets = slot[:taken], offsets[:taken]
        if self._versions is None:
            self._offsets[slot] = offsets
        else:
            assert versions is not None and has_version is not None
            self._put_versions(slot, _combined(offsets, has_version[:taken]), versions[:taken])
        return taken

    def improve(self, first: Words, second: Words, offsets: Ints, versions: Ints, has_version: Flags) -> None:
        """Let newer versions of keys that are in the map win; no key is added."""
        slot = self._find(first, second)
        found = slot >= 0
        self._put_versions(slot[found], _combined(offsets[found], has_version[found]), versions[found])

    def get(self, first: Words, second: Words) -> Ints:
        """The offset of the record that stays for each key; -1 for keys that are not in the map."""
        slot = self._find(first, second)
        found: Ints = self._offsets[slot]
        found[slot < 0] = -1
        return np.where(found < 0, -1, found & (_VERSIONED - 1))

    def all_offsets(self) -> Ints:
        """The offsets of all records that stay, unordered."""
        held = self._offsets[self._hashes.view(np.uint64)[1::2] != 0]
        found: Ints = held[held >= 0] & (_VERSIONED - 1)
        return found

    def _put_versions(self, slot: Ints, offsets: Ints, versions: Ints) -> None:
        assert self._versions is not None
        order = np.lexsort((offsets, versions, slot))
        slot, offsets, versions = slot[order], offsets[order], versions[order]
        last = np.flatnonzero(np.append(slot[1:] != slot[:-1], True))[: len(slot)]
        slot, offsets, versions = slot[last], offsets[last], versions[last]
        held_version, held_offset = self._versions[slot], self._offsets[slot]
        better = (versions > held_version) | ((versions == held_version) & (offsets > held_offset))
        self._versions[slot[better]] = versions[better]
        self._offsets[slot[better]] = offsets[better]

    def _fitting(self, first: Words, second: Words) -> int:
        """How many of the records can be added before the load factor is exceeded."""
        new = np.flatnonzero(self._find(first, second) < 0)
        _, where = np.unique(np.stack((first[new], second[new])), axis=1, return_index=True)
        left = self._capacity - self.count
        if len(where) <= left:
            return len(first)
        return int(new[np.sort(where)[left]])

    def _probe_sequence(self, first: Words) -> tuple[Ints, Ints]:
        """The first slot of each key, and the step to its next ones."""
        bits = first & self._position_mask
        slots = np.uint64(self.slots)
        start = ((bits >> _HALF) * slots) >> _HALF
        step = ((bits & _LOW_HALF) * (slots - np.uint64(1))) >> _HALF
        step += np.uint64(1)
        return start.view(np.int64), step.view(np.int64)

    def _find(self, first: Words, second: Words) -> Ints:
        slot = np.full(len(first), -1, dtype=np.int64)
        self._probe(first, second, slot, insert=False)
        return slot

    def _find_or_claim(self, first: Words, second: Words) -> Ints:
        slot = np.full(len(first), -1, dtype=np.int64)
        self._probe(first, second, slot, insert=True)
        return slot

    def _probe(self, first: Words, second: Words, slot: Ints, *, insert: bool) -> None:
        at, step = self._probe_sequence(first)
        which: Ints | None = None  # all
        for _ in range(self._probes_max):
            entries = self._hashes[at].view(np.uint64)
            there = entries[1::2]
            same = (there == second) & (entries[0::2] == first)
            if insert:
                self._claim(first, second, at, there, same)
                going = ~same
            else:
                going = ~same & (there != 0)
            if which is None:
                slot[same] = at[same]
                which = np.flatnonzero(going)
            else:
                slot[which[same]] = at[same]
                which = which[going]
            if not len(which):
                return
            first, second, at, step = first[going], second[going], at[going], step[going]
            at += step
            at[at >= self.slots] -= self.slots

    def _claim(self, first: Words, second: Words, at: Ints, there: Words, same: Flags) -> None:
        """Give empty slots to keys that reach them: of several keys the first. All records of a key reach a slot in the same step."""
        empty = np.flatnonzero(there == 0)
        if not len(empty):
            return
        empty = empty[::-1]  # numpy keeps the last of several values for one index
        claimed = np.empty((len(empty), 2), dtype=np.uint64)
        claimed[:, 0], claimed[:, 1] = first[empty], second[empty]
        slot = at[empty]
        self._hashes[slot] = claimed.view(np.complex128).ravel()
        now = self._hashes[slot].view(np.uint64).reshape(-1, 2)
        same[empty] = (now == claimed).all(axis=1)
        if self._versions is None:
            mark = np.arange(len(slot))
            self._offsets[slot] = mark
            self.count += int((self._offsets[slot] == mark).sum())
            self._offsets[slot] = -1  # until a record of the key is added
        else:
            self.count += len(np.unique(slot))


def _combined(offsets: Ints, has_version: Flags) -> Ints:
    return offsets + has_version * np.int64(_VERSIONED)
