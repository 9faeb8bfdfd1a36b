"""aiokafka, every feature, against a real broker. It uses old, inflexible versions of every API."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import InvalidPartitionsError, OffsetOutOfRangeError
from aiokafka.structs import OffsetAndMetadata

from tests.support.records import BASE_TIMESTAMP, Received, Sample, assert_same, numbered, numbers, samples
from tests.support.server import Server
from tests.support.waiting import PATIENCE_S

PARTITIONS = 3
NONE, TOPIC_ALREADY_EXISTS, INVALID_TOPIC, INVALID_REPLICATION_FACTOR, UNKNOWN_TOPIC = 0, 36, 17, 38, 3


def asynchronous(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a coroutine as a test."""

    @functools.wraps(test)
    def run(**arguments: Any) -> None:
        asyncio.run(asyncio.wait_for(test(**arguments), 2 * PATIENCE_S))

    return run


async def until(condition: Callable[[], Any], what: str, timeout_s: float = PATIENCE_S) -> None:
    """Wait until a condition, which may be a coroutine function, is true."""
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if await value if asyncio.iscoroutine(value) else value:
            return
        assert time.monotonic() < deadline, f"after {timeout_s:.0f} s still not: {what}"
        await asyncio.sleep(0.02)


class Admin(AIOKafkaAdminClient):
    """An admin client as a context manager, with the calls that every test uses."""

    def __init__(self, server: Server) -> None:
        super().__init__(bootstrap_servers=server.address)

    async def __aenter__(self) -> Admin:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def create(self, topic: str, partitions: int = 1, **configs: str) -> None:
        settings = {"retention.ms": "-1"} | {key.replace("_", "."): value for key, value in configs.items()}
        assert error_code(await self.create_topics([NewTopic(topic, partitions, 1, topic_configs=settings)])) == NONE
        await self.until_partitions(topic, partitions)

    async def until_partitions(self, topic: str, count: int) -> None:
        async def ready() -> bool:
            (described,) = await self.describe_topics([topic])
            return len([p for p in described["partitions"] if p["leader"] >= 0]) == count

        await until(ready, f"{count} partitions")

    async def config(self, topic: str, key: str) -> dict[str, Any]:
        (response,) = await self.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)], include_synonyms=True)
        entries = response.to_object()["resources"][0]["config_entries"]
        found: dict[str, Any] = next(entry for entry in entries if entry["config_names"] == key)
        return found


def error_code(response: Any) -> int:
    """The error code of the one topic of a create or delete response."""
    (topic,) = getattr(response, "topic_errors", None) or response.topic_error_codes
    code: int = topic[1]
    return code


async def produce(
    server: Server, topic: str, records: Sequence[Sample], *, partitions: int = 1, **settings: Any
) -> list[tuple[int, Sample]]:
    """Send records round robin to the partitions and wait for all acknowledgements; the (partition, record) pairs."""
    placed = [(i % partitions, record) for i, record in enumerate(records)]
    async with AIOKafkaProducer(bootstrap_servers=server.address, **settings) as producer:
        futures = [
            await producer.send(topic, record.value, record.key, partition, record.timestamp, list(record.headers))
            for partition, record in placed
        ]
        await asyncio.gather(*futures)
    return placed


