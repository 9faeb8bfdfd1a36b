"""kill -9 of a broker at chosen points of a transaction, under transactional producers: every transaction ends as a whole.

A broker ends itself, or in a cluster another broker, just before, or just after, it writes a certain state to `__transaction_state` or the
markers of a transaction.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

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


WATERMARKS_S = 5.0  # for one question; it is asked again
PLACES = [("t", 0), ("t", 1), ("u", 0)]
TRANSACTIONS_OF_A_PRODUCER = 7  # then a new one with the same id follows

_SCRIPT = """
import json, os, signal
import txbroker.coordinators.shard_writer as shard_writer
import txbroker.api.write_txn_markers as write_txn_markers
from txbroker.transactions.transaction_record import read_value
known, left = None, 0

def reached(here, present):
    global known, left
    try:
        with open({plan!r}) as file:
            text = file.read()
    except FileNotFoundError:
        return
    plan = json.loads(text)
    if text != known:
        known, left = text, plan["count"]
    if [here, present] == [plan["what"], plan["when"]]:
        left -= 1
        if left == 0:
            try:
                os.rename({plan!r}, {plan!r} + ".reached")
            except FileNotFoundError:
                return  # another broker was here first
            pids = plan["pids"] or [os.getpid()]
            os.kill(pids[(pids.index(os.getpid()) + plan["shift"]) % len(pids)], signal.SIGKILL)

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


class BrokerThatKills(BrokerProcess):
    """At the point of a transaction that the file `plan` names, it kills a process: itself, or another broker."""

    def __init__(self, directory: Path, overrides: Mapping[str, str] | None = None) -> None:
        super().__init__(directory, overrides)
        self.plan = directory / "plan"

    def _command(self) -> list[str]:
        return [sys.executable, "-c", _SCRIPT.format(plan=str(self.plan)), *super()._command()[3:]]

    def has_ended(self) -> bool:
        return not self.running

    @property
    def exit_status(self) -> int | None:
        assert self._process is not None
        return self._process.poll()


def write_plan(path: Path, what: str, when: str, count: int, pids: Sequence[int] = (), shift: int = 0) -> None:
    """Kill when a broker comes to this point for the `count`-th time: itself, or of `pids` the one that is `shift` places after its own."""
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps({"what": what, "when": when, "count": count, "pids": list(pids), "shift": shift}))
    fresh.rename(path)


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
        self._broker = BrokerThatKills(directory, {"transaction.state.log.num.partitions": "3"})
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
            for number, (what, when, count) in enumerate(points, 1):
                write_plan(broker.plan, what, when, count)
                with contextlib.suppress(ServerFailed):  # it may go on with a transaction, and come to the point, before it is ready
                    broker.start()
                for load in loads:
                    if not load.is_alive() and load.ident is None:
                        load.start()
                until(broker.has_ended, f"the broker was killed {when} {what}")
                assert broker.exit_status == -signal.SIGKILL, broker.log_tail()
                self._say(f"   {number}: killed {when} {what}")
            broker.start()
            check_outcomes(broker.address, loads)
            assert "Traceback" not in broker.log(), broker.log_tail()
            broker.stop()
            check_states(broker.data, loads)
        finally:
            broker.close()


def check_outcomes(bootstrap: str, loads: Sequence[Load]) -> None:
    """End the producers: each transaction is read in all of its partitions or in none, as its producer was answered."""
    for load in loads:
        load.ended.set()
    for load in loads:
        load.join(PATIENCE_S)
        assert not load.is_alive() and load.failure is None, load.failure
    outcomes = {name: outcome for load in loads for name, outcome in load.outcomes.items()}
    for load in loads:  # what the last producer left open is aborted by the next one
        Producer({"bootstrap.servers": bootstrap, "transactional.id": load.name}).init_transactions(PATIENCE_S)
    read = {place: Counter(_read(bootstrap, *place)) for place in PLACES}
    for name, committed in outcomes.items():
        counts = {found[name] for found in read.values()}
        assert counts in ({0}, {1}), f"transaction {name} is read {counts} times in its partitions"
        assert committed is None or counts == {int(committed)}, f"transaction {name} was committed: {committed}, read: {counts}"
    assert sum(outcome is not None for outcome in outcomes.values()) >= 4


def check_states(data: Path, loads: Sequence[Load]) -> None:
    """By Apache Kafka's dump tool, no transaction is open in the files of a broker."""
    last = dict(dumped_states(data))
    assert last.keys() == {load.name for load in loads} and all(state is not None and state.is_idle for state in last.values()), last


def _read(address: str, topic: str, partition: int) -> list[str]:
    """All committed values; the high watermark must be reached."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "unused", "isolation.level": "read_committed",
                         "enable.partition.eof": True, "enable.auto.commit": False})  # fmt: skip
    place = Place(topic, partition, 0)
    consumer.assign([place])
    values: list[str] = []

    at_end = False

    def is_at_end() -> bool:
        nonlocal at_end
        message = consumer.poll(0.1)
        error = None if message is None else message.error()
        if message is not None and error is None:
            values.append((message.value() or b"").decode())
            at_end = False
        elif error is not None and error.code() == KafkaError._PARTITION_EOF:
            at_end = True  # librdkafka says so once for an end
        if not at_end:
            return False
        position = consumer.position([place])[0].offset
        try:
            return bool(position >= consumer.get_watermark_offsets(place, WATERMARKS_S, cached=False)[1])
        except KafkaException:
            return False  # brokers were killed and elect leaders: the client has to look for them again

    until(is_at_end, f"{topic}-{partition} is read to its end: no transaction is open")
    consumer.close()
    return values
