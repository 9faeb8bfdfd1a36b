"""Writes data to a broker before its directories go to the other broker, and reads all of it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from tests.support.raw import RawConnection
from tests.support.raw_admin import KEEP, create_topic, delete_records, producer_id, until_leaders
from tests.support.raw_log import Producer as Stamp
from tests.support.raw_log import batch, produce
from tests.support.records import Sample, numbered, samples
from tests.support.server import Server
from tests.support.waiting import PATIENCE_S, until

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PARTITIONS = 2
GROUP = "readers"
COMPACTED, TRANSACTIONAL, IDEMPOTENT = "state", "payments", "counted"
STATE_CONFIGS = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.99", "segment.bytes": "65536"}


@dataclass
class Content:
    """Everything that a broker serves: records by isolation, topic and partition; offsets of groups; configurations of topics.

    `starts`: log start offset and high watermark; `stable`: last stable offset.
    """

    records: dict[tuple[str, str, int], list[tuple[Any, ...]]] = field(default_factory=dict)
    starts: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    stable: dict[tuple[str, int], int] = field(default_factory=dict)
    committed: dict[tuple[str, int], int] = field(default_factory=dict)
    configs: dict[str, dict[str, str]] = field(default_factory=dict)


def fill(server: Server, codecs: tuple[str, ...] = CODECS) -> None:
    """Create topics with every codec, committed and aborted transactions, a compacted topic with tombstones, a group that has read half."""
    for codec in codecs:
        create_topic(server, f"codec-{codec}", PARTITIONS)
        send(server, f"codec-{codec}", samples(150, seed=len(codec)), codec=codec)
    create_topic(server, COMPACTED, 1, {**STATE_CONFIGS, "message.timestamp.type": "LogAppendTime"})
    send(server, COMPACTED, keyed(600))
    create_topic(server, TRANSACTIONAL, PARTITIONS, {**KEEP, "segment.bytes": "20000"})
    for number, commit in enumerate((True, False, True, True, False)):
        transaction(server, TRANSACTIONAL, number, commit=commit)
    commit_offsets(server, f"codec-{codecs[0]}", {0: 30, 1: 20})
    delete_records(server, f"codec-{codecs[-1]}", 40)


def keyed(count: int, *, start: int = 0, keys: int = 20) -> list[Sample]:
    """Changes of a few keys; every seventh is a tombstone."""
    return [
        Sample(b"key-%d" % (i * 7 % keys), None if i % 7 == 6 else b"value-%d " % i * 20, (), 1_700_000_000_000 + i)
        for i in range(start, start + count)
    ]


def send(server: Server, topic: str, records: list[Sample], *, codec: str = "none", **settings: Any) -> None:
    """Produce round robin to the partitions, and wait for all acknowledgements."""
    producer = Producer({"bootstrap.servers": server.address, "compression.type": codec, "linger.ms": 5, "acks": "all",
                         "enable.idempotence": True, "batch.size": 16_384, "message.timeout.ms": 30_000, "log_level": 0, **settings})
    _send_with(producer, topic, records)


def _send_with(producer: Producer, topic: str, records: list[Sample]) -> None:
    failures: list[KafkaError] = []
    partitions = len(producer.list_topics(topic, 30).topics[topic].partitions)
    for i, record in enumerate(records):
        producer.produce(topic, record.value, record.key, partition=i % partitions, timestamp=record.timestamp,
                         headers=list(record.headers), on_delivery=lambda error, _: failures.append(error) if error else None)
    assert producer.flush(PATIENCE_S) == 0
    assert not failures, failures[0]


def transaction(server: Server, topic: str, number: int, *, commit: bool) -> None:
    """A transaction of 40 records in all partitions."""
    name = f"payer-{number % 2}"
    producer = Producer({"bootstrap.servers": server.address, "transactional.id": name, "batch.size": 4096, "log_level": 0})
    producer.init_transactions(60)
    producer.begin_transaction()
    _send_with(producer, topic, numbered(40, start=number * 100, size=50))
    if commit:
        producer.commit_transaction(60)
    else:
        producer.abort_transaction(60)


def commit_offsets(server: Server, topic: str, offsets: Mapping[int, int]) -> None:
    """Commit offsets with metadata for GROUP."""
    consumer = _consumer(server)
    wanted = [TopicPartition(topic, partition, offset, metadata=f"at {offset}") for partition, offset in offsets.items()]
    consumer.commit(offsets=wanted, asynchronous=False)
    consumer.close()


def content(server: Server, known: Iterable[str] = ()) -> Content:
    """Read everything, once the topics of `known` are in the metadata."""
    found = Content()
    admin = AdminClient({"bootstrap.servers": server.address, "log_level": 0})
    until(lambda: set(known) <= admin.list_topics(timeout=PATIENCE_S).topics.keys(), "the topics are known")
    listed = admin.list_topics(timeout=PATIENCE_S).topics
    topics = {name: len(topic.partitions) for name, topic in listed.items() if not name.startswith("__")}
    for topic, count in topics.items():
        until_leaders(server, topic, count)
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in topics]
    for resource, answer in admin.describe_configs(resources, request_timeout=PATIENCE_S).items():
        found.configs[resource.name] = {entry.name: entry.value for entry in answer.result().values() if entry.source == 1}
    partitions = [TopicPartition(topic, partition) for topic, count in topics.items() for partition in range(count)]
    with_open = _consumer(server, **{"isolation.level": "read_uncommitted"})
    consumer = _consumer(server, **{"isolation.level": "read_committed"})
    for each in partitions:
        found.starts[each.topic, each.partition] = with_open.get_watermark_offsets(each, timeout=PATIENCE_S)
        found.stable[each.topic, each.partition] = consumer.get_watermark_offsets(each, timeout=PATIENCE_S)[1]
    with_open.close()
    for isolation in ("read_uncommitted", "read_committed"):
        for each, records in _read(server, {each: low for each, (low, _) in found.starts.items()}, isolation).items():
            found.records[isolation, *each] = records
    for each in until(lambda: _committed(consumer, partitions), "the coordinator of the group has loaded its offsets"):
        if each.offset >= 0:
            found.committed[each.topic, each.partition] = each.offset
    consumer.close()
    return found


def _committed(consumer: Consumer, partitions: list[TopicPartition]) -> list[TopicPartition]:
    """The committed offsets; none while a broker that has just started does not know the group, which librdkafka takes for an error."""
    try:
        found: list[TopicPartition] = consumer.committed(partitions, timeout=PATIENCE_S)
        return found
    except KafkaException as error:
        if error.args[0].code() not in (KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS):
            raise
        return []


def _consumer(server: Server, **settings: Any) -> Consumer:
    return Consumer({"bootstrap.servers": server.address, "group.id": GROUP, "enable.auto.commit": False, "log_level": 0, **settings})


def _read(server: Server, starts: Mapping[tuple[str, int], int], isolation: str) -> dict[tuple[str, int], list[tuple[Any, ...]]]:
    """All records of these partitions from these offsets to the end."""
    consumer = _consumer(server, **{"enable.partition.eof": True, "isolation.level": isolation, "check.crcs": True})
    consumer.assign([TopicPartition(topic, partition, low) for (topic, partition), low in starts.items()])
    records: dict[tuple[str, int], list[tuple[Any, ...]]] = {each: [] for each in starts}
    unfinished = set(starts)
    while unfinished:
        message = consumer.poll(PATIENCE_S)
        assert message is not None, f"nothing more of {unfinished}"
        place = message.topic(), message.partition()
        error = message.error()
        if error is None:
            records[place].append((message.offset(), message.timestamp(), message.key(), message.value(), tuple(message.headers() or ())))
        else:
            assert error.code() == KafkaError._PARTITION_EOF, error
            unfinished.discard(place)
    consumer.close()
    return records


@dataclass
class Counting:
    """An idempotent producer that survives its brokers: it continues its sequence, and repeats its last batch."""

    stamp: Stamp
    began_ms: int
    sent: int = 0
    last_offset: int = -1

    @classmethod
    def begin(cls, server: Server) -> Counting:
        create_topic(server, IDEMPOTENT)
        with RawConnection(server.address) as connection:
            given = producer_id(connection)
        return cls(Stamp(given.producer_id, given.producer_epoch, 0), int(time.time() * 1000))

    def go_on(self, server: Server) -> None:
        """Send three batches, the last one twice."""
        until_leaders(server, IDEMPOTENT, 1)
        with RawConnection(server.address) as connection:
            if self.sent:
                self._send(connection, self.sent - 5, expected=self.last_offset)  # as after a lost response
            for _ in range(3):
                self.last_offset = self._send(connection, self.sent)
                self.sent += 5
            self._send(connection, self.sent - 5, expected=self.last_offset)

    def _send(self, connection: RawConnection, sequence: int, expected: int | None = None) -> int:
        # With current timestamps: producers whose last record is older than a day expire when a log is opened.
        records = numbered(5, start=sequence, base_timestamp=self.began_ms)
        data = batch(records, producer=self.stamp._replace(sequence=sequence))
        answer = produce(connection, IDEMPOTENT, data)
        assert answer.error_code == 0, answer
        assert expected in (None, answer.base_offset), "a repeated batch was stored twice"
        return int(answer.base_offset)


def make_topic(server: Server, name: str) -> None:
    """Create a topic with configurations and some records."""
    admin = AdminClient({"bootstrap.servers": server.address, "log_level": 0})
    admin.create_topics([NewTopic(name, PARTITIONS, 1, config=dict(KEEP))])[name].result(PATIENCE_S)
    until_leaders(server, name, PARTITIONS)
    send(server, name, samples(60, seed=9), codec="zstd")


def delete_topic(server: Server, name: str) -> None:
    """Delete a topic."""
    admin = AdminClient({"bootstrap.servers": server.address, "log_level": 0})
    admin.delete_topics([name])[name].result(PATIENCE_S)


def new_producer_id(server: Server) -> int:
    """The id of a new producer."""
    with RawConnection(server.address) as connection:
        return int(producer_id(connection).producer_id)
