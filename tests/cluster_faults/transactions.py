"""Transactions in a fault test: producers that commit, abort and abandon them, and consumers with and without read_committed."""

from __future__ import annotations

import contextlib
import random
from collections import defaultdict
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from kafka.protocol.metadata import ApiVersionsRequest

from simulation.histories import Assign, Complete, End, Outcome, Poll, Send
from tests.cluster_faults.client import FaultClient
from tests.cluster_faults.consuming import POLL_S, name_of
from tests.cluster_faults.journal import Journal, now
from tests.cluster_faults.producing import NO_OFFSET, PAUSE_S
from tests.support.cluster import Cluster
from tests.support.raw import RawConnection
from tests.support.waiting import PATIENCE_S

TOPIC = "transactions"
PARTITIONS = 3
_ABORTED, _ABANDONED = 0.2, 0.1  # shares of the transactions
_RECORDS_MAX = 8
_TIMEOUT_MS = 30_000
_CALL_S = 10.0
_END_TXN = 26  # the API key
# librdkafka 2.10 to 2.16 (confluentinc/librdkafka issues 5511 and 5456): if the coordinator of the group has left the metadata since the
# last transaction, send_offsets_to_transaction waits without a timeout until the connection to some broker opens or closes, and only
# then looks for the new coordinator. While it waits no connection is used, so that this limit closes them. It is longer than a fault lasts:
# a connection that waits for a response counts as idle too. The same happens when all brokers are away for a moment, and the client forgets
# them to begin again with its bootstrap servers: it must not.
_MAX_IDLE_MS = 20_000
_DEBUG = "eos,broker,protocol"


def supported(cluster: Cluster) -> bool:
    """Whether all brokers have EndTxn."""
    for server in cluster.brokers.values():
        with RawConnection(server.address) as connection:
            answer = connection.call(ApiVersionsRequest(), 0)
            if _END_TXN not in {each.api_key for each in answer.api_keys}:
                return False
    return True


class TransactionalProducing(FaultClient):
    """confluent-kafka. An abandoned transaction has no end: the next producer with this transactional id aborts it."""

    stop_timeout_s = PATIENCE_S * 2

    def __init__(self, name: str, bootstrap: str, journal: Journal, *, debug: bool = False) -> None:
        """`debug`: librdkafka writes what it does to stderr."""
        super().__init__(name, bootstrap, TOPIC, journal)
        self._chance = random.Random(name)
        self._asked_to_commit = 0
        self._under_way: dict[int, Send] = {}
        self._log = {"debug": _DEBUG} if debug else {"log_level": 0}

    def _run(self) -> None:
        producer = self.producer()
        while not self.end.wait(PAUSE_S):
            if not self._transaction(producer):
                self._drop(producer)
                producer = self.producer()

    def producer(self, timeout_ms: int = _TIMEOUT_MS) -> Producer:
        """A new instance, which fences earlier ones: nothing of theirs is appended later. `timeout_ms`: of its transactions."""
        while True:
            producer = Producer({
                "bootstrap.servers": self._bootstrap, "transactional.id": self.name, "transaction.timeout.ms": timeout_ms,
                "client.id": self.name, "reconnect.backoff.max.ms": 500, "linger.ms": 2, "connections.max.idle.ms": _MAX_IDLE_MS,
                "metadata.recovery.strategy": "none", **self._log,
            })  # fmt: skip
            try:
                producer.init_transactions(PATIENCE_S)
                return producer
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise

    def _drop(self, producer: Producer) -> None:
        """Give up what is under way, and report each record."""
        producer.purge()
        with contextlib.suppress(KafkaException, SystemError):
            producer.flush(_CALL_S)
        for send in self._under_way.values():  # flush has failed while it reported
            self._journal.add(send._replace(ended=now()))
        self._under_way.clear()

    def _transaction(self, producer: Producer) -> bool:
        """One transaction; whether the producer can be used for another one."""
        name = f"{self.name}-transaction-{next(self._numbers)}"
        self._asked_to_commit = 0
        try:
            producer.begin_transaction()
            return self._work(producer, name)
        except KafkaException as error:
            try:
                if error.args[0].txn_requires_abort():
                    self._abort(producer, name)
                    return True
            except KafkaException:
                pass
            if self._asked_to_commit:
                self._ended(name, self._asked_to_commit, Outcome.UNKNOWN, committed=True)
            return False

    def _work(self, producer: Producer, name: str) -> bool:
        """What a transaction does; False to abandon it."""
        chosen = self._chance.random()
        for _ in range(self._chance.randint(1, _RECORDS_MAX)):
            self._send(producer, name)
        if chosen < _ABANDONED:
            return False
        self._retried(producer.flush)
        if chosen < _ABANDONED + _ABORTED:
            self._abort(producer, name)
        else:
            self._commit(producer, name)
        return True

    def _commit(self, producer: Producer, name: str) -> None:
        self._asked_to_commit = now()
        self._retried(producer.commit_transaction)
        self._ended(name, self._asked_to_commit, Outcome.OK, committed=True)

    def _abort(self, producer: Producer, name: str) -> None:
        began = now()
        self._retried(producer.abort_transaction)
        self._ended(name, began, Outcome.OK, committed=False)

    def _retried(self, call: Any) -> None:
        """Call it until it succeeds or fails for good."""
        while True:
            try:
                left = call(_CALL_S)
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
            except SystemError as error:
                # After a fatal error confluent-kafka calls the callback of a record while the exception is set.
                if isinstance(error.__cause__, KafkaException):
                    raise error.__cause__ from error
                raise
            else:
                if not left:  # flush returns how many records are under way
                    return

    def _ended(self, name: str, began: int, outcome: Outcome, *, committed: bool) -> None:
        self._journal.add(End(self.name, next(self._numbers), name, committed, began, now(), outcome))

    def _send(self, producer: Producer, transaction: str, suffix: str = "") -> None:
        number, partition = next(self._numbers), self._chance.randrange(PARTITIONS)
        value, began = f"{self.name}-{number}{suffix}", now()
        send = Send(self.name, number, TOPIC, partition, value, began, began, Outcome.UNKNOWN, transaction=transaction)
        self._under_way[number] = send

        def delivered(error: Any, message: Any) -> None:
            if number in self._under_way:
                outcome = Outcome.OK if error is None else Outcome.UNKNOWN
                offset = message.offset() if error is None and message.offset() is not None else NO_OFFSET
                self._journal.add(send._replace(ended=now(), outcome=outcome, offset=offset))
                del self._under_way[number]

        producer.produce(TOPIC, f"{value} {'x' * self._chance.randrange(200)}".encode(), b"key", partition, on_delivery=delivered)


