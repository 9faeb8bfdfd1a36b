"""The driver of kafka-python."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import kafka
from kafka import ConsumerRebalanceListener, KafkaAdminClient, KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.admin import ConfigResource
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import NoError, UnknownTopicOrPartitionError

from compat.adapter import (
    COOPERATIVE,
    EAGER,
    HEARTBEAT_MS,
    LARGEST_BYTES,
    SENDING_S,
    Client,
    Consumer,
    Producer,
    Transactions,
    in_flight,
    until,
)
from compat.driving import drive
from compat.kafka_python.secured import exchange
from compat.samples import Record

# 3.0.12 loses an assignment that arrives at the moment when a poll ends, and then waits forever: hence few and long polls.
_POLL_MS = 1000
_ISOLATION = ("read_uncommitted", "read_committed")
_ASSIGNORS = {EAGER: RangePartitionAssignor, COOPERATIVE: CooperativeStickyAssignor}


class KafkaPython(Client):
    """kafka-python's classes."""

    name = "kafka-python"
    version = kafka.__version__

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self._admin = KafkaAdminClient(bootstrap_servers=address)

    def create_topic(self, topic: str, partitions: int, configs: dict[str, str]) -> None:
        self._admin.create_topics({topic: {"num_partitions": partitions, "replication_factor": -1, "configs": configs}})

    def topics(self) -> set[str]:
        return set(self._admin.list_topics())

    def partitions_with_leaders(self, topic: str) -> int:
        try:
            (described,) = self._admin.describe_topics([topic])
        except UnknownTopicOrPartitionError:
            return 0
        return sum(partition["leader_id"] >= 0 for partition in described["partitions"])

    def add_partitions(self, topic: str, total: int) -> None:
        self._admin.create_partitions({topic: total})

    def topic_id(self, topic: str) -> str:
        (described,) = self._admin.describe_topics([topic])
        return str(described["topic_id"])

    def delete_topic(self, topic: str) -> None:
        self._admin.delete_topics([topic])

    def produce(self, topic: str, records: Sequence[Record], *, codec: str = "none", acks: str = "all", idempotent: bool = False) -> None:
        producer = self._producer(compression_type=None if codec == "none" else codec, acks=acks if acks == "all" else int(acks),
                                  idempotent=idempotent)
        futures = [_send(producer, topic, record) for record in records]
        for future in futures if acks != "0" else ():
            future.get(timeout=SENDING_S)
        producer.close()

    def producer(self, topic: str, *, idempotent: bool = False) -> Producer:
        return _Producer(self._producer(acks="all", idempotent=idempotent), topic)

    def _producer(self, *, idempotent: bool, **settings: Any) -> KafkaProducer:
        return KafkaProducer(bootstrap_servers=self.address, enable_idempotence=idempotent, batch_size=4000, linger_ms=10,
                             max_in_flight_requests_per_connection=in_flight(idempotent), max_request_size=LARGEST_BYTES,
                             delivery_timeout_ms=int(SENDING_S * 1000), allow_auto_create_topics=False, **settings)

    def transactional(self, topic: str, transactional_id: str) -> Transactions:
        producer = self._producer(acks="all", idempotent=True, transactional_id=transactional_id)
        producer.init_transactions()
        return _Transactions(producer, topic)

    def read(self, topic: str, count: int, *, committed: bool = False) -> list[Record]:
        consumer = KafkaConsumer(bootstrap_servers=self.address, auto_offset_reset="earliest", isolation_level=_ISOLATION[committed])
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

    def consumer(self, topic: str, *, max_wait_ms: int = 500, committed: bool = False) -> Consumer:
        consumer = KafkaConsumer(bootstrap_servers=self.address, auto_offset_reset="earliest", fetch_max_wait_ms=max_wait_ms,
                                 allow_auto_create_topics=False, isolation_level=_ISOLATION[committed])
        consumer.assign([TopicPartition(topic, partition) for partition in range(self.partitions)])
        return _started(_Consumer(consumer, commits=False))

    def join(self, topic: str, group: str, *, protocol: str = EAGER, instance: str | None = None) -> Consumer:
        consumer = KafkaConsumer(bootstrap_servers=self.address, group_id=group, group_instance_id=instance, auto_offset_reset="earliest",
                                 enable_auto_commit=False, heartbeat_interval_ms=HEARTBEAT_MS,
                                 partition_assignment_strategy=[_ASSIGNORS[protocol]])
        member = _Consumer(consumer, commits=True)
        consumer.subscribe([topic], listener=_Listener(member))
        return _started(member)

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

    def reset_config(self, topic: str, key: str) -> None:
        altered: Any = self._admin.reset_configs([ConfigResource("topic", topic, [key])])
        assert altered["topic"][topic] == "OK", altered

    def set_group_offsets(self, topic: str, group: str, offsets: dict[int, int]) -> None:
        wanted = {TopicPartition(topic, partition): offset for partition, offset in offsets.items()}
        for result in self._admin.reset_group_offsets(group, wanted).values():
            assert result["error"] is NoError, result

    def groups(self) -> set[str]:
        return {group["group_id"] for group in self._admin.list_groups()}

    def group_state(self, group: str) -> str:
        return str(self._admin.describe_groups([group])[group]["group_state"]).lower()

    def delete_group(self, group: str) -> None:
        assert self._admin.delete_groups([group]) == {group: "OK"}

    def close(self) -> None:
        self._admin.close()


class _Producer(Producer):
    def __init__(self, producer: KafkaProducer, topic: str) -> None:
        self._producer = producer
        self._topic = topic

    def send(self, records: Sequence[Record]) -> None:
        for future in [_send(self._producer, self._topic, record) for record in records]:
            future.get(timeout=SENDING_S)

    def close(self) -> None:
        self._producer.close()


class _Transactions(Transactions):
    def __init__(self, producer: KafkaProducer, topic: str) -> None:
        self._producer = producer
        self._topic = topic

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, records: Sequence[Record]) -> None:
        for future in [_send(self._producer, self._topic, record) for record in records]:
            future.get(timeout=SENDING_S)

    def send_offsets(self, group: str, offsets: dict[int, int]) -> None:
        positions = {TopicPartition(self._topic, partition): OffsetAndMetadata(offset, "", -1) for partition, offset in offsets.items()}
        self._producer.send_offsets_to_transaction(positions, group)

    def commit(self) -> None:
        self._producer.commit_transaction()

    def abort(self) -> None:
        self._producer.abort_transaction()

    def close(self) -> None:
        self._producer.close()


class _Consumer(Consumer):
    def __init__(self, consumer: KafkaConsumer, *, commits: bool) -> None:
        super().__init__(commits=commits)
        self._consumer = consumer

    def poll(self) -> list[Record]:
        return _records(self._consumer.poll(_POLL_MS))

    def commit(self) -> None:
        self._consumer.commit()

    def assignment(self) -> set[int]:
        return {tp.partition for tp in list(self._consumer.assignment())}

    def end(self) -> None:
        self._consumer.close()


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, member: Consumer) -> None:
        self._member = member

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self._member.given()

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        self._member.lost(tp.partition for tp in revoked)


def _started(consumer: _Consumer) -> Consumer:
    consumer.start()
    return consumer


def _send(producer: KafkaProducer, topic: str, record: Record) -> Any:
    return producer.send(topic, record.value, record.key, list(record.headers), record.partition, record.timestamp)


def _records(polled: Any) -> list[Record]:
    batches: Iterable[Any] = polled.values()
    return [Record(r.partition, r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for batch in batches for r in batch]


if __name__ == "__main__":
    drive(KafkaPython, exchange)
