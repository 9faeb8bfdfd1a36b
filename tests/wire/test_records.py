from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.memory_records import MemoryRecords

from tests.wire.record_samples import (
    PLENTY,
    allocations_below,
    as_golden,
    batches,
    client_records,
    golden,
    golden_bytes,
    golden_entries,
    mutations,
    read_batches,
    record_lists,
    value_or_error,
)
from txbroker.errors import BrokerError, CorruptRecords, ErrorCode
from txbroker.wire import batch
from txbroker.wire.batch import HEADER, HEADER_SIZE, BatchHeader, read_header
from txbroker.wire.compression import CODECS, Codec, compress
from txbroker.wire.control import Marker, build_marker, read_marker
from txbroker.wire.record_loops import RECORDS_MAX, find_time_in_batch
from txbroker.wire.records import Record, build, first_of_time, read_records, recompress, walk_records
from txbroker.wire.varint import encode_varint

every_codec = pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)


# --- batches of other implementations ---


@pytest.mark.parametrize("name", golden("kafka-3.9.1_v2_*"))
def test_records_are_those_that_kafkas_consumer_reads(name: str) -> None:
    data = golden_bytes(name)
    for (position, header), entry in zip(batches(data), golden_entries(name), strict=True):
        records = list(read_records(data, position, header, PLENTY))
        if header.control:
            markers = [read_marker(record) for record in records]
            assert [["COMMIT" if m.committed else "ABORT", m.coordinator_epoch] for m in markers if m] == entry["markers"]
        else:
            assert [as_golden(record) for record in records] == entry["records"]


@pytest.mark.parametrize(
    "name", [name for client in ("kafka-python", "aiokafka", "librdkafka", "franz-go") for name in golden(f"{client}*_v2_*")]
)
def test_records_are_those_of_the_client(name: str) -> None:
    assert read_batches(golden_bytes(name)) == client_records(2)


def test_the_header_has_the_fields_of_the_producer() -> None:
    idempotent = batch.read_header(golden_bytes("librdkafka-2.16.0_v2_idempotent"))
    assert (idempotent.producer_id, idempotent.producer_epoch, idempotent.base_sequence, idempotent.transactional) == (4242, 7, 0, False)
    transactional = batch.read_header(golden_bytes("aiokafka-0.14.0_v2_zstd"))
    assert (transactional.producer_id, transactional.producer_epoch, transactional.base_sequence) == (77, 3, 9)
    assert transactional.transactional


# --- batches of txbroker, decoded by other implementations ---


@every_codec
def test_kafka_python_decodes_our_batches(codec: Codec) -> None:
    records = client_records(2)
    (theirs,) = MemoryRecords(build(records, codec=codec))
    assert theirs.validate_crc()
    assert [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in theirs] == records


@every_codec
def test_aiokafka_decodes_our_batches(codec: Codec) -> None:
    records = client_records(2)
    theirs = AiokafkaBatch(build(records, codec=codec, producer_id=5, producer_epoch=1, base_sequence=0, transactional=True))
    assert theirs.validate_crc()
    assert (theirs.is_transactional, theirs.producer_id) == (True, 5)
    assert [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in theirs] == records


@pytest.mark.parametrize("name", ["kafka-3.9.1_v2_none", "kafka-3.9.1_v2_transactions"])
def test_building_a_batch_of_kafka_gives_the_same_bytes(name: str) -> None:
    data = golden_bytes(name)
    for position, header in batches(data):
        if header.codec is not Codec.NONE:
            continue
        again = build(
            list(read_records(data, position, header, PLENTY)),
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            leader_epoch=header.leader_epoch,
            transactional=header.transactional,
            control=header.control,
        )
        assert again == data[position : position + header.size]


# --- round trips ---


