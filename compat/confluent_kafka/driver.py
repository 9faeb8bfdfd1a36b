"""What confluent-kafka can."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import confluent_kafka
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # they are public, by its documentation
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from compat.driving import Client, Member, drive, in_flight, until
from compat.samples import Record

_TIMEOUT_S = 30


class ConfluentKafka(Client):
    """confluent-kafka's own classes, on librdkafka."""

    name = "confluent-kafka"
    version = str(confluent_kafka.version())

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self._admin = AdminClient({"bootstrap.servers": address})

    def create_topic(self, topic: str, partitions: int, configs: dict[str, str]) -> None:
        _only(self._admin.create_topics([NewTopic(topic, partitions, 1, config=configs)]))

    def topics(self) -> set[str]:
        return set(self._admin.list_topics(timeout=_TIMEOUT_S).topics)

    def partitions_with_leaders(self, topic: str) -> int:
        found = self._admin.list_topics(timeout=_TIMEOUT_S).topics.get(topic)
        return 0 if found is None else sum(partition.leader >= 0 for partition in found.partitions.values())

    def delete_topic(self, topic: str) -> None:
        _only(self._admin.delete_topics([topic]))

    def produce(self, topic: str, records: Sequence[Record], *, codec: str = "none", acks: str = "all", idempotent: bool = False) -> None:
        producer = Producer({"bootstrap.servers": self.address, "compression.type": codec, "acks": acks, "enable.idempotence": idempotent,
                             "linger.ms": 10, "batch.num.messages": 50, "max.in.flight": in_flight(idempotent)})
        problems: list[Any] = []

        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                problems.append(error)

        for r in records:
            producer.produce(topic, r.value, r.key, r.partition, on_delivery=delivered, timestamp=r.timestamp, headers=list(r.headers))
        assert producer.flush(_TIMEOUT_S) == 0, "not everything was sent"
        assert not problems, problems[0]

    def read(self, topic: str, count: int) -> list[Record]:
        consumer = self._consumer("no group")
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(self.partitions)])
        try:
            return _consume_for(consumer, count)
        finally:
            consumer.close()

    def read_in_group(self, topic: str, group: str, count: int) -> list[Record]:
        consumer = self._consumer(group)
        consumer.subscribe([topic])
        try:
            read = _consume_for(consumer, count)
            consumer.commit(asynchronous=False)
            return read
        finally:
            consumer.close()

    def _consumer(self, group: str) -> Consumer:
        return Consumer({"bootstrap.servers": self.address, "group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False,
                         "check.crcs": True, "heartbeat.interval.ms": 300})

    def join(self, topic: str, group: str) -> Member:
        consumer = self._consumer(group)
        consumer.subscribe([topic])
        return _Member(consumer)

    def first_and_last(self, topic: str, partition: int) -> tuple[int, int]:
        consumer = self._consumer("no group")
        try:
            found: tuple[int, int] = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=_TIMEOUT_S)
            return found
        finally:
            consumer.close()

    def offset_at(self, topic: str, partition: int, timestamp: int) -> int | None:
        consumer = self._consumer("no group")
        try:
            (found,) = consumer.offsets_for_times([TopicPartition(topic, partition, timestamp)], timeout=_TIMEOUT_S)
            return found.offset if found.offset >= 0 else None
        finally:
            consumer.close()

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        _only(self._admin.delete_records([TopicPartition(topic, partition, before)]))

    def config(self, topic: str, key: str) -> str:
        return str(_only(self._admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]))[key].value)

    def set_config(self, topic: str, key: str, value: str) -> None:
        entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        _only(self._admin.incremental_alter_configs([ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])]))

    def groups(self) -> set[str]:
        return {group.group_id for group in self._admin.list_consumer_groups().result(_TIMEOUT_S).valid}

    def group_state(self, group: str) -> str:
        return str(_only(self._admin.describe_consumer_groups([group])).state.name).lower()

    def delete_group(self, group: str) -> None:
        _only(self._admin.delete_consumer_groups([group]))


class _Member(Member):
    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    def poll(self) -> list[Record]:
        return _records(self._consumer.consume(100, 0.1))

    def assignment(self) -> set[int]:
        return {tp.partition for tp in self._consumer.assignment()}

    def close(self) -> None:
        self._consumer.close()


def _consume_for(consumer: Consumer, count: int) -> list[Record]:
    read: list[Record] = []

    def enough() -> bool:
        read.extend(_records(consumer.consume(count - len(read), 0.5)))
        return len(read) >= count

    until(enough, f"{count} records")
    return read


def _records(messages: Sequence[Any]) -> list[Record]:
    for message in messages:
        if message.error() is not None:
            raise KafkaException(message.error())
    return [Record(m.partition(), m.offset(), m.timestamp()[1], m.key(), m.value(), tuple(m.headers() or ())) for m in messages]


def _only(futures: Any) -> Any:
    """The result of the one future of an admin call."""
    (future,) = futures.values()
    return future.result(timeout=_TIMEOUT_S)


if __name__ == "__main__":
    drive(ConfluentKafka)
