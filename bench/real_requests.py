"""The requests of one real client, one at a time: an idempotent or transactional producer, and a consumer with a fetch session."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import snappy

from bench.requests import FIRST_TIMESTAMP, Refused
from txbroker.wire.batch import HEADER_SIZE, LOG_OVERHEAD, TRANSACTIONAL, read_header, seal
from txbroker.wire.compression import Codec
from txbroker.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from txbroker.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from txbroker.wire.records import Record, build

VALUE = b'{"id": 4711, "user": "created", "price": 12.50, "items": ["one", "two", "three"]}' * 4
_LENGTH_AT, _ATTRIBUTES_AT = 8, 21  # in a batch's header


class Producer:
    """A producer with acks=all, whose batches have one record and are compressed with snappy."""

    def __init__(self, topic_id: bytes, producer_id: int, producer_epoch: int, transactional_id: str | None = None) -> None:
        self._topic_id = topic_id
        self._producer = producer_id, producer_epoch
        self._transactional_id = transactional_id
        self._sequence = 0

    def request(self, partitions: int) -> ProduceRequest:
        """The next record of each of the first `partitions` partitions, in one request."""
        records = self._batch()
        self._sequence += 1
        data = [PartitionProduceData(index=index, records=records) for index in range(partitions)]
        topics = [TopicProduceData(topic_id=self._topic_id, partition_data=data)]
        return ProduceRequest(transactional_id=self._transactional_id, acks=-1, timeout_ms=30_000, topic_data=topics)

    def check(self, response: ProduceResponse) -> None:
        """Refused if a partition has an error."""
        for partition in response.responses[0].partition_responses:
            check(partition.error_code, "a produce")

    def _batch(self) -> bytes:
        record = Record(0, FIRST_TIMESTAMP + self._sequence, b"user-4711", VALUE, (("trace", b"0123456789abcdef"),))
        producer_id, producer_epoch = self._producer
        plain = build([record], producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=self._sequence)
        # One block, as librdkafka and franz-go compress; `build` would frame it as the Java client does.
        batch = bytearray(plain[:HEADER_SIZE] + snappy.compress(plain[HEADER_SIZE:]))
        attributes = Codec.SNAPPY | (0 if self._transactional_id is None else TRANSACTIONAL)
        struct.pack_into(">i", batch, _LENGTH_AT, len(batch) - LOG_OVERHEAD)
        struct.pack_into(">h", batch, _ATTRIBUTES_AT, attributes)
        seal(batch, 0, len(batch))
        return bytes(batch)


class Consumer:
    """A consumer of the first `partitions` partitions from their beginning, with an incremental fetch session or without one."""

    def __init__(self, topic_id: bytes, partitions: int, *, session: bool) -> None:
        self._topic_id = topic_id
        self._offsets = [0] * partitions
        self._session_id, self._epoch = 0, 0 if session else -1
        self._named: Sequence[int] = range(partitions)

    def request(self) -> FetchRequest:
        """The next fetch: in a session, of the partitions whose offsets have changed."""
        partitions = [
            FetchPartition(partition=index, current_leader_epoch=0, fetch_offset=self._offsets[index], partition_max_bytes=1 << 20)
            for index in self._named
        ]
        topics = [FetchTopic(topic_id=self._topic_id, partitions=partitions)] if partitions else []
        return FetchRequest(
            max_wait_ms=500, min_bytes=1, max_bytes=50 << 20, topics=topics, session_id=self._session_id, session_epoch=self._epoch
        )

    def take(self, response: FetchResponse) -> int:
        """Continue after the records of a response; the number of partitions that had some. Refused if there is an error."""
        check(response.error_code, "a fetch")
        read = []
        for partition in (each for topic in response.responses for each in topic.partitions):
            check(partition.error_code, "a fetch")
            records: Any = partition.records
            if records:
                self._offsets[partition.partition_index] = read_header(records).last_offset + 1
                read.append(partition.partition_index)
        if self._epoch >= 0:
            self._session_id = response.session_id
            self._epoch += 1
            self._named = read
        return len(read)


def check(error_code: int, what: str) -> None:
    """Refused if there is an error."""
    if error_code:
        raise Refused(f"{what} was answered with error {error_code}")
