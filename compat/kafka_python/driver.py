"""What kafka-python can."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import Any

import kafka
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource
from kafka.errors import UnknownTopicOrPartitionError

from compat.driving import Client, Member, drive, in_flight, until
from compat.samples import Record

# 3.0.12 forgets an assignment that arrives in the instant in which a poll ends, and then waits for ever: few polls, and long ones.
_POLL_MS = 2000


class KafkaPython(Client):
    """kafka-python's own classes."""

    name = "kafka-python"
    version = kafka.__version__

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self._admin = KafkaAdminClient(bootstrap_servers=address)

    def create_topic(self, topic: str, partitions: int, configs: dict[str, str]) -> None:
        self._admin.create_topics({topic: {"num_partitions": partitions, "replication_factor": 1, "configs": configs}})

    def topics(self) -> set[str]:
        return set(self._admin.list_topics())

    def partitions_with_leaders(self, topic: str) -> int:
        try:
            (described,) = self._admin.describe_topics([topic])
        except UnknownTopicOrPartitionError:
            return 0
        return sum(partition["leader_id"] >= 0 for partition in described["partitions"])

    def delete_topic(self, topic: str) -> None:
        self._admin.delete_topics([topic])

    def produce(self, topic: str, records: Sequence[Record], *, codec: str = "none", acks: str = "all", idempotent: bool = False) -> None:
        producer = KafkaProducer(
            bootstrap_servers=self.address, compression_type=None if codec == "none" else codec, acks=acks if acks == "all" else int(acks),
            enable_idempotence=idempotent, max_in_flight_requests_per_connection=in_flight(idempotent), batch_size=4000, linger_ms=10)
        futures = [producer.send(topic, r.value, r.key, list(r.headers), r.partition, r.timestamp) for r in records]
        for future in futures if acks != "0" else ():
            future.get(timeout=30)
        producer.close()

    def read(self, topic: str, count: int) -> list[Record]:
        consumer = KafkaConsumer(bootstrap_servers=self.address, auto_offset_reset="earliest")
        consumer.assign([TopicPartition(topic, partition) for partition in range(self.partitions)])
        try:
            return self._poll_for(consumer, count)
        finally:
            consumer.close()

    def read_in_group(self, topic: str, group: str, count: int) -> list[Record]:
        consumer = KafkaConsumer(topic, bootstrap_servers=self.address, group_id=group, auto_offset_reset="earliest",
                                 enable_auto_commit=False)
        try:
            read = self._poll_for(consumer, count)
            consumer.commit()
            return read
        finally:
            consumer.close()

    def _poll_for(self, consumer: KafkaConsumer, count: int) -> list[Record]:
        read: list[Record] = []

        def enough() -> bool:
            read.extend(_records(consumer.poll(_POLL_MS, max_records=count - len(read))))
            return len(read) >= count

        until(enough, f"{count} records")
        return read

    def join(self, topic: str, group: str) -> Member:
        return _Member(KafkaConsumer(topic, bootstrap_servers=self.address, group_id=group, heartbeat_interval_ms=300))

    def first_and_last(self, topic: str, partition: int) -> tuple[int, int]:
        tp = TopicPartition(topic, partition)
        consumer = KafkaConsumer(bootstrap_servers=self.address)
        try:
            return consumer.beginning_offsets([tp])[tp], consumer.end_offsets([tp])[tp]
        finally:
            consumer.close()

    def offset_at(self, topic: str, partition: int, timestamp: int) -> int | None:
        tp = TopicPartition(topic, partition)
        consumer = KafkaConsumer(bootstrap_servers=self.address)
        try:
            found = consumer.offsets_for_times({tp: timestamp})[tp]
            return None if found is None else found.offset
        finally:
            consumer.close()

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        self._admin.delete_records({TopicPartition(topic, partition): before})

    def config(self, topic: str, key: str) -> str:
        described: Any = self._admin.describe_configs([ConfigResource("topic", topic)], config_filter="all")
        return str(described["topic"][topic][key]["value"])

    def set_config(self, topic: str, key: str, value: str) -> None:
        altered: Any = self._admin.alter_configs([ConfigResource("topic", topic, {key: value})])
        assert altered["topic"][topic] == "OK", altered

    def groups(self) -> set[str]:
        return {group["group_id"] for group in self._admin.list_groups()}

    def group_state(self, group: str) -> str:
        return str(self._admin.describe_groups([group])[group]["group_state"]).lower()

    def delete_group(self, group: str) -> None:
        assert self._admin.delete_groups([group]) == {group: "OK"}

    def close(self) -> None:
        self._admin.close()


class _Member(Member):
    """A consumer on a thread of its own: while one waits in a rebalance, the other must be polled."""

    def __init__(self, consumer: KafkaConsumer) -> None:
        self._consumer = consumer
        self._read: list[Record] = []
        self._assigned: set[int] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def poll(self) -> list[Record]:
        read, self._read = self._read, []
        return read

    def assignment(self) -> set[int]:
        return self._assigned

    def close(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._read += _records(self._consumer.poll(_POLL_MS))
            self._assigned = {tp.partition for tp in self._consumer.assignment()}
        self._consumer.close()


def _records(polled: Any) -> list[Record]:
    batches: Iterable[Any] = polled.values()
    return [Record(r.partition, r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for batch in batches for r in batch]


if __name__ == "__main__":
    drive(KafkaPython)
