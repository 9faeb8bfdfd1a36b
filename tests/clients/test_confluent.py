"""confluent-kafka (librdkafka), every feature, against a real broker."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests.support.members import Member, until_shared
from tests.support.records import BASE_TIMESTAMP, Received, Sample, assert_same, numbered, numbers, samples
from tests.support.server import Server
from tests.support.waiting import PATIENCE_S, until

PARTITIONS = 3
FINAL = (KafkaError.FENCED_INSTANCE_ID, KafkaError._FATAL)


@pytest.fixture
def admin(broker: Server) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.address})


@pytest.fixture
def topic(admin: AdminClient, name: str) -> str:
    create(admin, name, PARTITIONS)
    return name


def create(admin: AdminClient, topic: str, partitions: int = 1, **configs: str) -> None:
    settings = {"retention.ms": "-1"} | dotted(configs)
    only(admin.create_topics([NewTopic(topic, partitions, 1, config=settings)]))
    until(lambda: described_partitions(admin, topic) == partitions, "the topic is known")


def described_partitions(admin: AdminClient, topic: str) -> int:
    found = admin.list_topics(topic, timeout=PATIENCE_S).topics[topic]
    return len([p for p in found.partitions.values() if p.leader >= 0])


def only(futures: dict[Any, Any]) -> Any:
    """The result of the one future of an admin call."""
    (future,) = futures.values()
    return future.result(timeout=PATIENCE_S)


def refused(futures: dict[Any, Any]) -> int:
    """The error code that an admin call of one item is refused with."""
    with pytest.raises(KafkaException) as caught:
        only(futures)
    code: int = caught.value.args[0].code()
    return code


def produce(server: Server, topic: str, records: Sequence[Sample], *, partitions: int = 1, **settings: Any) -> list[tuple[int, Sample]]:
    """Send records round robin to the partitions and wait for all acknowledgements; the (partition, record) pairs."""
    # One request in flight: with more, a retry may change the order, unless the producer is idempotent.
    producer = Producer({"bootstrap.servers": server.address, "max.in.flight": 1} | dotted(settings))
    placed = [(i % partitions, record) for i, record in enumerate(records)]
    problems: list[KafkaError] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            problems.append(error)

    for partition, record in placed:
        producer.produce(topic, record.value, record.key, partition, on_delivery=delivered, timestamp=record.timestamp,
                         headers=list(record.headers))
    assert producer.flush(PATIENCE_S) == 0
    assert problems == []
    return placed


def received(message: Message) -> Received:
    headers = tuple(message.headers() or ())
    return Received(message.partition(), message.offset(), message.timestamp()[1], message.key(), message.value(), headers)


def dotted(settings: dict[str, Any]) -> dict[str, Any]:
    return {key.replace("_", "."): value for key, value in settings.items()}


def read(server: Server, topic: str, count: int, *, partitions: int = 1, start: int = OFFSET_BEGINNING, **settings: Any) -> list[Received]:
    plain = {"bootstrap.servers": server.address, "group.id": "unused", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer(plain | dotted(settings))
    consumer.assign([TopicPartition(topic, p, start) for p in range(partitions)])
    found: list[Received] = []

    def more() -> bool:
        found.extend(checked(consumer.consume(count - len(found), 0.5)))
        return len(found) == count

    until(more, f"{count} records")
    consumer.close()
    return found


def checked(messages: list[Message]) -> list[Received]:
    for message in messages:
        if message.error() is not None:
            raise KafkaException(message.error())
    return [received(message) for message in messages]


class GroupReader:
    """One consumer of a group, for `Member`."""

    def __init__(self, server: Server, topic: str, group: str, **settings: Any) -> None:
        self._consumer = Consumer(
            {"bootstrap.servers": server.address, "group.id": group, "auto.offset.reset": "earliest", "heartbeat.interval.ms": 300}
            | dotted(settings))
        self._consumer.subscribe([topic])

    def poll(self) -> list[Received]:
        messages = self._consumer.consume(1000, 0.1)
        # librdkafka reports lost connections for information and reconnects.
        return checked([m for m in messages if m.error() is None or m.error().code() in FINAL])

    def assignment(self) -> set[int]:
        return {tp.partition for tp in self._consumer.assignment()}

    def close(self) -> None:
        self._consumer.close()


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec(broker: Server, topic: str, codec: str) -> None:
    records = [*samples(303, seed=3, null_headers=True), Sample(None, None, (), BASE_TIMESTAMP)]
    sent = produce(broker, topic, records, partitions=PARTITIONS, compression_type=codec)
    assert_same(sent, read(broker, topic, len(sent), partitions=PARTITIONS))


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_acknowledgements(broker: Server, topic: str, acks: int | str) -> None:
    sent = produce(broker, topic, samples(100, seed=4), acks=acks)
    assert_same(sent, read(broker, topic, 100))


def test_idempotent_producer_keeps_the_order(broker: Server, topic: str) -> None:
    sent = produce(broker, topic, numbered(3000), enable_idempotence=True, max_in_flight=5, batch_num_messages=20)
    assert numbers(read(broker, topic, len(sent))) == list(range(3000))


def test_a_batch_larger_than_the_fetch_limit_is_returned(broker: Server, topic: str) -> None:
    sent = produce(broker, topic, [Sample(b"k", bytes([i]) * 900_000, (), BASE_TIMESTAMP) for i in range(3)])
    assert_same(sent, read(broker, topic, 3, message_max_bytes=1000, fetch_message_max_bytes=1000, fetch_max_bytes=1000))


def test_reading_from_an_offset(broker: Server, topic: str) -> None:
    produce(broker, topic, numbered(500), linger_ms=50)
    assert numbers(read(broker, topic, 200, start=300)) == list(range(300, 500))


def test_checksums_are_valid(broker: Server, topic: str) -> None:
    """librdkafka only verifies CRC-32C with check.crcs."""
    sent = produce(broker, topic, samples(200, seed=5), compression_type="lz4")
    assert_same(sent, read(broker, topic, 200, check_crcs=True))


def test_log_append_time(broker: Server, admin: AdminClient, name: str) -> None:
    create(admin, name, message_timestamp_type="LogAppendTime")
    sent = produce(broker, name, numbered(10))
    found = read(broker, name, 10)
    assert_same(sent, found, timestamps=False)
    assert min(r.timestamp for r in found) > BASE_TIMESTAMP + 10_000


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_group_shares_and_rebalances(broker: Server, admin: AdminClient, name: str, strategy: str) -> None:
    create(admin, name, 4)

    def reader() -> GroupReader:
        return GroupReader(broker, name, name, partition_assignment_strategy=strategy)

    with Member(reader) as first:
        until_shared({0, 1, 2, 3}, first)
        produce(broker, name, numbered(100), partitions=4)
        until(lambda: len(first.received) == 100, "the only member reads all")
        second = Member(reader)
        until_shared({0, 1, 2, 3}, first, second)
        assert len(first.assigned) == len(second.assigned) == 2
        produce(broker, name, numbered(100, start=100), partitions=4)
        until(lambda: len(first.received) + len(second.received) == 200, "both together read all")
        assert {r.partition for r in second.received} <= second.assigned
        second.close()
        until_shared({0, 1, 2, 3}, first)
        produce(broker, name, numbered(100, start=200), partitions=4)
        until(lambda: len(first.received) + len(second.received) == 300, "the member that stayed reads the rest")
    assert sorted(numbers(first.received + second.received)) == list(range(300))


def test_commit_and_resume(broker: Server, topic: str) -> None:
    produce(broker, topic, numbered(100))
    settings = {"bootstrap.servers": broker.address, "group.id": topic, "enable.auto.commit": False, "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    got: list[Received] = []
    until(lambda: got.extend(checked(consumer.consume(40 - len(got), 0.5))) or len(got) == 40, "forty records")
    (committed,) = consumer.commit(offsets=[TopicPartition(topic, 0, 40, "forty — сорок")], asynchronous=False)
    assert committed.error is None
    consumer.close()

    consumer = Consumer(settings)
    consumer.subscribe([topic])
    rest: list[Received] = []
    until(lambda: rest.extend(checked(consumer.consume(60 - len(rest), 0.5))) or len(rest) == 60, "the other sixty")
    assert numbers(got + rest) == list(range(100))
    (committed,) = consumer.committed([TopicPartition(topic, 0)], timeout=PATIENCE_S)
    consumer.close()
    assert (committed.offset, committed.metadata) == (40, "forty — сорок")


def test_a_static_member_returns_without_a_rebalance(broker: Server, admin: AdminClient, name: str) -> None:
    create(admin, name, 4)
    with Member(lambda: GroupReader(broker, name, name, group_instance_id="one")) as one:
        until_shared({0, 1, 2, 3}, one)
        two = Member(lambda: GroupReader(broker, name, name, group_instance_id="two"))
        until_shared({0, 1, 2, 3}, one, two)
        owned, before = two.assigned, len(one.assignments)
        two.close()
        with Member(lambda: GroupReader(broker, name, name, group_instance_id="two")) as again:
            until_shared({0, 1, 2, 3}, one, again)
            assert again.assigned == owned
            produce(broker, name, numbered(40), partitions=4)
            until(lambda: len(one.received) + len(again.received) == 40, "both read on")
        assert len(one.assignments) == before, "the other member keeps its partitions"


def test_the_older_of_two_members_with_one_instance_id_is_fenced(broker: Server, topic: str) -> None:
    older = Member(lambda: GroupReader(broker, topic, topic, group_instance_id="same"))
    until_shared({0, 1, 2}, older)
    with Member(lambda: GroupReader(broker, topic, topic, group_instance_id="same")) as newer:
        until_shared({0, 1, 2}, newer)
        until(lambda: older.error, "the older member gets an error")
        assert isinstance(older.error, KafkaException)
        assert older.error.args[0].code() in FINAL


def test_offsets_by_time(broker: Server, admin: AdminClient, topic: str) -> None:
    produce(broker, topic, numbered(100))
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "unused"})

    def at(timestamp: int) -> int:
        (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, timestamp)], timeout=PATIENCE_S)
        offset: int = found.offset
        return offset

    assert at(BASE_TIMESTAMP + 1950) == 20
    assert at(0) == 0
    assert at(BASE_TIMESTAMP + 100_000) == -1
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=PATIENCE_S) == (0, 100)
    consumer.close()
    late = only(admin.list_offsets({TopicPartition(topic, 0): OffsetSpec.max_timestamp()}))
    assert (late.offset, late.timestamp) == (99, BASE_TIMESTAMP + 9900)


def test_delete_records(broker: Server, admin: AdminClient, topic: str) -> None:
    produce(broker, topic, numbered(100), linger_ms=50)
    assert only(admin.delete_records([TopicPartition(topic, 0, 40)])).low_watermark == 40
    assert numbers(read(broker, topic, 60)) == list(range(40, 100))
    assert numbers(read(broker, topic, 60, start=7)) == list(range(40, 100)), "a deleted offset resets to the earliest"
    assert refused(admin.delete_records([TopicPartition(topic, 0, 101)])) == KafkaError.OFFSET_OUT_OF_RANGE


def test_topics(admin: AdminClient, name: str) -> None:
    only(admin.create_topics([NewTopic(name, 2, 1)], validate_only=True))
    assert name not in admin.list_topics(timeout=PATIENCE_S).topics
    nodes = [node.id for node in admin.describe_cluster().result(PATIENCE_S).nodes]
    only(admin.create_topics([NewTopic(name, 2, replica_assignment=[nodes, nodes], config={"cleanup.policy": "compact"})]))
    until(lambda: described_partitions(admin, name) == 2, "two partitions")
    assert refused(admin.create_topics([NewTopic(name, 1, 1)])) == KafkaError.TOPIC_ALREADY_EXISTS
    assert refused(admin.create_topics([NewTopic("not a name", 1, 1)])) == KafkaError.TOPIC_EXCEPTION
    assert refused(admin.create_topics([NewTopic(name + "-many", 1, 99)])) == KafkaError.INVALID_REPLICATION_FACTOR
    assert refused(admin.create_topics([NewTopic(name + "-bad", 1, 1, config={"segment.bytes": "few"})])) == KafkaError.INVALID_CONFIG
    assert refused(admin.create_topics([NewTopic(name + "-bad", 1, 1, config={"no.such.key": "1"})])) == KafkaError.INVALID_CONFIG
    only(admin.delete_topics([name]))
    until(lambda: name not in admin.list_topics(timeout=PATIENCE_S).topics, "the topic goes")
    assert refused(admin.delete_topics([name])) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_a_topic_can_be_created_again_after_its_deletion(broker: Server, admin: AdminClient, name: str) -> None:
    if broker.kind == "kafka-3.9":
        pytest.skip("Kafka answers when the image is without the topic, while its controller still deletes it in ZooKeeper")
    for partitions in (1, 30, 2, 30, 1):
        only(admin.create_topics([NewTopic(name, partitions, 1)]))
        only(admin.delete_topics([name]))


def test_create_partitions(broker: Server, admin: AdminClient, topic: str) -> None:
    produce(broker, topic, numbered(30), partitions=PARTITIONS)
    only(admin.create_partitions([NewPartitions(topic, 5)]))
    until(lambda: described_partitions(admin, topic) == 5, "five partitions")
    assert refused(admin.create_partitions([NewPartitions(topic, 4)])) == KafkaError.INVALID_PARTITIONS
    produce(broker, topic, numbered(50, start=30), partitions=5)
    assert sorted(numbers(read(broker, topic, 80, partitions=5))) == list(range(80))


def test_configs(admin: AdminClient, name: str) -> None:
    create(admin, name, max_message_bytes="5000")

    def entry(key: str) -> Any:
        return only(admin.describe_configs([ConfigResource(ResourceType.TOPIC, name)]))[key]

    def alter(*changes: tuple[str, AlterConfigOpType, str | None]) -> dict[Any, Any]:
        entries = [ConfigEntry(key, value, incremental_operation=operation) for key, operation, value in changes]
        futures: dict[Any, Any] = admin.incremental_alter_configs([ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)])
        return futures

    assert entry("max.message.bytes").value == "5000"
    assert not entry("max.message.bytes").is_default
    assert "message.max.bytes" in entry("max.message.bytes").synonyms
    assert entry("segment.bytes").is_default
    only(alter(("max.message.bytes", AlterConfigOpType.SET, "6000"), ("cleanup.policy", AlterConfigOpType.APPEND, "compact")))
    until(lambda: entry("max.message.bytes").value == "6000", "the new value")
    assert entry("cleanup.policy").value == "delete,compact"
    only(alter(("cleanup.policy", AlterConfigOpType.SUBTRACT, "delete"), ("max.message.bytes", AlterConfigOpType.DELETE, None)))
    until(lambda: entry("cleanup.policy").value == "compact", "the value without what was taken away")
    assert entry("max.message.bytes").is_default
    assert refused(alter(("max.message.bytes", AlterConfigOpType.SET, "many"))) == KafkaError.INVALID_CONFIG
    only(admin.alter_configs([ConfigResource(ResourceType.TOPIC, name, set_config={"retention.ms": "7000000"})]))
    until(lambda: entry("retention.ms").value == "7000000", "the value of the old call")
    assert entry("cleanup.policy").value == "delete", "the older API replaces all previous values"
    node = admin.describe_cluster().result(PATIENCE_S).nodes[0].id
    keys = only(admin.describe_configs([ConfigResource(ResourceType.BROKER, str(node))]))
    assert keys["auto.create.topics.enable"].value == "true"
    assert {"listeners", "log.dirs", "num.partitions", "offsets.retention.minutes"} <= keys.keys()


def test_groups_for_administrators(broker: Server, admin: AdminClient, topic: str) -> None:
    produce(broker, topic, numbered(30), partitions=PARTITIONS)
    member = Member(lambda: GroupReader(broker, topic, topic, client_id="looked-at"))
    until(lambda: len(member.received) == 30, "the member reads")

    def listed() -> set[str]:
        return {group.group_id for group in admin.list_consumer_groups().result(PATIENCE_S).valid}

    assert topic in listed()
    described = only(admin.describe_consumer_groups([topic]))
    assert described.state.name == "STABLE"
    assert not described.is_simple_consumer_group
    (seen,) = described.members
    assert seen.client_id == "looked-at"
    assert {tp.partition for tp in seen.assignment.topic_partitions} == {0, 1, 2}
    assert refused(admin.delete_consumer_groups([topic])) == KafkaError.NON_EMPTY_GROUP
    member.close()

    def offsets() -> dict[int, int]:
        found = only(admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(topic)]))
        return {tp.partition: tp.offset for tp in found.topic_partitions}

    assert offsets() == {0: 10, 1: 10, 2: 10}
    only(admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(topic, [TopicPartition(topic, 0, 3)])]))
    assert offsets()[0] == 3
    only(admin.delete_consumer_groups([topic]))
    assert topic not in listed()
    assert refused(admin.delete_consumer_groups([topic])) == KafkaError.GROUP_ID_NOT_FOUND


def test_an_unknown_topic_is_created_on_request(broker: Server, name: str) -> None:
    sent = produce(broker, name, numbered(10, base_timestamp=time.time_ns() // 1_000_000))
    assert_same(sent, read(broker, name, 10))


def test_a_kill_of_the_broker_under_load(start_broker: Callable[..., Server], name: str) -> None:
    """A producer and a group survive a kill -9 of the broker: every acknowledged record arrives once and in order."""
    server = start_broker()
    create(AdminClient({"bootstrap.servers": server.address}), name)
    stop = threading.Event()
    acknowledged: list[int] = []
    problems: list[KafkaError] = []

    def send() -> None:
        settings = {"enable.idempotence": True, "reconnect.backoff.max.ms": 200, "log_level": 0}
        producer = Producer({"bootstrap.servers": server.address} | settings)

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                acknowledged.append(int(message.value()))
            else:
                problems.append(error)

        number = 0
        while not stop.wait(0.002):
            producer.produce(name, b"%d" % number, partition=0, on_delivery=delivered)
            producer.poll(0)
            number += 1
        producer.flush(PATIENCE_S)

    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    with Member(lambda: GroupReader(server, name, name, reconnect_backoff_max_ms=200)) as member:
        until(lambda: len(member.received) > 200, "records flow")
        server.kill()
        server.start()
        so_far = len(member.received)
        until(lambda: len(member.received) > so_far + 200, "records flow again")
        stop.set()
        sender.join(PATIENCE_S)
        assert problems == []
        until(lambda: set(numbers(member.received)) == set(acknowledged), "the rest")
    assert acknowledged == sorted(acknowledged)
    assert numbers(read(server, name, len(acknowledged))) == acknowledged
