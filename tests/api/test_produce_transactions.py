"""Produce in transactions: the leader asks the coordinator before the first batch of a transaction in a partition (KIP-890)."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import Deferred

from tests.cluster.replica_host import OTHER, OWN, TOPIC, Fetching, ReplicaHost
from tests.log.support import NOW, batch
from txbroker.broker.transaction_coordinators import OWN as OWN_COORDINATOR
from txbroker.broker.transaction_coordinators import TransactionCoordinators
from txbroker.client.client_errors import Closed, Silent
from txbroker.cluster.image import ClusterImage
from txbroker.cluster.partition import Partition
from txbroker.errors import BrokerError, ErrorCode
from txbroker.log import appending
from txbroker.log.log_results import Origin
from txbroker.transactions import verification
from txbroker.transactions.verification import RETRY_MAX_S, RETRY_S
from txbroker.wire import legacy
from txbroker.wire.codec import decode, encode_bytes
from txbroker.wire.control import Marker, build_marker
from txbroker.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from txbroker.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from txbroker.wire.messages.update_metadata import UpdateMetadataBroker, UpdateMetadataEndpoint, UpdateMetadataRequest
from txbroker.wire.records import Record

E = ErrorCode
ID = 5
TXN_ID = "my-transactions"
V1, V2 = 11, 12  # versions of Produce: the client adds partitions itself, or not


class Coordinator:
    """The model of a coordinator: a test answers its requests. `where`: the broker that `find` returns."""

    def __init__(self) -> None:
        self.where: str | None = "broker 7"
        self.asked: list[str] = []  # transactional ids
        self.opened: list[object] = []
        self.closed = 0
        self.requests: list[AddPartitionsToTxnRequest] = []
        self._answers: list[Deferred[Any]] = []

    def find(self, transactional_id: str) -> str | None:
        self.asked.append(transactional_id)
        return self.where

    def open(self, broker: object) -> Coordinator:
        self.opened.append(broker)
        return self

    def send(self, request: AddPartitionsToTxnRequest) -> Deferred[Any]:
        self.requests.append(decode(AddPartitionsToTxnRequest, 5, encode_bytes(request, 5)))
        self._answers.append(Deferred())
        return self._answers[-1]

    def close(self) -> None:
        self.closed += 1

    @property
    def waiting(self) -> int:
        return len(self._answers)

    def answer(self, code: ErrorCode = E.NONE) -> None:
        """Answer the oldest request with one error for each partition."""
        request = self.requests[len(self.requests) - len(self._answers)]
        results = [
            AddPartitionsToTxnResult(transactional_id=transaction.transactional_id, topic_results=[
                AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=[
                    AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code) for index in topic.partitions])
                for topic in transaction.topics])
            for transaction in request.transactions
        ]  # fmt: skip
        response = AddPartitionsToTxnResponse(throttle_time_ms=0, results_by_transaction=results)
        self._answers.pop(0).callback(decode(AddPartitionsToTxnResponse, 5, encode_bytes(response, 5)))

    def refuse(self, code: ErrorCode) -> None:
        """Answer the oldest request with one error for all of it."""
        response = AddPartitionsToTxnResponse(throttle_time_ms=0, error_code=code)
        self._answers.pop(0).callback(decode(AddPartitionsToTxnResponse, 5, encode_bytes(response, 5)))

    def fail(self, error: Exception) -> None:
        self._answers.pop(0).errback(error)


class Leader(ReplicaHost):
    """A leader without followers."""

    def __init__(self, partitions: int = 1) -> None:
        self.coordinator = Coordinator()
        super().__init__(partitions, coordinators=self.coordinator)
        self.roles(isr=(OWN,), epoch=0)

    def begin(
        self, sequence: int = 0, *, indexes: tuple[int, ...] = (0,), epoch: int = 0, version: int = V1, transactional: bool = True,
        producer_id: int = ID, **options: Any,
    ) -> list[Any]:  # fmt: skip
        """Produce one record to each of the partitions; the list has their error codes once there is a response."""

        def records() -> bytes:
            return bytes(batch(b"%d" % sequence, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence,
                               transactional=transactional))  # fmt: skip

        data = [PartitionProduceData(index=index, records=records()) for index in indexes]
        topics = [TopicProduceData(name=TOPIC, partition_data=data)]
        fields: dict[str, Any] = {"transactional_id": TXN_ID, "acks": 1, "timeout_ms": 1000, "topic_data": topics} | options
        request = ProduceRequest(**fields)
        answered = self.send(request, version, lambda r: {p.index: p.error_code for p in r.responses[0].partition_responses})
        self.clock.advance(0)
        return answered

    def mark(self, epoch: int = 0, index: int = 0) -> None:
        """A coordinator's marker."""
        marker = build_marker(Marker(False, 0), producer_id=ID, producer_epoch=epoch, timestamp=NOW)
        self.partition(index).append(memoryview(bytearray(marker)), NOW, origin=Origin.COORDINATOR)

    def end(self, index: int = 0) -> int:
        return self.partition(index).log.log_end_offset


