"""kafka-python, every feature, against a real broker."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import kafka.errors as errors
import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.admin import ConfigResource, MemberToRemove

from tests.support.members import Member, until_shared
from tests.support.records import BASE_TIMESTAMP, Received, Sample, assert_same, numbered, numbers, samples
from tests.support.server import Server
from tests.support.waiting import PATIENCE_S, until

PARTITIONS = 3


@pytest.fixture
def admin(broker: Server) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=broker.address)
    yield client
    client.close()


@pytest.fixture
def topic(admin: KafkaAdminClient, name: str) -> str:
    create(admin, name, PARTITIONS)
    return name


def create(admin: KafkaAdminClient, topic: str, partitions: int = 1, **configs: str) -> None:
    settings = {"retention.ms": "-1"} | {key.replace("_", "."): value for key, value in configs.items()}
    admin.create_topics({topic: {"num_partitions": partitions, "replication_factor": 1, "configs": settings}}, wait_for_metadata=True)


def produce(server: Server, topic: str, records: Sequence[Sample], *, partitions: int = 1, **settings: Any) -> list[tuple[int, Sample]]:
    """Send records round robin to the partitions and wait for all acknowledgements; the (partition, record) pairs."""
    producer = KafkaProducer(bootstrap_servers=server.address, **settings)
    placed = [(i % partitions, record) for i, record in enumerate(records)]
    futures = [
        producer.send(topic, record.value, record.key, list(record.headers), partition, record.timestamp) for partition, record in placed
    ]
    for (partition, _), future in zip(placed, futures, strict=True):
        assert future.get(timeout=PATIENCE_S).partition == partition
    producer.close()
    return placed


def received(records: Iterable[Any]) -> list[Received]:
    return [Received(r.partition, r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in records]


def read(server: Server, topic: str, count: int, *, partitions: int = 1, start: int | None = None, **settings: Any) -> list[Received]:
    """The first `count` records, or those from an offset of partition 0."""
    consumer = KafkaConsumer(bootstrap_servers=server.address, auto_offset_reset="earliest", consumer_timeout_ms=30_000, **settings)
    consumer.assign([TopicPartition(topic, p) for p in range(partitions)])
    if start is not None:
        consumer.seek(TopicPartition(topic, 0), start)
    found: list[Received] = []
    for record in consumer:
        found += received([record])
        if len(found) == count:
            break
    consumer.close()
    return found


class GroupReader:
    """One consumer of a group, for `Member`."""

    def __init__(self, server: Server, topic: str, group: str, **settings: Any) -> None:
        self._consumer = KafkaConsumer(topic, bootstrap_servers=server.address, group_id=group, auto_offset_reset="earliest",
                                       heartbeat_interval_ms=300, **settings)
        # A group leader without metadata of the topic would assign no partitions.
        self._consumer.partitions_for_topic(topic)

    def poll(self) -> list[Received]:
        # kafka-python 3.0.12 loses an assignment that arrives when a poll ends, and then waits for ever: use long polls.
        try:
            polled = self._consumer.poll(timeout_ms=1000)
        except errors.KafkaConnectionError:
            return []  # its heartbeat found no broker and the poll raises that; the next poll continues
        return [record for records in polled.values() for record in received(records)]

    def assignment(self) -> set[int]:
        return {tp.partition for tp in self._consumer.assignment()}

    def close(self) -> None:
        self._consumer.close()


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_every_codec(broker: Server, topic: str, codec: str | None) -> None:
    sent = produce(broker, topic, samples(303, seed=1), partitions=PARTITIONS, compression_type=codec, linger_ms=20)
    assert_same(sent, read(broker, topic, len(sent), partitions=PARTITIONS))


@pytest.mark.parametrize("acks", [1, "all"])
def test_acknowledgements(broker: Server, topic: str, acks: int | str) -> None:
    sent = produce(broker, topic, samples(100, seed=2), acks=acks, enable_idempotence=False, max_in_flight_requests_per_connection=1)
    assert_same(sent, read(broker, topic, 100))


def test_no_acknowledgement(broker: Server, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.address, acks=0, enable_idempotence=False, max_in_flight_requests_per_connection=1)
    for record in numbered(100):
        producer.send(topic, record.value, partition=0)
    producer.close()
    assert numbers(read(broker, topic, 100)) == list(range(100))


def test_idempotent_producer_keeps_the_order(broker: Server, topic: str) -> None:
    sent = produce(broker, topic, numbered(3000), enable_idempotence=True, max_in_flight_requests_per_connection=5, batch_size=500)
    assert numbers(read(broker, topic, len(sent))) == list(range(3000))


def test_a_batch_larger_than_the_fetch_limit_is_returned(broker: Server, topic: str) -> None:
    large = [Sample(b"k", bytes([i]) * 900_000, (), BASE_TIMESTAMP) for i in range(3)]
    sent = produce(broker, topic, large)
    assert_same(sent, read(broker, topic, 3, fetch_max_bytes=1000, max_partition_fetch_bytes=1000))


def test_reading_from_an_offset(broker: Server, topic: str) -> None:
    produce(broker, topic, numbered(500), linger_ms=50)
    assert numbers(read(broker, topic, 200, start=300)) == list(range(300, 500))


def test_log_append_time(broker: Server, admin: KafkaAdminClient, name: str) -> None:
    create(admin, name, message_timestamp_type="LogAppendTime")
    producer = KafkaProducer(bootstrap_servers=broker.address)
    metadata = producer.send(name, b"value", timestamp_ms=BASE_TIMESTAMP).get(timeout=PATIENCE_S)
    producer.close()
    consumer = KafkaConsumer(name, bootstrap_servers=broker.address, auto_offset_reset="earliest")
    record = next(consumer)
    consumer.close()
    assert record.timestamp_type == 1
    assert record.timestamp == metadata.timestamp > BASE_TIMESTAMP


def test_a_group_shares_and_rebalances(broker: Server, admin: KafkaAdminClient, name: str) -> None:
    create(admin, name, 4)
    with Member(lambda: GroupReader(broker, name, name)) as first:
        until_shared({0, 1, 2, 3}, first)
        produce(broker, name, numbered(100), partitions=4)
        until(lambda: len(first.received) == 100, "the only member reads all")
        second = Member(lambda: GroupReader(broker, name, name))
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
    tp = TopicPartition(topic, 0)
    consumer = KafkaConsumer(bootstrap_servers=broker.address, group_id=topic, enable_auto_commit=False, auto_offset_reset="earliest")
    consumer.subscribe([topic])
    got = [next(consumer) for _ in range(40)]
    assert numbers(received(got)) == list(range(40))
    consumer.commit({tp: OffsetAndMetadata(40, "forty — сорок", -1)})
    assert consumer.committed(tp) == 40
    consumer.close()

    consumer = KafkaConsumer(topic, bootstrap_servers=broker.address, group_id=topic, enable_auto_commit=False, consumer_timeout_ms=20_000)
    assert numbers(received(next(consumer) for _ in range(60))) == list(range(40, 100))
    committed = consumer.committed(tp, metadata=True)
    consumer.close()
    assert (committed.offset, committed.metadata) == (40, "forty — сорок")


def test_a_static_member_returns_without_a_rebalance(broker: Server, admin: KafkaAdminClient, name: str) -> None:
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
        members = {m["group_instance_id"] for m in admin.describe_groups([name])[name]["members"]}
        assert members == {"one", "two"}, "a closed static member stays in the group until its session ends"
        admin.remove_group_members(name, [MemberToRemove(group_instance_id="two")])
        until_shared({0, 1, 2, 3}, one)


def test_the_older_of_two_members_with_one_instance_id_is_fenced(broker: Server, topic: str) -> None:
    older = Member(lambda: GroupReader(broker, topic, topic, group_instance_id="same"))
    until_shared({0, 1, 2}, older)
    with Member(lambda: GroupReader(broker, topic, topic, group_instance_id="same")) as newer:
        until_shared({0, 1, 2}, newer)
        until(lambda: older.error, "the older member gets an error")
        assert isinstance(older.error, errors.FencedInstanceIdError)


def test_offsets_by_time(broker: Server, topic: str) -> None:
    produce(broker, topic, numbered(100))
    tp = TopicPartition(topic, 0)
    consumer = KafkaConsumer(bootstrap_servers=broker.address)
    at = consumer.offsets_for_times({tp: BASE_TIMESTAMP + 1950})[tp]
    assert (at.offset, at.timestamp) == (20, BASE_TIMESTAMP + 2000)
    assert consumer.offsets_for_times({tp: 0})[tp].offset == 0
    assert consumer.offsets_for_times({tp: BASE_TIMESTAMP + 100_000})[tp] is None
    assert (consumer.beginning_offsets([tp]), consumer.end_offsets([tp])) == ({tp: 0}, {tp: 100})
    consumer.close()


def test_delete_records(broker: Server, admin: KafkaAdminClient, topic: str) -> None:
    produce(broker, topic, numbered(100), linger_ms=50)
    tp = TopicPartition(topic, 0)
    assert admin.delete_records({tp: 40})[tp]["low_watermark"] == 40
    assert numbers(read(broker, topic, 60)) == list(range(40, 100))
    assert numbers(read(broker, topic, 60, start=7)) == list(range(40, 100)), "a deleted offset resets to the earliest"
    with pytest.raises(errors.OffsetOutOfRangeError):
        admin.delete_records({tp: 101})
    assert admin.delete_records({tp: -1})[tp]["low_watermark"] == 100


def test_topics(admin: KafkaAdminClient, name: str) -> None:
    admin.create_topics({name: {"num_partitions": 2, "replication_factor": 1}}, validate_only=True)
    assert name not in admin.list_topics()
    brokers = [node["broker_id"] for node in admin.describe_cluster()["brokers"]]
    admin.create_topics({name: {"assignments": {0: brokers, 1: brokers}, "configs": {"cleanup.policy": "compact"}}},
                        wait_for_metadata=True)
    assert name in admin.list_topics()
    (described,) = admin.describe_topics([name])
    assert [p["leader_id"] for p in described["partitions"]] == brokers * 2
    with pytest.raises(errors.TopicAlreadyExistsError):
        admin.create_topics([name])
    with pytest.raises(errors.InvalidTopicError):
        admin.create_topics(["not a name"])
    with pytest.raises(errors.InvalidPartitionsError):
        admin.create_topics({name + "-none": {"num_partitions": 0, "replication_factor": 1}})
    with pytest.raises(errors.InvalidReplicationFactorError):
        admin.create_topics({name + "-many": {"num_partitions": 1, "replication_factor": 99}})
    admin.delete_topics([name])
    until(lambda: name not in admin.list_topics(), "the topic goes")
    with pytest.raises(errors.UnknownTopicOrPartitionError):
        admin.delete_topics([name])


def test_create_partitions(broker: Server, admin: KafkaAdminClient, topic: str) -> None:
    produce(broker, topic, numbered(30), partitions=PARTITIONS)
    admin.create_partitions({topic: 5})
    until(lambda: len(admin.describe_topics([topic])[0]["partitions"]) == 5, "five partitions")
    admin.wait_for_topics([topic])
    with pytest.raises(errors.InvalidPartitionsError):
        admin.create_partitions({topic: 4})
    produce(broker, topic, numbered(50, start=30), partitions=5)
    assert sorted(numbers(read(broker, topic, 80, partitions=5))) == list(range(80))


def test_configs(admin: KafkaAdminClient, name: str) -> None:
    create(admin, name, max_message_bytes="5000")

    def entry(key: str) -> dict[str, Any]:
        resource = ConfigResource("topic", name)
        entries: dict[str, dict[str, Any]] = admin.describe_configs([resource], config_filter="all", include_synonyms=True)["topic"][name]
        return entries[key]

    def alter(**changes: object) -> None:
        configs = {key.replace("_", "."): value for key, value in changes.items()}
        assert admin.alter_configs([ConfigResource("topic", name, configs)])["topic"][name] == "OK"

    assert entry("max.message.bytes")["value"] == "5000"
    assert entry("max.message.bytes")["config_source"] == "DYNAMIC_TOPIC_CONFIG"
    assert entry("segment.bytes")["config_source"] == "DEFAULT_CONFIG"
    alter(max_message_bytes="6000", cleanup_policy=("APPEND", "compact"))
    until(lambda: entry("max.message.bytes")["value"] == "6000", "the new value")
    assert entry("cleanup.policy")["value"] == "delete,compact"
    alter(cleanup_policy=("SUBTRACT", "delete"), max_message_bytes=("DELETE", None))
    until(lambda: entry("cleanup.policy")["value"] == "compact", "the value without what was taken away")
    assert entry("max.message.bytes")["config_source"] == "DEFAULT_CONFIG"
    refused = admin.alter_configs([ConfigResource("topic", name, {"max.message.bytes": "many"})])["topic"][name]
    assert refused != "OK"


def test_groups_for_administrators(broker: Server, admin: KafkaAdminClient, topic: str) -> None:
    produce(broker, topic, numbered(30), partitions=PARTITIONS)
    partitions = [TopicPartition(topic, p) for p in range(PARTITIONS)]
    member = Member(lambda: GroupReader(broker, topic, topic, client_id="looked-at"))
    until(lambda: len(member.received) == 30, "the member reads")

    def listed() -> dict[str, Any]:
        return {group["group_id"]: group for group in admin.list_groups()}

    assert listed()[topic]["protocol_type"] == "consumer"
    described = admin.describe_groups([topic])[topic]
    assert described["group_state"] == "Stable"
    (seen,) = described["members"]
    assert seen["client_id"] == "looked-at"
    assert seen["client_host"].lstrip("/") == "127.0.0.1"
    assert admin.delete_groups([topic]) == {topic: "NonEmptyGroupError"}
    member.close()

    offsets = {tp: value.offset for tp, value in admin.list_group_offsets([topic])[topic].items()}
    assert offsets == dict.fromkeys(partitions, 10)
    admin.alter_group_offsets(topic, {partitions[0]: OffsetAndMetadata(3, "three", -1)})
    assert admin.list_group_offsets([topic])[topic][partitions[0]].offset == 3
    admin.delete_group_offsets(topic, [partitions[1]])
    left = {tp for tp, value in admin.list_group_offsets([topic])[topic].items() if value.offset >= 0}
    assert left == {partitions[0], partitions[2]}
    assert admin.delete_groups([topic]) == {topic: "OK"}
    assert topic not in listed()
    assert admin.delete_groups([topic]) == {topic: "GroupIdNotFoundError"}


def test_a_restart_of_the_broker_under_load(start_broker: Callable[..., Server], name: str) -> None:
    """A producer and a group survive a restart of the broker: every acknowledged record arrives once and in order."""
    server = start_broker()
    admin = KafkaAdminClient(bootstrap_servers=server.address)
    create(admin, name)
    admin.close()
    stop = threading.Event()
    acknowledged: list[int] = []
    problems: list[BaseException] = []

    def send() -> None:
        producer = KafkaProducer(bootstrap_servers=server.address, retry_backoff_ms=50, reconnect_backoff_max_ms=200)
        futures = []
        number = 0
        while not stop.wait(0.002):
            futures.append((number, producer.send(name, b"%d" % number, partition=0)))
            number += 1
        for number, future in futures:
            try:
                future.get(timeout=PATIENCE_S)
                acknowledged.append(number)
            except Exception as error:
                problems.append(error)
        producer.close()

    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    with Member(lambda: GroupReader(server, name, name, reconnect_backoff_max_ms=200)) as member:
        until(lambda: len(member.received) > 200, "records flow")
        server.restart()
        so_far = len(member.received)
        until(lambda: len(member.received) > so_far + 200, "records flow again")
        stop.set()
        sender.join(PATIENCE_S)
        assert problems == []
        until(lambda: len(member.received) >= len(acknowledged), "the rest")
    assert numbers(read(server, name, len(acknowledged))) == acknowledged
    assert sorted(set(numbers(member.received))) == acknowledged


