"""Applications that read, process and write in transactions (KIP-447): while members come and go, are fenced, and brokers are killed, each
input has exactly one committed output."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.support.cluster import Cluster
from tests.support.raw_admin import create_topic
from tests.support.server import Server
from tests.support.waiting import PATIENCE_S, until

PARTITIONS = 3


class Worker:
    """One instance of the application. `stall` makes it hold its next transaction open, as a zombie does, until it is set free."""

    def __init__(self, bootstrap: str, group: str, source: str, target: str, transactional_id: str) -> None:
        self._bootstrap, self._group, self._source, self._target = bootstrap, group, source, target
        self._transactional_id = transactional_id
        self._stop = threading.Event()
        self.may_commit = threading.Event()
        self.may_commit.set()
        self.holds = threading.Event()
        self.fenced = False
        self.problem: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Leave the group, after the present transaction."""
        self._stop.set()
        self.may_commit.set()
        self._thread.join(PATIENCE_S)
        if self.problem is not None:
            raise self.problem

    def _run(self) -> None:
        try:
            while not self._stop.is_set() and not self.fenced:
                self._work()
        except BaseException as problem:
            self.problem = problem

    def _work(self) -> None:
        """Until the producer has to be replaced."""
        common = {"bootstrap.servers": self._bootstrap, "retry.backoff.ms": 20, "reconnect.backoff.max.ms": 500}
        producer = Producer(common | {"transactional.id": self._transactional_id, "transaction.timeout.ms": 20_000, "linger.ms": 0})
        consumer = Consumer(common | {"group.id": self._group, "auto.offset.reset": "earliest", "enable.auto.commit": False,
                                      "isolation.level": "read_committed", "session.timeout.ms": 6_000,
                                      "max.poll.interval.ms": 6_000, "heartbeat.interval.ms": 300,
                                      "partition.assignment.strategy": "range"})  # fmt: skip
        consumer.subscribe([self._source])
        try:
            _again(lambda: producer.init_transactions(PATIENCE_S))
            while not self._stop.is_set() and self._transact(producer, consumer):
                pass
        finally:
            consumer.close()

    def _transact(self, producer: Producer, consumer: Consumer) -> bool:
        """One transaction; False if the producer cannot go on."""
        messages = [message for message in consumer.consume(7, 0.2) if message.error() is None]
        if not messages:
            return True
        try:
            producer.begin_transaction()
            for message in messages:
                producer.produce(self._target, message.value(), partition=message.partition())
            offsets = [TopicPartition(self._source, index, last + 1) for index, last in _last_offsets(messages).items()]
            producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), PATIENCE_S)
            self.holds.set()
            self.may_commit.wait(PATIENCE_S)
            _again(lambda: producer.commit_transaction(PATIENCE_S))
        except KafkaException as failed:
            error: KafkaError = failed.args[0]
            if error.code() in (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH):
                self.fenced = True
                return False
            if error.fatal():
                return False
            _again(lambda: producer.abort_transaction(PATIENCE_S))
            return False  # a new consumer continues at the committed offsets
        return True


def _last_offsets(messages: list[Message]) -> dict[int, int]:
    return {message.partition(): message.offset() for message in messages}  # type: ignore[misc]  # never None in a consumed message


def _again(call: Callable[[], Any]) -> None:
    """Repeat a call of the transactional API while it fails with an error that may pass."""
    def attempt() -> bool:
        try:
            call()
        except KafkaException as failed:
            if not failed.args[0].retriable():
                raise
            return False
        return True

    until(attempt, "the call succeeds")


def fill(bootstrap: str, topic: str, count: int) -> None:
    """Inputs, some of them in transactions that are aborted."""
    plain = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(count):
        plain.produce(topic, str(number).encode(), partition=number % PARTITIONS)
    assert plain.flush(PATIENCE_S) == 0
    aborting = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"{topic}-aborting"})
    aborting.init_transactions(PATIENCE_S)
    aborting.begin_transaction()
    for index in range(PARTITIONS):
        aborting.produce(topic, b"aborted", partition=index)
    assert aborting.flush(PATIENCE_S) == 0
    aborting.abort_transaction(PATIENCE_S)


class Outputs:
    """A read_committed reader of the target."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"{topic}-check", "isolation.level": "read_committed",
                                   "enable.auto.commit": False})  # fmt: skip
        self._consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
        self.seen: Counter[str] = Counter()

    def __len__(self) -> int:
        for message in self._consumer.consume(500, 0.1):
            if message.error() is None:
                self.seen[(message.value() or b"").decode()] += 1
        return self.seen.total()

    def check(self, count: int) -> None:
        """Every input once, and nothing else."""
        until(lambda: len(self) >= count, f"{count} outputs")
        assert len(self) == count
        assert self.seen == Counter(str(number) for number in range(count))
        self._consumer.close()


@pytest.mark.process
def test_rebalances_and_zombies(broker: Server, name: str) -> None:
    source, target, count = f"{name}-in", f"{name}-out", 300
    create_topic(broker, source, PARTITIONS)
    create_topic(broker, target, PARTITIONS)
    fill(broker.address, source, count)
    outputs = Outputs(broker.address, target)
    started: list[Worker] = []

    def start(transactional_id: str) -> Worker:
        started.append(Worker(broker.address, name, source, target, f"{name}-{transactional_id}"))
        return started[-1]

    zombie = start("a")
    zombie.may_commit.clear()
    until(zombie.holds.is_set, "a transaction is open")
    successor = start("a")  # fences the zombie, whose transaction is aborted
    until(lambda: len(outputs) > 20, "the successor's outputs")
    zombie.may_commit.set()
    other = start("b")
    outputs.check(count)
    for worker in started:
        worker.stop()
    assert zombie.fenced and not successor.fenced and not other.fenced


@pytest.mark.process
def test_brokers_that_are_killed(start_cluster: Callable[..., Cluster], name: str) -> None:
    """The coordinators of group and transactions, and leaders, die between the steps of transactions."""
    settings = {"transaction.state.log.num.partitions": "5", "offsets.topic.num.partitions": "5", "transaction.state.log.min.isr": "2",
                "min.insync.replicas": "2", "group.initial.rebalance.delay.ms": "0"}  # fmt: skip
    cluster = start_cluster(settings)
    source, target, count = "in", "out", 600
    cluster.create_topic(source, PARTITIONS)
    cluster.create_topic(target, PARTITIONS)
    fill(cluster.bootstrap, source, count // 2)
    outputs = Outputs(cluster.bootstrap, target)
    workers = [Worker(cluster.bootstrap, name, source, target, f"{name}-{index}") for index in range(2)]
    for round_, broker_id in enumerate(sorted(cluster.brokers)):
        seen = len(outputs)
        until(lambda seen=seen, round_=round_: len(outputs) > min(seen + 20, (round_ + 1) * 50), "outputs")  # type: ignore[misc]
        victim = cluster.brokers[broker_id]
        victim.kill()
        more = len(outputs)
        until(lambda more=more: len(outputs) > min(more + 20, count // 2 - 1), "outputs without the broker")  # type: ignore[misc]
        victim.start()
        cluster.until_in_sync(source, target, "__consumer_offsets", "__transaction_state")
    plain = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
    for number in range(count // 2, count):
        plain.produce(source, str(number).encode(), partition=number % PARTITIONS)
    assert plain.flush(PATIENCE_S) == 0
    outputs.check(count)
    for worker in workers:
        worker.stop()
