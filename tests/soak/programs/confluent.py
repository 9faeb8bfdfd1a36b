"""confluent-kafka, on librdkafka."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from tests.soak.programs.interface import HEARTBEAT_MS, SESSION_MS, Record

_GONE_ON = {KafkaError.ILLEGAL_GENERATION, KafkaError.UNKNOWN_MEMBER_ID, KafkaError.REBALANCE_IN_PROGRESS, KafkaError._STATE,
            KafkaError._ASSIGNMENT_LOST, KafkaError._NO_OFFSET, KafkaError.FENCED_INSTANCE_ID}


class _Sender:
    def __init__(self, address: str, *, codec: str, idempotent: bool, acks: str) -> None:
        self._producer = Producer({"bootstrap.servers": address, "compression.type": codec, "enable.idempotence": idempotent, "acks": acks,
                                   "linger.ms": 20, "batch.size": 65536, "message.timeout.ms": 120_000})
        self._problem: Any = None

    def send(self, record: Record, done: Callable[[int], None]) -> None:
        def delivered(error: Any, message: Any) -> None:
            if error is None:
                done(message.offset())
            else:
                self._problem = error

        self._producer.produce(record.topic, record.value, record.key, record.partition, on_delivery=delivered, headers=[("soak", b"1")])

    def poll(self, seconds: float) -> None:
        self._producer.poll(seconds)
        if self._problem is not None:
            raise KafkaException(self._problem)

    def close(self) -> None:
        left = self._producer.flush(60)
        self.poll(0)
        if left:
            raise TimeoutError(f"{left} records were not delivered")


class _Member:
    def __init__(self, address: str, *, group: str, topics: Sequence[str], static: str | None) -> None:
        self._settings: dict[str, Any] = {
            "bootstrap.servers": address, "group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False,
            "check.crcs": True, "session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": HEARTBEAT_MS,
            "partition.assignment.strategy": "range,roundrobin", **({"group.instance.id": static} if static else {})}
        self._topics = list(topics)
        self._static = static is not None
        self._begin()

    def _begin(self) -> None:
        self._consumer = Consumer(self._settings)
        self._consumer.subscribe(self._topics)

    def _fenced_by_itself(self, problem: KafkaError) -> bool:
        """After a timeout librdkafka rejoins with its instance id and is fenced by it, as with Kafka: create another consumer."""
        if not (self._static and problem.code() == KafkaError._FATAL and "fenced" in problem.str()):
            return False
        self._consumer.close()
        self._begin()
        return True

    def poll(self) -> Sequence[tuple[str, int, int]]:
        found = []
        for message in self._consumer.consume(500, 0.5):
            problem = message.error()
            if problem is None:
                found.append((str(message.topic()), int(message.partition() or 0), int(message.offset() or 0)))
            elif self._fenced_by_itself(problem):
                break
            elif problem.code() not in _GONE_ON | {KafkaError._MAX_POLL_EXCEEDED}:
                raise KafkaException(problem)
        return found

    def commit(self) -> bool:
        try:
            self._consumer.commit(asynchronous=False)
        except KafkaException as problem:
            if problem.args[0].code() in _GONE_ON or self._fenced_by_itself(problem.args[0]):
                return False
            raise
        return True

    def close(self) -> None:
        self._consumer.close()


class _Library:
    def sender(self, address: str, *, codec: str, idempotent: bool, acks: str) -> _Sender:
        return _Sender(address, codec=codec, idempotent=idempotent, acks=acks)

    def member(self, address: str, *, group: str, topics: Sequence[str], static: str | None) -> _Member:
        return _Member(address, group=group, topics=topics, static=static)


LIBRARY = _Library()
