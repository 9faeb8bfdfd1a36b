"""Random histories of producers, crashes of the coordinator, failed writes, lost answers and moving leaders: every transaction ends as a
whole, in every partition as its producer was answered, and nothing stays open."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from twisted.internet.defer import Deferred, fail, succeed

from tests.support.examples import quarter
from tests.transactions.coordinator_harness import P0, P1, Q0, E, S, TransactionHarness
from txbroker.client.client_errors import Closed
from txbroker.errors import BrokerError
from txbroker.names import TopicPartition
from txbroker.transactions.marker_queues import Destination, Unroutable
from txbroker.transactions.transaction import Producer
from txbroker.wire.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse

PARTITIONS = (P0, P1, Q0)
TIMEOUT_MS = 5_000
RETRIABLE = {
    E.CONCURRENT_TRANSACTIONS, E.NOT_COORDINATOR, E.COORDINATOR_NOT_AVAILABLE, E.COORDINATOR_LOAD_IN_PROGRESS, E.UNKNOWN_SERVER_ERROR,
}  # fmt: skip
FATAL = {E.PRODUCER_FENCED, E.INVALID_PRODUCER_ID_MAPPING, E.INVALID_TXN_STATE}


class Partition:
    """A partition's log: data and markers with their producers, as its leader appends them."""

    def __init__(self) -> None:
        self.epochs: dict[int, int] = {}
        self.coordinator_epoch = -1
        self.open: dict[int, str] = {}  # producer id -> the transaction that has data here
        self.ended: dict[str, bool] = {}  # transaction -> committed

    def write(self, producer: Producer, transaction: str) -> bool:
        if producer.epoch < self.epochs.get(producer.id, -1):
            return False
        assert self.open.setdefault(producer.id, transaction) == transaction, "data of two transactions without a marker between them"
        self.epochs[producer.id] = producer.epoch
        return True

    def mark(self, producer: Producer, committed: bool, coordinator_epoch: int) -> E:
        if producer.epoch < self.epochs.get(producer.id, -1):
            return E.INVALID_PRODUCER_EPOCH
        if coordinator_epoch < self.coordinator_epoch:
            return E.TRANSACTION_COORDINATOR_FENCED
        self.coordinator_epoch = coordinator_epoch
        self.epochs[producer.id] = producer.epoch
        transaction = self.open.pop(producer.id, None)
        if transaction is not None:
            self.ended[transaction] = committed
        return E.NONE


class Client:
    """A producer that repeats requests until they are answered, and starts again when it is fenced."""

    def __init__(self, history: History, name: str) -> None:
        self.history = history
        self.name = name
        self.producer: Producer | None = None
        self.count = 0
        self.transaction = ""
        self.added: set[TopicPartition] = set()
        self.ending: bool | None = None

    def step(self) -> None:
        random, harness = self.history.random, self.history.harness
        if self.producer is None:
            answer = self._ask(harness.coordinator.initialize(self.name, TIMEOUT_MS, None))
            if isinstance(answer, Producer):
                self.producer = answer
                self._begin()
        elif self.ending is None and random.random() < 0.6:
            partition = random.choice(PARTITIONS)
            if self._ask(harness.coordinator.add_partitions(self.name, self.producer, [partition], self.history.version)) is None:
                if self.history.partitions[partition].write(self.producer, self.transaction):
                    self.added.add(partition)
                    self.history.written.setdefault(self.transaction, set()).add(partition)
                else:
                    self.producer = None
        elif self.added:
            if self.ending is None:
                self.ending = random.random() < 0.6
            asked = harness.coordinator.end(self.name, self.producer, commit=self.ending, version=self.history.version)
            answer = self._ask(asked)
            if isinstance(answer, Producer):
                self.history.answered[self.transaction] = self.ending
                self.producer = answer
                self._begin()

    def _begin(self) -> None:
        self.count += 1
        self.transaction = f"{self.name}.{self.count}"
        self.added, self.ending = set(), None

    def _ask(self, coroutine: Any) -> Any:
        """The result, or the error of a request that is to be repeated, or E.NONE if its answer is lost."""
        results: list[Any] = []
        deferred = Deferred.fromCoroutine(coroutine)
        deferred.addBoth(results.append)
        if not results:
            self.history.unanswered.append(deferred)
            self.history.turn(5)
        if not results or self.history.random.random() < self.history.loss:
            return E.NONE  # it is repeated
        result = results[0]
        if not hasattr(result, "value"):
            return result
        assert isinstance(result.value, BrokerError), result
        code = result.value.code
        assert code in RETRIABLE | FATAL, code
        if code in FATAL:
            self.producer = None
            self._begin()
        return code