@given(codec=st.sampled_from(CODECS), records=record_lists())
def test_records_are_decoded_as_built(codec: Codec, records: list[Record]) -> None:
    data = build(records, codec=codec)
    assert read_batches(data) == records
    header = batch.read_header(data)
    assert (header.base_offset, header.last_offset, header.count) == (records[0].offset, records[-1].offset, len(records))
    assert header.max_timestamp == max(record.timestamp for record in records)
    walked = walk_records(data, 0, header, PLENTY, False)
    assert (walked.earliest, walked.latest) == (min(r.timestamp for r in records), max(r.timestamp for r in records))
    assert walked.content_bytes == sum(len(r.key or b"") + len(r.value or b"") for r in records)
    assert walked.first_without_key == next((index for index, record in enumerate(records) if record.key is None), -1)


def test_offsets_count_from_the_base_offset() -> None:
    header = batch.read_header(data := build([Record(12, 5, None, b"x")], base_offset=10, leader_epoch=3))
    assert (header.base_offset, header.last_offset, header.leader_epoch) == (10, 12, 3)
    assert read_batches(data) == [Record(12, 5, None, b"x")]


def test_append_time_is_the_timestamp_of_every_record() -> None:
    header = batch.read_header(data := build([Record(0, 5, None, b"x"), Record(1, 3, None, b"y")], log_append_time=900))
    assert (header.max_timestamp, header.log_append_time) == (900, True)
    assert [record.timestamp for record in read_batches(data)] == [900, 900]


def test_header_names_that_are_not_utf_8_are_kept() -> None:
    record = Record(0, 0, b"k", b"v", ((b"\xff\xfeok".decode("utf-8", "surrogateescape"), b"1"),))
    data = build([record])
    assert b"\xff\xfeok" in data
    assert read_batches(data) == [record]
    assert build(read_batches(data)) == data


@pytest.mark.parametrize(
    "records",
    [
        [],
        [Record(1, 0, None, None), Record(1, 0, None, None)],
        [Record(2, 0, None, None), Record(1, 0, None, None)],
        [Record(0, 0, None, None), Record(2**31, 0, None, None)],
        [Record(0, -(2**63), None, None), Record(1, 1, None, None)],
    ],
)
def test_records_that_do_not_fit_one_batch_are_refused(records: Sequence[Record]) -> None:
    with pytest.raises(ValueError):
        build(records)


@pytest.mark.parametrize("target", CODECS, ids=lambda codec: codec.name)
@every_codec
def test_recompression_only_changes_the_codec(codec: Codec, target: Codec) -> None:
    data = b"xyz" + build(
        client_records(2), codec=codec, producer_id=9, producer_epoch=1, base_sequence=4, log_append_time=77, leader_epoch=6
    )
    before = batch.read_header(data, 3)
    again = recompress(data, 3, before, target, PLENTY)
    after = batch.read_header(again)
    assert after.codec is target
    assert read_batches(again) == list(read_records(data, 3, before, PLENTY))
    before.size, before.crc, before.attributes = after.size, after.crc, before.attributes & ~7 | target
    assert after == before


# --- limits and hostile bytes ---


@every_codec
def test_records_beyond_the_limit_are_refused(codec: Codec) -> None:
    data = build([Record(0, 0, b"k", bytes(20_000_000))], codec=codec)
    header = batch.read_header(data)
    with allocations_below(4_000_000), pytest.raises(BrokerError) as caught:
        list(read_records(data, 0, header, 1_000_000))
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
    if codec is not Codec.NONE:  # uncompressed records are walked in place
        with allocations_below(4_000_000), pytest.raises(BrokerError) as caught:
            walk_records(data, 0, header, 1_000_000, True)
        assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


def around(payload: bytes, *, count: int = 1, last_offset_delta: int = 100, codec: Codec = Codec.NONE, base_offset: int = 0) -> bytes:
    """A batch with this records section and a correct CRC."""
    payload = compress(codec, payload)
    data = bytearray(HEADER_SIZE + len(payload))
    HEADER.pack_into(data, 0, base_offset, 49 + len(payload), 0, 2, 0, codec, last_offset_delta, 1000, 1000, -1, -1, -1, count)
    data[HEADER_SIZE:] = payload
    batch.seal(data, 0, len(data))
    return bytes(data)


