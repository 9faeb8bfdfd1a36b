"""The transaction coordinator: what is written, what is sent, and what holds when writes fail, leaders vanish and coordinators change."""

from __future__ import annotations

import logging

import pytest

from tests.transactions.coordinator_harness import ONE, P0, P1, Q0, TIMEOUT_MS, TWO, E, S, TransactionHarness, Waiting
from txbroker.errors import BrokerError, StorageError
from txbroker.names import TopicPartition
from txbroker.transactions import coordinator
from txbroker.transactions.marker_queues import Unroutable
from txbroker.transactions.transaction import EPOCH_EXHAUSTED, Producer
from txbroker.transactions.transaction_record import NO_EPOCH, TransactionRecord, transaction_key, transaction_value


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_from_its_first_partition_to_its_end(commit: bool) -> None:
    harness = TransactionHarness().loaded(epoch=7)
    producer = harness.initialize()
    assert producer == Producer(4_000, 0)
    assert harness.add(producer, P0, P1) is None
    assert harness.add(producer, Q0) is None
    assert harness.add(producer, P1) is None, "a partition that belongs to it already"
    assert harness.end(producer, commit) == producer
    prepared, complete = (S.PREPARE_COMMIT, S.COMPLETE_COMMIT) if commit else (S.PREPARE_ABORT, S.COMPLETE_ABORT)
    assert harness.written() == [("t", state) for state in (S.EMPTY, S.ONGOING, S.ONGOING, prepared, complete)]
    assert {destination for destination, _ in harness.leaders.sent} == {ONE, TWO}
    assert all(harness.leaders.markers(p) == [(4_000, 0, commit)] for p in (P0, P1, Q0))
    assert {marker.coordinator_epoch for _, request in harness.leaders.sent for marker in request.markers} == {7}
    assert harness.end(producer, commit) == producer, "a repeated request"
    assert harness.end(producer, not commit) == E.INVALID_TXN_STATE


def test_a_transaction_is_decided_before_its_markers_are_sent() -> None:
    harness = TransactionHarness().loaded()
    producer = harness.ongoing()
    harness.log.hold = True
    ending = harness.end(producer)
    assert isinstance(ending, Waiting) and not harness.leaders.sent
    assert harness.add(producer, P1) == E.CONCURRENT_TRANSACTIONS
    assert harness.initialize() == E.CONCURRENT_TRANSACTIONS
    harness.log.complete()
    assert ending.result() == producer and harness.leaders.markers(P0) == [(4_000, 0, True)]
    assert harness.state() is S.PREPARE_COMMIT, "its end is being written"
    harness.log.complete()
    assert harness.state() is S.COMPLETE_COMMIT


