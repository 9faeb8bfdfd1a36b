"""Producers of a fault test: they send numbered values to one partition each, and keep what was acknowledged."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from threading import Event, Lock, Thread
from typing import Any

from confluent_kafka import Producer
from kafka import KafkaProducer

from tests.crash.ledger import Lost, short
from tests.support.waiting import PATIENCE_S

# Clients go on for so long; a test that fails ends before.
DELIVERY_TIMEOUT_MS = 600_000
# A broker that has a batch already, and does not know where any more, acknowledges it without an offset.
NO_OFFSET = -1
_PAUSE_S = 0.02
_BATCH_MAX = 10


class Producing(ABC):
    """One producer on a thread. Values are `name number padding`, with numbers from 0.

    An idempotent producer writes each value once and in order, whatever happens. One that is not, with one request in flight, may repeat a
    batch whose acknowledgement was lost; it keeps the order, if its client does (`plain_in_order`).
    """

    def __init__(self, bootstrap: str, topic: str, partition: int, *, idempotent: bool) -> None:
        self.partition = partition
        self.name = f"{self.kind}-{'idempotent' if idempotent else 'plain'}"
        self.error: BaseException | None = None
        self._bootstrap = bootstrap
        self._topic = topic
        self._idempotent = idempotent
        self._chance = random.Random(self.name)
        self._sent = 0
        self._acknowledged: dict[int, int] = {}  # number -> offset
        self._lock = Lock()
        self.end = Event()
        self._thread = Thread(target=self._run, name=self.name, daemon=True)

    kind: str
    plain_in_order = True

    @property
    def acknowledged_count(self) -> int:
        """How many values were acknowledged."""
        with self._lock:
            return len(self._acknowledged)

    @property
    def without_offset(self) -> int:
        """How many values were acknowledged without their offset."""
        return sum(offset == NO_OFFSET for offset in self._acknowledged.values())

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Deliver what was sent, and end; raises what went wrong."""
        self.end.set()
        self._thread.join(PATIENCE_S * 2)
        if self._thread.is_alive():
            raise Lost(f"{self.name} still waits for acknowledgements: {self.acknowledged_count} of {self._sent} came")
        self.check()
        if self.acknowledged_count != self._sent:
            raise Lost(f"{self.name}: {self.acknowledged_count} of {self._sent} values were acknowledged")

    def check(self) -> None:
        """Raise what went wrong."""
        if self.error is not None:
            raise Lost(f"{self.name}: {self.error!r}") from self.error

    def compare(self, found: Sequence[tuple[int, bytes]]) -> int:
        """Compare with all records of the partition, as (offset, value); Lost. How many values are there more than once."""
        where: dict[int, set[int]] = {}
        next_number = 0
        in_order = self._idempotent or self.plain_in_order
        for place, (offset, value) in enumerate(found):
            name, number_text, _ = value.split(b" ", 2)
            number = int(number_text)
            if offset != place or name != self.name.encode() or (in_order and number > next_number):
                raise Lost(f"{self.name}: offset {offset} has {short(value)}, where {next_number} is the next value")
            if number < next_number and self._idempotent:
                raise Lost(f"{self.name}: {number} is at the offsets {sorted(where[number])} and again at {offset}")
            next_number = max(next_number, number + 1)
            where.setdefault(number, set()).add(offset)
        for number, offset in self._acknowledged.items():
            if number not in where or offset not in {NO_OFFSET, *where[number]}:
                raise Lost(f"{self.name}: {number} was acknowledged at offset {offset}, and is at {sorted(where.get(number, ()))}; "
                           f"the log ends at {len(found)}")
        return len(found) - len(where)

    def _next_values(self) -> list[tuple[int, bytes]]:
        made = []
        for _ in range(self._chance.randint(1, _BATCH_MAX)):
            size = 10_000 if self._chance.random() < 0.01 else self._chance.randrange(200)
            made.append((self._sent, b"%s %d %s" % (self.name.encode(), self._sent, b"x" * size)))
            self._sent += 1
        return made

    def _delivered(self, number: int, offset: int | None) -> None:
        with self._lock:
            self._acknowledged[number] = NO_OFFSET if offset is None else offset

    def _failed(self, number: int, error: object) -> None:
        self.error = self.error or Lost(f"value {number} was not delivered: {error}")
        self.end.set()

    def _run(self) -> None:
        try:
            self._produce()
        except BaseException as error:
            self.error = self.error or error

    @abstractmethod
    def _produce(self) -> None:
        """Send until the end, then wait for what is under way."""


class ConfluentProducing(Producing):
    """confluent-kafka."""

    kind = "confluent"
    plain_in_order = False  # librdkafka sends to a new leader while a request to the old one is in flight, which it then sends again

    def _produce(self) -> None:
        producer = Producer({
            "bootstrap.servers": self._bootstrap, "enable.idempotence": self._idempotent, "acks": "all", "linger.ms": 2,
            "max.in.flight.requests.per.connection": 5 if self._idempotent else 1, "message.timeout.ms": DELIVERY_TIMEOUT_MS,
            "compression.type": "lz4", "reconnect.backoff.max.ms": 500, "log_level": 0,
        })  # fmt: skip
        while not self.end.wait(_PAUSE_S):
            for number, value in self._next_values():
                producer.produce(self._topic, value, b"key", self.partition, on_delivery=self._report(number))
            producer.poll(0)
        producer.flush(PATIENCE_S * 2)

    def _report(self, number: int) -> Callable[[Any, Any], None]:
        def report(error: Any, message: Any) -> None:
            if error is None:
                self._delivered(number, message.offset())
            else:
                self._failed(number, error)

        return report


class KafkaPythonProducing(Producing):
    """kafka-python."""

    kind = "kafka-python"

    def _produce(self) -> None:
        with KafkaProducer(
            bootstrap_servers=self._bootstrap.split(","), acks="all", enable_idempotence=self._idempotent, linger_ms=2,
            max_in_flight_requests_per_connection=5 if self._idempotent else 1, delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
            max_block_ms=DELIVERY_TIMEOUT_MS, reconnect_backoff_max_ms=500,
        ) as producer:
            while not self.end.wait(_PAUSE_S):
                for number, value in self._next_values():
                    future = producer.send(self._topic, value, b"key", partition=self.partition)
                    future.add_callback(lambda metadata, number=number: self._delivered(number, metadata.offset))
                    future.add_errback(lambda error, number=number: self._failed(number, error))
            producer.flush(PATIENCE_S * 2)


KINDS = (ConfluentProducing, KafkaPythonProducing)