PLAIN = bytes.fromhex("10 00 00 00 02 6b 02 76 00".replace(" ", ""))  # key k, value v, deltas 0, no headers


def test_the_smallest_records() -> None:
    assert read_batches(around(PLAIN)) == [Record(0, 1000, b"k", b"v")]
    assert read_batches(around(PLAIN + bytes.fromhex("0c0002020101 00"), count=2)) == [
        Record(0, 1000, b"k", b"v"),
        Record(1, 1001, None, None),
    ]
    # Any negative length is null, as in Kafka.
    assert read_batches(around(bytes.fromhex("0c0000000303 00"))) == [Record(0, 1000, None, None)]
    assert read_batches(around(b"", count=0)) == []
    assert read_batches(around(b"", count=0, codec=Codec.ZSTD)) == []
    assert read_batches(around(b"\x22\x00\xff" + b"\xff" * 8 + b"\x01" + PLAIN[3:])) == [Record(0, 1000 - 2**63, b"k", b"v")]


def test_a_batch_that_compaction_emptied_has_no_records_with_any_codec() -> None:
    emptied = bytearray(around(b"", count=0))
    emptied[22] = Codec.ZSTD
    assert list(read_records(emptied, 0, batch.read_header(emptied), PLENTY)) == []


def test_a_record_that_exceeds_its_batch_is_refused() -> None:
    cut = bytes.fromhex("22 00000002 6b 02 76 02 02 68 0c 787878")  # the last header's value has 6 bytes, and only 3 of them exist
    data = around(cut)
    with pytest.raises(CorruptRecords):
        next(read_records(data, 0, batch.read_header(data), PLENTY))


# A walk returns the deltas; the caller compares timestamps with limits.
READABLE = [b"\x22\x00\xfe" + b"\xff" * 8 + b"\x01" + PLAIN[3:]]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize(
    ("payload", "count"),
    [
        (PLAIN, 2),  # fewer than counted
        (PLAIN, 0),  # more than counted
        (PLAIN, RECORDS_MAX),
        (PLAIN + b"\0", 1),  # a byte after the last
        (PLAIN[:-1], 1),
        (b"\x12" + PLAIN[1:] + b"\0", 1),  # one byte longer than its fields
        (b"\x0e" + PLAIN[1:-1], 1),  # one byte shorter
        (b"\x01" + PLAIN[1:], 1),  # negative length
        (b"\xff\xff\xff\xff\xff\x01" + PLAIN[1:], 1),  # a varint beyond 32 bits
        (b"\xff\xff\xff\xff\x1f" + PLAIN[1:], 1),
        (b"\xfe\xff\xff\xff\x0f" + PLAIN[1:], 1),  # 2**31 - 1 bytes
        (bytes.fromhex("1000000001fe7600 00"), 1),
        (bytes.fromhex("10000000fe6b0276 00"), 1),  # key longer than the record
        (bytes.fromhex("10000000026b7e76 00"), 1),  # value longer than the record
        (bytes.fromhex("10000000026b0276 01"), 1),  # -1 headers
        (bytes.fromhex("10000000026b0276 02"), 1),  # a header that is not there
        (bytes.fromhex("14000000026b0276 020101"), 1),  # a header without a name
        (bytes.fromhex("18000000026b0276 fcffffff0f"), 1),  # 2**31 - 2 headers
        (bytes.fromhex("10000001026b0276 00"), 1),  # offset delta -1
        (bytes.fromhex("12000000ca01026b0276 00").replace(b"\x00\x00\x00\xca", b"\x00\x00\xca"), 1),  # offset delta 101 of at most 100
        (b"\x22\x00\xfe" + b"\xff" * 8 + b"\x01" + PLAIN[3:], 1),  # timestamp beyond 64 bits
        (bytes.fromhex("12000000026b0276 0201"), 1),  # a header whose name is null
        (b"\x26\x00" + b"\xff" * 10 + b"\x01" + PLAIN[3:], 1),  # varint beyond 64 bits
        (b"", 1),
        (b"\x80" * 30, 1),
    ],
)
def test_records_with_wrong_lengths_are_refused(payload: bytes, count: int, codec: Codec) -> None:
    data = around(payload, count=count, codec=codec)
    with allocations_below(300_000), pytest.raises(CorruptRecords):
        read_batches(data)
    if payload not in READABLE:
        with allocations_below(300_000), pytest.raises(CorruptRecords):
            walk_records(data, 0, batch.read_header(data), PLENTY, True)


