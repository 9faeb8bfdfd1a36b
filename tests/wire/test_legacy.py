from __future__ import annotations

import struct
from typing import Any

import pytest
from aiokafka.record.legacy_records import LegacyRecordBatch as AiokafkaSet
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.memory_records import MemoryRecords

from tests.wire.record_samples import (
    PLENTY,
    allocations_below,
    as_golden,
    as_kept,
    client_records,
    golden,
    golden_bytes,
    golden_entries,
    message,
    mutations,
    read_set,
    record_lists,
    value_or_error,
    wrapper,
)
from txbroker.errors import BrokerError, CorruptRecords, ErrorCode
from txbroker.wire import legacy
from txbroker.wire.compression import Codec
from txbroker.wire.records import Record

CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
every_codec = pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)
every_magic = pytest.mark.parametrize("magic", [0, 1])


# --- message sets of other implementations ---


@pytest.mark.parametrize("name", [*golden("kafka-3.9.1_v0_*"), *golden("kafka-3.9.1_v1_*")])
def test_messages_agree_with_kafkas_tools(name: str) -> None:
    data = golden_bytes(name)
    for (position, header), entry in zip(legacy.iterate(data), golden_entries(name), strict=True):
        legacy.check_crc(data, position, header)
        assert header.codec.name.lower() == entry.pop("codec")
        records = entry.pop("records")
        assert {field: position if field == "position" else getattr(header, field) for field in entry} == entry
        assert [as_golden(record) for record in legacy.read_records(data, position, header, PLENTY)] == records


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("client", ["kafka-python", "aiokafka", "librdkafka", "sarama"])
def test_records_are_those_of_the_client(client: str, magic: int) -> None:
    names = golden(f"{client}*_v{magic}_*")
    assert len(names) >= 3
    for name in names:
        records = read_set(golden_bytes(name))
        assert [record[1:] for record in records] == [record[1:] for record in client_records(magic)], name
        assert [record.offset for record in records] in (list(range(20)), [0] * 20), name


# --- message sets of txbroker, decoded by other implementations ---


def fields_of(theirs: Any, magic: int) -> Record:
    return Record(theirs.offset, theirs.timestamp if magic else -1, theirs.key, theirs.value)


# kafka-python needs another package for lz4 of magic 0, and aiokafka cannot read it; golden files of librdkafka and Kafka test it.
readable = pytest.mark.parametrize(("codec", "magic"), [(c, m) for c in CODECS for m in (0, 1) if (c, m) != (Codec.LZ4, 0)])


@readable
def test_kafka_python_decodes_our_batches(codec: Codec, magic: int) -> None:
    records = [record._replace(offset=record.offset + 100) for record in client_records(magic)]
    entries = list(MemoryRecords(legacy.build(records, magic=magic, codec=codec)))
    assert all(entry.validate_crc() for entry in entries)
    assert [fields_of(record, magic) for entry in entries for record in entry] == records


@readable
def test_aiokafka_decodes_our_batches(codec: Codec, magic: int) -> None:
    records = [record._replace(offset=record.offset + 100) for record in client_records(magic)]
    data = legacy.build(records, magic=magic, codec=codec)
    found = []
    for position, header in legacy.iterate(data):
        entry = AiokafkaSet(data[position : position + header.size], magic)
        assert entry.validate_crc()
        found += [fields_of(record, magic) for record in entry]
    assert found == records


@pytest.mark.parametrize("name", [f"kafka-3.9.1_v{magic}_{codec}" for magic in (0, 1) for codec in ("none", "lz4")])
def test_building_a_message_set_of_kafka_gives_the_same_bytes(name: str) -> None:
    data = golden_bytes(name)
    header = legacy.read_header(data)
    assert legacy.build(read_set(data), magic=header.magic, codec=header.codec) == data


# --- round trips ---