def fails(*arguments: object, **named: object) -> None:
    raise RuntimeError("injected")


@pytest.fixture
def leader() -> Leader:
    return Leader()


def test_the_first_batch_waits_for_the_coordinator_and_later_ones_do_not(leader: Leader) -> None:
    answered = leader.begin(0)
    assert not answered and leader.end() == 0
    (transaction,) = leader.coordinator.requests[0].transactions
    assert (transaction.transactional_id, transaction.producer_id, transaction.producer_epoch) == (TXN_ID, ID, 0)
    assert transaction.verify_only
    assert [(topic.name, topic.partitions) for topic in transaction.topics] == [(TOPIC, [0])]
    leader.coordinator.answer()
    assert answered == [{0: E.NONE}]
    assert leader.begin(1) == [{0: E.NONE}]
    assert leader.end() == 2
    leader.mark()
    assert leader.begin(2) == []  # the next transaction
    assert len(leader.coordinator.requests) == 2


def test_with_transactions_v2_the_leader_adds_the_partition(leader: Leader) -> None:
    answered = leader.begin(0, version=V2)
    assert not leader.coordinator.requests[0].transactions[0].verify_only
    leader.coordinator.answer()
    assert answered == [{0: E.NONE}]


@pytest.mark.parametrize("version, code", [(10, E.INVALID_TXN_STATE), (V1, E.TRANSACTION_ABORTABLE), (V2, E.TRANSACTION_ABORTABLE)])
def test_a_batch_outside_of_its_transaction_is_refused(leader: Leader, version: int, code: ErrorCode) -> None:
    answered = leader.begin(0, version=version)
    leader.coordinator.answer(E.TRANSACTION_ABORTABLE)
    assert answered == [{0: code}]
    assert leader.end() == 0


RETRIABLE = (E.CONCURRENT_TRANSACTIONS, E.COORDINATOR_LOAD_IN_PROGRESS, E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR)


@pytest.mark.parametrize(
    "theirs, ours",
    [(code, E.NOT_ENOUGH_REPLICAS) for code in RETRIABLE]
    + [(E.PRODUCER_FENCED, E.INVALID_PRODUCER_EPOCH), (E.INVALID_PRODUCER_ID_MAPPING, E.INVALID_PRODUCER_ID_MAPPING)],
)
def test_the_errors_of_the_coordinator(leader: Leader, theirs: ErrorCode, ours: ErrorCode) -> None:
    answered = leader.begin(0)
    leader.coordinator.answer(theirs)
    assert answered == [{0: ours}]
    assert leader.end() == 0


