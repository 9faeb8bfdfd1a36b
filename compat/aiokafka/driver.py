"""The driver of aiokafka."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from typing import Any, TypeVar

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.coordinator.assignors.range import RangePartitionAssignor

from compat.adapter import COOPERATIVE, EAGER, HEARTBEAT_MS, LARGEST_BYTES, SENDING_S, Client, Consumer, Producer, Transactions, Unsupported
from compat.aiokafka.secured import exchange
from compat.driving import drive
from compat.samples import Record

T = TypeVar("T")
_Run = Callable[[Coroutine[Any, Any, Any]], Any]
_ISOLATION = ("read_uncommitted", "read_committed")
_REPLICAS = 3
_OF_THE_TOPIC = 1  # the number of a config source in DescribeConfigs


class AioKafka(Client):
    """aiokafka's classes, on an event loop in a separate thread."""

    name = "aiokafka"
    version = aiokafka.__version__

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._admin: Any = self._run(self._start_admin())

    def _run(self, awaited: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(asyncio.wait_for(awaited, SENDING_S), self._loop).result()

    async def _start_admin(self) -> AIOKafkaAdminClient:
        admin = AIOKafkaAdminClient(bootstrap_servers=self.address)
        await admin.start()
        return admin

    def create_topic(self, topic: str, partitions: int, configs: dict[str, str]) -> None:
        # Its admin client does not leave the replication factor to the broker.
        replicas = min(len(self._run(self._admin.describe_cluster())["brokers"]), _REPLICAS)
        _check_topic(self._run(self._admin.create_topics([NewTopic(topic, partitions, replicas, topic_configs=configs)])))

    def topics(self) -> set[str]:
        return set(self._run(self._admin.list_topics()))

    def partitions_with_leaders(self, topic: str) -> int:
        (described,) = self._run(self._admin.describe_topics([topic]))
        return sum(partition["leader"] >= 0 for partition in described["partitions"])

    def add_partitions(self, topic: str, total: int) -> None:
        self._run(self._admin.create_partitions({topic: NewPartitions(total)}))

    def delete_topic(self, topic: str) -> None:
        _check_topic(self._run(self._admin.delete_topics([topic])))

    def produce(self, topic: str, records: Sequence[Record], *, codec: str = "none", acks: str = "all", idempotent: bool = False) -> None:
        producer = self._producer(topic, acks="all" if acks == "all" else int(acks), enable_idempotence=idempotent,
                                  compression_type=None if codec == "none" else codec)
        producer.send(records)
        producer.close()

    def producer(self, topic: str, *, idempotent: bool = False) -> Producer:
        return self._producer(topic, acks="all", enable_idempotence=idempotent)

    def transactional(self, topic: str, transactional_id: str) -> Transactions:
        return _Transactions(self._producer(topic, transactional_id=transactional_id))

    def _producer(self, topic: str, **settings: Any) -> _Producer:
        async def start() -> AIOKafkaProducer:
            producer = AIOKafkaProducer(bootstrap_servers=self.address, linger_ms=10, max_batch_size=30_000, max_request_size=LARGEST_BYTES,
                                        **settings)
            await producer.start()
            return producer

        return _Producer(self._run(start()), topic, self._run)

    def read(self, topic: str, count: int, *, committed: bool = False) -> list[Record]:
        async def read() -> list[Record]:
            async with AIOKafkaConsumer(bootstrap_servers=self.address, auto_offset_reset="earliest",
                                        isolation_level=_ISOLATION[committed]) as consumer:
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

    def consumer(self, topic: str, *, max_wait_ms: int = 500, committed: bool = False) -> Consumer:
        async def start() -> AIOKafkaConsumer:
            consumer = AIOKafkaConsumer(bootstrap_servers=self.address, auto_offset_reset="earliest", fetch_max_wait_ms=max_wait_ms,
                                        isolation_level=_ISOLATION[committed])
            await consumer.start()
            consumer.assign([TopicPartition(topic, partition) for partition in range(self.partitions)])
            return consumer

        return _started(_Consumer(self._run(start()), self._run, commits=False))

    def join(self, topic: str, group: str, *, protocol: str = EAGER, instance: str | None = None) -> Consumer:
        if protocol == COOPERATIVE:
            raise Unsupported("all its assignors are eager")

        async def start() -> _Consumer:
            consumer = AIOKafkaConsumer(bootstrap_servers=self.address, group_id=group, group_instance_id=instance,
                                        auto_offset_reset="earliest", enable_auto_commit=False, heartbeat_interval_ms=HEARTBEAT_MS,
                                        retry_backoff_ms=50, partition_assignment_strategy=[RangePartitionAssignor])
            await consumer.start()
            member = _Consumer(consumer, self._run, commits=True)
            consumer.subscribe([topic], listener=_Listener(member))
            return member

        return _started(self._run(start()))

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

    def _asked(self, ask: Callable[[AIOKafkaConsumer], Coroutine[Any, Any, T]]) -> T:
        async def run() -> T:
            async with AIOKafkaConsumer(bootstrap_servers=self.address) as consumer:
                return await ask(consumer)

        return self._run(run())

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        self._run(self._admin.delete_records({TopicPartition(topic, partition): RecordsToDelete(before)}))

    def config(self, topic: str, key: str) -> str:
        return next(str(entry["config_value"]) for entry in self._configs(topic) if entry["config_names"] == key)

    def set_config(self, topic: str, key: str, value: str) -> None:
        """It has AlterConfigs only, which resets all keys that it does not name."""
        self._alter_configs(topic, self._overrides(topic) | {key: value})

    def reset_config(self, topic: str, key: str) -> None:
        self._alter_configs(topic, {name: value for name, value in self._overrides(topic).items() if name != key})

    def _overrides(self, topic: str) -> dict[str, str]:
        return {entry["config_names"]: entry["config_value"] for entry in self._configs(topic) if entry["config_source"] == _OF_THE_TOPIC}

    def _alter_configs(self, topic: str, configs: dict[str, str]) -> None:
        (response,) = self._run(self._admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs)]))
        ((code, message, *_),) = response.resources
        assert code == 0, message

    def _configs(self, topic: str) -> Any:
        (response,) = self._run(self._admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)]))
        return response.to_object()["resources"][0]["config_entries"]

    def set_group_offsets(self, topic: str, group: str, offsets: dict[int, int]) -> None:
        """Its admin client cannot do this; a consumer without a subscription commits the offsets."""
        async def commit() -> None:
            async with AIOKafkaConsumer(bootstrap_servers=self.address, group_id=group, enable_auto_commit=False) as consumer:
                wanted = {TopicPartition(topic, partition): offset for partition, offset in offsets.items()}
                consumer.assign(list(wanted))
                await consumer.commit(wanted)

        self._run(commit())

    def groups(self) -> set[str]:
        return {group for group, _ in self._run(self._admin.list_consumer_groups())}

    def group_state(self, group: str) -> str:
        (response,) = self._run(self._admin.describe_consumer_groups([group]))
        return str(response.to_object()["groups"][0]["state"]).lower()

    def delete_group(self, group: str) -> None:
        raise Unsupported("its admin client does not delete groups")

    def close(self) -> None:
        self._run(self._admin.close())
        self._loop.call_soon_threadsafe(self._loop.stop)


