"""The driver of confluent-kafka."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import confluent_kafka
from confluent_kafka import (
    OFFSET_BEGINNING,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # they are public, by its documentation
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

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
from compat.confluent_kafka.secured import exchange
from compat.driving import drive
from compat.samples import Record

_TIMEOUT_S = 60
_ISOLATION = ("read_uncommitted", "read_committed")
_ASSIGNORS = {EAGER: "range", COOPERATIVE: "cooperative-sticky"}


class ConfluentKafka(Client):
    """confluent-kafka's classes, on librdkafka."""

    name = "confluent-kafka"
    version = str(confluent_kafka.version())

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self._admin = AdminClient({"bootstrap.servers": address})

    def create_topic(self, topic: str, partitions: int, configs: dict[str, str]) -> None:
        _only(self._admin.create_topics([NewTopic(topic, partitions, -1, config=configs)]))

    def topics(self) -> set[str]:
        return set(self._admin.list_topics(timeout=_TIMEOUT_S).topics)

    def partitions_with_leaders(self, topic: str) -> int:
        found = self._admin.list_topics(timeout=_TIMEOUT_S).topics.get(topic)
        return 0 if found is None else sum(partition.leader >= 0 for partition in found.partitions.values())

    def add_partitions(self, topic: str, total: int) -> None:
        _only(self._admin.create_partitions([NewPartitions(topic, total)]))

    def topic_id(self, topic: str) -> str:
        return str(_only(self._admin.describe_topics(TopicCollection([topic]))).topic_id)

    def delete_topic(self, topic: str) -> None:
        _only(self._admin.delete_topics([topic]))

    def produce(self, topic: str, records: Sequence[Record], *, codec: str = "none", acks: str = "all", idempotent: bool = False) -> None:
        _Producer(self._producer(codec, acks, idempotent), topic).send(records)

    def producer(self, topic: str, *, idempotent: bool = False) -> Producer:
        return _Producer(self._producer("none", "all", idempotent), topic)

    def _producer(self, codec: str, acks: str, idempotent: bool, **more: str) -> confluent_kafka.Producer:
        return confluent_kafka.Producer({
            "bootstrap.servers": self.address, "compression.type": codec, "acks": acks, "enable.idempotence": idempotent, "linger.ms": 10,
            "batch.num.messages": 50, "max.in.flight": in_flight(idempotent), "message.max.bytes": LARGEST_BYTES,
            **more})

    def transactional(self, topic: str, transactional_id: str) -> Transactions:
        producer = self._producer("none", "all", True, **{"transactional.id": transactional_id})
        producer.init_transactions(_TIMEOUT_S)
        return _Transactions(producer, topic, self._consumer)

    def read(self, topic: str, count: int, *, committed: bool = False) -> list[Record]:
        consumer = self._consumer("no group", **{"isolation.level": _ISOLATION[committed]})
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

    def _consumer(self, group: str, **settings: Any) -> confluent_kafka.Consumer:
        return confluent_kafka.Consumer({
            "bootstrap.servers": self.address, "group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False,
            "check.crcs": True, "heartbeat.interval.ms": HEARTBEAT_MS, **settings})

    def consumer(self, topic: str, *, max_wait_ms: int = 500, committed: bool = False) -> Consumer:
        consumer = self._consumer("no group", **{"fetch.wait.max.ms": max_wait_ms, "isolation.level": _ISOLATION[committed]})
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(self.partitions)])
        return _started(_Consumer(consumer, commits=False))

    def join(self, topic: str, group: str, *, protocol: str = EAGER, instance: str | None = None) -> Consumer:
        static = {} if instance is None else {"group.instance.id": instance}
        consumer = self._consumer(group, **{"partition.assignment.strategy": _ASSIGNORS[protocol], **static})
        member = _Consumer(consumer, commits=True)
        consumer.subscribe([topic], on_assign=lambda _, given: member.given(),
                           on_revoke=lambda _, revoked: member.lost(tp.partition for tp in revoked))
        return _started(member)

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
        # Its admin client takes the leader from its cached metadata, and leaves it to the application to try again.
        until(lambda: self._delete_records(TopicPartition(topic, partition, before)), "the leader deletes records")

    def _delete_records(self, wanted: TopicPartition) -> bool:
        try:
            _only(self._admin.delete_records([wanted]))
        except KafkaException as problem:
            if problem.args[0].code() not in (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.OFFSET_OUT_OF_RANGE):
                raise  # the latter: the new leader does not know yet that the records are replicated
            self._admin.list_topics(wanted.topic, timeout=_TIMEOUT_S)
            return False
        return True

    def config(self, topic: str, key: str) -> str:
        return str(_only(self._admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]))[key].value)

    def set_config(self, topic: str, key: str, value: str) -> None:
        self._alter_config(topic, ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET))

    def reset_config(self, topic: str, key: str) -> None:
        self._alter_config(topic, ConfigEntry(key, None, incremental_operation=AlterConfigOpType.DELETE))

    def _alter_config(self, topic: str, entry: Any) -> None:
        _only(self._admin.incremental_alter_configs([ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])]))

    def set_group_offsets(self, topic: str, group: str, offsets: dict[int, int]) -> None:
        wanted = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
        for altered in _only(self._admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, wanted)])).topic_partitions:
            assert altered.error is None, altered.error

    def groups(self) -> set[str]:
        return {group.group_id for group in self._admin.list_consumer_groups().result(_TIMEOUT_S).valid}

    def group_state(self, group: str) -> str:
        return str(_only(self._admin.describe_consumer_groups([group])).state.name).lower()

    def delete_group(self, group: str) -> None:
        _only(self._admin.delete_consumer_groups([group]))