def received(records: Iterable[Any]) -> list[Received]:
    return [Received(r.partition, r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in records]


async def read(server: Server, topic: str, count: int, *, partitions: int = 1, start: int | None = None, **settings: Any) -> list[Received]:
    async with AIOKafkaConsumer(bootstrap_servers=server.address, auto_offset_reset="earliest", **settings) as consumer:
        consumer.assign([TopicPartition(topic, p) for p in range(partitions)])
        if start is not None:
            consumer.seek(TopicPartition(topic, 0), start)
        return await read_some(consumer, count)


async def read_some(consumer: AIOKafkaConsumer, count: int) -> list[Received]:
    return received([await asyncio.wait_for(consumer.getone(), 30) for _ in range(count)])


class Member:
    """A consumer of a group, in its own task."""

    def __init__(self, server: Server, topic: str, **settings: Any) -> None:
        self.received: list[Received] = []
        self.assignments: list[set[int]] = []
        self._consumer = AIOKafkaConsumer(topic, bootstrap_servers=server.address, group_id=topic, auto_offset_reset="earliest",
                                          heartbeat_interval_ms=300, retry_backoff_ms=50, **settings)

    async def __aenter__(self) -> Member:
        await self._consumer.start()
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        if not self._task.done():
            self._task.cancel()
            await self._consumer.stop()

    @property
    def assigned(self) -> set[int]:
        return {tp.partition for tp in self._consumer.assignment()}

    async def _run(self) -> None:
        while True:
            for records in (await self._consumer.getmany(timeout_ms=100)).values():
                self.received += received(records)
            if not self.assignments or self.assignments[-1] != self.assigned:
                self.assignments.append(self.assigned)


async def until_shared(partitions: set[int], *members: Member) -> None:
    """Wait until each partition is assigned to one member, and each member has at least one."""
    def shared() -> bool:
        owned = [member.assigned for member in members]
        return all(owned) and sum(map(len, owned)) == len(partitions) and set().union(*owned) == partitions

    await until(shared, f"{len(members)} members share {len(partitions)} partitions")


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
@asynchronous
async def test_every_codec(broker: Server, name: str, codec: str | None) -> None:
    async with Admin(broker) as admin:
        await admin.create(name, PARTITIONS)
    sent = await produce(broker, name, samples(303, seed=6), partitions=PARTITIONS, compression_type=codec, linger_ms=20)
    assert_same(sent, await read(broker, name, len(sent), partitions=PARTITIONS))


@pytest.mark.parametrize("acks", [0, 1, "all"])
@asynchronous
async def test_acknowledgements(broker: Server, name: str, acks: int | str) -> None:
    async with Admin(broker) as admin:
        await admin.create(name)
    sent = await produce(broker, name, samples(100, seed=7), acks=acks)
    assert_same(sent, await read(broker, name, 100))


@asynchronous
async def test_idempotent_producer_keeps_the_order(broker: Server, name: str) -> None:
    async with Admin(broker) as admin:
        await admin.create(name)
    await produce(broker, name, numbered(3000), enable_idempotence=True, max_batch_size=500)
    assert numbers(await read(broker, name, 3000)) == list(range(3000))


@asynchronous
async def test_a_batch_larger_than_the_fetch_limit_is_returned(broker: Server, name: str) -> None:
    async with Admin(broker) as admin:
        await admin.create(name)
    sent = await produce(broker, name, [Sample(b"k", bytes([i]) * 900_000, (), BASE_TIMESTAMP) for i in range(3)], max_batch_size=1_000_000)
    assert_same(sent, await read(broker, name, 3, fetch_max_bytes=1000, max_partition_fetch_bytes=1000))


@asynchronous
async def test_reading_from_an_offset(broker: Server, name: str) -> None:
    async with Admin(broker) as admin:
        await admin.create(name)
    await produce(broker, name, numbered(500), linger_ms=50)
    assert numbers(await read(broker, name, 200, start=300)) == list(range(300, 500))


@asynchronous
async def test_a_group_shares_and_rebalances(broker: Server, name: str) -> None:
    async with Admin(broker) as admin:
        await admin.create(name, 4)
    async with Member(broker, name) as first:
        await until_shared({0, 1, 2, 3}, first)
        await produce(broker, name, numbered(100), partitions=4)
        await until(lambda: len(first.received) == 100, "the only member reads all")
        async with Member(broker, name) as second:
            await until_shared({0, 1, 2, 3}, first, second)
            assert len(first.assigned) == len(second.assigned) == 2
            await produce(broker, name, numbered(100, start=100), partitions=4)
            await until(lambda: len(first.received) + len(second.received) == 200, "both together read all")
            assert {r.partition for r in second.received} <= second.assigned
        await until_shared({0, 1, 2, 3}, first)
        await produce(broker, name, numbered(100, start=200), partitions=4)
        await until(lambda: len(first.received) + len(second.received) == 300, "the member that stayed reads the rest")
    assert sorted(numbers(first.received + second.received)) == list(range(300))


@asynchronous
async def test_commit_and_resume(broker: Server, name: str) -> None:
    async with Admin(broker) as admin:
        await admin.create(name)
    await produce(broker, name, numbered(100))
    tp = TopicPartition(name, 0)
    settings = {"bootstrap_servers": broker.address, "group_id": name, "enable_auto_commit": False, "auto_offset_reset": "earliest"}
    async with AIOKafkaConsumer(name, **settings) as consumer:
        got = await read_some(consumer, 40)
        await consumer.commit({tp: OffsetAndMetadata(40, "forty — сорок")})
        assert await consumer.committed(tp) == 40
    async with AIOKafkaConsumer(name, **settings) as consumer:
        assert numbers(got + await read_some(consumer, 60)) == list(range(100))
    async with Admin(broker) as admin:
        assert await admin.list_consumer_group_offsets(name) == {tp: OffsetAndMetadata(40, "forty — сорок")}


@asynchronous
async def test_a_static_member_returns_without_a_rebalance(broker: Server, name: str) -> None:
    async with Admin(broker) as admin:
        await admin.create(name, 4)
    async with Member(broker, name, group_instance_id="one", session_timeout_ms=20_000) as one:
        await until_shared({0, 1, 2, 3}, one)
        async with Member(broker, name, group_instance_id="two", session_timeout_ms=20_000) as two:
            await until_shared({0, 1, 2, 3}, one, two)
            await until(lambda: one.assignments[-1] == one.assigned, "the first member has noticed")
            owned, before = two.assigned, len(one.assignments)
        async with Member(broker, name, group_instance_id="two", session_timeout_ms=20_000) as again:
            await until_shared({0, 1, 2, 3}, one, again)
            assert again.assigned == owned
            await produce(broker, name, numbered(40), partitions=4)
            await until(lambda: len(one.received) + len(again.received) == 40, "both read on")
        assert len(one.assignments) == before, "the other member keeps its partitions"


@asynchronous
async def test_offsets_by_time(broker: Server, name: str) -> None:
    async with Admin(broker) as admin:
        await admin.create(name)
    await produce(broker, name, numbered(100))
    tp = TopicPartition(name, 0)
    async with AIOKafkaConsumer(bootstrap_servers=broker.address) as consumer:
        at = (await consumer.offsets_for_times({tp: BASE_TIMESTAMP + 1950}))[tp]
        assert (at.offset, at.timestamp) == (20, BASE_TIMESTAMP + 2000)
        assert (await consumer.offsets_for_times({tp: 0}))[tp].offset == 0
        assert (await consumer.offsets_for_times({tp: BASE_TIMESTAMP + 100_000}))[tp] is None
        assert await consumer.beginning_offsets([tp]) == {tp: 0}
        assert await consumer.end_offsets([tp]) == {tp: 100}


@asynchronous
async def test_delete_records(broker: Server, name: str) -> None:
    tp = TopicPartition(name, 0)
    async with Admin(broker) as admin:
        await admin.create(name)
        await produce(broker, name, numbered(100), linger_ms=50)
        assert await admin.delete_records({tp: RecordsToDelete(40)}) == {tp: 40}
        assert numbers(await read(broker, name, 60)) == list(range(40, 100))
        assert numbers(await read(broker, name, 60, start=7)) == list(range(40, 100)), "a deleted offset resets to the earliest"
        with pytest.raises(OffsetOutOfRangeError):
            await admin.delete_records({tp: RecordsToDelete(101)})


@asynchronous
async def test_topics(broker: Server, name: str) -> None:
    async with Admin(broker) as admin:
        assert error_code(await admin.create_topics([NewTopic(name, 2, 1)], validate_only=True)) == NONE
        assert name not in await admin.list_topics()
        nodes = [node["node_id"] for node in (await admin.describe_cluster())["brokers"]]
        assigned = NewTopic(name, -1, -1, replica_assignments={0: nodes, 1: nodes}, topic_configs={"cleanup.policy": "compact"})
        assert error_code(await admin.create_topics([assigned])) == NONE
        await admin.until_partitions(name, 2)
        assert error_code(await admin.create_topics([NewTopic(name, 1, 1)])) == TOPIC_ALREADY_EXISTS
        assert error_code(await admin.create_topics([NewTopic("not a name", 1, 1)])) == INVALID_TOPIC
        assert error_code(await admin.create_topics([NewTopic(name + "-many", 1, 99)])) == INVALID_REPLICATION_FACTOR
        assert error_code(await admin.delete_topics([name])) == NONE

        async def gone() -> bool:
            return name not in await admin.list_topics()

        await until(gone, "the topic goes")
        assert error_code(await admin.delete_topics([name])) == UNKNOWN_TOPIC


@asynchronous
async def test_create_partitions(broker: Server, name: str) -> None:
    async with Admin(broker) as admin:
        await admin.create(name, PARTITIONS)
        await produce(broker, name, numbered(30), partitions=PARTITIONS)
        await admin.create_partitions({name: NewPartitions(5)})
        await admin.until_partitions(name, 5)
        with pytest.raises(InvalidPartitionsError):
            await admin.create_partitions({name: NewPartitions(4)})
    await produce(broker, name, numbered(50, start=30), partitions=5)
    assert sorted(numbers(await read(broker, name, 80, partitions=5))) == list(range(80))


@asynchronous
async def test_configs(broker: Server, name: str) -> None:
    async with Admin(broker) as admin:
        await admin.create(name, max_message_bytes="5000")
        entry = await admin.config(name, "max.message.bytes")
        assert (entry["config_value"], entry["config_source"]) == ("5000", 1)
        assert (await admin.config(name, "segment.bytes"))["config_source"] == 5
        await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, {"retention.ms": "7000000"})])

        async def altered() -> bool:
            return bool((await admin.config(name, "retention.ms"))["config_value"] == "7000000")

        await until(altered, "the new value")
        assert (await admin.config(name, "max.message.bytes"))["config_source"] == 5, "configurations that the call does not name are reset"


