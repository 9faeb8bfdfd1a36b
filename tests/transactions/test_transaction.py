"""The states of a transactional id: Kafka's answers in each state, and what holds after any sequence of requests and failed writes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from txbroker.errors import BrokerError, ErrorCode
from txbroker.names import TopicPartition
from txbroker.transactions.transaction import EPOCH_EXHAUSTED, NeedsProducerId, Producer, Repeated, Transaction, Transition
from txbroker.transactions.transaction_record import NO_EPOCH, TransactionRecord, read_key, read_value, transaction_key, transaction_value
from txbroker.transactions.transaction_states import BEFORE, TransactionState

S = TransactionState
TIMEOUT_MS = 60_000
P0, P1 = TopicPartition("a", 0), TopicPartition("b", 3)


def write(transaction: Transaction, transition: Transition | Repeated | None, *, written: bool = True) -> None:
    assert isinstance(transition, Transition)
    transaction.begin(transition)
    transaction.settle(written=written)


def initialized(epoch: int = 0, producer_id: int = 7) -> Transaction:
    transaction = Transaction.new("t", producer_id, TIMEOUT_MS, 1)
    write(transaction, transaction.initialize(TIMEOUT_MS, None, 1))
    transaction.record = replace(transaction.record, producer_epoch=epoch)
    return transaction


def ongoing(epoch: int = 0, version: int = 0) -> Transaction:
    transaction = initialized(epoch)
    write(transaction, transaction.add_partitions(transaction.producer, frozenset({P0}), version, 10))
    return transaction


def code(call: object) -> ErrorCode:
    assert callable(call)
    with pytest.raises(BrokerError) as caught:
        call()
    return caught.value.code


def end(transaction: Transaction, commit: bool = True, version: int = 0, producer: Producer | None = None) -> Transition | Repeated:
    return transaction.end(producer or transaction.producer, commit=commit, version=version, now_ms=20, new_id=99)


def test_each_initialization_raises_the_epoch() -> None:
    transaction = initialized()
    assert transaction.producer == Producer(7, 0)
    write(transaction, transaction.initialize(TIMEOUT_MS, None, 2))
    assert transaction.producer == Producer(7, 1)


def test_a_producer_that_recovers_raises_its_epoch_once_however_often_it_asks() -> None:
    transaction = initialized(epoch=4)
    for _ in range(3):
        write(transaction, transaction.initialize(TIMEOUT_MS, Producer(7, 4), 2))
        assert transaction.producer == Producer(7, 5)


@pytest.mark.parametrize("expected", [Producer(7, 3), Producer(8, 5), Producer(7, 6)])
def test_a_fenced_producer_cannot_recover(expected: Producer) -> None:
    transaction = initialized(epoch=4)
    write(transaction, transaction.initialize(TIMEOUT_MS, None, 2))
    assert code(lambda: transaction.initialize(TIMEOUT_MS, expected, 3)) is ErrorCode.PRODUCER_FENCED


def test_an_exhausted_epoch_is_followed_by_a_new_producer_id() -> None:
    transaction = initialized(epoch=EPOCH_EXHAUSTED)
    with pytest.raises(NeedsProducerId):
        transaction.initialize(TIMEOUT_MS, None, 2)
    write(transaction, transaction.initialize(TIMEOUT_MS, Producer(7, EPOCH_EXHAUSTED), 2, new_id=8))
    assert transaction.producer == Producer(8, 0)
    # The response was lost: the producer asks with its old id.
    write(transaction, transaction.initialize(TIMEOUT_MS, Producer(7, EPOCH_EXHAUSTED), 3))
    assert transaction.producer == Producer(8, 0)


def test_an_initialization_ends_the_transaction_of_the_producer_before() -> None:
    transaction = ongoing()
    fenced = transaction.initialize(TIMEOUT_MS, None, 30)
    assert (fenced.record.state, fenced.record.producer_epoch, fenced.record.partitions) == (S.PREPARE_ABORT, 1, frozenset({P0}))
    write(transaction, fenced, written=False)
    assert transaction.initialize(TIMEOUT_MS, None, 31).record.producer_epoch == 1, "a failed write raises the epoch once"
    write(transaction, fenced)
    assert code(lambda: transaction.initialize(TIMEOUT_MS, None, 32)) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert code(lambda: end(transaction, producer=Producer(7, 0))) is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("version", [0, 2])
def test_an_initialization_that_ends_a_transaction_raises_the_epoch_twice(version: int) -> None:
    """Once to fence, once for the new producer; with transactions v2 the end of the transaction does not raise it too (KAFKA-19367)."""
    transaction = ongoing(epoch=5, version=version)
    write(transaction, transaction.initialize(TIMEOUT_MS, None, 30))
    transaction.marked([P0])
    write(transaction, transaction.complete(31))
    write(transaction, transaction.initialize(TIMEOUT_MS, None, 32))
    assert (transaction.record.state, transaction.producer) == (S.EMPTY, Producer(7, 7))


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_is_complete_when_all_partitions_have_their_marker(commit: bool) -> None:
    transaction = ongoing()
    write(transaction, transaction.add_partitions(transaction.producer, frozenset({P0, P1}), 0, 11))
    write(transaction, end(transaction, commit))
    assert transaction.complete(21) is None
    transaction.marked([P0])
    assert transaction.complete(21) is None
    transaction.marked([P1])
    write(transaction, transaction.complete(21))
    assert transaction.record.state is (S.COMPLETE_COMMIT if commit else S.COMPLETE_ABORT)
    assert transaction.record.partitions == frozenset()
    assert transaction.producer == Producer(7, 0)


def test_partitions_that_are_present_are_not_written_again() -> None:
    transaction = ongoing()
    assert transaction.add_partitions(transaction.producer, frozenset({P0}), 0, 11) is None


@pytest.mark.parametrize(
    ("state", "commit", "expected"),
    [
        (S.EMPTY, True, ErrorCode.INVALID_TXN_STATE),
        (S.EMPTY, False, ErrorCode.INVALID_TXN_STATE),
        (S.PREPARE_COMMIT, True, ErrorCode.CONCURRENT_TRANSACTIONS),
        (S.PREPARE_COMMIT, False, ErrorCode.INVALID_TXN_STATE),
        (S.PREPARE_ABORT, False, ErrorCode.CONCURRENT_TRANSACTIONS),
        (S.PREPARE_ABORT, True, ErrorCode.INVALID_TXN_STATE),
        (S.COMPLETE_COMMIT, True, None),
        (S.COMPLETE_COMMIT, False, ErrorCode.INVALID_TXN_STATE),
        (S.COMPLETE_ABORT, False, None),
        (S.COMPLETE_ABORT, True, ErrorCode.INVALID_TXN_STATE),
    ],
)
def test_the_answers_to_end_txn_in_each_state(state: TransactionState, commit: bool, expected: ErrorCode | None) -> None:
    transaction = initialized()
    transaction.record = replace(transaction.record, state=state)
    if expected is None:
        assert end(transaction, commit) == Repeated(Producer(7, 0))
    else:
        assert code(lambda: end(transaction, commit)) is expected


def test_with_transactions_v2_each_end_raises_the_epoch_and_a_repeated_one_gets_the_same_answer() -> None:
    transaction = ongoing(version=2)
    before = transaction.producer
    write(transaction, end(transaction, version=2))
    assert transaction.producer == Producer(7, 1)
    assert code(lambda: end(transaction, version=2, producer=before)) is ErrorCode.CONCURRENT_TRANSACTIONS
    transaction.marked([P0])
    write(transaction, transaction.complete(21))
    assert end(transaction, version=2, producer=before) == Repeated(Producer(7, 1))
    assert code(lambda: end(transaction, commit=False, version=2, producer=before)) is ErrorCode.INVALID_TXN_STATE
    # A delayed EndTxn does not end the next transaction.
    write(transaction, transaction.add_partitions(transaction.producer, frozenset({P1}), 2, 30))
    assert code(lambda: end(transaction, version=2, producer=before)) is ErrorCode.PRODUCER_FENCED


def test_with_transactions_v2_an_exhausted_epoch_is_replaced_when_the_transaction_is_complete() -> None:
    transaction = ongoing(epoch=EPOCH_EXHAUSTED, version=2)
    with pytest.raises(NeedsProducerId):
        transaction.end(transaction.producer, commit=True, version=2, now_ms=20)
    write(transaction, end(transaction, version=2))
    assert transaction.producer == Producer(7, 32_767), "the markers' epoch"
    transaction.marked([P0])
    write(transaction, transaction.complete(21))
    assert transaction.producer == Producer(99, 0)
    assert end(transaction, version=2, producer=Producer(7, EPOCH_EXHAUSTED)) == Repeated(Producer(99, 0))


@pytest.mark.parametrize("state", [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_with_transactions_v2_a_producer_may_abort_without_partitions(state: TransactionState) -> None:
    transaction = initialized(epoch=3)
    transaction.record = replace(transaction.record, state=state)
    write(transaction, end(transaction, commit=False, version=2))
    assert (transaction.record.state, transaction.record.producer_epoch) == (S.PREPARE_ABORT, 4)
    write(transaction, transaction.complete(21))
    assert transaction.record.state is S.COMPLETE_ABORT


def test_a_transaction_is_aborted_after_its_timeout_and_its_producer_fenced() -> None:
    transaction = ongoing()
    write(transaction, transaction.abort_timed_out(10 + TIMEOUT_MS))
    assert (transaction.record.state, transaction.record.producer_epoch) == (S.PREPARE_ABORT, 1)


def test_an_id_that_is_busy_refuses_changes_and_still_verifies() -> None:
    transaction = ongoing()
    added = transaction.add_partitions(transaction.producer, frozenset({P1}), 0, 11)
    assert added is not None
    transaction.begin(added)
    for call in (
        lambda: transaction.initialize(TIMEOUT_MS, None, 12),
        lambda: transaction.add_partitions(transaction.producer, frozenset({P1}), 0, 12),
        lambda: end(transaction),
    ):
        assert code(call) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert transaction.abort_timed_out(10**9) is None
    assert transaction.verify(transaction.producer, [P0, P1]) == {P0: True, P1: False}


def test_an_unused_id_expires() -> None:
    transaction = initialized()
    assert transaction.expire(1_000, 1_000) is None
    dead = transaction.expire(1_001, 1_000)
    assert dead is not None and dead.record.state is S.DEAD
    assert ongoing().expire(10**12, 1_000) is None


RECORDS = st.builds(
    TransactionRecord,
    producer_id=st.integers(0, 2**63 - 1),
    producer_epoch=st.integers(-1, 32_767),
    timeout_ms=st.integers(1, 2**31 - 1),
    state=st.sampled_from([state for state in S if state not in (S.EMPTY, S.DEAD, S.PREPARE_EPOCH_FENCE)]),
    update_ms=st.integers(0, 2**62),
    partitions=st.frozensets(st.builds(TopicPartition, st.sampled_from(["a", "b", "ü"]), st.integers(0, 2**31 - 1)), max_size=6),
    start_ms=st.integers(-1, 2**62),
    previous_producer_id=st.integers(-1, 2**63 - 1),
    next_producer_id=st.integers(-1, 2**63 - 1),
    version=st.just(2),
)


@given(RECORDS, st.text(max_size=20).filter(lambda text: text.isprintable()))
def test_records_are_read_as_they_were_written(record: TransactionRecord, transactional_id: str) -> None:
    assume(record.previous_producer_id != record.producer_id)  # in a value that means that none was replaced
    assert read_value(transaction_value(record)) == record
    assert read_key(transaction_key(transactional_id)) == transactional_id


class Model:
    """A random client of one id: every answer and every write may be lost. `acknowledged`: the producers that clients were given."""

    def __init__(self, transaction: Transaction) -> None:
        self.transaction = transaction
        self.next_id = 100
        self.now_ms = 100
        self.clients: list[Producer] = []
        self.history: list[TransactionRecord] = [transaction.record]

    def step(self, action: str, client: int, version: int, written: bool) -> None:
        transaction = self.transaction
        self.now_ms += 10
        producer = self.clients[client % len(self.clients)] if self.clients else None
        before = transaction.record
        try:
            transition = self.decide(action, producer, version)
        except BrokerError:
            assert transaction.record is before
            return
        if not isinstance(transition, Transition):
            return
        transaction.begin(transition)
        transaction.settle(written=written)
        assert (transaction.record is before) != written
        if written:
            self.history.append(transaction.record)
            if transaction.record.state is S.EMPTY and transaction.producer not in self.clients:
                self.clients.append(transaction.producer)

    def decide(self, action: str, producer: Producer | None, version: int) -> Transition | Repeated | None:
        transaction = self.transaction
        self.next_id += 1
        if action == "new":
            return transaction.initialize(TIMEOUT_MS, None, self.now_ms, self.next_id)
        if action == "complete":
            transaction.marked(list(transaction.unmarked))
            return transaction.complete(self.now_ms)
        if action == "timeout":
            self.now_ms += TIMEOUT_MS
            return transaction.abort_timed_out(self.now_ms)
        if producer is None:
            return None
        if action == "recover":
            return transaction.initialize(TIMEOUT_MS, producer, self.now_ms, self.next_id)
        if action == "add":
            return transaction.add_partitions(producer, frozenset({P0, P1}), version, self.now_ms)
        return transaction.end(producer, commit=action == "commit", version=version, now_ms=self.now_ms, new_id=self.next_id)


ACTIONS = st.sampled_from(["new", "recover", "add", "add", "commit", "abort", "complete", "complete", "timeout"])


@given(
    st.lists(st.tuples(ACTIONS, st.integers(0, 5), st.sampled_from([0, 2]), st.integers(0, 4).map(bool)), max_size=60),
    st.sampled_from([0, 32_760, 32_764]),
)
def test_no_sequence_of_requests_breaks_the_rules(steps: list[tuple[str, int, int, bool]], epoch: int) -> None:
    model = Model(initialized(epoch))
    for action, client, version, written in steps:
        model.step(action, client, version, written)
    for earlier, later in zip(model.history, model.history[1:], strict=False):
        assert earlier.state in BEFORE[later.state]
        if earlier.producer_id == later.producer_id:
            assert earlier.producer_epoch <= later.producer_epoch <= 32_767, "an epoch never goes back"
        else:
            assert later.producer_id > earlier.producer_id and later.producer_epoch == 0
            assert later.previous_producer_id == earlier.producer_id
        if later.state in (S.PREPARE_COMMIT, S.PREPARE_ABORT) and earlier.state is S.ONGOING:
            assert later.partitions == earlier.partitions, "every partition of the transaction gets its marker"
        assert later.state in (S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT) or not later.partitions
        assert later.producer_epoch != NO_EPOCH


def ended(transaction: Transaction, version: int = 0) -> None:
    """End the transaction, with all its markers."""
    write(transaction, end(transaction, version=version))
    transaction.marked(transaction.record.partitions)
    write(transaction, transaction.complete(30))


def test_a_transaction_keeps_the_time_of_its_start() -> None:
    transaction = ongoing()
    write(transaction, transaction.add_partitions(transaction.producer, frozenset({P1}), 0, 15))
    assert (transaction.record.start_ms, transaction.record.update_ms, transaction.record.partitions) == (10, 15, frozenset({P0, P1}))
    write(transaction, end(transaction))
    assert (transaction.record.start_ms, transaction.record.update_ms) == (10, 20)
    transaction.marked({P0, P1})
    write(transaction, transaction.complete(30))
    write(transaction, transaction.add_partitions(transaction.producer, frozenset({P1}), 0, 40))
    assert (transaction.record.start_ms, transaction.record.partitions) == (40, frozenset({P1}))


def test_a_recovery_may_be_repeated_after_a_transaction() -> None:
    transaction = initialized(epoch=4)
    write(transaction, transaction.initialize(TIMEOUT_MS, Producer(7, 4), 5))
    write(transaction, transaction.add_partitions(Producer(7, 5), frozenset({P0}), 0, 10))
    ended(transaction)
    write(transaction, transaction.initialize(TIMEOUT_MS, Producer(7, 4), 40))
    assert transaction.producer == Producer(7, 5)


def test_with_transactions_v2_a_producer_recovers_with_the_epoch_before_an_end_that_was_not_answered() -> None:
    transaction = ongoing(version=2)
    ended(transaction, version=2)
    write(transaction, transaction.initialize(TIMEOUT_MS, Producer(7, 0), 40))
    assert transaction.producer == Producer(7, 1)


@pytest.mark.parametrize("commit", [False, True])
def test_with_transactions_v2_the_epoch_that_an_end_raises_is_fenced_until_the_end(commit: bool) -> None:
    transaction = ongoing(version=2)
    write(transaction, end(transaction, commit, version=2))
    assert transaction.producer == Producer(7, 1)
    assert code(lambda: end(transaction, commit, version=2)) is ErrorCode.PRODUCER_FENCED


def test_a_transaction_is_completed_once() -> None:
    transaction = ongoing()
    write(transaction, end(transaction))
    transaction.marked({P0})
    completed = transaction.complete(30)
    assert completed is not None
    transaction.begin(completed)
    assert transaction.complete(31) is None
    transaction.settle(written=False)
    assert transaction.complete(32) is not None


def test_of_a_producer_id_that_was_replaced_only_the_last_epoch_is_known() -> None:
    transaction = initialized(EPOCH_EXHAUSTED)
    write(transaction, transaction.initialize(TIMEOUT_MS, Producer(7, EPOCH_EXHAUSTED), 5, new_id=99))
    assert transaction.producer == Producer(99, 0)
    assert code(lambda: transaction.initialize(TIMEOUT_MS, Producer(7, 0), 6)) is ErrorCode.PRODUCER_FENCED
    write(transaction, transaction.initialize(TIMEOUT_MS, Producer(7, EPOCH_EXHAUSTED), 7))
    assert transaction.producer == Producer(99, 0)
    write(transaction, transaction.add_partitions(Producer(99, 0), frozenset({P0}), 0, 10))
    write(transaction, end(transaction))
    replaced = Producer(7, EPOCH_EXHAUSTED)
    assert code(lambda: end(transaction, version=2, producer=replaced)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_a_producer_with_another_id_never_repeats_an_end() -> None:
    transaction = initialized()
    for other in (Producer(99, EPOCH_EXHAUSTED), Producer(-1, EPOCH_EXHAUSTED)):
        assert code(lambda other=other: end(transaction, False, 2, other)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    replaced = initialized(EPOCH_EXHAUSTED)
    write(replaced, replaced.initialize(TIMEOUT_MS, Producer(7, EPOCH_EXHAUSTED), 5, new_id=99))
    assert code(lambda: end(replaced, False, 2, Producer(55, EPOCH_EXHAUSTED))) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
