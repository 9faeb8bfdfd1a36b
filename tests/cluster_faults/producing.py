"""Producers of a fault test: they send values `NAME-NUMBER padding` in small batches to partitions at random."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

from confluent_kafka import Producer
from kafka import KafkaProducer

from simulation.histories import Outcome, Send
from tests.cluster_faults.client import FaultClient
from tests.cluster_faults.journal import Journal, now
from tests.crash.ledger import Lost
from tests.support.waiting import PATIENCE_S

# Clients go on for so long; a test that fails ends before.
DELIVERY_TIMEOUT_MS = 600_000
# A broker that has a batch already, and does not know where any more, acknowledges it without an offset.
NO_OFFSET = -1
PAUSE_S = 0.05
_BATCH_MAX = 10


class Producing(FaultClient):
    """A producer with acks=all, which goes on until each record is confirmed; `idempotent` or with one request in flight."""

    stop_timeout_s = PATIENCE_S * 2

    def __init__(self, name: str, bootstrap: str, topic: str, partitions: int, journal: Journal, *, idempotent: bool = True) -> None:
        super().__init__(name, bootstrap, topic, journal)
        self._idempotent = idempotent
        self._partitions = partitions
        self._chance = random.Random(name)
        self._sent = 0

    def stop(self) -> None:
        """Deliver what was sent, and end."""
        super().stop()
        confirmed = self._journal.confirmed(self.name)
        if confirmed != self._sent:
            raise Lost(f"{self.name}: {confirmed} of {self._sent} records were confirmed")

    def _batch(self) -> Iterator[tuple[int, bytes, Callable[[object, int | None], None]]]:
        """(partition, value, what to call with an error or the offset) of some records to send."""
        partition = self._chance.randrange(self._partitions)
        for _ in range(self._chance.randint(1, _BATCH_MAX)):
            number = next(self._numbers)
            value = f"{self.name}-{number}"
            size = 10_000 if self._chance.random() < 0.01 else self._chance.randrange(200)
            self._sent += 1
            yield partition, f"{value} {'x' * size}".encode(), self._delivered(number, partition, value)

    def _delivered(self, number: int, partition: int, value: str) -> Callable[[object, int | None], None]:
        began = now()

        def delivered(error: object, offset: int | None) -> None:
            outcome = Outcome.OK if error is None else Outcome.UNKNOWN
            known = NO_OFFSET if offset is None or error is not None else offset
            self._journal.add(Send(self.name, number, self._topic, partition, value, began, now(), outcome, known, self._idempotent))
            if error is not None:
                self.failed(Lost(f"{value} was not delivered: {error}"))

        return delivered


class ConfluentProducing(Producing):
    """confluent-kafka."""

    def _run(self) -> None:
        producer = Producer({
            "bootstrap.servers": self._bootstrap, "enable.idempotence": self._idempotent, "acks": "all", "linger.ms": 2,
            "max.in.flight.requests.per.connection": 5 if self._idempotent else 1, "message.timeout.ms": DELIVERY_TIMEOUT_MS,
            "compression.type": "lz4", "reconnect.backoff.max.ms": 500, "log_level": 0,
        })  # fmt: skip
        while not self.end.wait(PAUSE_S):
            for partition, value, delivered in self._batch():
                producer.produce(self._topic, value, b"key", partition, on_delivery=self._report(delivered))
            producer.poll(0)
        producer.flush(PATIENCE_S * 2)

    def _report(self, delivered: Callable[[object, int | None], None]) -> Callable[[Any, Any], None]:
        return lambda error, message: delivered(error, message.offset())


class KafkaPythonProducing(Producing):
    """kafka-python."""

    def _run(self) -> None:
        with KafkaProducer(
            bootstrap_servers=self._bootstrap.split(","), acks="all", enable_idempotence=self._idempotent, linger_ms=2,
            max_in_flight_requests_per_connection=5 if self._idempotent else 1, delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
            max_block_ms=DELIVERY_TIMEOUT_MS, reconnect_backoff_max_ms=500,
        ) as producer:
            while not self.end.wait(PAUSE_S):
                for partition, value, delivered in self._batch():
                    future = producer.send(self._topic, value, b"key", partition=partition)
                    future.add_callback(lambda metadata, delivered=delivered: delivered(None, metadata.offset))
                    future.add_errback(lambda error, delivered=delivered: delivered(error, None))
            producer.flush(PATIENCE_S * 2)