@given(records=record_lists(), magic=st.sampled_from((0, 1)), codec=st.sampled_from(CODECS))
def test_records_are_decoded_as_built(records: list[Record], magic: int, codec: Codec) -> None:
    data = legacy.build(records, magic=magic, codec=codec)
    kept = [as_kept(record, magic) for record in records]
    assert read_set(data) == kept
    found = [header for _, header in legacy.iterate(data)]
    assert len(found) == (len(records) if codec is Codec.NONE else 1)
    assert found[-1].last_offset == records[-1].offset
    if codec is not Codec.NONE:
        assert found[0].max_timestamp == max(record.timestamp for record in kept)


def test_append_time_is_the_timestamp_of_every_message() -> None:
    records = [Record(7, 5, b"a", b"x"), Record(9, 3, None, b"y")]
    for codec in CODECS:
        data = legacy.build(records, magic=1, codec=codec, log_append_time=900)
        assert legacy.read_header(data).log_append_time
        assert [(record.offset, record.timestamp) for record in read_set(data)] == [(7, 900), (9, 900)]
        old = legacy.build(records, magic=0, codec=codec, log_append_time=900)
        assert not legacy.read_header(old).log_append_time
        assert [(record.offset, record.timestamp) for record in read_set(old)] == [(7, -1), (9, -1)]


def test_no_records_build_an_empty_set_and_zstd_is_refused() -> None:
    assert legacy.build([], magic=1, codec=Codec.GZIP) == b""
    with pytest.raises(ValueError):
        legacy.build(client_records(1), magic=1, codec=Codec.ZSTD)


# --- offsets inside wrappers ---


def test_inner_offsets_are_absolute_in_magic_0_and_relative_in_magic_1() -> None:
    absolute = wrapper(12, message(10, magic=0) + message(12, magic=0), magic=0)
    assert [record.offset for record in read_set(absolute)] == [10, 12]
    relative = wrapper(12, message(0) + message(2))
    assert [record.offset for record in read_set(relative)] == [10, 12]
    # A compacted wrapper need not begin with relative offset 0.
    assert [record.offset for record in read_set(wrapper(12, message(3) + message(5)))] == [10, 12]


def test_a_produced_wrapper_at_offset_0_keeps_its_inner_offsets() -> None:
    assert [record.offset for record in read_set(wrapper(0, message(0) + message(1)))] == [0, 1]


def test_the_append_time_of_a_wrapper_applies_to_its_inner_messages() -> None:
    assert [record.timestamp for record in read_set(wrapper(1, message(0) + message(1), attributes=0x08, timestamp=77))] == [77, 77]
    assert [record.timestamp for record in read_set(wrapper(1, message(0) + message(1), timestamp=77))] == [5, 5]


@pytest.mark.parametrize(
    "data",
    [
        wrapper(1, message(4)),
        wrapper(1, message(0) + message(4)),  # relative offsets above that of the wrapper
        wrapper(2**63 - 1, message(2**62) + message(0)),  # an inner offset beyond 64 bits
        wrapper(5, message(-9) + message(0)),  # an inner offset below 0
        wrapper(1, wrapper(1, message(0))),  # wrappers do not nest
        wrapper(1, message(1, magic=0)),  # magic 0 inside 1
        wrapper(1, message(1, magic=1), magic=0),
        wrapper(1, b""),
        wrapper(1, message(0)[:-1]),
        wrapper(1, message(0)[:-1] + b"?"),  # CRC of an inner message
        message(1, Codec.GZIP, value=None),
        message(1, Codec.GZIP, value=b""),
        message(1, Codec.GZIP, value=b"not gzip"),
        message(1, Codec.ZSTD),
        message(1, 7),
    ],
)
def test_invalid_wrappers_are_refused(data: bytes) -> None:
    with allocations_below(300_000), pytest.raises(CorruptRecords):
        read_set(data)


@pytest.mark.parametrize("rest", [b"x", message(1)[:-1], bytes(12)[:11]])
def test_an_incomplete_message_at_the_end_of_a_wrapper_is_ignored(rest: bytes) -> None:
    assert [record.offset for record in read_set(wrapper(1, message(0) + rest))] == [1]


