"""The features that are sequences of steps, for all clients with Python drivers. Leaders move in the middle of each."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import closing

from compat.adapter import KEEP, LARGEST_BYTES, Client, Unsupported, until
from compat.changing import move_leaders
from compat.samples import BASE_TIMESTAMP, STEP_MS, check_records, equal

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_LARGE_BYTES = 10 * 2**20


def ready_topic(client: Client, topic: str, **configs: str) -> None:
    """Create a topic and wait for its leaders. If the client does not create topics, the first use creates it, unless it needs configs."""
    try:
        client.create_topic(topic, client.partitions, KEEP | configs)
    except Unsupported:
        if configs:
            raise
        return  # the broker creates it at the first use
    until_ready(client, topic, client.partitions)


def until_ready(client: Client, topic: str, wanted: int) -> None:
    """Wait for the leaders of a new topic."""
    until(lambda: client.partitions_with_leaders(topic) == wanted, f"{wanted} partitions with leaders")
    until(lambda: client.leaders_answer(topic, wanted), f"{wanted} partitions whose leaders answer")


def _topics(client: Client, topic: str) -> None:
    client.create_topic(topic, 3, KEEP | {"segment.bytes": "1048576"})
    until(lambda: client.partitions_with_leaders(topic) == 3, "three partitions with leaders")
    until(lambda: topic in client.topics(), "the topic is in the list")
    move_leaders(topic)
    equal(client.config(topic, "segment.bytes"), "1048576", "segment.bytes")
    client.add_partitions(topic, 5)
    until(lambda: client.partitions_with_leaders(topic) == 5, "five partitions with leaders")
    client.delete_topic(topic)
    until(lambda: topic not in client.topics(), "the topic is deleted")


def _codec(codec: str) -> Callable[[Client, str], None]:
    def feature(client: Client, topic: str) -> None:
        ready_topic(client, topic)
        records = client.records(330)
        client.produce(topic, records[:165], codec=codec)
        move_leaders(topic)
        client.produce(topic, records[165:], codec=codec)
        check_records(client.read(topic, len(records)), records)

    return feature


def _acks(client: Client, topic: str) -> None:
    ready_topic(client, topic)
    records = client.records(66)
    half = len(records) // 2
    client.produce(topic, records[:half], acks="1")
    move_leaders(topic)
    client.produce(topic, records[half:], acks="0")
    check_records(client.read(topic, len(records)), records)


def _idempotence(client: Client, topic: str) -> None:
    ready_topic(client, topic)
    records = client.records(990)
    with closing(client.producer(topic, idempotent=True)) as producer:
        producer.send(records[:495])
        move_leaders(topic)
        producer.send(records[495:])
    check_records(client.read(topic, len(records)), records)


def _group(client: Client, topic: str) -> None:
    ready_topic(client, topic)
    records = client.records(99)
    client.produce(topic, records)
    first = client.read_in_group(topic, topic, 40)
    move_leaders(topic)
    second = client.read_in_group(topic, topic, len(records) - 40)
    check_records(first + second, records)


def _offsets(client: Client, topic: str) -> None:
    ready_topic(client, topic)
    records = client.records(99)
    client.produce(topic, records)
    move_leaders(topic)
    per_partition = len(records) // client.partitions
    equal(client.first_and_last(topic, 0), (0, per_partition), "first and last offset")
    chosen = records[0].timestamp == BASE_TIMESTAMP
    # Record n of partition 0 is number n * partitions of all.
    tenth = BASE_TIMESTAMP + 10 * client.partitions * STEP_MS if chosen else 0
    equal(client.offset_at(topic, 0, tenth), 10 if chosen else 0, "the offset of a record's own time")
    if chosen:
        equal(client.offset_at(topic, 0, tenth + 1), 11, "the offset of a time between two records")


def _delete_records(client: Client, topic: str) -> None:
    ready_topic(client, topic)
    records = client.records(99)
    client.produce(topic, records)
    move_leaders(topic)
    client.delete_records(topic, 0, 20)
    move_leaders(topic)
    left = [record for record in records if record.partition != 0 or record.offset >= 20]
    check_records(client.read(topic, len(left)), left)


def _configs(client: Client, topic: str) -> None:
    ready_topic(client, topic, **{"max.message.bytes": "500000"})
    equal(client.config(topic, "max.message.bytes"), "500000", "the config given at creation")
    equal(client.config(topic, "cleanup.policy"), "delete", "a default")
    move_leaders(topic)
    client.set_config(topic, "max.message.bytes", "600000")
    until(lambda: client.config(topic, "max.message.bytes") == "600000", "the changed config")
    equal(client.config(topic, "retention.ms"), "-1", "a config that must not change")
    client.reset_config(topic, "max.message.bytes")
    until(lambda: client.config(topic, "max.message.bytes") == "1048588", "the default again")
    equal(client.config(topic, "retention.ms"), "-1", "a config that must not change")


def _groups(client: Client, topic: str) -> None:
    ready_topic(client, topic)
    records = client.records(9)
    client.produce(topic, records)
    client.read_in_group(topic, topic, len(records))
    move_leaders(topic)
    assert topic in client.groups(), "the group is not in the list"
    until(lambda: client.group_state(topic) == "empty", "the group is empty")
    client.delete_group(topic)
    until(lambda: topic not in client.groups(), "the group is deleted")


def _reset(client: Client, topic: str) -> None:
    ready_topic(client, topic)
    records = client.records(99)
    client.produce(topic, records)
    check_records(client.read_in_group(topic, topic, len(records)), records)
    move_leaders(topic)
    client.set_group_offsets(topic, topic, {0: client.first_and_last(topic, 0)[0], 1: 5})
    again = [record for record in records if record.partition == 0 or (record.partition == 1 and record.offset >= 5)]
    check_records(client.read_in_group(topic, topic, len(again)), again)


def _large(client: Client, topic: str) -> None:
    ready_topic(client, topic, **{"max.message.bytes": str(LARGEST_BYTES)})
    chance = random.Random(1)
    records = [record._replace(value=chance.randbytes(_LARGE_BYTES)) for record in client.records(2 * client.partitions)]
    client.produce(topic, records)
    move_leaders(topic)
    check_records(client.read(topic, len(records)), records)


SIMPLE: dict[str, Callable[[Client, str], None]] = {
    "topics": _topics, **{codec: _codec(codec) for codec in CODECS}, "acks": _acks, "idempotence": _idempotence, "group": _group,
    "offsets": _offsets, "delete_records": _delete_records, "configs": _configs, "groups": _groups, "reset": _reset, "large": _large,
}
