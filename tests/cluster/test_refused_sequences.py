"""A batch after one that the leader has refused gets the same error, and not OUT_OF_ORDER_SEQUENCE_NUMBER."""

from __future__ import annotations

import pytest

from tests.cluster.test_partition import Moves, leading
from tests.log.support import NOW, batch
from tests.support.fakes.disk_path import DiskPath
from txbroker.cluster.partition import Partition
from txbroker.cluster.refused_sequences import BATCHES_MAX, FOLLOWING_MAX, KEPT_S, PREVIOUS_LEADER_S, RefusedSequences
from txbroker.errors import BrokerError, ErrorCode
from txbroker.log.producers import EXPIRED_REMEMBERED, ProducerStates
from txbroker.names import TopicPartition

E = ErrorCode
OWN, OTHER = 1, 2


@pytest.fixture
def moves() -> Moves:
    return Moves()


@pytest.fixture
def partition(directory: DiskPath) -> Partition:
    """It needs two in-sync replicas, and has them."""
    return leading(directory, Moves(), isr=(OWN, OTHER), min_insync_replicas=2)


def sent(partition: Partition, sequence: int, *, producer_id: int = 7, epoch: int = 0) -> ErrorCode:
    records = batch(b"v", producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
    try:
        partition.append(records, NOW, all_in_sync=True)
    except BrokerError as error:
        return error.code
    return E.NONE


def in_sync(partition: Partition, *isr: int) -> None:
    partition.lead(partition.state._replace(isr=isr, partition_epoch=partition.state.partition_epoch + 1))


def test_the_batches_after_a_refused_one(partition: Partition) -> None:
    assert sent(partition, 0) == E.NONE
    in_sync(partition, OWN)
    assert sent(partition, 1) == E.NOT_ENOUGH_REPLICAS
    in_sync(partition, OWN, OTHER)
    assert sent(partition, 2) == sent(partition, 3) == E.NOT_ENOUGH_REPLICAS
    assert [sent(partition, sequence) for sequence in (1, 2, 3)] == [E.NONE] * 3, "they are sent again, in order"
    assert sent(partition, 5) == E.OUT_OF_ORDER_SEQUENCE_NUMBER, "nothing is refused any more"


def test_a_producer_that_drops_the_refused_batch_sees_the_gap(partition: Partition) -> None:
    assert sent(partition, 0) == E.NONE
    in_sync(partition, OWN)
    assert sent(partition, 1) == E.NOT_ENOUGH_REPLICAS
    in_sync(partition, OWN, OTHER)
    codes = [sent(partition, 2) for _ in range(FOLLOWING_MAX + 1)]
    assert codes == [E.NOT_ENOUGH_REPLICAS] * FOLLOWING_MAX + [E.OUT_OF_ORDER_SEQUENCE_NUMBER]


def test_other_producers_and_newer_epochs_are_not_concerned(partition: Partition) -> None:
    assert sent(partition, 0) == sent(partition, 0, producer_id=8) == E.NONE
    in_sync(partition, OWN)
    assert sent(partition, 1) == E.NOT_ENOUGH_REPLICAS
    in_sync(partition, OWN, OTHER)
    assert sent(partition, 2, producer_id=8) == E.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert sent(partition, 2, epoch=1) == E.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert sent(partition, 2) == E.OUT_OF_ORDER_SEQUENCE_NUMBER, "the newer epoch shows that the producer has dropped the batch"


def test_a_broker_that_does_not_lead_yet_refuses_the_first_batch(partition: Partition) -> None:
    """The producer has sent two batches, and the broker becomes the leader between them."""
    state = partition.state
    partition.follow(state._replace(leader=OTHER, leader_epoch=state.leader_epoch + 1))
    assert sent(partition, 0) == E.NOT_LEADER_OR_FOLLOWER
    partition.lead(state._replace(leader_epoch=state.leader_epoch + 2))
    assert sent(partition, 1) == E.NOT_LEADER_OR_FOLLOWER
    assert [sent(partition, sequence) for sequence in (0, 1)] == [E.NONE] * 2


def test_the_first_batch_of_a_producer_may_wait_at_the_previous_leader(directory: DiskPath, moves: Moves) -> None:
    """It was sent there, was not replicated, and is sent again; the second one was sent to the new leader meanwhile."""
    partition = leading(directory, moves, isr=(OWN, OTHER), epoch=1)
    assert [sent(partition, sequence) for sequence in (1, 2)] == [E.NOT_LEADER_OR_FOLLOWER] * 2
    assert [sent(partition, sequence) for sequence in (0, 1, 2)] == [E.NONE] * 3
    assert sent(partition, 5, producer_id=8) == E.NOT_LEADER_OR_FOLLOWER
    moves.now_s += PREVIOUS_LEADER_S
    assert [sent(partition, sequence, producer_id=8) for sequence in (5, 6)] == [E.NONE] * 2, "its state may have expired"


def test_a_producer_that_has_expired_goes_on_at_a_new_leader(directory: DiskPath, moves: Moves) -> None:
    """Its next batch has no earlier one that may wait at the previous leader; the batch after it may have one."""
    partition = leading(directory, moves, isr=(OWN, OTHER), epoch=1)
    for producer_id in (7, 8):
        assert [sent(partition, sequence, producer_id=producer_id) for sequence in (0, 1)] == [E.NONE] * 2
    assert partition.log.expire_producers(NOW + 2 * 86_400_000) == 2
    assert [sent(partition, sequence) for sequence in (2, 3)] == [E.NONE] * 2
    assert sent(partition, 3, producer_id=8) == sent(partition, 2, producer_id=8, epoch=1) == E.NOT_LEADER_OR_FOLLOWER
    assert [sent(partition, sequence, producer_id=8) for sequence in (2, 3)] == [E.NONE] * 2


def test_what_is_kept_of_expired_producers_is_bounded(directory: DiskPath, moves: Moves) -> None:
    """Each process with a producer has another id, and a log stays open for months: memory must not grow with them."""
    partition, count = leading(directory, moves, isr=(OWN, OTHER), epoch=1), 100
    assert [sent(partition, 0, producer_id=producer_id) for producer_id in range(count)] == [E.NONE] * count
    assert partition.log.expire_producers(NOW + 2 * 86_400_000) == count
    known = [number for number in range(count) if partition.log.producers.follows_expired(number, 0, 1)]
    assert known == list(range(count - EXPIRED_REMEMBERED, count)) and 0 < len(known) <= 50


def test_the_first_leader_has_no_predecessor_nor_has_one_that_stays(partition: Partition) -> None:
    assert sent(partition, 5) == E.NONE
    partition.lead(partition.state._replace(leader_epoch=partition.state.leader_epoch + 1))
    assert sent(partition, 5, producer_id=8) == E.NONE
    partition.lead(partition.state._replace(leader_epoch=partition.state.leader_epoch + 2))
    assert sent(partition, 5, producer_id=9) == E.NOT_LEADER_OR_FOLLOWER, "another broker may have led in the epoch between"


def test_another_leader_has_taken_the_refused_batch(partition: Partition) -> None:
    state = partition.state
    assert sent(partition, 0) == E.NONE
    partition.follow(state._replace(leader=OTHER, leader_epoch=state.leader_epoch + 1))
    assert sent(partition, 1) == E.NOT_LEADER_OR_FOLLOWER
    for sequence, offset in ((1, 1), (2, 2)):
        replicated = batch(b"v", producer_id=7, producer_epoch=0, base_sequence=sequence, base_offset=offset)
        partition.log.append_replicated(replicated, now_ms=NOW)
    partition.lead(state._replace(leader_epoch=state.leader_epoch + 2))
    assert [sent(partition, sequence) for sequence in (2, 3)] == [E.NONE] * 2, "a duplicate, and the next one"
    partition.follow(state._replace(leader=OTHER, leader_epoch=state.leader_epoch + 3))
    assert sent(partition, 4) == E.NOT_LEADER_OR_FOLLOWER
    partition.lead(state._replace(leader_epoch=state.leader_epoch + 4))
    assert [sent(partition, sequence) for sequence in (5, 4, 5)] == [E.NOT_LEADER_OR_FOLLOWER, E.NONE, E.NONE]


def test_the_first_batch_of_a_producer_is_refused(partition: Partition) -> None:
    """The log does not know the producer, and would accept any first sequence."""
    in_sync(partition, OWN)
    assert sent(partition, 0) == E.NOT_ENOUGH_REPLICAS
    in_sync(partition, OWN, OTHER)
    assert [sent(partition, sequence) for sequence in (1, 2)] == [E.NOT_ENOUGH_REPLICAS] * 2
    assert [sent(partition, sequence) for sequence in (0, 1, 2)] == [E.NONE] * 3


def test_a_repeated_batch_says_nothing_of_the_refused_one(partition: Partition) -> None:
    assert sent(partition, 0) == E.NONE
    in_sync(partition, OWN)
    assert sent(partition, 1) == E.NOT_ENOUGH_REPLICAS
    in_sync(partition, OWN, OTHER)
    assert [sent(partition, sequence) for sequence in (0, 2)] == [E.NONE, E.NOT_ENOUGH_REPLICAS]


def test_sequences_begin_again_at_zero(moves: Moves) -> None:
    refused = RefusedSequences(moves.replication.monotonic_s)
    last, first, second = (batch(b"v", producer_id=7, producer_epoch=0, base_sequence=number) for number in (2**31 - 1, 0, 1))
    for records in (last, first, second):
        refused.refuse("t", 0, records, E.NOT_ENOUGH_REPLICAS)
    check(refused, last)
    for records in (first, second):
        with pytest.raises(BrokerError, match="follows on 2147483647"):
            check(refused, records)


def check(refused: RefusedSequences, records: memoryview, topic_id: bytes = b"i" * 16) -> None:
    refused.check(TopicPartition("t", 0), topic_id, ProducerStates(TopicPartition("t", 0), 1000), records)


def test_a_broker_remembers_a_bounded_number_of_batches_for_a_bounded_time(moves: Moves) -> None:
    refused = RefusedSequences(moves.replication.monotonic_s)
    for producer_id in range(BATCHES_MAX + 1):
        refused.refuse("t", 0, batch(b"v", producer_id=producer_id, producer_epoch=0, base_sequence=1), E.NOT_ENOUGH_REPLICAS)
    refused.refuse("t", 0, memoryview(b"short"), E.NOT_ENOUGH_REPLICAS)
    refused.refuse("t" * 250, 0, batch(b"v", producer_id=7, producer_epoch=0, base_sequence=0), E.UNKNOWN_TOPIC_OR_PARTITION)
    first, second = (batch(b"v", producer_id=producer_id, producer_epoch=0, base_sequence=2) for producer_id in (0, 1))
    check(refused, first)
    with pytest.raises(BrokerError):
        check(refused, second)
    moves.now_s += KEPT_S + 1
    check(refused, second)
    assert not refused.batches


def test_a_topic_that_is_not_known_yet_is_named_by_its_id(moves: Moves) -> None:
    refused = RefusedSequences(moves.replication.monotonic_s)
    first, second = (batch(b"v", producer_id=7, producer_epoch=0, base_sequence=number) for number in (0, 1))
    refused.refuse(b"i" * 16, 0, first, E.UNKNOWN_TOPIC_ID)
    check(refused, second, b"j" * 16)
    with pytest.raises(BrokerError) as error:
        check(refused, second)
    assert error.value.code == E.UNKNOWN_TOPIC_ID
