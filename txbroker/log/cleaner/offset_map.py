"""The map of the log cleaner: from the hash of a key to where its latest record is.

Two parallel arrays: 16 bytes of hash, and 8 of value (the offset), or 16 (version and offset) where a strategy of KIP-280 compares
versions. Keys themselves are not kept; `key_hash` says how improbable it is that two have the same hash. A key is looked for along a
row of positions that its hash gives, at most `probes_max` of them. What finds no place, and what comes when the map is as full as
the load factor allows, is not in the map, and the caller learns how far it got: the rest waits for the next pass, which hashes otherwise.
"""

from __future__ import annotations

import numpy as np

from txbroker.log.cleaner.unaligned_reads import Flags, Ints, Words

HASH_BYTES = 16
PROBES_MAX = 256  # at the default load factor of 0.9 one key in 5 * 10^11 needs more
NO_VERSION = -(2**63)

_HALF, _LOW_HALF = np.uint64(32), np.uint64(0xFFFFFFFF)
_VERSIONED = 1 << 62  # added to the offset of a record that has a version: it beats the ones without


class OffsetMap:
    """`records_max`: how many entries can be asked for at most; a smaller map is nearer. `count`: keys. `missed`: that found no place.

    `versioned`: entries carry a version. `position_bits`: how many bits of the hash tell positions apart (for tests).
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
        """Take records in, their offsets ascending; how many of them, from the first on, the map stands for now.

        The last record of a key wins, or that with the largest version, of equal ones the last.
        """
        taken = len(first)
        if self.count + taken > self._capacity:
            taken = self._fitting(first, second)
            first, second, offsets = first[:taken], second[:taken], offsets[:taken]
        places = self._places(first, second)
        placed = places >= 0
        if not placed.all():
            self.missed += len(np.unique(first[~placed]))
            taken = int(np.argmin(placed))
            places, offsets = places[:taken], offsets[:taken]
        if self._versions is None:
            self._offsets[places] = offsets
        else:
            assert versions is not None and has_version is not None
            self._put_versions(places, _combined(offsets, has_version[:taken]), versions[:taken])
        return taken

    def improve(self, first: Words, second: Words, offsets: Ints, versions: Ints, has_version: Flags) -> None:
        """Let records beat the versions of keys that are there already; no key is added."""
        places = self._find(first, second)
        found = places >= 0
        self._put_versions(places[found], _combined(offsets[found], has_version[found]), versions[found])

    def get(self, first: Words, second: Words) -> Ints:
        """The offset of each key's record that stays; -1 for keys that are not in the map."""
        places = self._find(first, second)
        found: Ints = self._offsets[places]
        found[places < 0] = -1
        return np.where(found < 0, -1, found & (_VERSIONED - 1))

    def all_offsets(self) -> Ints:
        """The offsets of the records that stay, in no order."""
        held = self._offsets[self._hashes.view(np.uint64)[1::2] != 0]
        found: Ints = held[held >= 0] & (_VERSIONED - 1)
        return found

    def _put_versions(self, places: Ints, offsets: Ints, versions: Ints) -> None:
        assert self._versions is not None
        order = np.lexsort((offsets, versions, places))
        places, offsets, versions = places[order], offsets[order], versions[order]
        last = np.flatnonzero(np.append(places[1:] != places[:-1], True))[: len(places)]
        places, offsets, versions = places[last], offsets[last], versions[last]
        held_version, held_offset = self._versions[places], self._offsets[places]
        better = (versions > held_version) | ((versions == held_version) & (offsets > held_offset))
        self._versions[places[better]] = versions[better]
        self._offsets[places[better]] = offsets[better]

    def _fitting(self, first: Words, second: Words) -> int:
        """How many of the records can be taken before there are more keys than the load factor allows."""
        new = np.flatnonzero(self._find(first, second) < 0)
        _, where = np.unique(np.stack((first[new], second[new])), axis=1, return_index=True)
        left = self._capacity - self.count
        if len(where) <= left:
            return len(first)
        return int(new[np.sort(where)[left]])

    def _row(self, first: Words) -> tuple[Ints, Ints]:
        """Where each key's row of positions begins, and by how much it steps."""
        bits = first & self._position_mask
        slots = np.uint64(self.slots)
        start = ((bits >> _HALF) * slots) >> _HALF
        step = ((bits & _LOW_HALF) * (slots - np.uint64(1))) >> _HALF
        step += np.uint64(1)
        return start.view(np.int64), step.view(np.int64)

    def _find(self, first: Words, second: Words) -> Ints:
        places = np.full(len(first), -1, dtype=np.int64)
        self._probe(first, second, places, insert=False)
        return places

    def _places(self, first: Words, second: Words) -> Ints:
        places = np.full(len(first), -1, dtype=np.int64)
        self._probe(first, second, places, insert=True)
        return places

    def _probe(self, first: Words, second: Words, places: Ints, *, insert: bool) -> None:
        at, step = self._row(first)
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
                places[same] = at[same]
                which = np.flatnonzero(going)
            else:
                places[which[same]] = at[same]
                which = which[going]
            if not len(which):
                return
            first, second, at, step = first[going], second[going], at[going], step[going]
            at += step
            at[at >= self.slots] -= self.slots

    def _claim(self, first: Words, second: Words, at: Ints, there: Words, same: Flags) -> None:
        """Give empty places to the keys that came there: of several the first; all records of a key come to a place together."""
        empty = np.flatnonzero(there == 0)
        if not len(empty):
            return
        empty = empty[::-1]  # of several values for one index numpy keeps the last
        wanted = np.empty((len(empty), 2), dtype=np.uint64)
        wanted[:, 0], wanted[:, 1] = first[empty], second[empty]
        places = at[empty]
        self._hashes[places] = wanted.view(np.complex128).ravel()
        now = self._hashes[places].view(np.uint64).reshape(-1, 2)
        same[empty] = (now == wanted).all(axis=1)
        if self._versions is None:
            mark = np.arange(len(places))
            self._offsets[places] = mark
            self.count += int((self._offsets[places] == mark).sum())
            self._offsets[places] = -1  # as long as none of the key's records is taken
        else:
            self.count += len(np.unique(places))


def _combined(offsets: Ints, has_version: Flags) -> Ints:
    return offsets + has_version * np.int64(_VERSIONED)
