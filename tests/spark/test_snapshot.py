"""The offsets of a topic at one moment, while producers write to it."""

from __future__ import annotations

import pytest
from kafka import KafkaProducer

from tests.spark.producing import produce
from tests.support.raw_admin import create_topic
from tests.support.server import Server
from txbroker.client.topic_reader import TopicReader
from txbroker.spark.brokers import Brokers
from txbroker.spark.snapshot import take

pytestmark = pytest.mark.process


def test_records_that_are_written_between_the_requests(broker: Server, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are not in open transactions."""
    create_topic(broker, name, 2)
    produce(broker, name, 10, 2)
    offset = TopicReader.offset
    with KafkaProducer(bootstrap_servers=broker.address) as producer:

        def overtaken(self: TopicReader, partition: int, timestamp: int, isolation: int | None = None) -> int:
            found = offset(self, partition, timestamp, isolation)
            producer.send(name, b"meanwhile", partition=partition).get(30)
            return found

        monkeypatch.setattr(TopicReader, "offset", overtaken)
        (topic,) = take(Brokers.of(broker.address), [name], "read_committed").topics
    assert {index: tuple(found) for index, found in topic.partitions.items()} == {0: (0, 5, 5), 1: (0, 5, 5)}
