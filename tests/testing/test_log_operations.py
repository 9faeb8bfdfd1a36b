"""Logs that are rolled, filled and truncated on request, and topics that are recreated, under real clients."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from kafka import KafkaConsumer

from tests.support.waiting import PATIENCE_S, until
from txbroker.client.blocking_connection import connect_to_any
from txbroker.testing import Kafka, KitError, Namespace, Record
from txbroker.wire.entries import Scan
from txbroker.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

pytestmark = pytest.mark.process


def values(kafka: Kafka, topic: str) -> list[bytes | None]:
    return [each.value for each in kafka.records(topic)]


def segments(kafka: Kafka, topic: str) -> list[int]:
    """The base offsets of partition 0."""
    assert kafka.log_path is not None
    directory = Path(kafka.log_path).parent / "data" / f"{topic}-0"
    return sorted(int(path.stem) for path in directory.glob("*.log"))


def settings(kafka: Kafka, group: str | None = None) -> dict[str, Any]:
    return {**kafka.client_config("confluent", group), "log_level": 0, "retry.backoff.ms": 1}


def received(consumer: Consumer, value: bytes) -> list[Any]:
    """Poll until a value arrives; all that has."""
    seen: list[Any] = []

    def has_arrived() -> bool:
        message = consumer.poll(0.1)
        seen.append(None if message is None else message.error() or message.value())
        return bool(seen[-1] == value)

    until(has_arrived, f"{value!r} has arrived")
    return [each for each in seen if each is not None]


def metadata(kafka: Kafka, topic: str) -> tuple[bytes, int]:
    """The id of a topic, and the leader epoch of its first partition."""
    with connect_to_any([("127.0.0.1", kafka.port)]) as connection:
        (found,) = connection.call(MetadataRequest(topics=[MetadataRequestTopic(name=topic)])).topics
    return found.topic_id, found.partitions[0].leader_epoch


def batch_sizes(kafka: Kafka, topic: str) -> list[int]:
    """Of the batches of partition 0."""
    assert kafka.log_path is not None
    data = (Path(kafka.log_path).parent / "data" / f"{topic}-0" / "0".zfill(20)).with_suffix(".log").read_bytes()
    return [header.size for _, header in Scan(data)]


def test_a_rolled_segment_is_closed(kafka: Kafka, names: Namespace) -> None:
    topic = names.topic(cleanup_policy="compact")
    kafka.roll(topic)
    assert segments(kafka, topic) == [0], "there was nothing in it"
    kafka.produce(topic, Record("1", key="key"), Record("2", key="key"))
    kafka.roll(topic)
    kafka.produce(topic, Record("3", key="other"))
    assert segments(kafka, topic) == [0, 2]
    kafka.roll(topic)
    assert segments(kafka, topic) == [0, 2, 3]


def test_a_topic_is_filled(kafka: Kafka, names: Namespace) -> None:
    topic, large = names.topic(partitions=3), names.topic("large", max_message_bytes=3000)
    kafka.produce(topic, "first")
    kafka.fill(topic, 20_000, size=20)
    found = kafka.records(topic)
    assert [len([each for each in found if each.partition == number]) for number in range(3)] == [6668, 6667, 6666]
    filled = [each for each in found if each.value != b"first"]
    assert [each.key for each in filled] == [b"%d" % number for number in range(20_000)]
    assert filled[17].value == b"17..................", "twenty bytes"
    patient = {"consumer_timeout_ms": PATIENCE_S * 1000}
    consumer = KafkaConsumer(topic, **kafka.client_config("kafka-python", names.group()), **patient)
    assert len([next(consumer) for _ in range(20_001)]) == 20_001
    consumer.close()
    sizes = batch_sizes(kafka, topic)
    assert max(sizes) <= 16_384 and min(sizes[1:-1]) > 8_000, "as producers make them"
    kafka.fill(large, 10, size=2000)
    kafka.fill(large, 0)
    assert [(each.offset, each.value and each.value[:2]) for each in kafka.records(large)] == [(n, b"%d." % n) for n in range(10)]
    with pytest.raises(KitError, match=r"large.*-0 was not filled: a record batch has 4071 bytes, max.message.bytes is 3000"):
        kafka.fill(large, 1, size=4000)


def test_a_truncated_log_has_another_leader_epoch(kafka: Kafka, names: Namespace) -> None:
    topic, group = names.topic(), names.group()
    for value in ("one", "two", "three"):
        kafka.produce(topic, value)
    consumer = Consumer({**settings(kafka, group), "enable.auto.commit": False})
    consumer.subscribe([topic])
    received(consumer, b"three")
    _, epoch = metadata(kafka, topic)
    before = kafka.journal.last()
    assert kafka.truncate(topic, 0, 1) == 1
    assert metadata(kafka, topic)[1] == epoch + 1
    producer = Producer(settings(kafka))
    producer.produce(topic, b"other")
    assert producer.flush(PATIENCE_S) == 0
    assert values(kafka, topic) == [b"one", b"other"]
    assert received(consumer, b"other") == [b"other"], "it goes on where the logs differ, as after Kafka's unclean elections"
    assert kafka.journal.entries(before).where(api="OffsetForLeaderEpoch", topic=topic), kafka.journal.entries(before).text()
    consumer.close()


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_truncation_lasts(end: str) -> None:
    with Kafka(topics={"topic": 2}) as kafka:
        for value in ("one", "two", "three"):
            kafka.produce("topic", value)
            kafka.roll("topic")
        assert kafka.truncate("topic", 0, 1) == 1, "over several segments"
        getattr(kafka, end)()
        kafka.start()
        assert values(kafka, "topic") == [b"one"] and metadata(kafka, "topic")[1] >= 1
        assert kafka.truncate("topic", 0, 1) == 1 and kafka.truncate("topic", 0, 0) == 0
        assert kafka.produce("topic", "again") == [0]


def test_an_offset_within_a_batch_is_truncated_with_the_batch(kafka: Kafka, names: Namespace) -> None:
    topic = names.topic()
    kafka.produce(topic, "one", "two")
    kafka.produce(topic, "three", "four")
    assert kafka.truncate(topic, 0, 3) == 2
    assert values(kafka, topic) == [b"one", b"two"]


def test_a_recreated_topic_is_another_one_and_never_absent(kafka: Kafka, names: Namespace) -> None:
    topic, group = names.topic(partitions=2, retention_ms=123_456), names.group()
    kafka.produce(topic, "old", "older")
    consumer = Consumer({**settings(kafka, group), "enable.auto.commit": False, "topic.metadata.refresh.interval.ms": 100})
    consumer.subscribe([topic])
    received(consumer, b"older")
    old_id, _ = metadata(kafka, topic)
    seen: list[Any] = []
    ended = threading.Event()

    def look() -> None:
        with connect_to_any([("127.0.0.1", kafka.port)]) as connection:
            while not ended.is_set():
                request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
                (found,) = connection.call(request).topics
                seen.append((found.error_code, found.topic_id, [each.error_code for each in found.partitions]))

    looking = threading.Thread(target=look)
    looking.start()
    before = kafka.journal.last()
    try:
        kafka.recreate_topic(topic)
        new_id, _ = metadata(kafka, topic)
        until(lambda: seen and seen[-1][1] == new_id, "the new topic is seen")
    finally:
        ended.set()
        looking.join()
    assert new_id != old_id
    assert {each[1] for each in seen} <= {old_id, new_id} and {(each[0], *each[2]) for each in seen} == {(0, 0, 0)}
    assert kafka.records(topic) == []
    kafka.produce(topic, "new")
    received(consumer, b"new")
    consumer.close()
    assert not kafka.journal.entries(before).where(topic=topic, error="UNKNOWN_TOPIC_OR_PARTITION")


def test_a_recreated_topic_has_its_configuration_and_the_first_leader_epoch(kafka: Kafka, names: Namespace) -> None:
    topic = names.topic(cleanup_policy="compact")
    kafka.truncate(topic, 0, 0)
    assert metadata(kafka, topic)[1] == 1
    kafka.recreate_topic(topic)
    assert metadata(kafka, topic)[1] == 0
    kafka.produce(topic, Record("1", key="key"), Record("2", key="key"))
    kafka.compact(topic)
    assert values(kafka, topic) == [b"2"]


@pytest.mark.parametrize(("call", "problem"), [
    (lambda kafka: kafka.roll("absent"), "there is no topic absent"),
    (lambda kafka: kafka.roll(""), "the body has no topic"),
    (lambda kafka: kafka.fill("absent", 1), "there is no topic absent"),
    (lambda kafka: kafka.fill("absent", -1), "count is -1; it must be a number from 0 to 10000000"),
    (lambda kafka: kafka.fill("absent", 1.5), r"fill\(\): count is 1.5; it must be a whole number"),
    (lambda kafka: kafka.fill("absent", 1, size=1_000_001), "size is 1000001; it must be a number from 0 to 1000000"),
    (lambda kafka: kafka.truncate("absent", 0, 0), "there is no topic absent"),
    (lambda kafka: kafka.truncate("__consumer_offsets", 0, 0), "__consumer_offsets has the state of groups or transactions"),
    (lambda kafka: kafka.truncate("absent", -1, 0), "partition is -1; it must be a number"),
    (lambda kafka: kafka.truncate("absent", 0, True), r"truncate\(\): to is True; it must be a whole number"),
    (lambda kafka: kafka.recreate_topic("absent"), "there is no topic absent"),
    (lambda kafka: kafka.recreate_topic("__transaction_state"), "__transaction_state has the state of groups or transactions"),
])  # fmt: skip
def test_what_does_not_exist(kafka: Kafka, call: Any, problem: str) -> None:
    with pytest.raises(KitError, match=problem) as raised:
        call(kafka)
    assert "\n" not in str(raised.value)


def test_partitions_and_offsets_that_do_not_exist(kafka: Kafka, names: Namespace) -> None:
    topic = names.topic()
    kafka.produce(topic, "one", "two")
    kafka.trim(topic, 0, 1)
    with pytest.raises(KitError, match=f"partition 0 of {topic} cannot be truncated to offset 0: its offsets are 1 to 2"):
        kafka.truncate(topic, 0, 0)
    with pytest.raises(KitError, match=f"topic {topic} has no partition 3"):
        kafka.truncate(topic, 3, 0)
    assert [each.value for each in kafka.records(topic)] == [b"two"]
