"""aiokafka."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import CommitFailedError, IllegalGenerationError, IllegalStateError, RebalanceInProgressError, UnknownMemberIdError

from tests.soak.programs.interface import HEARTBEAT_MS, SESSION_MS, Record

_GONE_ON = (CommitFailedError, IllegalGenerationError, IllegalStateError, RebalanceInProgressError, UnknownMemberIdError)


class _Sender:
    def __init__(self, address: str, *, codec: str, idempotent: bool, acks: str) -> None:
        self._runner = asyncio.Runner()
        self._runner.run(self._start(address, codec, idempotent, acks))
        self._sent: deque[tuple[Any, Callable[[int], None]]] = deque()

    async def _start(self, address: str, codec: str, idempotent: bool, acks: str) -> None:
        self._producer = AIOKafkaProducer(
            bootstrap_servers=address, compression_type=None if codec == "none" else codec, enable_idempotence=idempotent,
            acks=acks if acks == "all" else int(acks), linger_ms=20)
        await self._producer.start()

    def send(self, record: Record, done: Callable[[int], None]) -> None:
        sending = self._producer.send(record.topic, record.value, record.key, record.partition, headers=[("soak", b"1")])
        self._sent.append((self._runner.run(sending), done))

    def poll(self, seconds: float) -> None:
        self._runner.run(asyncio.sleep(seconds))
        while self._sent and self._sent[0][0].done():
            future, done = self._sent.popleft()
            result = future.result()
            done(-1 if result is None else result.offset)  # acks=0: the offset is unknown

    def close(self) -> None:
        self._runner.run(self._producer.flush())
        self.poll(0)
        self._runner.run(self._producer.stop())
        self._runner.close()


class _Member:
    def __init__(self, address: str, *, group: str, topics: Sequence[str], static: str | None) -> None:
        self._runner = asyncio.Runner()
        self._runner.run(self._start(address, group, topics, static))

    async def _start(self, address: str, group: str, topics: Sequence[str], static: str | None) -> None:
        self._consumer = AIOKafkaConsumer(
            *topics, bootstrap_servers=address, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False,
            session_timeout_ms=SESSION_MS, heartbeat_interval_ms=HEARTBEAT_MS, group_instance_id=static,
            partition_assignment_strategy=(RangePartitionAssignor, RoundRobinPartitionAssignor))
        await self._consumer.start()

    def poll(self) -> Sequence[tuple[str, int, int]]:
        polled = self._runner.run(self._consumer.getmany(timeout_ms=500, max_records=500))
        return [(partition.topic, partition.partition, record.offset) for partition, records in polled.items() for record in records]

    def commit(self) -> bool:
        try:
            self._runner.run(self._consumer.commit())
        except _GONE_ON:
            return False
        return True

    def close(self) -> None:
        self._runner.run(self._consumer.stop())
        self._runner.close()


class _Library:
    def sender(self, address: str, *, codec: str, idempotent: bool, acks: str) -> _Sender:
        return _Sender(address, codec=codec, idempotent=idempotent, acks=acks)

    def member(self, address: str, *, group: str, topics: Sequence[str], static: str | None) -> _Member:
        return _Member(address, group=group, topics=topics, static=static)


LIBRARY = _Library()
