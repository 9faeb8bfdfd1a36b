"""Batches, Produce, Fetch and ListOffsets over a raw connection, in any version."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Sequence
from typing import Any, NamedTuple

import crc32c
from kafka.protocol.consumer import FetchRequest, ListOffsetsRequest
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.producer import ProduceRequest
from kafka.record import MemoryRecords
from kafka.record.default_records import DefaultRecordBatchBuilder

from tests.support.raw import RawConnection
from tests.support.records import Received, Sample

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
EARLIEST, LATEST, MAX_TIMESTAMP = -2, -1, -3
_CONTROL_BIT = 0x20
_CRC, _ATTRIBUTES = 17, 21  # positions in a batch


class Producer(NamedTuple):
    """The producer fields of a batch."""

    id: int = -1
    epoch: int = -1
    sequence: int = -1


_NOBODY = Producer()


def batch(records: Sequence[Sample], *, codec: int = NONE, producer: Producer = _NOBODY, control: bool = False) -> bytes:
    """A record batch v2, made by kafka-python."""
    builder = DefaultRecordBatchBuilder(2, codec, False, *producer, 1 << 30)
    for i, record in enumerate(records):
        builder.append(i, record.timestamp, record.key, record.value, list(record.headers))
    built = bytearray(builder.build())
    if control:
        (attributes,) = struct.unpack_from(">h", built, _ATTRIBUTES)
        struct.pack_into(">h", built, _ATTRIBUTES, attributes | _CONTROL_BIT)
        struct.pack_into(">I", built, _CRC, crc32c.crc32c(bytes(built[_ATTRIBUTES:])))
    return bytes(built)


def produce_request(topic: str, data: bytes, *, partition: int = 0, acks: int = -1, topic_id: uuid.UUID | None = None) -> ProduceRequest:
    """A Produce request for one partition."""
    topics = ProduceRequest.TopicProduceData
    part = topics.PartitionProduceData(index=partition, records=data)
    return ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[topics(name=topic, topic_id=topic_id, partition_data=[part])])


def produce(connection: RawConnection, topic: str, data: bytes, *, version: int = 8, acks: int = -1, partition: int = 0) -> Any:
    """The partition response to one batch: error_code, base_offset, record_errors …"""
    request = produce_request(topic, data, partition=partition, acks=acks)
    return connection.call(request, version).responses[0].partition_responses[0]


class Fetched(NamedTuple):
    """One partition of a Fetch response."""

    error_code: int
    high_watermark: int
    log_start_offset: int
    records: list[Received]
    first_batch_offset: int | None
    size: int


def fetch_request(
    topic: str, offset: int, *, bytes_max: int = 1 << 20, bytes_min: int = 0, wait_ms: int = 0, topic_id: uuid.UUID | None = None
) -> FetchRequest:
    """A Fetch request for partition 0, without a session."""
    topics = FetchRequest.FetchTopic
    part = topics.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=bytes_max)
    return FetchRequest(max_wait_ms=wait_ms, min_bytes=bytes_min, max_bytes=bytes_max, session_epoch=-1, forgotten_topics_data=[],
                        topics=[topics(topic=topic, topic_id=topic_id, partitions=[part])])


def fetch(connection: RawConnection, topic: str, offset: int, *, version: int = 11, **settings: Any) -> Fetched:
    """Fetch partition 0 from `offset`; waits only if `wait_ms` is given."""
    return fetched(connection.call(fetch_request(topic, offset, **settings), version))


def fetched(response: Any) -> Fetched:
    """The one partition of a Fetch response, its records decoded."""
    part = response.responses[0].partitions[0]
    data = bytes(part.records or b"")
    records: list[Received] = []
    first: int | None = None
    batches = MemoryRecords(data)
    while batches.has_next():
        found = batches.next_batch()
        first = found.base_offset if first is None else first
        records += [Received(0, r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in found]
    return Fetched(part.error_code, part.high_watermark, part.log_start_offset, records, first, len(data))


def list_offset(connection: RawConnection, topic: str, timestamp: int, *, version: int = 7) -> Any:
    """The partition response of ListOffsets for partition 0: error_code, offset, timestamp, leader_epoch."""
    topics = ListOffsetsRequest.ListOffsetsTopic
    part = topics.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(topics=[topics(name=topic, partitions=[part])], timeout_ms=30_000)
    return connection.call(request, version).topics[0].partitions[0]


def topic_id(connection: RawConnection, topic: str) -> uuid.UUID:
    """The id of a topic."""
    request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    (found,) = connection.call(request, 10).topics
    assert isinstance(found.topic_id, uuid.UUID)
    return found.topic_id