def all_records(data: bytes) -> list[Record]:
    return list(read_records(data, 0, batch.read_header(data), PLENTY))


def walk_all(data: bytes) -> object:
    return walk_records(data, 0, batch.read_header(data), PLENTY, False)


@pytest.mark.parametrize("function", [all_records, walk_all])
@pytest.mark.parametrize("count", [RECORDS_MAX + 1, 2**31 - 1])
def test_too_many_records_are_refused_without_reading_them(function: Callable[..., object], count: int) -> None:
    data = around(b"\0" * 10_000_000, count=count, codec=Codec.GZIP)
    with allocations_below(300_000):
        assert value_or_error(function, data).code is ErrorCode.MESSAGE_TOO_LARGE


def test_too_many_headers_are_refused_without_reading_them() -> None:
    def record(header_count: int) -> bytes:
        body = b"\0\0\0\1\1" + encode_varint(header_count) + b"\0\1" * header_count
        return encode_varint(len(body)) + body

    data = around(record(RECORDS_MAX + 1), count=1, codec=Codec.NONE)
    with allocations_below(3_000_000):
        assert value_or_error(all_records, data).code is ErrorCode.MESSAGE_TOO_LARGE
        assert value_or_error(walk_all, data).code is ErrorCode.MESSAGE_TOO_LARGE
    both = around(record(5) + record(RECORDS_MAX - 4), count=2, codec=Codec.NONE)
    found = read_records(both, 0, batch.read_header(both), PLENTY)
    assert len(next(found).headers) == 5
    with pytest.raises(BrokerError) as caught:
        next(found)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_offsets_beyond_64_bits_are_refused() -> None:
    assert [record.offset for record in read_batches(around(PLAIN, base_offset=2**63 - 101))] == [2**63 - 101]
    with pytest.raises(CorruptRecords):
        read_batches(around(PLAIN, base_offset=2**63 - 100))


def use(data: bytes) -> None:
    """All functions that read records, without the CRC."""
    header = batch.read_header(data)
    value_or_error(walk_all, data)
    value_or_error(recompress, data, 0, header, Codec.LZ4, PLENTY)
    for record in read_records(data, 0, header, PLENTY):
        assert header.base_offset <= record.offset <= header.last_offset
        if header.control:
            value_or_error(read_marker, record)


@every_codec
def test_a_changed_byte_gives_records_or_a_broker_error(codec: Codec) -> None:
    valid = build([*client_records(2)[:3], Record(3, 5, b"k" * 70, b"v", (("name", b"content"),))], codec=codec)
    for changed in mutations(valid):
        with allocations_below(2_000_000):
            value_or_error(use, changed)


@given(payload=st.binary(max_size=80), count=st.integers(0, 5) | st.just(2**31 - 1), codec=st.sampled_from(CODECS))
def test_any_records_section_gives_records_or_a_broker_error(payload: bytes, count: int, codec: Codec) -> None:
    value_or_error(use, around(payload, count=count, codec=codec))
    value_or_error(use, around(PLAIN + payload, count=count, codec=codec))


# --- transaction markers ---


