"""Transactional batches in requests without a transactional id: as in Apache Kafka the whole request fails, also without an authorizer."""

from __future__ import annotations

from typing import Any

import pytest
from kafka.protocol.producer import ProduceRequest
from kafka.record.default_records import DefaultRecordBatchBuilder

from tests.support.raw import RawConnection
from tests.support.raw_admin import create_topic
from tests.support.raw_log import batch
from tests.support.raw_transactions import READ_UNCOMMITTED, latest
from tests.support.records import BASE_TIMESTAMP, numbered
from tests.support.server import Server

pytestmark = pytest.mark.process

NO_ID, INVALID_ACKS = 53, 21


def transactional() -> bytes:
    builder = DefaultRecordBatchBuilder(2, 0, True, 7, 0, 0, 1 << 20)
    builder.append(0, BASE_TIMESTAMP, None, b"value", [])
    return bytes(builder.build())


def answered(connection: RawConnection, topic: str, parts: dict[int, bytes], acks: int = -1, version: int = 9) -> Any:
    data = [ProduceRequest.TopicProduceData.PartitionProduceData(index=index, records=records) for index, records in parts.items()]
    topics = [ProduceRequest.TopicProduceData(name=topic, partition_data=data)]
    (answer,) = connection.call(ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=topics), version).responses
    return {part.index: (part.error_code, part.base_offset, part.log_append_time_ms, part.log_start_offset) for part in
            answer.partition_responses}  # fmt: skip


@pytest.mark.parametrize("version", [3, 9])
def test_no_batch_of_the_request_is_appended(broker: Server, name: str, version: int) -> None:
    refused = NO_ID, -1, -1, -1
    create_topic(broker, name, partitions=2)
    with RawConnection(broker.address) as connection:
        plain, marked = batch(numbered(1)), transactional()
        for parts in ({0: plain, 1: marked}, {0: marked, 1: plain}, {0: plain, 9: marked}, {0: marked}, {9: marked}):
            assert answered(connection, name, parts, version=version) == dict.fromkeys(parts, refused)
            assert answered(connection, name, parts, acks=7, version=version) == dict.fromkeys(parts, refused)
        assert [latest(connection, name, isolation=READ_UNCOMMITTED, partition=index) for index in (0, 1)] == [0, 0]
        assert answered(connection, name, {0: plain}, acks=7, version=version)[0][0] == INVALID_ACKS