@pytest.mark.parametrize(
    "theirs, ours", [(E.CLUSTER_AUTHORIZATION_FAILED, E.TRANSACTION_ABORTABLE), (E.COORDINATOR_NOT_AVAILABLE, E.NOT_ENOUGH_REPLICAS)]
)
def test_an_error_of_the_whole_request(leader: Leader, theirs: ErrorCode, ours: ErrorCode) -> None:
    answered = leader.begin(0)
    leader.coordinator.refuse(theirs)
    assert answered == [{0: ours}]
    assert leader.end() == 0


def test_a_coordinator_that_cannot_be_reached(leader: Leader) -> None:
    answered = leader.begin(0)
    leader.coordinator.fail(Silent("no answer"))
    assert answered == [{0: E.NOT_ENOUGH_REPLICAS}]
    leader.coordinator.where = None
    assert leader.begin(0) == [{0: E.NOT_ENOUGH_REPLICAS}]
    leader.coordinator.where = "broker 7"
    answered = leader.begin(0)
    leader.coordinator.answer()
    assert answered == [{0: E.NONE}]


def test_a_marker_between_verification_and_append_voids_the_answer(leader: Leader) -> None:
    """The answer was about the transaction that the marker has ended (KAFKA-14884): nothing would end the new one."""
    answered = leader.begin(0)
    leader.mark()
    leader.coordinator.answer()
    assert answered == [{0: E.TRANSACTION_ABORTABLE}]
    assert leader.end() == 1
    assert leader.partition().last_stable_offset == 1


@pytest.mark.parametrize("again", [E.NONE, E.INVALID_PRODUCER_EPOCH])
def test_with_transactions_v2_the_marker_may_be_that_of_the_transaction_before(leader: Leader, again: ErrorCode) -> None:
    """Its client sends the first records of the next one before all markers are written."""
    answered = leader.begin(0, epoch=1, version=V2)
    leader.mark(epoch=1)
    leader.coordinator.answer()
    assert answered == [] and len(leader.coordinator.requests) == 1
    leader.clock.advance(RETRY_S)
    leader.clock.advance(0)
    assert answered == [] and len(leader.coordinator.requests) == 2
    leader.coordinator.answer(again)
    assert answered == [{0: again}]
    assert leader.end() == (2 if again is E.NONE else 1)


def test_with_transactions_v2_answers_that_are_void_again_and_again_may_pass(leader: Leader) -> None:
    answered = leader.begin(0, epoch=1, version=V2)
    while not answered:
        leader.mark(epoch=1)
        leader.coordinator.answer()
        leader.clock.advance(RETRY_S)
        leader.clock.advance(0)
    assert answered == [{0: E.NOT_ENOUGH_REPLICAS}]
    assert 1 < len(leader.coordinator.requests) <= RETRY_MAX_S / RETRY_S + 1


def test_a_verification_is_of_one_partition() -> None:
    """A marker of another partition voids nothing (in Kafka the guard was once shared)."""
    leader = Leader(2)
    answered = leader.begin(0, indexes=(0, 1))
    leader.mark(index=1)
    leader.coordinator.answer()
    assert answered == [{0: E.NONE, 1: E.TRANSACTION_ABORTABLE}]


def test_the_second_batch_does_not_overtake_the_first_one(leader: Leader) -> None:
    first, second = leader.begin(0), leader.begin(1)
    assert leader.coordinator.waiting == 1
    leader.coordinator.answer()
    assert first == second == [{0: E.NONE}]
    assert leader.end() == 2