class _Producer(Producer):
    def __init__(self, producer: confluent_kafka.Producer, topic: str) -> None:
        self._producer = producer
        self._topic = topic

    def send(self, records: Sequence[Record]) -> None:
        problems: list[Any] = []

        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                problems.append(error)

        for r in records:
            self._producer.produce(self._topic, r.value, r.key, r.partition, on_delivery=delivered, timestamp=r.timestamp,
                                   headers=list(r.headers))
        assert self._producer.flush(SENDING_S) == 0, "not everything was sent"
        assert not problems, problems[0]

    def close(self) -> None:
        assert self._producer.flush(SENDING_S) == 0, "not everything was sent"


class _Transactions(Transactions):
    def __init__(self, producer: confluent_kafka.Producer, topic: str, consumer: Callable[[str], confluent_kafka.Consumer]) -> None:
        self._producer = producer
        self._topic = topic
        self._consumer = consumer
        self._sending = _Producer(producer, topic)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, records: Sequence[Record]) -> None:
        self._sending.send(records)

    def send_offsets(self, group: str, offsets: dict[int, int]) -> None:
        consumer = self._consumer(group)
        positions = [TopicPartition(self._topic, partition, offset) for partition, offset in offsets.items()]
        self._producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), _TIMEOUT_S)
        consumer.close()

    def commit(self) -> None:
        self._producer.commit_transaction(_TIMEOUT_S)

    def abort(self) -> None:
        self._producer.abort_transaction(_TIMEOUT_S)

    def close(self) -> None:
        self._sending.close()


class _Consumer(Consumer):
    def __init__(self, consumer: confluent_kafka.Consumer, *, commits: bool) -> None:
        super().__init__(commits=commits)
        self._consumer = consumer
        self._assigned: set[int] = set()

    def poll(self) -> list[Record]:
        read = _records(self._consumer.consume(100, 0.1))
        # Called on the polling thread: from another one it hung in a rebalance.
        self._assigned = {tp.partition for tp in self._consumer.assignment()}
        return read

    def commit(self) -> None:
        self._consumer.commit(asynchronous=False)

    def assignment(self) -> set[int]:
        return self._assigned

    def end(self) -> None:
        self._consumer.close()


def _started(consumer: _Consumer) -> Consumer:
    consumer.start()
    return consumer


def _consume_for(consumer: confluent_kafka.Consumer, count: int) -> list[Record]:
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
    drive(ConfluentKafka, exchange)
