"""consumer_byte_rate counts what a consumer receives: the first batch is sent whole, whatever the consumer's limit is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fuzz.inprocess import InProcessBroker
from txbroker.wire.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from txbroker.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from txbroker.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from txbroker.wire.records import Record, build

NOW = 1_700_000_000_000
SIZE = 10_000
RATE = 2_000


@pytest.fixture
def broker() -> Iterator[InProcessBroker]:
    made = InProcessBroker()
    yield made
    made.close()


def test_whole_batches_beyond_the_limit_of_a_fetch_count(broker: InProcessBroker) -> None:
    entity = [EntityData(entity_type="client-id", entity_name="tests")]
    quota = EntryData(entity=entity, ops=[OpData(key="consumer_byte_rate", value=float(RATE), remove=False)])
    (altered,) = broker.exchange([broker.frame(AlterClientQuotasRequest(entries=[quota], validate_only=False), 1)])
    assert altered.entries[0].error_code == 0
    data = PartitionProduceData(index=0, records=build([Record(0, NOW, b"k", bytes(SIZE))]))
    produced = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name="known", partition_data=[data])])
    broker.exchange([broker.frame(produced, 8)])
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)
    fetch = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1, topics=[FetchTopic(topic="known", partitions=[partition])])
    paused = 0
    for _ in range(8):
        (fetched,) = broker.exchange([broker.frame(fetch, 11)], wait_s=0.1)
        if fetched.throttle_time_ms:
            paused += 1
        else:
            assert len(fetched.responses[0].partitions[0].records) > SIZE
    assert paused
