"""The walk over records, compiled, generated and as it is written: equal results and errors for the same bytes."""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.cache import CHECKOUT
from tests.support.odd_batches import CASES
from tests.wire.record_samples import fuzz
from txbroker.errors import BrokerError
from txbroker.wire import record_walk, record_walk_source
from txbroker.wire.batch import HEADER_SIZE
from txbroker.wire.compression import Codec
from txbroker.wire.inline_varints import generate
from txbroker.wire.records import WALK_IS_COMPILED, Record, build

GENERATED = CHECKOUT / "txbroker" / "wire" / "record_walk.py"
SOURCE = GENERATED.with_name("record_walk_source.py")
compiled_only = pytest.mark.skipif(not WALK_IS_COMPILED, reason="txbroker was installed without a C compiler")


def _load_plain() -> ModuleType:
    spec = importlib.util.spec_from_file_location("plain_record_walk", GENERATED)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PLAIN = _load_plain()
OTHERS = [PLAIN, record_walk_source] if WALK_IS_COMPILED else [record_walk_source]
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
                assert outcome(record_walk.check_records, *arguments) == outcome(other.check_records, *arguments)
            timed = (view, position, end, count, time_min, offset_min)
            assert outcome(record_walk.find_time, *timed) == outcome(other.find_time, *timed)
            for bits in (32, 64):
                assert outcome(record_walk.read_unsigned, view, position, bits) == outcome(other.read_unsigned, view, position, bits)
        for headers_left in (0, 1, 100):
            assert decoded(record_walk, data, position, count, headers_left) == decoded(other, data, position, count, headers_left)


def test_the_generated_module_is_current() -> None:
    assert GENERATED.read_text(encoding="utf-8") == generate(SOURCE.read_text(encoding="utf-8")), "run `make generated`"


def test_the_plain_module_is_plain() -> None:
    assert PLAIN.__file__ == str(GENERATED)


@compiled_only
def test_the_compiled_module_is_not_older_than_its_source() -> None:
    compiled = Path(record_walk.__file__)
    if compiled.parent == GENERATED.parent:
        for path in (GENERATED, GENERATED.with_suffix(".pxd")):
            assert compiled.stat().st_mtime >= path.stat().st_mtime, f"{path.name} was changed: make venv compiles it again"


@pytest.mark.parametrize("name", list(CASES))
def test_the_results_for_invalid_batches_are_equal(name: str) -> None:
    data = CASES[name].make(1_700_000_000_000, Codec.NONE)
    compare(data, HEADER_SIZE, len(data), int.from_bytes(data[57:61], "big"))


@given(data=st.binary(max_size=60), position=st.integers(0, 70), end=st.integers(0, 70), count=st.integers(0, 5), low=LIMITS, first=LIMITS)
@fuzz
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
@fuzz
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
