"""Hashes keys to 128 bits with a universal hash. Its multipliers come from the seed of the pass. Each step hashes 8 bytes of all keys.

Four sums of products of 32-bit halves (multilinear hashing in pairs; Lemire and Kaser, "Strongly universal string hashing is fast", 2014)
give 32 bits each. For any two keys each sum is equal with a probability of at most 2^-31 over the seeds, all four with 2^-124. One more
bit is lost because hashes are never zero. A final invertible mix spreads similar keys over the table. Each pass has new multipliers: two
keys that collide in one pass do not collide in the next.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from txbroker.log.cleaner.unaligned_reads import PADDING, Bytes, Ints, Words, gather, words_of

LONG_KEY = 512  # bytes: longer keys are hashed one by one, because each step needs multipliers of its own

_LANES = 4
_HALF, _LOW_HALF, _HIGH_HALF = np.uint64(32), np.uint64(0xFFFFFFFF), np.uint64(0xFFFFFFFF00000000)
_MASKS = np.array([(1 << 8 * count) - 1 for count in range(9)], dtype=np.uint64)
# The finalizer of MurmurHash3.
_MIX_1, _MIX_2, _MIX_SHIFT = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53), np.uint64(33)


class KeyHash:
    """The hash function of one pass. `seed`: random, so that clients cannot choose keys that collide."""

    def __init__(self, seed: int) -> None:
        drawn = np.random.Generator(np.random.PCG64(seed)).integers(0, 2**64, size=_LANES * 2 + LONG_KEY // 4 * _LANES, dtype=np.uint64)
        self._start = drawn[:_LANES]
        self._of_length = drawn[_LANES : 2 * _LANES]
        self._of_step = drawn[2 * _LANES :].reshape(LONG_KEY // 8, _LANES, 2)
        self._long_key = drawn[:8].tobytes()

    def __call__(self, words: Words, data: Bytes, starts: Ints, lengths: Ints) -> tuple[Words, Words]:
        """Two 64-bit words for each key; the second is never zero. `words` and `data` are the same buffer, padded."""
        count = len(starts)
        sums = [np.multiply(lengths.view(np.uint64), factor) for factor in self._of_length]
        for total, start in zip(sums, self._start, strict=True):
            total += start
        longest = int(lengths.max()) if count else 0
        shortest = int(lengths.min()) if count else 0
        for step in range((min(longest, LONG_KEY) + 7) // 8):
            at = 8 * step
            if shortest > at:
                self._add(sums, step, words, starts + at, None if shortest >= at + 8 else lengths - at)
            else:
                some = np.flatnonzero(lengths > at)
                parts = [total[some] for total in sums]
                self._add(parts, step, words, starts[some] + at, lengths[some] - at)
                for total, part in zip(sums, parts, strict=True):
                    total[some] = part
        first, second = _mixed(sums[0], sums[1]), _mixed(sums[2], sums[3])
        if longest > LONG_KEY:
            self._hash_long(data, starts, lengths, first, second)
        second |= np.uint64(1)
        return first, second

    def of_keys(self, keys: Sequence[bytes]) -> tuple[Words, Words]:
        """The same for keys in separate objects."""
        joined = b"".join((*keys, bytes(PADDING + 8)))
        lengths = np.fromiter(map(len, keys), np.int64, len(keys))
        return self(words_of(joined), np.frombuffer(joined, np.uint8), np.cumsum(lengths, dtype=np.int64) - lengths, lengths)

    def _add(self, sums: list[Words], step: int, words: Words, at: Ints, left: Ints | None) -> None:
        word = gather(words, at)
        if left is not None:
            word &= _MASKS[np.minimum(left, 8)]
        low, high = word & _LOW_HALF, word >> _HALF
        for total, (add_low, add_high) in zip(sums, self._of_step[step], strict=True):
            product = low + add_low
            product *= high + add_high
            total += product

    def _hash_long(self, data: Bytes, starts: Ints, lengths: Ints, first: Words, second: Words) -> None:
        for number in np.flatnonzero(lengths > LONG_KEY).tolist():
            key = data[starts[number] : starts[number] + lengths[number]].tobytes()
            digest = hashlib.blake2b(key, digest_size=16, key=self._long_key).digest()
            first[number] = int.from_bytes(digest[:8], "little")
            second[number] = int.from_bytes(digest[8:], "little")


def _mixed(high: Words, low: Words) -> Words:
    high &= _HIGH_HALF
    low >>= _HALF
    high |= low
    for factor in (_MIX_1, _MIX_2):
        high ^= high >> _MIX_SHIFT
        high *= factor
    high ^= high >> _MIX_SHIFT
    return high
