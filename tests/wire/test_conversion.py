from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.record_samples import (
    PLENTY,
    as_golden,
    as_kept,
    batches,
    client_records,
    golden,
    golden_bytes,
    golden_entries,
    message,
    mutations,
    read_batches,
    read_set,
    record_lists,
    value_or_error,
    wrapper,
)
from txbroker.errors import BrokerError, CorruptRecords, ErrorCode
from txbroker.wire import batch, legacy
from txbroker.wire.compression import Codec
from txbroker.wire.control import Marker, build_marker
from txbroker.wire.conversion import from_v2, to_v2
from txbroker.wire.records import Record, build

CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
every_codec = pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)
every_magic = pytest.mark.parametrize("magic", [0, 1])


def down(data: bytes, magic: int, first_offset: int = 0) -> bytes:
    return from_v2(data, magic, first_offset=first_offset, bytes_max=PLENTY)


# --- up-conversion: message sets of old producers ---


@pytest.mark.parametrize(
    "name", [name for client in ("kafka-python", "aiokafka", "librdkafka", "sarama") for name in golden(f"{client}*_v[01]_*")]
)
def test_a_message_set_becomes_one_batch(name: str) -> None:
    data = golden_bytes(name)
    converted = to_v2(data, bytes_max=PLENTY)
    ((_, header),) = batches(converted)
    assert (header.base_offset, header.last_offset, header.count, header.leader_epoch) == (0, 19, 20, -1)
    assert header.codec is legacy.read_header(data).codec
    magic = legacy.read_header(data).magic
    assert read_batches(converted) == client_records(magic)


@given(records=record_lists(), magic=st.sampled_from((0, 1)), codec=st.sampled_from(CODECS), target=st.none() | st.sampled_from(Codec))
def test_only_offsets_are_changed(records: list[Record], magic: int, codec: Codec, target: Codec | None) -> None:
    converted = to_v2(legacy.build(records, magic=magic, codec=codec), bytes_max=PLENTY, codec=target)
    assert read_batches(converted) == [as_kept(record, magic)._replace(offset=i) for i, record in enumerate(records)]
    assert batch.read_header(converted).codec is (codec if target is None else target)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_the_timestamp_type_is_kept(codec: Codec) -> None:
    converted = to_v2(legacy.build(client_records(1), magic=1, codec=codec, log_append_time=99), bytes_max=PLENTY)
    assert batch.read_header(converted).log_append_time
    assert {record.timestamp for record in read_batches(converted)} == {99}


def test_an_incomplete_message_at_the_end_is_dropped() -> None:
    whole = message(0) + message(1)
    assert len(read_batches(to_v2(whole + message(2)[:-1], bytes_max=PLENTY))) == 2
    assert to_v2(b"", bytes_max=PLENTY) == to_v2(message(2)[:-1], bytes_max=PLENTY) == b""


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (wrapper(0, message(0)) + wrapper(1, message(0)), ErrorCode.INVALID_RECORD),
        (message(0) + wrapper(1, message(0)), ErrorCode.INVALID_RECORD),
        (wrapper(0, message(0)) + message(1), ErrorCode.INVALID_RECORD),
        (message(0) + message(1, magic=0), ErrorCode.INVALID_RECORD),
        (message(0, timestamp=-2), ErrorCode.INVALID_TIMESTAMP),
        (message(0, timestamp=-(2**63)) + message(1, timestamp=2**63 - 1), ErrorCode.INVALID_TIMESTAMP),
        (message(0)[:-1] + b"?", ErrorCode.CORRUPT_MESSAGE),
        (wrapper(0, message(0)[:-1] + b"?"), ErrorCode.CORRUPT_MESSAGE),
        (build([Record(0, 0, None, None)]), ErrorCode.INVALID_RECORD),
        (wrapper(0, message(0, value=bytes(1000))), ErrorCode.MESSAGE_TOO_LARGE),
    ],
)
def test_message_sets_that_kafka_refuses_are_refused(data: bytes, code: ErrorCode) -> None:
    with pytest.raises(BrokerError) as caught:
        to_v2(data, bytes_max=500)
    assert caught.value.code is code


# --- down-conversion: responses to old consumers ---


@every_magic
@pytest.mark.parametrize("name", [*golden("kafka-3.9.1_v2_[!z]*"), *golden("kafka-3.9.1_v1_*")])
def test_kafkas_log_is_converted_to_old_formats(name: str, magic: int) -> None:
    said = [entry for entry in golden_entries(name) if entry["codec"] != "zstd"]  # these come first, if there are any
    data = golden_bytes(name)[said[0]["position"] :] if said else b""
    records = [record for entry in said for record in entry.get("records", ())]
    assert [as_golden(record) for record in read_set(down(data, magic))] == [
        [offset, timestamp if magic else -1, key, value, []] for offset, timestamp, key, value, _headers in records
    ]


