"""The records of `__transaction_state` are Kafka's, byte for byte: logs that Kafka 3.9 and 4.3 wrote are read, and written again."""

from __future__ import annotations

from pathlib import Path

import pytest

from txbroker.names import TopicPartition
from txbroker.transactions.transaction import Producer, Transaction, Transition
from txbroker.transactions.transaction_record import TransactionRecord, read_key, read_value, transaction_key, transaction_value
from txbroker.transactions.transaction_replay import TransactionReplay
from txbroker.transactions.transaction_states import TransactionState
from txbroker.wire import entries
from txbroker.wire.records import Record

S = TransactionState
GOLDEN = Path(__file__).parents[1] / "golden" / "transactions"
B0, T0, T1, T2 = TopicPartition("b", 0), TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("t", 2)
EMPTY: frozenset[TopicPartition] = frozenset()


def golden_log(release: str) -> bytes:
    return (GOLDEN / f"transaction_state_kafka_{release}.log").read_bytes()


def records(release: str) -> list[Record]:
    log = golden_log(release)
    scan = entries.Scan(log, check_crc=True)
    return [record for position, header in scan for record in entries.read_records(log, position, header, 1 << 20)]


def states(release: str) -> list[TransactionRecord]:
    return [read_value(record.value) for record in records(release) if record.value is not None]


def test_what_kafka_3_9_wrote_for_three_producers() -> None:
    assert [(s.state, s.producer_epoch, s.partitions) for s in states("3.9.1")] == [
        (S.EMPTY, 0, EMPTY), (S.ONGOING, 0, {T0, T1}), (S.ONGOING, 0, {B0, T0, T1}), (S.PREPARE_COMMIT, 0, {B0, T0, T1}),
        (S.COMPLETE_COMMIT, 0, EMPTY), (S.EMPTY, 1, EMPTY), (S.ONGOING, 1, {T2}), (S.PREPARE_ABORT, 2, {T2}),
        (S.COMPLETE_ABORT, 2, EMPTY), (S.EMPTY, 3, EMPTY),
    ]  # fmt: skip
    assert {(s.version, s.previous_producer_id, s.next_producer_id) for s in states("3.9.1")} == {(0, -1, -1)}


def test_what_kafka_4_3_wrote_for_a_producer_of_transactions_v2() -> None:
    found = states("4.3.1")
    assert [(s.state, s.producer_epoch) for s in found[:5]] == [
        (S.EMPTY, 0), (S.ONGOING, 0), (S.PREPARE_COMMIT, 1), (S.COMPLETE_COMMIT, 1), (S.ONGOING, 1)
    ]  # fmt: skip
    assert [s.version for s in found] == [0] + [2] * (len(found) - 1)


@pytest.mark.parametrize("release", ["3.9.1", "4.3.1"])
def test_the_same_states_are_written_with_the_same_bytes(release: str) -> None:
    compared = 0
    for record in records(release):
        assert record.key is not None and record.value is not None
        assert transaction_key(read_key(record.key) or "") == record.key
        state = read_value(record.value)
        if release == "4.3.1" and state.version == 0:
            continue  # Kafka writes value version 1 also before it knows the client's version
        if len(state.partitions) <= 1:  # the order of several has no meaning
            assert transaction_value(state) == record.value
            compared += 1
    assert compared >= 7


@pytest.mark.parametrize("release", ["3.9.1", "4.3.1"])
def test_a_log_of_kafka_is_replayed(release: str) -> None:
    replay = TransactionReplay()
    ends = list(replay.batches(golden_log(release)))
    assert (replay.record_count, replay.skipped_count) == (ends[-1], 0)
    assert replay.records == {"tx": states(release)[-1]}


def test_the_states_of_a_transaction_follow_each_other_as_in_kafka() -> None:
    """The machine, given the requests of that producer, decides what Kafka 4.3 has written."""
    found = states("4.3.1")
    transaction = Transaction("tx", found[0])
    for expected in found[1:]:
        now_ms = expected.update_ms
        if expected.state is S.ONGOING:
            transition: object = transaction.add_partitions(transaction.producer, expected.partitions, 2, now_ms)
        elif expected.state is S.PREPARE_COMMIT:
            transition = transaction.end(transaction.producer, commit=True, version=2, now_ms=now_ms)
        else:
            transaction.marked([T0])
            transition = transaction.complete(now_ms)
        assert isinstance(transition, Transition) and transition.record == expected
        transaction.begin(transition)
        transaction.settle(written=True)
    assert transaction.producer == Producer(0, found[-1].producer_epoch)
