"""Applications that read, process and write in transactions (KIP-447), and brokers that are killed meanwhile: each input has exactly one
committed output."""

from __future__ import annotations

import multiprocessing
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Event
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.support.cluster import Cluster
from tests.support.waiting import PATIENCE_S, until

PARTITIONS = 3


class Worker:
    """One instance of the application, in a process of its own.

    librdkafka's `rd_kafka_consumer_close` can stand still in the callback for a rebalance, after `max.poll.interval.ms` was exceeded (its
    issue 4041). It then holds Python's global interpreter lock: with the instances in the process of the tests, nothing ended the test.

    Without `may_commit` it holds its next transaction open, as a zombie does.
    """

    def __init__(self, bootstrap: str, group: str, source: str, target: str, transactional_id: str) -> None:
        spawn = multiprocessing.get_context("spawn")
        self.may_commit, self.holds, self._fenced, self._stop, self._ended = (spawn.Event() for _ in range(5))
        self.may_commit.set()
        self._problems: SimpleQueue[str] = spawn.SimpleQueue()
        instance = _Instance(bootstrap, group, source, target, transactional_id, self.may_commit, self.holds, self._fenced, self._stop)
        self._process = spawn.Process(target=_run, args=(instance, self._ended, self._problems), daemon=True)
        self._process.start()

    @property
    def fenced(self) -> bool:
        """A producer of this instance was fenced."""
        return self._fenced.is_set()

    def stop(self) -> None:
        """End after the present transaction."""
        self._stop.set()
        self.may_commit.set()
        ended = self._ended.wait(PATIENCE_S)
        self._process.kill()
        self._process.join(PATIENCE_S)
        assert self._problems.empty(), self._problems.get()
        assert ended, "an instance of the application did not end"


def _run(instance: _Instance, ended: Event, problems: SimpleQueue[str]) -> None:
    try:
        instance.run()
    except BaseException:
        problems.put(traceback.format_exc())
    ended.set()
    threading.Event().wait()  # it is killed: nothing is left that can stand still


@dataclass
class _Instance:
    """What the process does. Its clients are never closed, as in an application that is killed: a close can stand still."""

    bootstrap: str
    group: str
    source: str
    target: str
    transactional_id: str
    may_commit: Event
    holds: Event
    fenced: Event
    stop: Event
    _clients: list[Producer | Consumer] = field(default_factory=list)

    def run(self) -> None:
        """Until it has to stop, or is fenced."""
        while not self.stop.is_set() and not self.fenced.is_set():
            self._work()

    def _work(self) -> None:
        """Until the producer has to be replaced."""
        common = {"bootstrap.servers": self.bootstrap, "retry.backoff.ms": 20, "reconnect.backoff.max.ms": 500}
        # librdkafka looks for the group's new coordinator only when its connection to the old one is closed (docs/clients.md).
        producer = Producer(common | {"transactional.id": self.transactional_id, "transaction.timeout.ms": 20_000, "linger.ms": 0,
                                      "connections.max.idle.ms": 2_000})  # fmt: skip
        consumer = Consumer(common | {"group.id": self.group, "auto.offset.reset": "earliest", "enable.auto.commit": False,
                                      "isolation.level": "read_committed", "session.timeout.ms": 6_000,
                                      "max.poll.interval.ms": 6_000, "heartbeat.interval.ms": 300,
                                      "partition.assignment.strategy": "range"})  # fmt: skip
        self._clients += producer, consumer
        consumer.subscribe([self.source])
        _again(lambda: producer.init_transactions(PATIENCE_S))
        while not self.stop.is_set() and self._transact(producer, consumer):
            pass

    def _transact(self, producer: Producer, consumer: Consumer) -> bool:
        """One transaction; False if the producer cannot go on."""
        messages = [message for message in consumer.consume(7, 0.2) if message.error() is None]
        if not messages:
            return True
        try:
            producer.begin_transaction()
            for message in messages:
                producer.produce(self.target, message.value(), partition=message.partition() or 0)
            offsets = [TopicPartition(self.source, index, last + 1) for index, last in _last_offsets(messages).items()]
            producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), PATIENCE_S)
            self.holds.set()
            self.may_commit.wait(PATIENCE_S)
            _again(lambda: producer.commit_transaction(PATIENCE_S))
        except KafkaException as failed:
            error: KafkaError = failed.args[0]
            if error.code() in (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH):
                self.fenced.set()
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


def fill(bootstrap: str, topic: str, numbers: Iterable[int]) -> None:
    """Inputs, and others in a transaction that is aborted."""
    plain = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in numbers:
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


# Inputs for each kill; so many outputs are read before it, and as many after it while the broker is away.
INPUTS = 120
OUTPUTS = 20

# Coordinators of groups and transactions are on all three brokers.
SETTINGS = {"transaction.state.log.num.partitions": "5", "offsets.topic.num.partitions": "5", "transaction.state.log.min.isr": "2",
            "min.insync.replicas": "2", "group.initial.rebalance.delay.ms": "0"}  # fmt: skip


def survive_kills(cluster: Cluster, kills: Iterable[int], say: Callable[[str], None] = lambda text: None) -> None:
    """Two instances work while one broker after the other is killed between the steps of transactions, and started again."""
    source, target = "in", "out"
    cluster.create_topic(source, PARTITIONS)
    cluster.create_topic(target, PARTITIONS)
    outputs = Outputs(cluster.bootstrap, target)
    fill(cluster.bootstrap, source, range(INPUTS))
    total = INPUTS
    workers = [Worker(cluster.bootstrap, "application", source, target, f"application-{index}") for index in range(2)]
    for round_, broker_id in enumerate(kills, 1):
        until(lambda total=total: len(outputs) >= total - INPUTS + OUTPUTS, "outputs")  # type: ignore[misc]
        cluster.brokers[broker_id].kill()
        more = min(len(outputs) + OUTPUTS, total)
        until(lambda more=more: len(outputs) >= more, "outputs without the broker")  # type: ignore[misc]
        cluster.brokers[broker_id].start()
        cluster.until_in_sync(source, target, "__consumer_offsets", "__transaction_state")
        fill(cluster.bootstrap, source, range(total, total + INPUTS))
        total += INPUTS
        say(f"   {round_}: killed broker {broker_id}")
    outputs.check(total)
    for worker in workers:
        worker.stop()
