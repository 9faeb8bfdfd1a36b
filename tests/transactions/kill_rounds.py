"""kill -9 of a broker at chosen points of a transaction, under transactional producers: every transaction ends as a whole.

A broker ends itself just before, or just after, it writes a certain state to `__transaction_state` or the markers of a transaction.
"""

from __future__ import annotations

import contextlib
import itertools
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.broker import BrokerProcess
from tests.support.server import ServerFailed
from tests.support.waiting import PATIENCE_S, until
from tests.transactions.state_log import dumped_states
from txbroker.transactions.transaction_states import TransactionState

MARKERS = "MARKERS"
STATES = [state.name for state in (TransactionState(number) for number in range(6))]
POINTS = [(what, when) for what in [*STATES, MARKERS] for when in ("before", "after")]


def points(count: int) -> list[tuple[str, str, int]]:
    """All points, one after the other, as often as needed; each time the broker comes there once more before it is killed."""
    return [(*POINTS[number % len(POINTS)], 1 + number // len(POINTS)) for number in range(count)]


PLACES = [("t", 0), ("t", 1), ("u", 0)]
TRANSACTIONS_OF_A_PRODUCER = 7  # then a new one with the same id follows

_SCRIPT = """
import os, signal
import txbroker.coordinators.shard_writer as shard_writer
import txbroker.api.write_txn_markers as write_txn_markers
from txbroker.transactions.transaction_record import read_value
what, when, left = {what!r}, {when!r}, {count}

def reached(here, present):
    global left
    if here == what and present == when:
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

def around(kind, name, what_of):
    inner = getattr(kind, name)
    def wrapped(self, *arguments, **named):
        here = what_of(self, *arguments, **named)
        reached(here, "before")
        result = inner(self, *arguments, **named)
        reached(here, "after")
        return result
    setattr(kind, name, wrapped)

def state_of(self, shard, key, pairs, *more, **named):
    value = pairs[0][1]
    return read_value(value).state.name if self._topic == "__transaction_state" and value is not None else None

around(shard_writer.ShardWriter, "append", state_of)
around(write_txn_markers.WriteTxnMarkersHandler, "write", lambda *_: "MARKERS")
from txbroker.cli.main import main
raise SystemExit(main())
"""


class BrokerThatEnds(BrokerProcess):
    """`point`: where it is killed, and how often it has to come there before; None: it is not."""

    point: tuple[str, str, int] | None = None

    def _command(self) -> list[str]:
        command = super()._command()
        if self.point is None:
            return command
        what, when, count = self.point
        return [sys.executable, "-c", _SCRIPT.format(what=what, when=when, count=count), *command[3:]]

    def has_ended(self) -> bool:
        return not self.running

    @property
    def exit_status(self) -> int | None:
        assert self._process is not None
        return self._process.poll()


class Load(threading.Thread):
    """A transactional producer. `outcomes`: of each transaction, whether it was committed; None if that is not known."""

    def __init__(self, address: str, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.outcomes: dict[str, bool | None] = {}
        self.ended = threading.Event()
        self.failure: BaseException | None = None
        self._settings: dict[str, str | int] = {
            "bootstrap.servers": address, "transactional.id": name, "linger.ms": 0, "reconnect.backoff.max.ms": 100,
            "reconnect.backoff.ms": 20, "retry.backoff.ms": 20, "log_level": 0,
        }  # fmt: skip

    def run(self) -> None:
        try:
            numbers = itertools.count()
            while not self.ended.is_set():
                self._produce(numbers)
        except BaseException as failure:
            self.failure = failure

    def _produce(self, numbers: Iterator[int]) -> None:
        producer = Producer(self._settings)
        try:
            producer.init_transactions(PATIENCE_S)
            for _ in range(TRANSACTIONS_OF_A_PRODUCER):
                if not self.ended.is_set():
                    self._transaction(producer, next(numbers))
        except KafkaException as failure:
            error = failure.args[0]
            assert error.fatal() or error.retriable() or error.txn_requires_abort(), error  # the next producer aborts what is open

    def _transaction(self, producer: Producer, number: int) -> None:
        name, commit = f"{self.name}.{number}", number % 3 != 2
        self.outcomes[name] = None
        producer.begin_transaction()
        for topic, partition in PLACES:
            producer.produce(topic, name.encode(), partition=partition)
        producer.flush(PATIENCE_S)
        if commit:
            _until_done(lambda: producer.commit_transaction(PATIENCE_S))
        else:
            _until_done(lambda: producer.abort_transaction(PATIENCE_S))
        self.outcomes[name] = commit


def _until_done(end: Callable[[], object]) -> None:
    while True:
        try:
            end()
            return
        except KafkaException as failure:
            if not failure.args[0].retriable():
                raise


class KillRounds:
    """A broker, its producers and the checks."""

    def __init__(self, directory: Path, say: Callable[[str], None] = lambda text: None) -> None:
        self._broker = BrokerThatEnds(directory, {"transaction.state.log.num.partitions": "3"})
        self._say = say

    def run(self, points: Sequence[tuple[str, str, int]]) -> None:
        """Kill the broker at one point after the other, and check everything at the end."""
        broker = self._broker
        broker.start()
        try:
            admin = AdminClient({"bootstrap.servers": broker.address})
            for created in admin.create_topics([NewTopic("t", 2, 1), NewTopic("u", 1, 1)]).values():
                created.result()
            loads = [Load(broker.address, name) for name in ("a", "b")]
            broker.stop()
            for number, broker.point in enumerate(points, 1):
                with contextlib.suppress(ServerFailed):  # it may go on with a transaction, and come to the point, before it is ready
                    broker.start()
                for load in loads:
                    if not load.is_alive() and load.ident is None:
                        load.start()
                until(broker.has_ended, f"the broker was killed at {broker.point}")
                assert broker.exit_status == -signal.SIGKILL, broker.log_tail()
                self._say(f"   {number}: killed {broker.point[1]} {broker.point[0]}")
            broker.point = None
            broker.start()
            for load in loads:
                load.ended.set()
            for load in loads:
                load.join(PATIENCE_S)
                assert not load.is_alive() and load.failure is None, load.failure
            outcomes = {name: outcome for load in loads for name, outcome in load.outcomes.items()}
            for load in loads:  # what the last producer left open is aborted by the next one
                Producer({"bootstrap.servers": broker.address, "transactional.id": load.name}).init_transactions(PATIENCE_S)
            self._check(outcomes)
        finally:
            broker.close()

    def _check(self, outcomes: dict[str, bool | None]) -> None:
        read = {place: Counter(_read(self._broker.address, *place)) for place in PLACES}
        for name, committed in outcomes.items():
            counts = {found[name] for found in read.values()}
            assert counts in ({0}, {1}), f"transaction {name} is read {counts} times in its partitions"
            assert committed is None or counts == {int(committed)}, f"transaction {name} was committed: {committed}, read: {counts}"
        assert sum(outcome is not None for outcome in outcomes.values()) >= 4
        assert "Traceback" not in self._broker.log(), self._broker.log_tail()
        self._broker.stop()
        last = dict(dumped_states(self._broker.data))
        assert last.keys() == {"a", "b"} and all(state is not None and state.is_idle for state in last.values()), last


def _read(address: str, topic: str, partition: int) -> list[str]:
    """All committed values; the high watermark must be reached."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "unused", "isolation.level": "read_committed",
                         "enable.partition.eof": True, "enable.auto.commit": False})  # fmt: skip
    place = Place(topic, partition, 0)
    consumer.assign([place])
    values: list[str] = []

    def is_at_end() -> bool:
        message = consumer.poll(0.1)
        error = None if message is None else message.error()
        if message is not None and error is None:
            values.append((message.value() or b"").decode())
        if error is None or error.code() != KafkaError._PARTITION_EOF:
            return False
        position = consumer.position([place])[0].offset
        return bool(position >= consumer.get_watermark_offsets(place, PATIENCE_S, cached=False)[1])

    until(is_at_end, f"{topic}-{partition} is read to its end: no transaction is open")
    consumer.close()
    return values
