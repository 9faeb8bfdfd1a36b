from __future__ import annotations

import mmap
import struct

import crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.record_samples import batches, golden, golden_bytes, golden_entries, mutations, value_or_error
from txbroker.errors import CorruptRecords, ErrorCode
from txbroker.wire import batch
from txbroker.wire.batch import HEADER_SIZE, BatchHeader
from txbroker.wire.compression import Codec
from txbroker.wire.records import Record, build

VALID = build(
    [Record(40 + i, 1000 + i, b"k", b"v" * i) for i in range(3)], leader_epoch=5, producer_id=7, producer_epoch=2, base_sequence=9
)

# Field -> (struct format, position), for tests that overwrite one.
FIELDS = {
    "base_offset": (">q", 0),
    "length": (">i", 8),
    "leader_epoch": (">i", 12),
    "magic": (">b", 16),
    "crc": (">I", 17),
    "attributes": (">h", 21),
    "last_offset_delta": (">i", 23),
    "base_timestamp": (">q", 27),
    "max_timestamp": (">q", 35),
    "producer_id": (">q", 43),
    "producer_epoch": (">h", 51),
    "base_sequence": (">i", 53),
    "count": (">i", 57),
}


def with_field(valid: bytes, name: str, value: int) -> bytes:
    form, position = FIELDS[name]
    changed = bytearray(valid)
    struct.pack_into(form, changed, position, value)
    return bytes(changed)


@pytest.mark.parametrize("name", golden("kafka-3.9.1_v2_*"))
def test_headers_agree_with_kafkas_dump_tool(name: str) -> None:
    data = golden_bytes(name)
    said = golden_entries(name)
    found = list(batches(data))
    assert len(found) == len(said)
    for (position, header), entry in zip(found, said, strict=True):
        batch.check_crc(data, position, header)
        assert header.codec.name.lower() == entry.pop("codec")
        entry.pop("records", None), entry.pop("markers", None)
        assert {field: position if field == "position" else getattr(header, field) for field in entry} == entry


def test_every_field_is_read_from_its_position() -> None:
    for name in FIELDS:
        if name not in ("length", "magic", "attributes"):
            assert getattr(batch.read_header(with_field(VALID, name, 77)), name) == 77
    assert batch.read_header(VALID).size == len(VALID)


def test_attributes_are_decoded() -> None:
    def header(attributes: int) -> BatchHeader:
        return batch.read_header(with_field(VALID, "attributes", attributes))

    assert [header(i).codec for i in range(5)] == list(Codec)
    assert header(0x08).log_append_time
    assert header(0x10).transactional
    assert header(0x20).control
    assert header(0x40).delete_horizon == 1000
    plain = header(0)
    assert (plain.log_append_time, plain.transactional, plain.control, plain.delete_horizon) == (False, False, False, None)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("magic", 0),
        ("magic", 1),
        ("magic", 3),
        ("magic", -1),
        ("length", 48),
        ("length", 0),
        ("length", -1),
        ("length", -(2**31)),
        ("length", len(VALID) - 11),
        ("length", 2**31 - 1),
        ("count", -1),
        ("last_offset_delta", -1),
        ("attributes", 5),
        ("attributes", 7),
    ],
)
def test_an_invalid_header_is_refused(field: str, value: int) -> None:
    with pytest.raises(CorruptRecords) as caught:
        batch.read_header(with_field(VALID, field, value))
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_an_incomplete_batch_is_refused() -> None:
    for end in range(len(VALID)):
        with pytest.raises(CorruptRecords):
            batch.read_header(VALID[:end])
        with pytest.raises(CorruptRecords):
            batch.read_header(b"12345" + VALID[:end], 5)
    with pytest.raises(CorruptRecords):
        batch.read_header(VALID, len(VALID) + 1)


def test_the_crc_covers_all_bytes_from_the_attributes_on() -> None:
    header = batch.read_header(VALID)
    batch.check_crc(VALID, 0, header)
    assert header.crc == crc32c.crc32c(VALID[21:])
    for place in range(len(VALID)):
        changed = b"%b%c%b" % (VALID[:place], VALID[place] ^ 1, VALID[place + 1 :])
        if place < 17:
            batch.check_crc(changed, 0, header)
        elif place >= 21:
            with pytest.raises(CorruptRecords):
                batch.check_crc(changed, 0, header)


@pytest.mark.parametrize("view", [bytes, bytearray, memoryview])
def test_a_batch_is_read_in_the_middle_of_any_kind_of_buffer(view: type) -> None:
    buffer = view(b"xyz" + VALID + b"tail")
    header = batch.read_header(buffer, 3)
    assert header == batch.read_header(VALID)
    batch.check_crc(buffer, 3, header)


def test_stamp_writes_offset_and_epoch_and_keeps_the_crc_valid() -> None:
    buffer = bytearray(b"xyz" + VALID)
    batch.stamp(memoryview(buffer), 3, 2**40, 12)
    header = batch.read_header(buffer, 3)
    batch.check_crc(buffer, 3, header)
    assert (header.base_offset, header.leader_epoch, header.last_offset) == (2**40, 12, 2**40 + 2)
    assert buffer[3 + 16 :] == VALID[16:]


def test_append_time_replaces_the_largest_timestamp_and_the_crc() -> None:
    buffer = bytearray(b"xyz" + VALID)
    batch.stamp_max_timestamp(buffer, 3, 5555, log_append_time=True)
    header = batch.read_header(buffer, 3)
    batch.check_crc(buffer, 3, header)
    assert (header.max_timestamp, header.log_append_time, header.base_timestamp) == (5555, True, 1000)
    assert buffer[3 + HEADER_SIZE :] == VALID[HEADER_SIZE:]


def test_a_memory_map_can_be_walked_and_closed_again() -> None:
    with mmap.mmap(-1, 2 * len(VALID)) as mapped:
        mapped[:] = VALID * 2
        with memoryview(mapped) as view:
            for position, header in batches(view):
                batch.check_crc(view, position, header)


def walk(data: bytes) -> None:
    for position, header in batches(data):
        batch.check_crc(data, position, header)


@given(st.binary(max_size=150))
def test_any_bytes_give_headers_or_corrupt_records(junk: bytes) -> None:
    for data in (junk, VALID[:17] + junk, VALID + junk):
        value_or_error(batch.read_header, data)
        value_or_error(walk, data)


def test_a_changed_byte_gives_headers_or_corrupt_records() -> None:
    for changed in mutations(VALID):
        value_or_error(walk, changed)