@pytest.mark.parametrize("transactional", [False, True])
def test_a_defect_in_one_partition_is_the_error_of_that_partition(
    transactional: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    leader = Leader(3)
    append = Partition.append
    monkeypatch.setattr(
        Partition, "append", lambda self, *given: fails() if self.topic_partition.partition == 1 else append(self, *given)
    )  # fmt: skip
    id_of_others = TXN_ID if transactional else None
    answered = leader.begin(0, indexes=(0, 1, 2), transactional=transactional, transactional_id=id_of_others)
    if transactional:
        leader.coordinator.answer()
    assert answered == [{0: E.NONE, 1: E.UNKNOWN_SERVER_ERROR, 2: E.NONE}]
    assert (leader.end(0), leader.end(2)) == (1, 1)
    assert f"internal error appending to partition 1 of {TOPIC}" in caplog.text and "injected" in caplog.text


def test_a_refused_verification_does_not_slow_other_producers_down(leader: Leader, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its entry stays until a marker or a batch of this producer comes."""
    leader.begin(0)
    leader.coordinator.answer(E.TRANSACTION_ABORTABLE)
    assert ID in leader.partition().log.producers.verifications
    monkeypatch.setattr(appending, "validate", fails)
    assert leader.begin(0, producer_id=6, transactional=False, transactional_id=None) == [{0: E.NONE}]
    assert leader.begin(0, transactional=False, transactional_id=None) == [{0: E.UNKNOWN_SERVER_ERROR}], "this one is looked at"


def test_the_second_batch_is_out_of_order_while_the_first_one_was_refused(leader: Leader) -> None:
    """Without state of the producer any first sequence is taken; the first batch would be refused for ever."""
    first = leader.begin(0)
    leader.coordinator.answer(E.COORDINATOR_LOAD_IN_PROGRESS)
    assert first == [{0: E.NOT_ENOUGH_REPLICAS}]
    second = leader.begin(1)
    leader.coordinator.answer()
    assert second == [{0: E.OUT_OF_ORDER_SEQUENCE_NUMBER}]
    again = leader.begin(0)
    leader.coordinator.answer()
    assert again == [{0: E.NONE}]
    assert leader.begin(1) == [{0: E.NONE}]


def test_partitions_whose_transaction_is_open_do_not_wait_for_others() -> None:
    leader = Leader(2)
    leader.begin(0, indexes=(0,))
    leader.coordinator.answer()
    answered = leader.begin(1, indexes=(0, 1))
    assert leader.end(0) == 2 and not answered
    assert leader.begin(2, indexes=(0,)) == [{0: E.NONE}]
    leader.coordinator.answer()
    assert answered == [{0: E.NONE, 1: E.NONE}]


def test_records_that_are_replicated_while_another_partition_waits_for_the_coordinator() -> None:
    leader = Leader(2)
    leader.begin(0)
    leader.coordinator.answer()
    leader.roles(isr=(OWN, OTHER), epoch=1)
    answered = leader.begin(1, indexes=(0, 1), acks=-1)
    Fetching(leader, OTHER).fetch({0: leader.end()})
    assert not answered
    leader.coordinator.answer(E.TRANSACTION_ABORTABLE)
    assert answered == [{0: E.NONE, 1: E.TRANSACTION_ABORTABLE}]


def test_requests_to_a_coordinator_are_batched() -> None:
    leader = Leader(3)
    answered = [leader.begin(0, indexes=(0,)), leader.begin(0, indexes=(1,))]
    answered.append(leader.begin(0, indexes=(2,), producer_id=6, transactional_id="x"))
    leader.coordinator.answer()
    assert [[t.transactional_id for t in request.transactions] for request in leader.coordinator.requests] == [[TXN_ID], [TXN_ID, "x"]]
    leader.coordinator.answer()
    assert answered == [[{0: E.NONE}], [{1: E.NONE}], [{2: E.NONE}]]


def test_one_transactional_id_of_two_producers_is_asked_about_one_after_the_other(leader: Leader) -> None:
    old, new = leader.begin(0, epoch=0), leader.begin(0, epoch=1)
    leader.coordinator.answer(E.PRODUCER_FENCED)
    leader.coordinator.answer()
    assert [[t.producer_epoch for t in request.transactions] for request in leader.coordinator.requests] == [[0], [1]]
    assert old == [{0: E.INVALID_PRODUCER_EPOCH}]
    assert new == [{0: E.NONE}]


def test_an_answer_that_comes_after_the_transaction_was_begun_by_another_request(leader: Leader) -> None:
    """Of two clients' versions: the partition is verified for one request, and added for the other."""
    first, second = leader.begin(0, version=V1), leader.begin(1, version=V2)
    leader.coordinator.answer()
    assert (first, second) == ([{0: E.NONE}], [])
    leader.coordinator.answer()
    assert second == [{0: E.NONE}]


def test_a_request_has_a_bounded_number_of_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "TRANSACTIONS_MAX", 2)
    leader = Leader(2)
    leader.begin(0)  # in flight
    answered = [leader.begin(0, producer_id=ID + number, transactional_id=f"x{number}") for number in range(1, 4)]
    answered.append(leader.begin(0, indexes=(1,), producer_id=ID + 1, transactional_id="x1"))
    while leader.coordinator.waiting:
        leader.coordinator.answer()
    sent = [[(t.transactional_id, t.topics[0].partitions) for t in request.transactions] for request in leader.coordinator.requests]
    assert sent == [[(TXN_ID, [0])], [("x1", [0, 1]), ("x2", [0])], [("x3", [0])]]
    assert [code for (codes,) in answered for code in codes.values()] == [E.NONE] * 4
    assert leader.coordinator.asked == [TXN_ID, "x1", "x2", "x3", "x1"]


def test_requests_to_coordinators_are_counted_and_timed(leader: Leader) -> None:
    for sequence, code in enumerate((E.NONE, E.NOT_COORDINATOR, E.NOT_COORDINATOR)):
        leader.begin(0, epoch=sequence)
        leader.clock.advance(0.25)
        leader.coordinator.answer(code)
    counts = leader.verifier.counts
    assert (counts.requests, counts.failed, list(counts.times_s)) == (3, 2, [0.25, 0.25, 0.25])


@pytest.mark.parametrize(("error", "is_defect"), [(RuntimeError("injected"), True), (Silent("no answer"), False),
                                                   (BrokerError(E.NOT_COORDINATOR), False)])  # fmt: skip
def test_only_a_defect_is_logged(leader: Leader, error: Exception, is_defect: bool, caplog: pytest.LogCaptureFixture) -> None:
    answered = leader.begin(0)
    leader.coordinator.fail(error)
    assert answered == [{0: E.NOT_ENOUGH_REPLICAS}]
    messages = [message.partition("\n")[0] for message in caplog.messages]
    assert messages == ["internal error while asking a transaction coordinator"] * is_defect
    assert ("injected" in caplog.text) == is_defect


def test_a_verifier_that_has_stopped_asks_nobody(leader: Leader) -> None:
    waiting = leader.begin(0)
    leader.verifier.stop()
    assert leader.coordinator.closed == 1
    leader.coordinator.fail(Closed("closed"))
    assert waiting == leader.begin(0, epoch=1) == [{0: E.NOT_ENOUGH_REPLICAS}]
    assert len(leader.coordinator.requests) == 1


def test_the_next_transaction_waits_for_the_end_of_the_one_before(leader: Leader) -> None:
    """With transactions v2 clients do not wait for the markers: the leader asks again for a while (KAFKA-18575)."""
    leader.begin(0, version=V2)
    leader.coordinator.answer()
    answered = leader.begin(0, epoch=1, version=V2)
    leader.coordinator.answer(E.CONCURRENT_TRANSACTIONS)
    leader.mark(epoch=1)
    leader.clock.pump([RETRY_S, 0])
    leader.coordinator.answer()
    assert answered == [{0: E.NONE}]
    leader.mark(epoch=2)
    answered = leader.begin(0, epoch=2, version=V2)
    for _ in range(round(RETRY_MAX_S / RETRY_S)):
        leader.coordinator.answer(E.CONCURRENT_TRANSACTIONS)
        leader.clock.pump([RETRY_S, 0])
    leader.coordinator.answer(E.CONCURRENT_TRANSACTIONS)
    assert answered == [{0: E.NOT_ENOUGH_REPLICAS}]


def test_leadership_that_is_lost_meanwhile(leader: Leader) -> None:
    answered = leader.begin(0)
    leader.roles(leader=2, epoch=2)
    leader.coordinator.answer()
    assert answered == [{0: E.NOT_LEADER_OR_FOLLOWER}]


def test_verification_can_be_switched_off(leader: Leader) -> None:
    leader.verifies = False
    assert leader.begin(0) == [{0: E.NONE}]
    assert leader.begin(0, version=V2, producer_id=6) == []  # the partition has to be added in any case


def test_what_needs_no_coordinator(leader: Leader) -> None:
    with pytest.raises(BrokerError, match="Transactional Id authorization failed"):
        leader.begin(0, transactional_id=None)
    assert leader.begin(0, transactional=False) == [{0: E.NONE}]
    assert leader.begin(-1, producer_id=-1, epoch=-1) == [{0: E.INVALID_RECORD}]
    assert not leader.coordinator.requests


@pytest.mark.parametrize("value", [b"\x10" * 10, b""])
def test_old_messages_are_never_transactional(leader: Leader, value: bytes) -> None:
    old = legacy.build([Record(0x1010101010, 0x10101010101010, b"k", value)], magic=1)
    topics = [TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=0, records=old)])]
    request = ProduceRequest(transactional_id=None, acks=1, timeout_ms=1000, topic_data=topics)
    assert leader.send(request, 2, lambda r: r.responses[0].partition_responses[0].error_code) == [E.NONE]