class _Producer(Producer):
    def __init__(self, producer: AIOKafkaProducer, topic: str, run: _Run) -> None:
        self.client = producer
        self.topic = topic
        self.run = run

    def send(self, records: Sequence[Record]) -> None:
        async def send() -> None:
            futures = [await self.client.send(self.topic, r.value, r.key, r.partition, r.timestamp, list(r.headers)) for r in records]
            await asyncio.gather(*futures)

        self.run(send())

    def close(self) -> None:
        self.run(self.client.stop())


class _Transactions(Transactions):
    def __init__(self, sending: _Producer) -> None:
        self._sending = sending
        self.client = sending.client

    def begin(self) -> None:
        self._sending.run(self.client.begin_transaction())

    def send(self, records: Sequence[Record]) -> None:
        self._sending.send(records)

    def send_offsets(self, group: str, offsets: dict[int, int]) -> None:
        positions = {TopicPartition(self._sending.topic, partition): offset for partition, offset in offsets.items()}
        self._sending.run(self.client.send_offsets_to_transaction(positions, group))

    def commit(self) -> None:
        self._sending.run(self.client.commit_transaction())

    def abort(self) -> None:
        self._sending.run(self.client.abort_transaction())

    def close(self) -> None:
        self._sending.close()


class _Consumer(Consumer):
    def __init__(self, consumer: AIOKafkaConsumer, run: _Run, *, commits: bool) -> None:
        super().__init__(commits=commits)
        self._consumer = consumer
        self._run_on_loop = run

    def poll(self) -> list[Record]:
        return _records(self._run_on_loop(self._consumer.getmany(timeout_ms=100)))

    def commit(self) -> None:
        self._run_on_loop(self._consumer.commit())

    def assignment(self) -> set[int]:
        return {tp.partition for tp in self._consumer.assignment()}

    def end(self) -> None:
        self._run_on_loop(self._consumer.stop())


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, member: Consumer) -> None:
        self._member = member

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self._member.given()

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        self._member.lost(tp.partition for tp in revoked)


def _started(consumer: _Consumer) -> Consumer:
    consumer.start()
    return consumer


async def _read(consumer: AIOKafkaConsumer, count: int) -> list[Record]:
    read: list[Record] = []
    while len(read) < count:
        read += _records(await consumer.getmany(timeout_ms=500, max_records=count - len(read)))
    return read


def _records(polled: dict[Any, Iterable[Any]]) -> list[Record]:
    return [Record(r.partition, r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for batch in polled.values() for r in batch]


def _check_topic(response: Any) -> None:
    """Raise if the one topic of a create or delete response has an error."""
    (topic,) = getattr(response, "topic_errors", None) or response.topic_error_codes
    assert topic[1] == 0, topic


if __name__ == "__main__":
    drive(AioKafka, exchange)
