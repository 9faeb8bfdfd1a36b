"""Sample records with many edge cases, and the comparison of sent and received records."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

T = TypeVar("T")

Headers = tuple[tuple[str, bytes | None], ...]

# Retention would delete records with this fixed time; tests that use it set retention.ms=-1.
BASE_TIMESTAMP = 1_700_000_000_000


class Sample(NamedTuple):
    """A record to produce. `timestamp` in milliseconds."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int


class Received(NamedTuple):
    """A record as a client received it. Headers are (name, bytes) in order."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


def samples(count: int, *, seed: int = 0, base_timestamp: int = BASE_TIMESTAMP, null_headers: bool = False) -> list[Sample]:
    """`count` records, the same for the same seed.

    Null and empty keys and values, every byte value, text in several scripts, repeated header names, incompressible and very compressible
    values, some large ones. Most timestamps rise, some step back. Key and value are never both null, and a header's value is null only
    with `null_headers`: some clients refuse to send those.
    """
    chance = random.Random(seed)
    made = []
    for i in range(count):
        key = (None, b"", b"key-%d" % (i % 17), "ключ-键-🔑".encode(), bytes(range(256)))[chance.choices(range(5), (2, 1, 6, 1, 1))[0]]
        value = chance.choice((
            None,
            b"",
            b"value-%d" % i,
            chance.randbytes(chance.randrange(1, 2000)),
            b"compressible " * chance.randrange(1, 200),
            "значение-值-".encode() + bytes(range(256)),
        ))
        if value is None and key is None:
            key = b"tombstone"
        if i % 101 == 100:
            value = chance.randbytes(120_000)
        headers: list[tuple[str, bytes | None]] = [("trace", b"%d" % i)] if i % 3 else []
        if i % 5 == 0:
            headers += [("again", b"1"), ("again", b"2"), ("заголовок", b"\x00\xff"), ("empty", b"")]
        if null_headers and i % 10 == 0:
            headers.append(("null", None))
        step_back = 5000 if i % 50 == 49 else 0
        made.append(Sample(key, value, tuple(headers), base_timestamp + i * 100 - step_back))
    return made


def numbered(count: int, *, start: int = 0, size: int = 0, base_timestamp: int = BASE_TIMESTAMP) -> list[Sample]:
    """Records whose value is their number (padded to `size` bytes), with timestamps 100 ms apart: for tests about which records arrive."""
    return [Sample(b"%d" % i, (b"%d " % i).ljust(size, b"x"), (), base_timestamp + i * 100) for i in range(start, start + count)]


def numbers(received: Iterable[Received]) -> list[int]:
    """The numbers of `numbered` records, in the order received."""
    return [int((record.value or b"").split(b" ")[0]) for record in received]


def assert_same(sent: Sequence[tuple[int, Sample]], received: Iterable[Received], *, timestamps: bool = True) -> None:
    """Check that every (partition, sample) was received once, unchanged and in the order of its partition, without gaps in offsets."""
    expected = by_partition((partition, sample) for partition, sample in sent)
    found = by_partition((record.partition, record) for record in received)
    assert found.keys() == expected.keys()
    for partition, samples_ in expected.items():
        records = found[partition]
        assert len(records) == len(samples_), f"partition {partition}: {len(samples_)} were sent, {len(records)} received"
        first = records[0].offset
        assert [record.offset for record in records] == list(range(first, first + len(records)))
        for sample, record in zip(samples_, records, strict=True):
            assert record.key == sample.key
            assert record.value == sample.value
            assert record.headers == sample.headers
            if timestamps:
                assert record.timestamp == sample.timestamp


def by_partition(pairs: Iterable[tuple[int, T]]) -> dict[int, list[T]]:
    """The second of each pair, collected by the first."""
    collected: dict[int, list[T]] = defaultdict(list)
    for partition, item in pairs:
        collected[partition].append(item)
    return dict(collected)
