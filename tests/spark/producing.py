"""Records for the tests of the jobs on Spark."""

from __future__ import annotations

from kafka import KafkaProducer

from tests.support.server import Server

PARTITIONS = 3


def produce(server: Server, topic: str, count: int, partitions: int = PARTITIONS) -> None:
    """So many records, round robin over the partitions."""
    producer = KafkaProducer(bootstrap_servers=server.address, linger_ms=20)
    for i in range(count):
        producer.send(topic, b"value %d" % i, b"key %d" % i, partition=i % partitions)
    producer.close()