def test_the_link_to_a_coordinator_that_is_gone_is_closed_when_it_is_idle() -> None:
    leader = Leader(partitions=3)
    coordinator, verifier = leader.coordinator, leader.verifier
    first = leader.begin()
    verifier.brokers_changed({"broker 8"})
    assert coordinator.closed == 0, "it may still answer"
    coordinator.answer()
    assert first == [{0: E.NONE}]
    assert coordinator.closed == 1
    coordinator.where = "broker 8"
    second = leader.begin(indexes=(1,))
    coordinator.answer()
    assert second == [{1: E.NONE}]
    verifier.brokers_changed({"broker 8"})
    assert coordinator.closed == 1
    verifier.brokers_changed({"broker 9"})
    assert coordinator.closed == 2
    coordinator.where = "broker 7"
    leader.begin(indexes=(2,))
    assert coordinator.opened == ["broker 7", "broker 8", "broker 7"]
    verifier.stop()
    assert coordinator.closed == 3, "each link once"


def test_stopping_ends_the_questions_to_coordinators_that_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    leader = Leader(partitions=2)
    coordinator = leader.coordinator
    first = leader.begin()
    coordinator.where = "broker 8"
    second = leader.begin(indexes=(1,))
    leader.verifier.brokers_changed(())

    def close() -> None:
        if coordinator.waiting:
            coordinator.fail(Silent("closed"))

    monkeypatch.setattr(coordinator, "close", close)
    leader.verifier.stop()
    assert (first, second) == ([{0: E.NOT_ENOUGH_REPLICAS}], [{1: E.NOT_ENOUGH_REPLICAS}])


def test_the_links_to_coordinators_follow_the_metadata() -> None:
    def image(port: int, *ids: int) -> UpdateMetadataRequest:
        live = [
            UpdateMetadataBroker(id=id_, rack=None, endpoints=[
                UpdateMetadataEndpoint(host=f"h{id_}", port=port, listener="PLAINTEXT", security_protocol=0)])
            for id_ in ids
        ]  # fmt: skip
        return UpdateMetadataRequest(controller_id=1, controller_epoch=1, live_brokers=live, topic_states=[])

    known = ClusterImage()
    unused: Any = None
    coordinators = TransactionCoordinators(OWN, known, unused, "PLAINTEXT", unused)
    known.apply(image(9092, 1, 2))
    before = coordinators.live()
    known.apply(image(9093, 1, 2))
    assert len(before) == 3 and before & coordinators.live() == {OWN_COORDINATOR}
