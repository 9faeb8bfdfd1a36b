"""The offset map and its hash: no keys are mixed up or lost, however many collide."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from txbroker.log.cleaner.compaction_order import NO_VERSION
from txbroker.log.cleaner.key_hash import LONG_KEY, KeyHash
from txbroker.log.cleaner.offset_map import OffsetMap
from txbroker.log.cleaner.unaligned_reads import PADDING, Words, words_of


def hashed(keys: list[bytes], seed: int = 5, shift: int = 0) -> tuple[Words, Words]:
    """The hashes of keys that follow each other in a buffer, from `shift` on."""
    buffer = bytes(range(shift)) + b"".join(keys) + bytes(PADDING + 8)
    sizes = np.array([len(key) for key in keys], dtype=np.int64)
    starts = np.cumsum(sizes) - sizes + shift
    return KeyHash(seed)(words_of(buffer), np.frombuffer(buffer, dtype=np.uint8), starts, sizes)


def bits(first: Words, second: Words) -> np.ndarray:
    return np.unpackbits(np.stack((first, second), axis=1).view(np.uint8), axis=1)


def test_the_hash_of_a_key_does_not_depend_on_its_position() -> None:
    keys = [b"", b"a", b"ab", b"k" * 8, b"k" * 9, b"k" * 31, b"x" * LONG_KEY, b"x" * (LONG_KEY + 1), b"y" * 5000]
    wanted = hashed(keys)
    for shift in range(1, 9):
        assert all((one == other).all() for one, other in zip(wanted, hashed(keys, shift=shift), strict=True))
    for number, key in enumerate(keys):
        alone = hashed([key])
        assert (alone[0][0], alone[1][0]) == (wanted[0][number], wanted[1][number])


def test_similar_keys_and_other_seeds_give_other_hashes() -> None:
    keys = [bytes(size) for size in range(600)] + [b"%d" % number for number in range(200_000)]
    keys += [b"x" * size + bytes([n]) + b"y" * 3 for size in range(20) for n in range(256)]
    keys = list(dict.fromkeys(keys))
    for seed in (0, 1, 2**64 - 1):
        pairs = np.stack(hashed(keys, seed), axis=1)
        assert len(np.unique(pairs, axis=0)) == len(keys)
        assert len(np.unique(pairs[:, 0])) == len(keys), "even half of the hash has no collision"
    assert (hashed(keys, 1)[0] != hashed(keys, 2)[0]).all()


def test_each_bit_of_a_key_changes_half_of_the_bits_of_the_hash() -> None:
    base = bytearray(b"some key of twenty-nine bytes")
    keys = [bytes(base)]
    for bit in range(8 * len(base)):
        turned = bytearray(base)
        turned[bit // 8] ^= 1 << bit % 8
        keys.append(bytes(turned))
    turns = np.zeros((len(keys) - 1, 128))
    seeds = 200
    for seed in range(seeds):
        all_bits = bits(*hashed(keys, seed))
        turns += all_bits[1:] != all_bits[0]
    kept_bit = 64  # the lowest of the second word, little-endian: it is always set
    rest = np.delete(turns / seeds, range(kept_bit, kept_bit + 8), axis=1)
    assert rest.min() > 0.3 and rest.max() < 0.7
    assert abs(rest.mean() - 0.5) < 0.01


@pytest.mark.parametrize("keys", [
    [b"key-%012d" % number for number in range(100_000)],
    [number.to_bytes(8, "big") for number in range(100_000)],
    [(number << 32).to_bytes(8, "little") for number in range(100_000)],
    [bytes(number % 300) + number.to_bytes(4, "little") for number in range(20_000)],
], ids=["text", "big-endian", "high half", "mostly zeros"])
def test_hashes_fill_a_table_evenly(keys: list[bytes]) -> None:
    first, second = hashed(keys, 99)
    for word in (first, second):
        for shift in (52, 32, 12):
            counts = np.bincount((word >> np.uint64(shift)).astype(np.int64) & 1023, minlength=1024)
            expected = len(keys) / 1024
            chi_squared = float(((counts - expected) ** 2 / expected).sum())
            assert 750 < chi_squared < 1350, "for 1023 degrees of freedom; 6 standard deviations"


@given(
    chunks=st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=60), min_size=1, max_size=8),
    position_bits=st.sampled_from([0, 1, 2, 4, 64]), probes=st.sampled_from([1, 2, 5, 256]),
    slots=st.sampled_from([2, 7, 30, 64, 200]), load=st.sampled_from([0.5, 0.9, 1.0]), seed=st.integers(0, 2**40))
def test_the_map_equals_a_dictionary_for_the_records_that_it_covers(
    chunks: list[list[int]], position_bits: int, probes: int, slots: int, load: float, seed: int
) -> None:
    built = OffsetMap(slots * 24, load, position_bits=position_bits, probes_max=probes)
    wanted: dict[int, int] = {}
    offset = 0
    for chunk in chunks:
        first, second = hashed([b"key %d" % key for key in chunk], seed)
        offsets = np.arange(offset, offset + len(chunk))
        taken = built.put(first, second, offsets)
        wanted.update(zip(chunk[:taken], offsets[:taken].tolist(), strict=True))
        offset += len(chunk)
        if taken < len(chunk):
            new = len({*chunk[: taken + 1]} - wanted.keys())
            assert built.missed or new or len(wanted) >= int(slots * load), "it took fewer records than it could"
            break
    assert wanted, "the first key always finds a slot"
    found = built.get(*hashed([b"key %d" % key for key in range(41)], seed))
    assert found.tolist() == [wanted.get(key, -1) for key in range(41)]
    assert sorted(built.all_offsets().tolist()) == sorted(wanted.values())
    assert len(wanted) <= max(int(built.slots * load), 1)


@given(
    records=st.lists(st.tuples(st.integers(0, 9), st.one_of(st.none(), st.integers(-2, 2), st.just(NO_VERSION))), min_size=1, max_size=60),
    split=st.integers(0, 60))
def test_larger_versions_win_and_of_equal_ones_the_last(records: list[tuple[int, int | None]], split: int) -> None:
    built = OffsetMap(64 * 32, 0.9, versioned=True)
    dirty = records[split:] or records[-1:]
    clean = records[: len(records) - len(dirty)]

    def columns(some: list[tuple[int, int | None]], start: int) -> tuple:
        versions = np.array([NO_VERSION if version is None else version for _, version in some], dtype=np.int64)
        has = np.array([version is not None for _, version in some], dtype=np.bool_)
        return (*hashed([b"%d" % key for key, _ in some]), np.arange(start, start + len(some)), versions, has)

    assert built.put(*columns(dirty, len(clean))) == len(dirty)
    if clean:
        built.improve(*columns(clean, 0))
    ranked = [((version is not None, version or 0, offset), key) for offset, (key, version) in enumerate(records)]
    mapped = {key for key, _ in dirty}
    wanted = {key: max(rank for rank, other in ranked if other == key)[2] for key in mapped}
    assert built.get(*hashed([b"%d" % key for key in range(10)])).tolist() == [wanted.get(key, -1) for key in range(10)]


def test_a_map_for_few_records_is_small() -> None:
    assert OffsetMap(1 << 30, 0.9, records_max=1000).slots < 1200
    assert OffsetMap(24 * 100, 0.9, records_max=10**9).slots == 100