@pytest.mark.parametrize(
    ("failure", "answer"),
    [
        (E.NOT_ENOUGH_REPLICAS, E.COORDINATOR_NOT_AVAILABLE),
        (E.NOT_ENOUGH_REPLICAS_AFTER_APPEND, E.COORDINATOR_NOT_AVAILABLE),
        (E.REQUEST_TIMED_OUT, E.COORDINATOR_NOT_AVAILABLE),
        (E.NOT_LEADER_OR_FOLLOWER, E.NOT_COORDINATOR),
        (E.KAFKA_STORAGE_ERROR, E.NOT_COORDINATOR),
        (E.MESSAGE_TOO_LARGE, E.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_write_that_fails_changes_nothing(failure: E, answer: E) -> None:
    harness = TransactionHarness().loaded()
    producer = harness.ongoing()
    harness.log.append_error = BrokerError(failure)
    assert harness.add(producer, P1) == harness.end(producer) == harness.initialize() == answer
    harness.log.append_error = None
    assert (harness.state(), harness.record().partitions, harness.leaders.sent) == (S.ONGOING, frozenset({P0}), [])
    assert harness.end(producer) == producer


def test_an_initialization_whose_write_fails_raises_the_epoch_once() -> None:
    """KAFKA-9666: the state topic is below its minimum ISR for long."""
    harness = TransactionHarness().loaded()
    harness.ongoing()
    harness.log.append_error = BrokerError(E.NOT_ENOUGH_REPLICAS)
    for _ in range(50):
        assert harness.initialize() == E.COORDINATOR_NOT_AVAILABLE
    harness.log.append_error = None
    assert harness.initialize() == E.CONCURRENT_TRANSACTIONS, "the transaction of the producer before is aborted"
    assert harness.leaders.markers(P0) == [(4_000, 1, False)]
    assert harness.initialize() == Producer(4_000, 2)


def test_no_epoch_blocks_an_id() -> None:
    """KAFKA-5283, KAFKA-20090: the last epochs of a producer id, with and without an epoch for each transaction."""
    harness = TransactionHarness()
    at_its_end = TransactionRecord(
        producer_id=4_000, producer_epoch=EPOCH_EXHAUSTED - 4, timeout_ms=TIMEOUT_MS, state=S.COMPLETE_COMMIT, update_ms=harness.now_ms
    )
    harness.log.put(0, [(transaction_key("t"), transaction_value(at_its_end))])
    next(harness.ids)
    producer = harness.loaded().initialize()
    assert producer == Producer(4_000, EPOCH_EXHAUSTED - 3)
    seen = []
    for _ in range(6):
        assert harness.add(producer, P0, version=2) is None
        producer = harness.end(producer, version=2)
        seen.append(producer)
    assert seen == [Producer(4_000, EPOCH_EXHAUSTED - 2), Producer(4_000, EPOCH_EXHAUSTED - 1), Producer(4_000, EPOCH_EXHAUSTED),
                    Producer(4_001, 0), Producer(4_001, 1), Producer(4_001, 2)]  # fmt: skip
    marked = [epoch for _, epoch, _ in harness.leaders.markers(P0)]
    assert marked == [EPOCH_EXHAUSTED - 2, EPOCH_EXHAUSTED - 1, EPOCH_EXHAUSTED, 32_767, 1, 2]
    assert harness.record().previous_producer_id == 4_000


def test_a_delayed_end_of_an_earlier_transaction_is_refused_with_an_epoch_for_each() -> None:
    """What Jepsen found: an EndTxn over another connection ended a later transaction. Only KIP-890's epochs prevent it."""
    harness = TransactionHarness().loaded()
    first = harness.ongoing(version=2)
    second = harness.end(first, version=2)
    assert harness.add(second, P0, version=2) is None
    assert harness.end(first, False, version=2) == harness.end(first, True, version=2) == E.PRODUCER_FENCED
    assert harness.add(first, P1, version=2) == E.PRODUCER_FENCED
    assert harness.record().state is S.ONGOING and harness.record().partitions == {P0}


def test_a_repeated_end_is_answered_as_the_first() -> None:
    harness = TransactionHarness().loaded()
    first = harness.ongoing(version=2)
    second = harness.end(first, version=2)
    assert second == Producer(4_000, 1) == harness.end(first, version=2)
    assert harness.end(first, False, version=2) == E.INVALID_TXN_STATE, "it was committed"
    assert harness.end(second, True, version=2) == E.INVALID_TXN_STATE, "nothing was added"
    assert harness.end(second, False, version=2) == Producer(4_000, 2), "a producer may abort what was perhaps added"


def test_a_transaction_that_times_out_is_aborted_and_its_producer_fenced(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "txbroker.transactions")
    harness = TransactionHarness(abort_interval_ms=1_000).loaded()
    harness.coordinator.start()
    producer = harness.ongoing()
    harness.clock.advance(TIMEOUT_MS / 1000 - 1)
    assert harness.state() is S.ONGOING
    caplog.clear()
    harness.clock.pump([1, 1])
    assert caplog.messages == [
        "transactional id t: its transaction of producer 4000 with epoch 0 is aborted after its timeout of 60000 ms",
    ]
    assert harness.state() is S.COMPLETE_ABORT and harness.leaders.markers(P0) == [(4_000, 1, False)]
    assert harness.end(producer) == harness.add(producer, P0) == harness.initialize(producer) == E.PRODUCER_FENCED
    assert harness.initialize() == Producer(4_000, 2)


@pytest.mark.parametrize("step_s", [120, -120, 86_400, -86_400])
def test_a_step_of_the_wall_clock_does_not_move_a_timeout(step_s: int) -> None:
    harness = TransactionHarness(abort_interval_ms=1_000).loaded()
    harness.coordinator.start()
    harness.ongoing()
    harness.ahead_ms += step_s * 1000
    harness.clock.pump([1] * (TIMEOUT_MS // 1000 - 2))
    assert harness.state() is S.ONGOING
    harness.clock.pump([1] * 4)
    assert harness.state() is S.COMPLETE_ABORT


@pytest.mark.parametrize(("step_s", "left_s"), [(0, 20), (10, 10), (120, 0), (-10, 30), (-86_400, 60)])
def test_a_new_coordinator_times_the_rest_of_a_timeout(step_s: int, left_s: int) -> None:
    """By the date of its start; a clock that went back cannot make it longer than the whole."""
    harness = TransactionHarness(abort_interval_ms=1_000).loaded()
    harness.ongoing()
    harness.clock.advance(TIMEOUT_MS / 1000 - 20)
    harness.coordinator.stop()
    harness.ahead_ms += step_s * 1000
    harness.replace()
    harness.loaded(1)
    harness.coordinator.start()
    harness.clock.pump([1] * max(0, left_s - 2))
    assert harness.state() is S.ONGOING
    harness.clock.pump([1] * 4)
    assert harness.state() is S.COMPLETE_ABORT


def test_a_transaction_is_aborted_before_its_timeout_on_request() -> None:
    harness = TransactionHarness().loaded()
    producer = harness.ongoing()
    (hosted,) = harness.coordinator
    harness.coordinator.abort(hosted)
    assert harness.state() is S.COMPLETE_ABORT
    assert harness.end(producer) == E.PRODUCER_FENCED
    harness.coordinator.abort(hosted)
    assert harness.state() is S.COMPLETE_ABORT, "there is no transaction: nothing changes"


def test_a_timeout_while_the_end_is_being_written_changes_nothing() -> None:
    harness = TransactionHarness(abort_interval_ms=1_000).loaded()
    harness.coordinator.start()
    producer = harness.ongoing()
    harness.log.hold = True
    ending = harness.end(producer)
    harness.clock.advance(2 * TIMEOUT_MS / 1000)
    harness.log.hold = False
    harness.log.complete()
    assert ending.result() == producer and harness.state() is S.COMPLETE_COMMIT


def test_a_participant_without_a_leader_delays_the_next_transaction_only() -> None:
    """Kafka's KAFKA-9777: a skipped partition left its transaction open."""
    harness = TransactionHarness().loaded()
    producer = harness.ongoing(P0, Q0)
    harness.leaders.of[Q0] = Unroutable.NO_LEADER
    assert harness.end(producer) == producer
    harness.clock.pump([60] * 60)
    assert harness.state() is S.PREPARE_COMMIT and harness.leaders.markers(Q0) == []
    assert harness.initialize() == harness.add(producer, P0) == harness.end(producer) == E.CONCURRENT_TRANSACTIONS
    harness.leaders.of[Q0] = TWO
    harness.queues.leaders_changed({ONE, TWO})
    assert harness.state() is S.COMPLETE_COMMIT and harness.leaders.markers(Q0) == [(4_000, 0, True)]
    assert len(harness.leaders.markers(P0)) == 1
    assert harness.initialize() == Producer(4_000, 1)


def test_a_deleted_partition_needs_no_marker() -> None:
    harness = TransactionHarness().loaded()
    producer = harness.ongoing(P0, Q0)
    del harness.leaders.of[Q0]
    assert harness.end(producer) == producer and harness.state() is S.COMPLETE_COMMIT
    harness.leaders.codes[P0] = E.NOT_LEADER_OR_FOLLOWER
    assert harness.add(producer, P0) is None and harness.end(producer) == producer
    harness.clock.pump([1] * 5)
    assert harness.state() is S.PREPARE_COMMIT
    del harness.leaders.of[P0]
    harness.clock.pump([1])
    assert harness.state() is S.COMPLETE_COMMIT


@pytest.mark.parametrize(
    "error",
    [E.NOT_LEADER_OR_FOLLOWER, E.UNKNOWN_TOPIC_OR_PARTITION, E.NOT_ENOUGH_REPLICAS_AFTER_APPEND, E.REQUEST_TIMED_OUT, E.KAFKA_STORAGE_ERROR,
     E.UNKNOWN_SERVER_ERROR],
)  # fmt: skip
def test_a_marker_is_sent_until_it_is_written(error: E) -> None:
    harness = TransactionHarness().loaded()
    producer = harness.ongoing(P0, P1)
    harness.leaders.codes[P0] = error
    assert harness.end(producer) == producer
    harness.clock.pump([1] * 3)
    assert harness.state() is S.PREPARE_COMMIT and len(harness.leaders.markers(P1)) == 1 < len(harness.leaders.markers(P0))
    harness.leaders.codes.clear()
    harness.clock.pump([1])
    assert harness.state() is S.COMPLETE_COMMIT


@pytest.mark.parametrize("error", [E.TRANSACTION_COORDINATOR_FENCED, E.INVALID_PRODUCER_EPOCH])
def test_a_replaced_coordinator_stops_sending_its_markers(error: E, caplog: pytest.LogCaptureFixture) -> None:
    harness = TransactionHarness().loaded()
    producer = harness.ongoing(P0, Q0)
    harness.leaders.codes[P0] = error
    harness.leaders.of[Q0] = Unroutable.NO_LEADER
    assert harness.end(producer) == producer
    harness.leaders.of[Q0] = TWO
    harness.clock.pump([1] * 5)
    assert len(harness.leaders.markers(P0)) == 1 and harness.leaders.markers(Q0) == []
    assert harness.state() is S.PREPARE_COMMIT and len(harness.queues) == 0
    assert "a newer coordinator or producer exists" in caplog.text


def test_one_request_to_a_leader_is_in_flight_and_the_next_carries_all_that_wait() -> None:
    harness = TransactionHarness(partitions=3).loaded()
    producers = {name: harness.ongoing(P0, name=name) for name in "abcd"}
    harness.leaders.hold = True
    for name, producer in producers.items():
        assert harness.end(producer, name=name) == producer
    assert [len(request.markers) for _, request in harness.leaders.sent] == [1]
    harness.leaders.release()
    assert [len(request.markers) for _, request in harness.leaders.sent] == [1, 3]
    harness.leaders.release()
    assert all(record.state is S.COMPLETE_COMMIT for record in harness.coordinator.states().values())


def test_markers_follow_the_leader_of_their_partition() -> None:
    harness = TransactionHarness().loaded()
    producer = harness.ongoing(P0, P1)
    harness.leaders.hold = True
    assert harness.end(producer) == producer
    moved = ONE._replace(port=9093)  # the broker restarts at another port, or another one leads
    harness.leaders.of |= {P0: moved, P1: moved}
    harness.queues.leaders_changed({moved, TWO})
    assert [destination for destination, _ in harness.leaders.sent] == [ONE, moved] and harness.leaders.open == [moved]
    (_, request) = harness.leaders.held[-1]
    harness.leaders.held[-1][0].callback(harness.leaders.answer(request))
    assert harness.state() is S.COMPLETE_COMMIT


def test_the_next_coordinator_goes_on_with_a_prepared_transaction() -> None:
    harness = TransactionHarness().loaded(epoch=1)
    producer = harness.ongoing(P0, P1)
    harness.leaders.hold = True
    assert harness.end(producer) == producer
    harness.coordinator.stop()
    assert not harness.clock.getDelayedCalls()
    harness.replace()
    harness.leaders.hold = False
    harness.loaded(epoch=2)
    assert harness.state() is S.COMPLETE_COMMIT
    assert [m.coordinator_epoch for _, request in harness.leaders.sent for m in request.markers] == [1, 2]
    harness.replace()
    assert harness.loaded(epoch=3).state() is S.COMPLETE_COMMIT and len(harness.leaders.sent) == 2
    assert harness.initialize() == Producer(4_000, 1)


def test_an_open_transaction_is_the_same_with_the_next_coordinator() -> None:
    harness = TransactionHarness(abort_interval_ms=1_000).loaded()
    producer = harness.ongoing(P0)
    harness.coordinator.stop()
    harness.replace()
    harness.loaded(epoch=1)
    assert harness.add(producer, Q0) is None and harness.end(producer) == producer
    assert harness.record().state is S.COMPLETE_COMMIT
    assert harness.leaders.markers(P0) == harness.leaders.markers(Q0) == [(4_000, 0, True)]


def test_loading_and_unloading_in_any_order_leave_what_the_log_has() -> None:
    """KAFKA-9307: the state of an earlier term made a load fail."""
    harness = TransactionHarness().loaded(epoch=0)
    producer = harness.ongoing(P0)
    harness.log.hold_reads = True
    harness.coordinator.unload(0)
    assert harness.end(producer) == E.NOT_COORDINATOR
    harness.coordinator.load(0, 2)
    assert harness.end(producer) == E.COORDINATOR_LOAD_IN_PROGRESS
    with pytest.raises(BrokerError):
        harness.coordinator.states()
    harness.coordinator.unload(0)
    assert harness.end(producer) == E.NOT_COORDINATOR
    harness.log.hold_reads = False
    harness.coordinator.load(0, 4)
    harness.coordinator.load(0, 3)
    for deferred, chunk in harness.log.held_reads:
        deferred.callback(chunk)
    assert harness.end(producer) == producer and harness.state() is S.COMPLETE_COMMIT
    assert {marker.coordinator_epoch for _, request in harness.leaders.sent for marker in request.markers} == {4}


def test_a_write_that_ends_after_the_resignation_is_left_to_the_next_coordinator() -> None:
    harness = TransactionHarness().loaded()
    producer = harness.ongoing(P0)
    harness.log.hold = True
    ending = harness.end(producer)
    harness.coordinator.unload(0)
    harness.log.hold = False
    harness.log.complete()
    assert ending.result() == E.NOT_COORDINATOR and not harness.leaders.sent
    harness.loaded(epoch=1)
    assert harness.state() is S.COMPLETE_COMMIT and harness.leaders.markers(P0) == [(4_000, 0, True)]


def ended_without_a_record() -> TransactionHarness:
    """The partitions have their markers, and the log refuses the end."""
    harness = TransactionHarness().loaded()
    producer = harness.ongoing(P0)
    harness.leaders.hold = True
    assert harness.end(producer) == producer
    harness.log.append_error = BrokerError(E.NOT_ENOUGH_REPLICAS)
    harness.leaders.release()
    return harness


def test_the_end_is_written_until_it_is_in_the_log() -> None:
    harness = ended_without_a_record()
    harness.clock.pump([1] * 5)
    assert harness.state() is S.PREPARE_COMMIT
    harness.log.append_error = None
    harness.clock.pump([1])
    assert harness.state() is S.COMPLETE_COMMIT and len(harness.leaders.sent) == 1


def test_an_end_that_was_not_written_is_left_to_the_next_coordinator() -> None:
    harness = ended_without_a_record()
    assert harness.coordinator.retry_count == 1
    harness.log.append_error = None
    before = len(harness.log.appends)
    harness.coordinator.unload(0)
    assert harness.coordinator.retry_count == 0
    harness.clock.pump([1] * 5)
    assert len(harness.log.appends) == before


def test_a_partition_that_cannot_be_read_has_no_coordinator(caplog: pytest.LogCaptureFixture) -> None:
    harness = TransactionHarness()
    harness.log.read_error = StorageError("the disk is gone")
    with caplog.at_level(logging.CRITICAL, "txbroker"):
        harness.loaded()
    assert harness.initialize() == E.NOT_COORDINATOR
    harness.log.read_error = None
    assert harness.loaded(epoch=1).initialize() == Producer(4_000, 0)


def test_ids_expire_with_tombstones() -> None:
    """KAFKA-14880: also one whose first write failed."""
    day_ms = 24 * 60 * 60_000
    harness = TransactionHarness(id_expiration_ms=day_ms).loaded()
    harness.initialize(name="old")
    producer = harness.ongoing(name="open")
    harness.log.append_error = BrokerError(E.NOT_ENOUGH_REPLICAS)
    assert harness.initialize(name="failed") == E.COORDINATOR_NOT_AVAILABLE
    assert harness.record("failed").producer_epoch == NO_EPOCH
    harness.ahead_ms += day_ms
    harness.initialize(name="new")
    harness.coordinator.remove_expired()
    assert harness.coordinator.states().keys() == {"old", "open", "failed", "new"}, "the tombstones were not written"
    harness.log.append_error = None
    harness.initialize(name="new")
    harness.coordinator.remove_expired()
    assert harness.coordinator.states().keys() == {"open", "new"}
    assert [name for name, state in harness.written() if state is None] == ["old", "failed"]
    assert harness.add(Producer(4_000, 0), P0, name="old") == E.INVALID_PRODUCER_ID_MAPPING
    assert harness.end(producer, name="open") == producer
    harness.replace()
    assert harness.loaded().coordinator.states().keys() == {"open", "new"}


def test_many_expired_ids_have_tombstones_in_several_batches(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(coordinator, "TOMBSTONES_PER_BATCH", 2)
    caplog.set_level(logging.INFO, "txbroker.transactions")
    harness = TransactionHarness(id_expiration_ms=1_000).loaded()
    for name in "abc":
        harness.initialize(name=name)
    harness.ahead_ms += 1_000
    before = len(harness.log.appends)
    caplog.clear()
    harness.coordinator.remove_expired()
    assert caplog.messages == ["__transaction_state-0: removing 3 expired transactional ids"]
    assert [len(pairs) for _, pairs in harness.log.appends[before:]] == [2, 1]
    assert harness.coordinator.states() == {}


def test_an_append_that_fails_by_a_defect_names_the_first_id_of_its_batch(caplog: pytest.LogCaptureFixture) -> None:
    harness = TransactionHarness(id_expiration_ms=1_000).loaded()
    harness.initialize(name="first")
    harness.ahead_ms += 1_000
    harness.log.append_error = RuntimeError("injected")
    harness.coordinator.remove_expired()
    assert "transactional id first: internal error while appending its records" in caplog.text
    assert harness.coordinator.states().keys() == {"first"}


def test_verification_needs_the_partition_in_the_open_transaction() -> None:
    harness = TransactionHarness().loaded()
    producer = harness.ongoing(P0)
    verify = harness.coordinator.verify
    assert verify("t", producer, [P0, P1]) == {P0: True, P1: False}
    harness.log.hold = True
    adding = harness.add(producer, P1)
    assert verify("t", producer, [P0, P1]) == {P0: True, P1: False}, "KAFKA-14904: also while another partition is being added"
    harness.log.complete()
    assert adding.result() is None and verify("t", producer, [P1]) == {P1: True}
    harness.log.hold = False
    for wrong, code in ((Producer(1, 0), E.INVALID_PRODUCER_ID_MAPPING), (Producer(4_000, 5), E.PRODUCER_FENCED)):
        with pytest.raises(BrokerError) as caught:
            verify("t", wrong, [P0])
        assert caught.value.code == code
    assert harness.end(producer) == producer
    assert verify("t", producer, [P0]) == {P0: False}


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_timeout_out_of_range_is_refused(timeout_ms: int) -> None:
    assert TransactionHarness().loaded().initialize(timeout_ms=timeout_ms) == E.INVALID_TRANSACTION_TIMEOUT


def test_an_unknown_id_and_another_coordinators_id_are_refused() -> None:
    harness = TransactionHarness()
    assert harness.initialize() == harness.end(Producer(1, 0)) == E.NOT_COORDINATOR
    harness.loaded()
    assert harness.end(Producer(1, 0)) == harness.add(Producer(1, 0), P0) == E.INVALID_PRODUCER_ID_MAPPING
    assert harness.initialize(name="") == E.INVALID_REQUEST
    with pytest.raises(BrokerError) as caught:
        harness.coordinator.describe("t")
    assert caught.value.code == E.TRANSACTIONAL_ID_NOT_FOUND
    assert harness.initialize(Producer(9, 3)) == Producer(4_000, 0), "KIP-360: a new id for a producer whose own has expired"
    harness.coordinator.stop()
    assert harness.initialize() == harness.add(Producer(4_000, 0), TopicPartition("p", 0)) == E.COORDINATOR_NOT_AVAILABLE
