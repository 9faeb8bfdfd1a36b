"""Messages are decoded as encoded, with the same bytes as kio's codec, and damaged frames are refused."""

from __future__ import annotations

import contextlib
import io
import tracemalloc
from random import Random
from typing import Any

import kio.index
import pytest
from kio.serial import entity_reader, entity_writer

from tests.support.messages import random_message
from tests.wire.test_schemas import DECLARED
from txbroker.errors import ProtocolError
from txbroker.wire import codec
from txbroker.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from txbroker.wire.messages.metadata import MetadataRequest
from txbroker.wire.messages.produce import ProduceRequest
from txbroker.wire.schema import Message, Request

PAIRS = [(name, version) for name, cls in sorted(DECLARED.items()) for version in range(cls.versions.low, cls.versions.high + 1)]
ROUNDS = 3


def joined(message: Message, version: int) -> bytes:
    return b"".join(bytes(part) for part in codec.encode(message, version))


def kio_class(cls: type[Message], version: int) -> Any:
    """kio's class for the same message and version, None when it has none."""
    load = kio.index.load_request_schema if issubclass(cls, Request) else kio.index.load_response_schema
    try:
        return load(cls.api_key, version)  # type: ignore[attr-defined]
    except Exception:
        return None


@pytest.mark.parametrize("name", sorted(DECLARED))
def test_messages_are_decoded_as_encoded(name: str) -> None:
    cls = DECLARED[name]
    random = Random(name)
    for version in range(cls.versions.low, cls.versions.high + 1):
        for _ in range(ROUNDS):
            message = random_message(cls, version, random)
            assert codec.decode(cls, version, joined(message, version)) == message, version


def test_kio_decodes_our_messages_and_encodes_the_same_bytes() -> None:
    compared = 0
    for name, version in PAIRS:
        cls = DECLARED[name]
        if not hasattr(cls, "api_key") or name.startswith(("Produce", "Fetch")):
            continue  # kio parses records; golden bytes test these messages
        theirs = kio_class(cls, version)
        if theirs is None:
            continue
        random = Random(f"{name} {version}")
        data = joined(random_message(cls, version, random), version)
        try:
            entity, size = entity_reader(theirs)(memoryview(data), 0)
        except Exception:  # kio refuses values outside of its types (negative durations, unknown error codes)
            continue
        assert size == len(data), (name, version)
        out = io.BytesIO()
        entity_writer(theirs)(out, entity)
        assert codec.decode(cls, version, out.getvalue()) == codec.decode(cls, version, data), (name, version)
        compared += 1
    assert compared > 100


@pytest.mark.parametrize("name", sorted(DECLARED))
def test_every_incomplete_message_is_refused(name: str) -> None:
    cls = DECLARED[name]
    random = Random(name)
    for version in range(cls.versions.low, cls.versions.high + 1):
        data = joined(random_message(cls, version, random), version)
        for end in range(0, len(data), max(1, len(data) // 60)):
            with pytest.raises(ProtocolError):
                codec.decode(cls, version, data[:end])
        with pytest.raises(ProtocolError):
            codec.decode(cls, version, data + b"\0")


@pytest.mark.parametrize("name", sorted(DECLARED))
def test_a_changed_byte_gives_a_message_or_a_protocol_error(name: str) -> None:
    cls = DECLARED[name]
    random = Random(name)
    for version in range(cls.versions.low, cls.versions.high + 1):
        data = bytearray(joined(random_message(cls, version, random), version))
        for _ in range(min(len(data), 25)):
            at = random.randrange(len(data))
            before, data[at] = data[at], random.choice([0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)])
            with contextlib.suppress(ProtocolError):
                codec.decode(cls, version, data)
            data[at] = before


@pytest.mark.parametrize(
    "data",
    [
        b"\x7f\xff\xff\xff",  # 2^31 - 1 topics announced
        b"\x00\x0f\xff\xff" + b"\0\0" * 1000,
    ],
)
def test_a_count_allocates_nothing_before_it_is_checked(data: bytes) -> None:
    codec.decoder(MetadataRequest, 1)
    tracemalloc.start()
    with pytest.raises(ProtocolError):
        codec.decode(MetadataRequest, 1, data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000


def test_a_message_of_too_many_elements_is_refused() -> None:
    data = (150_000).to_bytes(4, "big") + b"\0\0" * 150_000
    with pytest.raises(ProtocolError):
        codec.decode(MetadataRequest, 1, data)


def test_a_version_refuses_values_that_it_cannot_encode() -> None:
    with pytest.raises(ValueError, match="transactional_id"):
        codec.encode(ProduceRequest(transactional_id="t", acks=1, timeout_ms=0, topic_data=[]), 2)


def test_ignorable_fields_are_dropped() -> None:
    request = FetchRequest(max_wait_ms=1, min_bytes=2, rack_id="r", topics=[])
    assert codec.decode(FetchRequest, 4, joined(request, 4)).rack_id == ""


def test_records_are_views_and_encoded_as_parts() -> None:
    frame = bytearray(joined(ProduceRequest(acks=1, timeout_ms=0, topic_data=[]), 9))
    assert codec.decode(ProduceRequest, 9, frame).topic_data == []
    marker = memoryview(b"records")
    from txbroker.wire.messages.fetch import FetchableTopicResponse, PartitionData

    partition = PartitionData(partition_index=0, error_code=0, high_watermark=1, records=marker)
    parts = codec.encode(FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])]), 12)
    assert any(part is marker for part in parts)


def test_construction_requires_every_field_without_default() -> None:
    with pytest.raises(TypeError, match="fetch_offset"):
        FetchPartition(partition=0, partition_max_bytes=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        FetchTopic(partitions=[], nonsense=1)  # type: ignore[call-arg]