class History:
    """One history."""

    def __init__(self, seed: int, version: int) -> None:
        self.random = Random(seed)
        self.version = version
        self.partitions = {partition: Partition() for partition in PARTITIONS}
        self.harness = TransactionHarness(abort_interval_ms=1_000)
        self.harness.leaders.channel = self._channel  # type: ignore[method-assign]
        self.written: dict[str, set[TopicPartition]] = {}
        self.answered: dict[str, bool] = {}
        self.unanswered: list[Deferred[Any]] = []
        self.epoch = 0
        self.loss = 0.05
        self.faults = True
        self.clients = [Client(self, name) for name in ("a", "b", "c")]
        self._start()

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self._fault()
            self.random.choice(self.clients).step()
            self.turn(1)
        self._heal()

    def turn(self, count: int) -> None:
        """Complete or fail what is held, and let time go on."""
        log = self.harness.log
        for _ in range(count):
            if log.hosted and self.random.random() < 0.7:
                log.complete(E.NOT_ENOUGH_REPLICAS_AFTER_APPEND if self.faults and self.random.random() < 0.1 else E.NONE)
            self.harness.clock.advance(self.random.choice((0, 0.01, 0.2)))

    def _start(self) -> None:
        self.harness.replace()
        self.harness.queues._open_channel = self._channel
        self.harness.coordinator.start()
        self.harness.loaded(self.epoch)

    def _fault(self) -> None:
        chance, log = self.random.random(), self.harness.log
        log.hold = chance < 0.5
        if chance < 0.02:
            self._crash()
        elif chance < 0.05:
            log.append_error = BrokerError(self.random.choice((E.NOT_ENOUGH_REPLICAS, E.REQUEST_TIMED_OUT)))
        elif chance < 0.15:
            log.append_error = None
        elif chance < 0.2:
            destinations: list[Destination | Unroutable] = [Destination(n, "h", 1) for n in (1, 2, 3)]
            self.harness.leaders.of[self.random.choice(PARTITIONS)] = self.random.choice([*destinations, Unroutable.NO_LEADER])
            self.harness.queues.leaders_changed({Destination(1, "h", 1)})
        elif chance < 0.21:
            self.harness.clock.advance(TIMEOUT_MS / 1000)

    def _crash(self) -> None:
        """The coordinator is killed, and the next one loads what is in the log: the last writes that were not completed may be lost."""
        log = self.harness.log
        self.harness.coordinator.stop()
        log.append_error = None
        lost = self.random.randint(0, len(log.hosted))
        if lost:
            del log.logs[0][-lost:]
            log.ends[0] -= lost  # one record in each batch
        held, log.hosted = log.hosted, []
        for append in held:
            append.errback(BrokerError(E.NOT_LEADER_OR_FOLLOWER))
        log.hold = False
        self.epoch += 1
        self._start()

    def _heal(self) -> None:
        log = self.harness.log
        self.faults, self.loss = False, 0
        log.append_error, log.hold = None, False
        for number, partition in enumerate(PARTITIONS):
            self.harness.leaders.of[partition] = Destination(number, "h", 1)
        for _ in range(100):
            self.turn(2)
        self.harness.queues.leaders_changed(set())
        self.harness.clock.pump([1] * (2 * TIMEOUT_MS // 1000))

    def _channel(self, destination: Destination) -> Any:
        return _UnreliableChannel(self)


class _UnreliableChannel:
    """Requests and answers are lost, or arrive late."""

    def __init__(self, history: History) -> None:
        self._history = history

    def send(self, request: WriteTxnMarkersRequest) -> Deferred[WriteTxnMarkersResponse]:
        history = self._history
        chance = history.random.random() if history.faults else 1.0
        if chance < 0.1:
            return fail(Closed("the request is lost"))
        leaders = history.harness.leaders
        for marker in request.markers:
            for topic in marker.topics:
                for index in topic.partition_indexes:
                    partition = TopicPartition(topic.name, index)
                    producer = Producer(marker.producer_id, marker.producer_epoch)
                    mark = history.partitions[partition].mark
                    leaders.codes[partition] = mark(producer, marker.transaction_result, marker.coordinator_epoch)
        answer = leaders.answer(request)
        if chance < 0.2:
            return fail(Closed("the answer is lost"))
        if chance < 0.5:
            late: Deferred[WriteTxnMarkersResponse] = Deferred()
            history.harness.clock.callLater(history.random.random(), late.callback, answer)
            return late
        return succeed(answer)

    def close(self) -> None:
        """Answers still arrive, to test that they change nothing."""


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("seed", quarter(range(40)))
def test_every_transaction_ends_as_a_whole(seed: int, version: int) -> None:
    history = History(seed, version)
    history.run(400)
    states = {record.state for record in history.harness.coordinator.states().values()}
    assert states <= {S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT}, "a transaction is open for ever"
    assert len(history.harness.queues) == 0
    assert not any(partition.open for partition in history.partitions.values()), "data without a marker"
    for transaction, places in history.written.items():
        ends = {history.partitions[place].ended[transaction] for place in places}
        assert len(ends) == 1, f"{transaction} is committed in some partitions only"
        if transaction in history.answered:
            assert ends == {history.answered[transaction]}, f"{transaction} did not end as its producer was answered"
    assert len(history.answered) >= 5, "the history has too few transactions"
