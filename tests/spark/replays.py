"""What the tests of replays wait for and compare."""

from __future__ import annotations

import subprocess

from kafka import KafkaConsumer, TopicPartition

from tests.support.records import Received
from tests.support.server import Server
from tests.support.waiting import until


def received(server: Server, topic: str) -> list[Received]:
    """All records of a topic, by partition and offset."""
    consumer = KafkaConsumer(bootstrap_servers=server.address, auto_offset_reset="earliest")
    partitions = [TopicPartition(topic, index) for index in sorted(consumer.partitions_for_topic(topic))]
    consumer.assign(partitions)
    ends = consumer.end_offsets(partitions)
    found = []
    while any(consumer.position(partition) < end for partition, end in ends.items()):
        for polled in consumer.poll(1000).values():
            found += [Received(one.partition, one.offset, one.timestamp, one.key, one.value, tuple(one.headers)) for one in polled]
    consumer.close()
    return sorted(found, key=lambda one: (one.partition, one.offset))


def until_written(server: Server, topic: str, count: int, driver: subprocess.Popen[str]) -> None:
    """Wait until the topic has so many records."""
    consumer = KafkaConsumer(bootstrap_servers=server.address)
    partitions = [TopicPartition(topic, index) for index in (0, 1)]

    def are_written() -> bool:
        assert driver.poll() is None, driver.communicate()[1][-3000:]
        return sum(consumer.end_offsets(partitions).values()) > count

    until(are_written, f"{count} records in {topic}", every_s=0.005)
    consumer.close()