class Reading(FaultClient):
    """A consumer without a group that reads all partitions from the start. `reached`: its next offsets."""

    def __init__(self, name: str, bootstrap: str, journal: Journal, *, read_committed: bool) -> None:
        super().__init__(name, bootstrap, TOPIC, journal)
        self.read_committed = read_committed
        self.reached = dict.fromkeys(range(PARTITIONS), 0)

    def ends(self) -> dict[int, int]:
        """The end of each partition, or its last stable offset."""
        consumer = self._consumer()
        found = {partition: int(consumer.get_watermark_offsets(TopicPartition(TOPIC, partition), timeout=60)[1])
                 for partition in range(PARTITIONS)}
        consumer.close()
        return found

    def complete(self, began: int) -> None:
        """It has read what was there when that time was."""
        for partition in range(PARTITIONS):
            self._journal.add(Complete((self.name,), TOPIC, partition, began, self.read_committed))

    def fresh(self) -> Reading:
        """Another one of its kind, which begins now."""
        return Reading(f"{self.name}-again", self._bootstrap, self._journal, read_committed=self.read_committed)

    def _consumer(self) -> Consumer:
        return Consumer({
            "bootstrap.servers": self._bootstrap, "group.id": self.name, "enable.auto.commit": False, "enable.partition.eof": True,
            "isolation.level": "read_committed" if self.read_committed else "read_uncommitted", "log_level": 0,
            "reconnect.backoff.max.ms": 500, "auto.offset.reset": "error",
        })  # fmt: skip

    def _run(self) -> None:
        consumer = self._consumer()
        consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
        for partition in range(PARTITIONS):
            self._journal.add(Assign(self.name, next(self._numbers), TOPIC, partition, 0))
        while not self.end.is_set():
            began, found = now(), defaultdict(list)
            ends: dict[int, int] = {}
            messages: list[Any] = consumer.consume(500, POLL_S)
            for message in messages:
                problem = message.error()
                if problem is None:
                    found[message.partition()].append((message.offset(), name_of(message.value())))
                    ends[message.partition()] = message.offset() + 1
                elif problem.code() == KafkaError._PARTITION_EOF:
                    ends[message.partition()] = message.offset()
                elif not problem.retriable() and problem.code() != KafkaError._TRANSPORT:
                    raise KafkaException(problem)
            for partition, records in found.items():
                self._journal.add(
                    Poll(self.name, next(self._numbers), TOPIC, partition, tuple(records), began, now(), self.read_committed))
            self.reached.update(ends)
        consumer.close()
