"""The walk over records, compiled, generated and as it is written: equal results and errors for the same bytes."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.cache import CHECKOUT
from tests.support.compiled import plain
from tests.support.odd_batches import CASES
from txbroker.errors import BrokerError, CorruptRecords
from txbroker.wire import record_loops, record_loops_source
from txbroker.wire.batch import HEADER_SIZE, read_header
from txbroker.wire.compression import Codec
from txbroker.wire.inline_varints import generate
from txbroker.wire.records import WALK_IS_COMPILED, Record, build, first_of_time
from txbroker.wire.varint import encode_varint

GENERATED = CHECKOUT / "txbroker" / "wire" / "record_loops.py"
SOURCE = GENERATED.with_name("record_loops_source.py")


PLAIN = plain(record_loops)
OTHERS = [PLAIN, record_loops_source] if WALK_IS_COMPILED else [record_loops_source]
LIMITS = st.sampled_from([-(2**63), -1, 0, 1, 5, 200, 2**31 - 1, 2**63 - 1])


def outcome(function: Callable[..., Any], *arguments: object) -> object:
    """The result, or the kind and text of the error."""
    try:
        return function(*arguments)
    except BrokerError as error:
        return type(error), error.message
    except IndexError:
        return IndexError


def decoded(module: ModuleType, data: bytes, position: int, count: int, headers_left: int) -> object:
    records: list[object] = []
    return outcome(module.decode_records, data, position, count, headers_left, records), records


def compare(data: bytes, position: int, end: int, count: int, time_min: int = 0, offset_min: int = 0) -> None:
    """The module that txbroker uses and the other forms of it."""
    for other in OTHERS:
        for view in (data, memoryview(data), bytearray(data)):
            for consecutive in (False, True):
                arguments = (view, position, end, count, consecutive)
                assert outcome(record_loops.check_records, *arguments) == outcome(other.check_records, *arguments)
            timed = (view, position, end, count, time_min, offset_min)
            assert outcome(record_loops.find_time, *timed) == outcome(other.find_time, *timed)
            for bits in (32, 64):
                assert outcome(record_loops.read_unsigned, view, position, bits) == outcome(other.read_unsigned, view, position, bits)
        for headers_left in (0, 1, 100):
            assert decoded(record_loops, data, position, count, headers_left) == decoded(other, data, position, count, headers_left)
        compare_headers(other, data, position, end)


def compare_headers(other: ModuleType, data: bytes, position: int, end: int) -> None:
    for name in (b"", b"a", b"name1"):
        assert outcome(record_loops.find_header, data, position, end, name) == outcome(other.find_header, data, position, end, name)


def test_the_generated_module_is_current() -> None:
    assert GENERATED.read_text(encoding="utf-8") == generate(SOURCE.read_text(encoding="utf-8")), "run `make generated`"


def test_the_plain_module_is_plain() -> None:
    assert PLAIN.__file__ == str(GENERATED)


@pytest.mark.parametrize("name", list(CASES))
def test_the_results_for_invalid_batches_are_equal(name: str) -> None:
    data = CASES[name].make(1_700_000_000_000, Codec.NONE)
    compare(data, HEADER_SIZE, len(data), int.from_bytes(data[57:61], "big"))


@given(data=st.binary(max_size=60), position=st.integers(0, 70), end=st.integers(0, 70), count=st.integers(0, 5), low=LIMITS, first=LIMITS)
def test_the_results_for_any_bytes_are_equal(data: bytes, position: int, end: int, count: int, low: int, first: int) -> None:
    compare(data, position, min(end, len(data)), count, low, first)


@given(
    records=st.lists(
        st.tuples(st.integers(-(2**40), 2**62), st.none() | st.binary(max_size=300), st.integers(0, 3)), min_size=1, max_size=5
    ),
    seed=st.integers(0, 2**32),
    low=LIMITS,
    first=LIMITS,
)
def test_the_results_for_corrupted_records_are_equal(records: list[tuple[int, bytes | None, int]], seed: int, low: int, first: int) -> None:
    made = [
        Record(index, timestamp, key, key, tuple((f"name{n}", key) for n in range(headers)))
        for index, (timestamp, key, headers) in enumerate(records)
    ]
    data = bytearray(build(made))
    compare(bytes(data), HEADER_SIZE, len(data), len(records), low, first)
    chance = random.Random(seed)
    for _ in range(5):
        at = chance.randrange(HEADER_SIZE, len(data))
        before = data[at]
        data[at] = chance.randrange(256)
        compare(bytes(data), HEADER_SIZE, len(data), len(records), low, first)
        data[at] = before


@given(
    times=st.lists(st.integers(0, 2**40) | st.integers(0, 200), min_size=1, max_size=5),
    codec=st.sampled_from(list(Codec)),
    append_time=st.none() | st.integers(0, 200),
    low=st.integers(-5, 300) | LIMITS,
    first=st.integers(0, 10) | LIMITS,
    seed=st.integers(0, 2**32),
)
def test_a_time_found_in_a_batch_is_the_one_that_the_usual_way_finds(
    times: list[int], codec: Codec, append_time: int | None, low: int, first: int, seed: int
) -> None:
    made = [Record(5 + at, time, None, b"v") for at, time in enumerate(times)]
    data = bytearray(build(made, codec=codec, leader_epoch=3, log_append_time=append_time))
    chance = random.Random(seed)
    for _ in range(20):
        batch = bytes(data if chance.randrange(5) else data[: chance.randrange(len(data))])
        found = record_loops.find_time_in_batch(batch, low, first, 1000)
        for other in OTHERS:
            assert other.find_time_in_batch(batch, low, first, 1000) == found
        if found is not None:
            header = read_header(batch)
            assert header.max_timestamp >= low
            usual = first_of_time(batch, 0, header, low, first, 1000)
            assert usual is not None
            assert (*usual, header.leader_epoch) == found
        data[chance.randrange(len(data))] = chance.randrange(256)


NAMES = [b"", b"a", b"b", b"\xff", b"name" * 40]


@given(
    headers=st.lists(st.tuples(st.sampled_from(NAMES), st.none() | st.binary(max_size=200)), max_size=5),
    around=st.tuples(st.binary(max_size=3), st.binary(max_size=12)),
    seed=st.integers(0, 2**32),
)
def test_the_last_header_with_a_name_is_found(
    headers: list[tuple[bytes, bytes | None]], around: tuple[bytes, bytes], seed: int
) -> None:
    before, after = around
    encoded = bytearray(encode_varint(len(headers)))
    for name, value in headers:
        encoded += encode_varint(len(name)) + name + (encode_varint(-1) if value is None else encode_varint(len(value)) + value)
    data, start, end = bytearray(before + encoded + after), len(before), len(before) + len(encoded)
    latest = dict(headers)
    for name in NAMES:
        for module in (record_loops, *OTHERS):
            at, size = module.find_header(bytes(data), start, end, name)
            found = None if size < 0 else bytes(data[at : at + size])
            assert (at >= 0, found) == (name in latest, latest.get(name))
    chance = random.Random(seed)
    for _ in range(10):
        at = chance.randrange(start, end)
        original = data[at]
        data[at] = chance.randrange(256)
        for other in OTHERS:
            compare_headers(other, bytes(data), start, chance.randint(start, end))
            compare_headers(other, bytes(data), start, end)
        data[at] = original


@pytest.mark.parametrize(
    "encoded, problem",
    [
        (b"\x01", "more headers than bytes"),
        (b"\x04\x00\x00", "more headers than bytes"),
        (b"\x02\x01\x00", "without a name"),
        (b"\x02\x04a\x00", "ends beyond it"),
        (b"\x02\x02a\x04v", "ends beyond it"),
        (b"\x04\x00\x04vv\x00", "ends beyond it"),
    ],
)
def test_headers_that_are_not_within_their_record(encoded: bytes, problem: str) -> None:
    for module in (record_loops, *OTHERS):
        with pytest.raises(CorruptRecords, match=problem):
            module.find_header(encoded + b"\0" * 16, 0, len(encoded), b"a")
