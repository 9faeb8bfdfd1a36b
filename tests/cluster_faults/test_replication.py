"""Replication between processes: consumers at the nearest replica, deleted records, throttles."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from tests.support.cluster import Cluster
from tests.support.raw import RawConnection
from tests.support.raw_log import EARLIEST, list_offset
from tests.support.waiting import PATIENCE_S, until

SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
RACKS = ("one", "two", "three")  # of the brokers 1, 2 and 3
FETCH_BYTES = 10_000
UNLIMITED = str(2**62)


def produce(cluster: Cluster, topic: str, values: list[bytes], partitions: int = 1) -> None:
    """In batches that are smaller than FETCH_BYTES: a larger one is fetched whole."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 5, "batch.num.messages": 8})
    failed: list[Any] = []
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % partitions, on_delivery=lambda error, _: failed.append(error))
    assert producer.flush(PATIENCE_S) == 0 and not any(failed), failed


def read(consumer: Consumer, count: int) -> list[bytes]:
    values: list[bytes] = []

    def all_there() -> bool:
        values.extend(message.value() or b"" for message in consumer.consume(1000, 0.2) if not message.error())
        return len(values) >= count

    until(all_there, f"{count} records are read")
    return values


class Rack:
    """A consumer in a rack, and the broker from which it reads each partition."""

    def __init__(self, cluster: Cluster, topic: str, rack: str, partitions: int) -> None:
        self.sources: dict[int, int] = {}
        self._topic = topic
        self.consumer = Consumer({
            "bootstrap.servers": cluster.bootstrap, "group.id": "unused", "client.rack": rack, "enable.auto.commit": False,
            "statistics.interval.ms": 100, "stats_cb": self._note,
        })  # fmt: skip
        self.consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])

    def _note(self, statistics: str) -> None:
        known = json.loads(statistics)["topics"].get(self._topic, {"partitions": {}})["partitions"]
        self.sources = {int(partition): state["broker"] for partition, state in known.items() if partition != "-1"}

    def until_it_reads_from(self, broker: int, partitions: int) -> None:
        until(lambda: self.consumer.consume(1, 0.2) or self.sources == dict.fromkeys(range(partitions), broker),
              f"all partitions are read from broker {broker}: {self.sources}")  # fmt: skip


@pytest.fixture
def cluster(start_cluster: Callable[..., Cluster]) -> Cluster:
    return start_cluster({"replica.selector.class": SELECTOR, "replica.fetch.max.bytes": str(FETCH_BYTES)}, racks=RACKS)


def configure(cluster: Cluster, kind: ResourceType, name: str, **values: str) -> None:
    entries = [ConfigEntry(key.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET) for key, value in values.items()]
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for done in admin.incremental_alter_configs([ConfigResource(kind, name, incremental_configs=entries)]).values():
        done.result(PATIENCE_S)


def size_of_log(cluster: Cluster, broker: int, topic: str) -> int:
    return sum(file.stat().st_size for file in (cluster.brokers[broker].data / f"{topic}-0").glob("*.log"))


def test_replicas_serve_consumers_and_delete_records_together_and_are_throttled(cluster: Cluster, name: str) -> None:
    """One cluster for all three, because its start takes longest."""
    cluster.create_topic(name, partitions=3)
    values = [b"%d" % number for number in range(300)]
    produce(cluster, name, values, partitions=3)

    # Each consumer reads from the broker in its rack; without that broker from the leaders.
    for broker, rack in enumerate(RACKS, 1):
        reader = Rack(cluster, name, rack, 3)
        assert sorted(read(reader.consumer, len(values))) == sorted(values)
        reader.until_it_reads_from(broker, 3)
        if broker == len(RACKS):
            cluster.brokers[broker].stop()
            cluster.until_leader_is_not(broker, name)
            produce(cluster, name, [b"more"] * 9, partitions=3)
            assert read(reader.consumer, 9) == [b"more"] * 9
            cluster.start_brokers([broker])
            cluster.until_in_sync(name)
        reader.consumer.close()

    # What is deleted is deleted on every replica before the answer: the next leader does not return it.
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    (deleted,) = admin.delete_records([TopicPartition(name, 0, 40)]).values()
    assert deleted.result(PATIENCE_S).low_watermark == 40
    leader = cluster.leader(name, 0)
    cluster.brokers[leader].stop()
    cluster.until_leader_is_not(leader, name)
    with RawConnection(cluster.brokers[cluster.leader(name, 0)].address) as connection:
        assert list_offset(connection, name, EARLIEST).offset == 40

    # A replica that is behind gets what the throttle allows; without a throttle it catches up.
    throttled = f"{name}-throttled"
    cluster.start_brokers([leader])
    cluster.create_topic(throttled, configs={"leader.replication.throttled.replicas": "*"})
    leader = cluster.leader(throttled, 0)
    follower = leader % 3 + 1
    configure(cluster, ResourceType.BROKER, str(leader), leader_replication_throttled_rate="1")
    cluster.brokers[follower].stop()
    cluster.until_isr(throttled, 0, *cluster.brokers.keys() - {follower})
    produce(cluster, throttled, [b"x" * 1000] * 40 * (FETCH_BYTES // 1000))
    cluster.start_brokers([follower])
    until(lambda: size_of_log(cluster, follower, throttled) > 0, "the follower has received the first records")
    assert size_of_log(cluster, follower, throttled) < size_of_log(cluster, leader, throttled) / 2
    assert follower not in cluster.partitions(throttled)[0].isr
    configure(cluster, ResourceType.BROKER, str(leader), leader_replication_throttled_rate=UNLIMITED)
    cluster.until_in_sync(throttled)
    assert size_of_log(cluster, follower, throttled) == size_of_log(cluster, leader, throttled)