@given(records=record_lists(), magic=st.sampled_from((0, 1)), codec=st.sampled_from(CODECS))
def test_offsets_are_kept_and_headers_dropped(records: list[Record], magic: int, codec: Codec) -> None:
    assert read_set(down(build(records, codec=codec), magic)) == [as_kept(record, magic) for record in records]


def test_append_time_is_kept() -> None:
    converted = down(build(client_records(1)[:2], codec=Codec.GZIP, log_append_time=99), 1)
    assert legacy.read_header(converted).log_append_time
    assert [record.timestamp for record in read_set(converted)] == [99, 99]


def test_control_batches_are_left_out() -> None:
    marker = build_marker(Marker(True, 1), producer_id=1, producer_epoch=1, timestamp=5, base_offset=1)
    log = build([Record(0, 1, b"a", b"x")]) + marker + build([Record(2, 1, b"b", b"y")])
    assert [record.offset for record in read_set(down(log, 1))] == [0, 2]
    assert down(marker, 1) == b""


def test_uncompressed_batches_start_at_the_fetch_offset_and_compressed_ones_at_their_base_offset() -> None:
    records = client_records(1)
    assert [record.offset for record in read_set(down(build(records), 1, first_offset=15))] == [15, 16, 17, 18, 19]
    assert len(read_set(down(build(records, codec=Codec.GZIP), 1, first_offset=15))) == 20
    assert down(build(records), 1, first_offset=20) == b""


@every_codec
def test_batches_in_an_old_format_are_not_converted(codec: Codec) -> None:
    old, older = legacy.build(client_records(1), magic=1, codec=codec), legacy.build(client_records(0), magic=0, codec=codec)
    assert down(older + old, 1, first_offset=5) == older + old
    assert down(older, 0) == older
    assert read_set(down(old, 0)) == client_records(0)


def test_an_incomplete_batch_at_the_end_is_left_out() -> None:
    whole = build(client_records(2)[:2])
    assert down(whole + whole[:-1], 1) == down(whole, 1)
    assert down(whole[:-1], 1) == b""


def test_zstd_requires_a_newer_fetch() -> None:
    with pytest.raises(BrokerError) as caught:
        down(build(client_records(2)) + build(client_records(2), codec=Codec.ZSTD), 1)
    assert caught.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_a_corrupt_log_is_not_converted() -> None:
    whole = build(client_records(2)[:2])
    with pytest.raises(CorruptRecords):
        down(whole + b"\0" * 100, 1)
    with pytest.raises(BrokerError) as caught:
        from_v2(build([Record(0, 0, b"", bytes(1000))], codec=Codec.LZ4), 1, first_offset=0, bytes_max=500)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_a_conversion_is_limited_in_records_and_the_next_one_continues(codec: Codec) -> None:
    records = [Record(offset, 5, b"k", b"%d" % offset) for offset in range(30)]
    data = build(records[:17], codec=codec) + build(records[17:], codec=codec)
    found: list[tuple[int, bytes | None]] = []
    while len(found) < 30:
        part = read_set(from_v2(data, 1, first_offset=len(found), bytes_max=PLENTY, records_max=4))
        assert 0 < len(part) <= 4
        found += [(record.offset, record.value) for record in part]
    assert found == [(record.offset, record.value) for record in records]


def test_a_conversion_is_limited_in_bytes() -> None:
    data = b"".join(build([Record(offset, 5, None, bytes(1000))], codec=Codec.GZIP) for offset in range(10))
    assert len(read_set(from_v2(data, 1, first_offset=0, bytes_max=2500))) == 3
    headed = b"".join(build([Record(offset, 5, None, None, (("h", bytes(1000)),))]) for offset in range(10))
    assert len(read_set(from_v2(headed, 1, first_offset=0, bytes_max=2500))) == 3


def test_more_messages_than_can_be_converted_at_once_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(legacy, "MESSAGES_MAX", 6)
    for codec in (Codec.NONE, Codec.GZIP):
        records = [Record(offset, 5, b"k", b"v") for offset in range(7)]
        assert to_v2(legacy.build(records[:6], magic=1, codec=codec), bytes_max=PLENTY)
        with pytest.raises(BrokerError) as caught:
            to_v2(legacy.build(records, magic=1, codec=codec), bytes_max=PLENTY)
        assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


@every_codec
def test_a_changed_byte_gives_a_conversion_or_a_broker_error(codec: Codec) -> None:
    records = client_records(2)[:3]
    for changed in mutations(build(records, codec=codec)):
        value_or_error(down, changed, 0)
        value_or_error(down, changed, 1)
    for magic in (0, 1):
        for changed in mutations(legacy.build(records, magic=magic, codec=codec)):
            value_or_error(down, changed, 0)
            value_or_error(to_v2, changed, bytes_max=PLENTY)