@asynchronous
async def test_groups_for_administrators(broker: Server, name: str) -> None:
    async with Admin(broker) as admin:
        await admin.create(name, PARTITIONS)
        await produce(broker, name, numbered(30), partitions=PARTITIONS)
        async with Member(broker, name, client_id="looked-at") as member:
            await until(lambda: len(member.received) == 30, "the member reads")
            assert (name, "consumer") in await admin.list_consumer_groups()
            (response,) = await admin.describe_consumer_groups([name])
            (group,) = response.to_object()["groups"]
            assert (group["error_code"], group["state"], group["protocol_type"]) == (NONE, "Stable", "consumer")
            assert [m["client_id"] for m in group["members"]] == ["looked-at"]
        offsets = await admin.list_consumer_group_offsets(name)
        assert {tp.partition: value.offset for tp, value in offsets.items()} == {0: 10, 1: 10, 2: 10}


@asynchronous
async def test_a_restart_of_the_broker_under_load(start_broker: Callable[..., Server], name: str) -> None:
    """A producer and a group survive a restart of the broker: every acknowledged record arrives once and in order."""
    server = start_broker()
    async with Admin(server) as admin:
        await admin.create(name)
    stop = asyncio.Event()
    acknowledged: list[int] = []

    async def send() -> None:
        waiting = []
        number = 0
        async with AIOKafkaProducer(bootstrap_servers=server.address, enable_idempotence=True, retry_backoff_ms=50) as producer:
            while not stop.is_set():
                waiting.append(await producer.send(name, b"%d" % number, partition=0))
                number += 1
                await asyncio.sleep(0.002)
            await asyncio.gather(*waiting)
        acknowledged.extend(range(number))

    sender = asyncio.create_task(send())
    async with Member(server, name) as member:
        await until(lambda: len(member.received) > 200, "records flow")
        await asyncio.to_thread(server.restart)
        so_far = len(member.received)
        await until(lambda: len(member.received) > so_far + 200, "records flow again")
        stop.set()
        await sender
        await until(lambda: set(numbers(member.received)) == set(acknowledged), "the rest")
    assert numbers(await read(server, name, len(acknowledged))) == acknowledged