def test_bytes_after_the_value_of_a_message_are_ignored() -> None:
    for value in (-1, 2):
        changed = bytearray(VALID)
        struct.pack_into(">i", changed, 33, value)
        (record,) = legacy.read_records(changed, 0, legacy.read_header(changed), PLENTY)
        assert record.value == (None if value < 0 else b"va")


# --- limits and hostile bytes ---


@every_magic
@every_codec
def test_a_wrapper_beyond_the_limit_is_refused(codec: Codec, magic: int) -> None:
    data = legacy.build([Record(0, 0, b"k", bytes(20_000_000))], magic=magic, codec=codec)
    if codec is Codec.NONE:
        assert len(read_set(data)) == 1  # uncompressed messages have no limit
        return
    with allocations_below(4_000_000), pytest.raises(BrokerError) as caught:
        read_set(data, 1_000_000)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


VALID = message(3, key=b"key", value=b"value")


@pytest.mark.parametrize(
    ("form", "position", "value"),
    [
        (">i", 8, 0),
        (">i", 8, -1),
        (">i", 8, 13),
        (">i", 8, 21),  # enough for magic 0 only
        (">b", 16, 2),
        (">b", 16, 3),
        (">b", 16, -1),
        (">i", 26, 4),  # the key's length is too large, so the value's length is wrong too
        (">i", 26, 2**31 - 1),
        (">i", 33, 6),
    ],
)
def test_a_message_with_wrong_lengths_is_refused(form: str, position: int, value: int) -> None:
    changed = bytearray(VALID)
    struct.pack_into(form, changed, position, value)
    with pytest.raises(CorruptRecords):
        list(legacy.read_records(changed, 0, legacy.read_header(changed), PLENTY))


def test_a_message_too_short_for_its_magic_is_refused_at_its_header() -> None:
    smallest = message(0, value=None)
    assert legacy.read_header(smallest).size == 34
    with pytest.raises(CorruptRecords):
        legacy.read_header(b"%b%b%b" % (smallest[:8], struct.pack(">i", 21), smallest[12:33]))
    assert legacy.read_header(message(0, value=None, magic=0)).size == 26


def test_the_crc_covers_all_bytes_after_it() -> None:
    header = legacy.read_header(VALID)
    for place in range(len(VALID)):
        changed = b"%b%c%b" % (VALID[:place], VALID[place] ^ 1, VALID[place + 1 :])
        if place < 12:
            legacy.check_crc(changed, 0, header)
        elif place >= 16:
            with pytest.raises(CorruptRecords):
                legacy.check_crc(changed, 0, header)


def test_an_incomplete_message_ends_the_set() -> None:
    for end in range(len(VALID)):
        assert [position for position, _ in legacy.iterate(VALID + VALID[:end])] == [0]
        with pytest.raises(CorruptRecords):
            legacy.read_header(VALID[:end])
    assert list(legacy.iterate(b"")) == []


def use(data: bytes) -> None:
    """All functions that read a message set, without the outer CRC."""
    for position, header in legacy.iterate(data):
        value_or_error(legacy.check_crc, data, position, header)
        for record in legacy.read_records(data, position, header, PLENTY):
            assert -(2**63) <= record.offset < 2**63


@every_magic
@every_codec
def test_a_changed_byte_gives_records_or_a_broker_error(codec: Codec, magic: int) -> None:
    valid = legacy.build(client_records(magic)[:3], magic=magic, codec=codec)
    for changed in mutations(valid):
        with allocations_below(2_000_000):
            value_or_error(use, changed)


@given(junk=st.binary(max_size=120), magic=st.sampled_from((0, 1)))
def test_any_bytes_give_records_or_a_broker_error(junk: bytes, magic: int) -> None:
    value_or_error(use, junk)
    value_or_error(use, wrapper(5, junk, magic=magic))
    value_or_error(use, wrapper(5, message(1, magic=magic) + junk, magic=magic))
    value_or_error(use, struct.pack(">qiIbb", 1, len(junk) + 6, 0, magic, 0) + junk)
