"""Blocks that are decompressed one by one: compiled and plain, and compared with the libraries' readers of whole frames."""

from __future__ import annotations

import struct
from itertools import chain
from types import ModuleType
from typing import Any
from unittest.mock import patch

import lz4.block
import lz4.frame
import pytest
import snappy
from hypothesis import given
from hypothesis import strategies as st

from tests.support import compiled
from tests.support.compressed_forms import forms
from tests.wire.record_samples import mutations, value_or_error
from txbroker.errors import BrokerError, ErrorCode
from txbroker.wire import codec_blocks, compression
from txbroker.wire.codec_blocks import XERIAL_HEADER
from txbroker.wire.compression import Codec, compress, decompress

MODULES = compiled.forms(codec_blocks)
every_module = pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
FORMS = [form for form in forms() if form.codec in (Codec.SNAPPY, Codec.LZ4) and len(form.data) < 1000]
PLENTY = 100_000


def outcomes(data: bytes, size_max: int) -> list[Any]:
    """What each form of the module makes of snappy and of lz4 data."""
    view = memoryview(data)
    return [[as_text(value_or_error(function, view, size_max)) for function in (module.unsnappy, module.unlz4)] for module in MODULES]


def as_text(outcome: Any) -> Any:
    return (outcome.code, outcome.message) if isinstance(outcome, BrokerError) else outcome


def by_library(data: bytes, size_max: int) -> Any:
    """What lz4's library makes of it."""
    with patch.object(compression, "unlz4", lambda data, size_max: None):
        return value_or_error(decompress, Codec.LZ4, data, size_max)


@given(data=st.binary(max_size=200), size_max=st.integers(0, 300))
def test_the_results_for_any_bytes_are_equal(data: bytes, size_max: int) -> None:
    for start in (b"", XERIAL_HEADER, bytes.fromhex("04224d186440a7")):
        found = outcomes(start + data, size_max)
        assert found == found[:1] * len(MODULES)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_the_results_for_mutated_data_are_equal(form: Any) -> None:
    for data in chain([form.data], mutations(form.data, 3)):
        for size_max in (PLENTY, len(form.plain) - 1):
            found = outcomes(data, size_max)
            assert found == found[:1] * len(MODULES)
            plain = found[0][1]
            if form.codec is Codec.LZ4 and isinstance(plain, bytes):
                assert plain == by_library(data, size_max)


@given(
    data=st.binary(max_size=3000) | st.integers(0, 300_000).map(bytes),
    size=st.sampled_from([lz4.frame.BLOCKSIZE_MAX64KB, lz4.frame.BLOCKSIZE_MAX4MB]),
    checked=st.booleans(),
    sized=st.booleans(),
    extra=st.binary(max_size=5),
)
def test_frames_with_independent_blocks_are_read(data: bytes, size: int, checked: bool, sized: bool, extra: bytes) -> None:
    frame = lz4.frame.compress(data, block_linked=False, block_size=size, content_checksum=checked, store_size=sized) + extra
    for module in MODULES:
        assert module.unlz4(memoryview(frame), len(data)) == data
        if data:
            assert module.unlz4(memoryview(frame), len(data) - 1) is None


@every_module
def test_frames_for_the_library_are_left(module: ModuleType) -> None:
    data = b"the same words again and again, " * 5000
    for options in ({"block_linked": True}, {"block_linked": False, "block_checksum": True}):
        assert module.unlz4(memoryview(lz4.frame.compress(data, **options)), PLENTY * 10) is None
    many = bytearray(compress(Codec.LZ4, b""))[:7]
    block = lz4.block.compress(b"words", store_size=False)
    many += (struct.pack("<I", len(block)) + block) * 300 + bytes(4)
    assert module.unlz4(memoryview(many), PLENTY) is None, "it has many blocks"
    assert decompress(Codec.LZ4, many, PLENTY) == b"words" * 300


@given(blocks=st.lists(st.binary(min_size=1, max_size=300) | st.integers(1, 5000).map(bytes), min_size=1, max_size=4))
def test_snappy_is_read_raw_and_framed(blocks: list[bytes]) -> None:
    framed = XERIAL_HEADER + b"".join(struct.pack(">i", len(packed)) + packed for packed in map(snappy.compress, blocks))
    plain = b"".join(blocks)
    for module in MODULES:
        assert module.unsnappy(memoryview(framed), len(plain)) == plain
        assert module.unsnappy(memoryview(snappy.compress(plain)), len(plain)) == plain


@every_module
def test_a_batch_has_a_limit_of_snappy_blocks(module: ModuleType) -> None:
    block = struct.pack(">i", 1) + b"\0"
    assert module.unsnappy(memoryview(XERIAL_HEADER + block * 16_384), 10) == b""
    with pytest.raises(BrokerError) as error:
        module.unsnappy(memoryview(XERIAL_HEADER + block * 16_385), 10)
    assert error.value.code == ErrorCode.MESSAGE_TOO_LARGE
