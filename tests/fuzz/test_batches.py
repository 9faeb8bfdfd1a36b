"""Corrupted records give records or a BrokerError, stay within the memory limit, and do not change a log."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.batches import BYTES_MAX, NOW_MS, Logs, read_in_every_way, sealed, some_records
from tests.fuzz.frames import pick_from
from tests.fuzz.memory import peak_growth
from tests.log.support import open_log
from tests.support.examples import examples
from txbroker.errors import BrokerError, ErrorCode
from txbroker.log.log_config import LogConfig
from txbroker.log.log_results import Origin
from txbroker.log.validate import validate
from txbroker.wire import batch, conversion, entries, legacy, records
from txbroker.wire.compression import Codec, compress, decompress
from txbroker.wire.records import Record, build

MIB = 1 << 20
choices = st.binary(max_size=400)


@pytest.fixture(scope="module")
def logs() -> Logs:
    return Logs()


@settings(max_examples=examples(600))
@given(choices)
def test_reading_any_records_gives_records_or_a_broker_error(data: bytes) -> None:
    read_in_every_way(some_records(pick_from(data)))


@settings(max_examples=examples(200))
@given(st.lists(choices, min_size=1, max_size=4))
def test_appending_any_records_succeeds_or_changes_nothing(logs: Logs, each: list[bytes]) -> None:
    for data in each:
        logs.append(some_records(pick_from(data)))
    logs.recover()


@settings(max_examples=examples(200))
@given(st.binary(max_size=300))
def test_random_bytes(data: bytes) -> None:
    read_in_every_way(data)
    read_in_every_way(sealed(data))


# --- small input, large memory ---


def refused(work: Callable[[], object], *, growth_max: int = 24 * MIB) -> ErrorCode:
    """The error of `work`, which must use almost no memory."""
    codes: list[ErrorCode] = []

    def watched() -> None:
        with pytest.raises(BrokerError) as caught:
            work()
        codes.append(caught.value.code)

    assert peak_growth(watched) < growth_max
    return codes[0]


@pytest.fixture(scope="module", autouse=True)
def libraries() -> None:
    """Import the codec libraries before memory is measured."""
    for codec in Codec:
        decompress(codec, compress(codec, b"warm"), 100)


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec is not Codec.NONE], ids=lambda codec: codec.name.lower())
@pytest.mark.parametrize("magic", [0, 2])
def test_a_decompression_bomb(codec: Codec, magic: int) -> None:
    if codec is Codec.ZSTD and magic == 0:
        return
    bomb = compress(codec, bytes(64 * MIB), magic=magic)
    assert refused(lambda: decompress(codec, bomb, BYTES_MAX, magic=magic)) is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("bomb", [
    pytest.param((Codec.SNAPPY, b"\xff\xff\xff\xff\x07" + b"\0" * 50), id="snappy, 2 GiB claimed"),
    pytest.param((Codec.ZSTD, b"\x28\xb5\x2f\xfd\xe0" + b"\xff" * 8 + b"\x01\x00\x00"), id="zstd, all there is claimed"),
    pytest.param((Codec.LZ4, b"\x04\x22\x4d\x18\x78\x70" + b"\xff" * 8 + b"\0" * 20), id="lz4, all there is claimed"),
    pytest.param((Codec.GZIP, b"\x1f\x8b\x08\x00" + b"\0" * 20), id="gzip of nothing"),
])
def test_wrong_sizes_take_no_memory(bomb: tuple[Codec, bytes]) -> None:
    assert refused(lambda: decompress(*bomb, 64 * MIB)) in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.MESSAGE_TOO_LARGE)


def with_payload(payload: bytes, count: int, codec: Codec = Codec.ZSTD) -> bytes:
    """A batch whose header has `count` records, with this payload."""
    good = bytearray(build([Record(0, NOW_MS, b"k", b"v")], codec=codec)[: batch.HEADER_SIZE])
    struct.pack_into(">i", good, 23, max(count - 1, 0))
    struct.pack_into(">i", good, 57, count)
    return sealed(bytes(good) + compress(codec, payload))


@pytest.mark.parametrize("data", [
    pytest.param(with_payload(b"\0" * MIB, 2**31 - 1), id="as many records as can be said"),
    pytest.param(with_payload(b"\x0c\0\0\0\x01\x01\0" * (16 * MIB // 7), 16 * MIB // 7), id="millions of small records"),
    pytest.param(with_payload(b"\xfe\xff\xff\x0f\0\0\0\x01\x01\xfe\xff\xff\x07" + b"\0\x01" * (16 * MIB), 1), id="millions of headers"),
    pytest.param(with_payload(b"\xff" * MIB, 1), id="numbers without end"),
    pytest.param(with_payload(b"\xfe\xff\xff\xff\x0f\0\0\0\xfe\xff\xff\xff\x0f", 1), id="a key of 2 GiB"),
    pytest.param(with_payload(b"\x14\0\0\0\x01\x01\xfe\xff\xff\xff\x0f", 1), id="2 G headers"),
])
def test_wrong_counts_of_records_take_no_memory(data: bytes) -> None:
    header = batch.read_header(data)
    reading = (lambda: list(records.read_records(data, 0, header, 64 * MIB)), lambda: validate_compacted(data))
    for read in reading:
        assert refused(read, growth_max=160 * MIB) in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_RECORD)


def validate_compacted(data: bytes) -> object:
    config = LogConfig(cleanup_policy=frozenset({"compact"}))
    return validate(memoryview(bytearray(data)), config, NOW_MS, Origin.CLIENT)


def message(magic: int, codec: Codec, value: bytes) -> bytes:
    """A compressed message of an old format with this value."""
    covered = bytes((magic, codec)) + (struct.pack(">q", NOW_MS) if magic else b"") + struct.pack(">ii", -1, len(value)) + value
    return struct.pack(">qiI", 0, len(covered) + 4, zlib.crc32(covered)) + covered


@pytest.mark.parametrize("magic", [0, 1])
def test_nested_wrappers(magic: int) -> None:
    nested = legacy.build([Record(0, NOW_MS, None, b"innermost")], magic=magic)
    for _ in range(50):
        nested = message(magic, Codec.GZIP, compress(Codec.GZIP, nested))
    assert refused(lambda: conversion.to_v2(nested, bytes_max=BYTES_MAX)) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("magic", [0, 1])
def test_a_wrapper_of_millions_of_messages(magic: int) -> None:
    one = legacy.build([Record(0, NOW_MS, None, None)], magic=magic)
    wrapper = message(magic, Codec.GZIP, compress(Codec.GZIP, one * (48 * MIB // len(one))))
    assert refused(lambda: conversion.to_v2(wrapper, bytes_max=64 * MIB), growth_max=200 * MIB) is ErrorCode.MESSAGE_TOO_LARGE


def test_a_marker_with_a_count_of_millions(tmp_path: Path) -> None:
    """A leader may send it, and a disk may have it: it is not a marker, and the log can be opened."""
    data = bytearray(build([Record(0, NOW_MS, b"\0\0\0\1", bytes(6))], producer_id=5, producer_epoch=0, transactional=True, control=True))
    struct.pack_into(">i", data, 57, 2**31 - 1)
    log = open_log(tmp_path)
    log.append_replicated(memoryview(bytearray(sealed(bytes(data)))), now_ms=NOW_MS)
    log.flush()
    assert open_log(tmp_path, clean=False).log_end_offset == 1


def test_a_batch_longer_than_its_bytes() -> None:
    data = bytearray(build([Record(0, NOW_MS, b"k", b"v")]))
    struct.pack_into(">i", data, 8, 2**31 - 1)
    assert refused(lambda: batch.read_header(data)) is ErrorCode.CORRUPT_MESSAGE
    assert list(entries.Scan(data)) == []