@pytest.mark.parametrize("committed", [True, False])
def test_a_marker_is_decoded_as_built(committed: bool) -> None:
    data = build_marker(Marker(committed, 17), producer_id=5, producer_epoch=2, timestamp=1234, base_offset=9, leader_epoch=3)
    header = batch.read_header(data)
    (record,) = read_batches(data)
    assert read_marker(record) == Marker(committed, 17)
    assert header.control and header.transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.leader_epoch) == (5, 2, -1, 3)
    assert (record.offset, record.timestamp) == (9, 1234)


def test_a_marker_has_the_bytes_of_kafkas() -> None:
    data = golden_bytes("kafka-3.9.1_v2_transactions")
    markers = 0
    for position, header in batches(data):
        if not header.control:
            continue
        (record,) = read_records(data, position, header, PLENTY)
        marker = read_marker(record)
        assert marker is not None
        ours = build_marker(
            marker,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            timestamp=record.timestamp,
            base_offset=header.base_offset,
            leader_epoch=header.leader_epoch,
        )
        assert ours == data[position : position + header.size]
        markers += 1
    assert markers > 2


def test_other_control_records_are_no_markers_and_invalid_ones_are_refused() -> None:
    assert read_marker(Record(0, 0, b"\0\0\0\x02", b"")) is None
    assert read_marker(Record(0, 0, b"\0\x01\0\x01\xff", b"\0\x01\0\0\0\x05more")) == Marker(True, 5)
    for key, value in [(None, None), (b"\0\0\0", b"\0\0\0\0\0\0"), (b"\0\0\0\x01", None), (b"\0\0\0\0", b"\0" * 5)]:
        with pytest.raises(CorruptRecords):
            read_marker(Record(0, 0, key, value))
    for key, value in [(b"\xff\xff\0\x07", b"\0" * 6), (b"\xff\xff\0\0", b"\0" * 6), (b"\0\0\0\0", b"\xff\xff\0\0\0\0")]:
        with pytest.raises(CorruptRecords):
            read_marker(Record(0, 0, key, value))


def test_a_header_of_another_batch_does_not_read_beyond_the_buffer() -> None:
    header = BatchHeader(0, 10_000, 0, 2, 0, 0, 5, 0, 0, -1, -1, -1, 3)
    with pytest.raises(CorruptRecords):
        list(read_records(around(PLAIN), 0, header, PLENTY))


@given(
    st.lists(st.tuples(st.integers(-5, 300), st.integers(1, 3), st.binary(max_size=200)), min_size=1, max_size=30),
    st.integers(-10, 310),
    st.integers(0, 100),
    st.sampled_from([Codec.NONE, Codec.GZIP]),
)
def test_the_first_record_of_a_timestamp_is_the_one_that_reading_finds(
    rows: list[tuple[int, int, bytes]], timestamp: int, offset_min: int, codec: Codec
) -> None:
    offset, records = 0, []
    for time, step, value in rows:
        records.append(Record(offset, 1000 + time, None, value))
        offset += step
    data = build(records, codec=codec)
    header = read_header(data)
    expected = next(((r.timestamp, r.offset) for r in records if r.timestamp >= 1000 + timestamp and r.offset >= offset_min), None)
    assert first_of_time(data, 0, header, 1000 + timestamp, offset_min, 1 << 20) == expected
    at_once = find_time_in_batch(data, 1000 + timestamp, offset_min, 1 << 20)
    assert at_once == (None if expected is None else (*expected, header.leader_epoch))


@given(st.integers(61, 400), st.integers(0, 255))
def test_the_first_record_of_a_timestamp_in_a_corrupted_batch(at: int, value: int) -> None:
    """The result is a timestamp or a BrokerError."""
    data = bytearray(build([Record(n, 1000 + 300 * n, b"k", bytes(20)) for n in range(10)]))
    header = read_header(data)
    data[61 + (at - 61) % (len(data) - 61)] = value
    with contextlib.suppress(BrokerError):
        found = first_of_time(data, 0, header, 3000, 0, 1 << 20)
        assert found is None or found[0] >= 3000
