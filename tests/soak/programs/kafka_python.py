"""kafka-python."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import (
    CommitFailedError,
    FencedInstanceIdError,
    IllegalGenerationError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)

from tests.soak.programs.interface import HEARTBEAT_MS, SESSION_MS, Record

_GONE_ON = (CommitFailedError, FencedInstanceIdError, IllegalGenerationError, RebalanceInProgressError, UnknownMemberIdError)


class _Sender:
    def __init__(self, address: str, *, codec: str, idempotent: bool, acks: str) -> None:
        self._producer = KafkaProducer(
            bootstrap_servers=address, compression_type=None if codec == "none" else codec, enable_idempotence=idempotent,
            acks=acks if acks == "all" else int(acks), linger_ms=20)
        self._sent: deque[tuple[Any, Callable[[int], None]]] = deque()

    def send(self, record: Record, done: Callable[[int], None]) -> None:
        future = self._producer.send(record.topic, record.value, record.key, [("soak", b"1")], record.partition)
        self._sent.append((future, done))

    def poll(self, seconds: float) -> None:
        time.sleep(seconds)
        while self._sent and self._sent[0][0].is_done:
            future, done = self._sent.popleft()
            if future.failed():
                raise future.exception
            done(future.value.offset)

    def close(self) -> None:
        self._producer.flush(60)
        self.poll(0)
        self._producer.close()


class _Member:
    def __init__(self, address: str, *, group: str, topics: Sequence[str], static: str | None) -> None:
        settings: dict[str, Any] = {"group_instance_id": static} if static else {}
        self._consumer = KafkaConsumer(
            *topics, bootstrap_servers=address, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False,
            session_timeout_ms=SESSION_MS, heartbeat_interval_ms=HEARTBEAT_MS, **settings)

    def poll(self) -> Sequence[tuple[str, int, int]]:
        polled = self._consumer.poll(500, max_records=500)
        return [(partition.topic, partition.partition, record.offset) for partition, records in polled.items() for record in records]

    def commit(self) -> bool:
        try:
            self._consumer.commit()
        except _GONE_ON:
            return False
        return True

    def close(self) -> None:
        self._consumer.close(autocommit=False)


class _Library:
    def sender(self, address: str, *, codec: str, idempotent: bool, acks: str) -> _Sender:
        return _Sender(address, codec=codec, idempotent=idempotent, acks=acks)

    def member(self, address: str, *, group: str, topics: Sequence[str], static: str | None) -> _Member:
        return _Member(address, group=group, topics=topics, static=static)


LIBRARY = _Library()
