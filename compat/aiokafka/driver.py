"""What aiokafka can."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeVar

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from compat.driving import PATIENCE_S, Client, Member, Unsupported, drive
from compat.samples import Record

T = TypeVar("T")


class AioKafka(Client):
    """aiokafka's own classes, on an event loop that runs while something is asked of them."""

    name = "aiokafka"
    version = aiokafka.__version__

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self._loop = asyncio.new_event_loop()
        self._admin: Any = self._run(self._start_admin())

    def _run(self, awaited: Awaitable[T]) -> T:
        return self._loop.run_until_complete(asyncio.wait_for(awaited, 2 * PATIENCE_S))

    async def _start_admin(self) -> AIOKafkaAdminClient:
        admin = AIOKafkaAdminClient(bootstrap_servers=self.address)
        await admin.start()
        return admin

    def create_topic(self, topic: str, partitions: int, configs: dict[str, str]) -> None:
        _check_topic(self._run(self._admin.create_topics([NewTopic(topic, partitions, 1, topic_configs=configs)])))

    def topics(self) -> set[str]:
        return set(self._run(self._admin.list_topics()))

    def partitions_with_leaders(self, topic: str) -> int:
        (described,) = self._run(self._admin.describe_topics([topic]))
        return sum(partition["leader"] >= 0 for partition in described["partitions"])

    def delete_topic(self, topic: str) -> None:
        _check_topic(self._run(self._admin.delete_topics([topic])))

    def produce(self, topic: str, records: Sequence[Record], *, codec: str = "none", acks: str = "all", idempotent: bool = False) -> None:
        async def send() -> None:
            compression = None if codec == "none" else codec
            wanted = "all" if acks == "all" else int(acks)
            async with AIOKafkaProducer(bootstrap_servers=self.address, compression_type=compression, acks=wanted, linger_ms=10,
                                        enable_idempotence=idempotent, max_batch_size=30_000) as producer:
                futures = [await producer.send(topic, r.value, r.key, r.partition, r.timestamp, list(r.headers)) for r in records]
                await asyncio.gather(*futures)

        self._run(send())

    def read(self, topic: str, count: int) -> list[Record]:
        async def read() -> list[Record]:
            async with AIOKafkaConsumer(bootstrap_servers=self.address, auto_offset_reset="earliest") as consumer:
                consumer.assign([TopicPartition(topic, partition) for partition in range(self.partitions)])
                return await _read(consumer, count)

        return self._run(read())

    def read_in_group(self, topic: str, group: str, count: int) -> list[Record]:
        async def read() -> list[Record]:
            async with AIOKafkaConsumer(topic, bootstrap_servers=self.address, group_id=group, auto_offset_reset="earliest",
                                        enable_auto_commit=False) as consumer:
                records = await _read(consumer, count)
                await consumer.commit()
                return records

        return self._run(read())

    def join(self, topic: str, group: str) -> Member:
        async def start() -> AIOKafkaConsumer:
            consumer = AIOKafkaConsumer(topic, bootstrap_servers=self.address, group_id=group, heartbeat_interval_ms=300,
                                        retry_backoff_ms=50)
            await consumer.start()
            return consumer

        return _Member(self._run(start()), self._run)

    def first_and_last(self, topic: str, partition: int) -> tuple[int, int]:
        tp = TopicPartition(topic, partition)

        async def ask(consumer: AIOKafkaConsumer) -> tuple[int, int]:
            return (await consumer.beginning_offsets([tp]))[tp], (await consumer.end_offsets([tp]))[tp]

        return self._asked(ask)

    def offset_at(self, topic: str, partition: int, timestamp: int) -> int | None:
        tp = TopicPartition(topic, partition)

        async def ask(consumer: AIOKafkaConsumer) -> int | None:
            found = (await consumer.offsets_for_times({tp: timestamp}))[tp]
            return None if found is None else found.offset

        return self._asked(ask)

    def _asked(self, ask: Callable[[AIOKafkaConsumer], Awaitable[T]]) -> T:
        async def run() -> T:
            async with AIOKafkaConsumer(bootstrap_servers=self.address) as consumer:
                return await ask(consumer)

        return self._run(run())

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        self._run(self._admin.delete_records({TopicPartition(topic, partition): RecordsToDelete(before)}))

    def config(self, topic: str, key: str) -> str:
        (response,) = self._run(self._admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)]))
        entries = response.to_object()["resources"][0]["config_entries"]
        return next(str(entry["config_value"]) for entry in entries if entry["config_names"] == key)

    def set_config(self, topic: str, key: str, value: str) -> None:
        self._run(self._admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {key: value})]))

    def groups(self) -> set[str]:
        return {group for group, _ in self._run(self._admin.list_consumer_groups())}

    def group_state(self, group: str) -> str:
        (response,) = self._run(self._admin.describe_consumer_groups([group]))
        return str(response.to_object()["groups"][0]["state"]).lower()

    def delete_group(self, group: str) -> None:
        raise Unsupported("its admin client deletes no groups")

    def close(self) -> None:
        self._run(self._admin.close())
        self._loop.close()


class _Member(Member):
    """A consumer whose coordinator works while it is polled."""

    def __init__(self, consumer: AIOKafkaConsumer, run: Callable[[Awaitable[Any]], Any]) -> None:
        self._consumer = consumer
        self._run = run

    def poll(self) -> list[Record]:
        return _records(self._run(self._consumer.getmany(timeout_ms=100)))

    def assignment(self) -> set[int]:
        return {tp.partition for tp in self._consumer.assignment()}

    def close(self) -> None:
        self._run(self._consumer.stop())


async def _read(consumer: AIOKafkaConsumer, count: int) -> list[Record]:
    read: list[Record] = []
    while len(read) < count:
        read += _records(await consumer.getmany(timeout_ms=500, max_records=count - len(read)))
    return read


def _records(polled: dict[Any, Iterable[Any]]) -> list[Record]:
    return [Record(r.partition, r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for batch in polled.values() for r in batch]


def _check_topic(response: Any) -> None:
    """Raise unless the one topic of a create or delete response has no error."""
    (topic,) = getattr(response, "topic_errors", None) or response.topic_error_codes
    assert topic[1] == 0, topic


if __name__ == "__main__":
    drive(AioKafka)
