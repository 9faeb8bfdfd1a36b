"""WriteTxnMarkers at the leader of a partition with three replicas: fencing, repeated and late markers, and replication."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.python.failure import Failure

from tests.groups.broker_group import MARKERS_TIMEOUT_MS, BrokerGroup
from tests.groups.model_controller import ModelController
from tests.log.support import NOW
from txbroker.cluster.partition import Partition
from txbroker.errors import ErrorCode
from txbroker.groups.group_records import offset_key, offset_value
from txbroker.groups.group_results import CommittedOffset
from txbroker.log.log_results import Origin
from txbroker.names import OFFSETS_TOPIC, TopicPartition
from txbroker.purgatory import Purgatory
from txbroker.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from txbroker.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from txbroker.wire.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from txbroker.wire.records import Record, build

E = ErrorCode
BROKERS = range(1, 4)
LEADER = 1
ID = 4000
COMMIT, ABORT = True, False


class Brokers:
    """Three brokers and one partition of `__consumer_offsets`, which broker 1 leads."""

    def __init__(self) -> None:
        self.group = BrokerGroup(1, BROKERS)
        self.controller = ModelController(self.group, BROKERS, 1)
        self.advance(3.0)

    def advance(self, seconds: float) -> None:
        end = self.group.reactor.seconds() + seconds
        while self.group.reactor.seconds() < end:
            self.group.reactor.advance(0.01)
        assert not self.group.problems

    def partition(self, broker_id: int = LEADER) -> Partition:
        return self.group.processes[broker_id].replicas.get(OFFSETS_TOPIC, 0)

    def append(self, epoch: int, offset: int = 7, broker_id: int = LEADER, group_id: str = "g") -> None:
        """A transactional commit."""
        committed = CommittedOffset(offset=offset, commit_ms=NOW)
        records = [Record(0, NOW, offset_key(group_id, TopicPartition("t", 0)), offset_value(committed))]
        batch = build(records, producer_id=ID, producer_epoch=epoch, transactional=True)
        self.partition(broker_id).append(memoryview(bytearray(batch)), NOW, all_in_sync=True, origin=Origin.COORDINATOR)

    def begin(self, markers: WriteTxnMarkersRequest, broker_id: int = LEADER) -> list[Any]:
        """The list that receives the error codes."""
        codes: list[Any] = []

        def answered(response: Any) -> None:
            codes.extend(p.error_code for marker in response.markers for topic in marker.topics for p in topic.partitions)

        self.group.call(broker_id, markers).addCallbacks(answered, codes.append)
        return codes

    def mark(self, epoch: int, result: bool = COMMIT, *, seconds: float = 1.0, broker_id: int = LEADER, **more: Any) -> Any:
        codes = self.begin(request(epoch, result, **more), broker_id)
        self.advance(seconds)
        assert len(codes) == 1 and not isinstance(codes[0], Failure), codes
        return codes[0]

    def committed(self, broker_id: int = LEADER, *, stable: bool = False) -> Any:
        """The group's committed offsets."""
        found: list[Any] = []
        wanted = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)], require_stable=stable)
        self.group.call(broker_id, wanted).addBoth(found.append)
        self.advance(1.0)
        return [p.committed_offset for topic in found[0].groups[0].topics for p in topic.partitions]


def request(
    epoch: int, result: bool = COMMIT, *, coordinator_epoch: int = 0, version: int = 0, topic: str = OFFSETS_TOPIC, index: int = 0
) -> WriteTxnMarkersRequest:
    marker = WritableTxnMarker(
        producer_id=ID,
        producer_epoch=epoch,
        transaction_result=result,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[index])],
        coordinator_epoch=coordinator_epoch,
        transaction_version=version,
    )
    return WriteTxnMarkersRequest(markers=[marker])


@pytest.fixture
def brokers() -> Brokers:
    return Brokers()


def test_a_marker_ends_the_transaction_on_every_replica(brokers: Brokers) -> None:
    brokers.append(epoch=0)
    assert brokers.partition().last_stable_offset == 0
    assert brokers.mark(epoch=0) == E.NONE
    assert brokers.partition().last_stable_offset == brokers.partition().high_watermark == 2
    for broker_id in BROKERS:
        (state,) = brokers.partition(broker_id).log.producers
        assert (state.txn_first_offset, state.coordinator_epoch) == (-1, 0)


def test_a_coordinator_that_was_replaced_is_fenced(brokers: Brokers) -> None:
    brokers.append(epoch=0)
    assert brokers.mark(epoch=0, coordinator_epoch=5) == E.NONE
    brokers.append(epoch=0)
    assert brokers.mark(epoch=0, result=ABORT, coordinator_epoch=4) == E.TRANSACTION_COORDINATOR_FENCED
    assert brokers.partition().last_stable_offset == 2  # the transaction is open
    assert brokers.mark(epoch=0, coordinator_epoch=5) == E.NONE


def test_what_is_refused(brokers: Brokers) -> None:
    brokers.append(epoch=3)
    assert brokers.mark(epoch=2) == E.INVALID_PRODUCER_EPOCH
    assert brokers.mark(epoch=3, broker_id=2) == E.NOT_LEADER_OR_FOLLOWER
    assert brokers.mark(epoch=3, topic="none") == E.UNKNOWN_TOPIC_OR_PARTITION
    assert brokers.mark(epoch=3, index=9) == E.UNKNOWN_TOPIC_OR_PARTITION
    assert brokers.partition().log.log_end_offset == 1


def test_a_repeated_marker_of_transactions_v2_is_not_appended_again(brokers: Brokers) -> None:
    brokers.append(epoch=0)
    assert brokers.mark(epoch=1, version=2) == E.NONE
    assert brokers.mark(epoch=1, version=2) == E.NONE
    assert brokers.partition().log.log_end_offset == 2


def test_a_late_marker_does_not_end_the_next_transaction(brokers: Brokers) -> None:
    """With transactions v2 a delayed repetition has the epoch of the next transaction (KIP-1228)."""
    brokers.append(epoch=0)
    assert brokers.mark(epoch=1, result=COMMIT, version=2) == E.NONE
    brokers.append(epoch=1, offset=8)
    assert brokers.mark(epoch=1, result=COMMIT, version=2) == E.INVALID_PRODUCER_EPOCH
    assert brokers.partition().last_stable_offset == 2
    assert brokers.mark(epoch=2, result=ABORT, version=2) == E.NONE


def test_a_marker_is_answered_when_the_in_sync_replicas_have_it(brokers: Brokers) -> None:
    brokers.append(epoch=0)
    brokers.advance(1.0)
    brokers.group.cut.update({2, 3})
    brokers.append(epoch=0)
    codes = brokers.begin(request(epoch=1, version=2))
    brokers.advance(1.0)
    again = brokers.begin(request(epoch=1, version=2))  # in the log, but not replicated
    brokers.advance(1.0)
    assert codes == again == []
    assert brokers.partition().last_stable_offset == 0
    brokers.group.cut.clear()
    brokers.advance(2.0)
    assert codes == again == [E.NONE]
    assert brokers.partition().last_stable_offset == 3


def test_a_marker_that_cannot_be_replicated_times_out_and_can_be_sent_again(brokers: Brokers) -> None:
    brokers.append(epoch=0)
    brokers.advance(1.0)
    brokers.group.cut.update({2, 3})
    codes = brokers.begin(request(epoch=0))
    brokers.advance(MARKERS_TIMEOUT_MS / 1000 + 1.0)
    assert codes == [E.REQUEST_TIMED_OUT]
    brokers.group.cut.clear()
    assert brokers.mark(epoch=0, seconds=3.0) == E.NONE
    assert brokers.partition().last_stable_offset == brokers.partition().high_watermark


def test_offsets_of_a_transaction_count_after_its_marker_also_after_a_failover(brokers: Brokers) -> None:
    """The coordinator moves between the commit and the marker: the new one has the pending offsets from the log."""
    brokers.append(epoch=0)
    brokers.advance(1.0)
    brokers.controller.elect(0, 2)
    brokers.advance(2.0)
    assert brokers.committed(2) == []
    assert brokers.mark(epoch=0, broker_id=2) == E.NONE
    assert brokers.committed(2) == [7]
    brokers.controller.elect(0, 3)
    brokers.advance(2.0)
    assert brokers.committed(3) == [7]


def test_offsets_of_an_aborted_transaction_are_dropped(brokers: Brokers) -> None:
    brokers.append(epoch=0)
    brokers.advance(1.0)
    brokers.controller.elect(0, 2)
    brokers.advance(2.0)
    assert brokers.mark(epoch=0, result=ABORT, broker_id=2) == E.NONE
    assert brokers.committed(2) == []
    assert not list(brokers.group.processes[2].coordinator.groups())  # a group without offsets is dropped


def test_while_the_coordinator_loads_markers_are_to_be_sent_again(brokers: Brokers) -> None:
    """Otherwise the offsets would stay pending: the load may have read past the marker's place."""
    brokers.append(epoch=0)
    brokers.advance(1.0)
    brokers.group.cut.update({1, 3})
    brokers.controller.elect(0, 2)
    while not brokers.partition(2).is_leader:
        brokers.advance(0.01)
    brokers.append(epoch=0, broker_id=2, group_id="other")  # whether it reads this record or not, the load waits for replication
    assert brokers.mark(epoch=0, broker_id=2) == E.NOT_LEADER_OR_FOLLOWER
    brokers.group.cut.clear()
    brokers.advance(5.0)
    assert brokers.mark(epoch=0, broker_id=2) == E.NONE
    assert brokers.committed(2) == [7]


def test_a_marker_that_is_not_replicated_does_not_count_after_a_failover(brokers: Brokers) -> None:
    brokers.append(epoch=0)
    brokers.advance(1.0)
    brokers.group.cut.add(1)
    codes = brokers.begin(request(epoch=0))
    brokers.advance(0.5)
    assert codes == [] and brokers.partition().last_stable_offset == 0
    brokers.controller.elect(0, 2)
    brokers.advance(2.0)
    assert codes == [E.NOT_LEADER_OR_FOLLOWER]
    assert brokers.partition(2).last_stable_offset == 0
    brokers.group.cut.clear()
    brokers.advance(2.0)
    assert brokers.mark(epoch=0, broker_id=2) == E.NONE
    assert brokers.committed(2) == [7]
    assert [brokers.partition(broker_id).log.log_end_offset for broker_id in BROKERS] == [2, 2, 2]


def until_behind(brokers: Brokers) -> None:
    """Broker 2 does not get what the others have, and leaves the ISR."""
    brokers.advance(20.0)
    assert sorted(brokers.controller.states[0].isr) == [1, 3]


def elect_unclean(brokers: Brokers) -> None:
    """Broker 2 leads without what the ISR has, and broker 3 truncates its log to that of broker 2."""
    brokers.group.cut = {1}
    brokers.controller.elect_unclean(0, 2)
    brokers.advance(5.0)
    assert sorted(brokers.controller.states[0].isr) == [2, 3]


def until_equal(brokers: Brokers, end: int) -> None:
    """Broker 1 returns and truncates its log: all replicas are the same, and no transaction is open with any leader."""
    brokers.group.cut.clear()
    brokers.advance(10.0)
    assert [brokers.partition(broker_id).log.log_end_offset for broker_id in BROKERS] == [end] * 3
    for leader in (1, 3):
        brokers.controller.elect(0, leader)
        brokers.advance(2.0)
        assert brokers.partition(leader).last_stable_offset == end


def test_a_marker_that_an_unclean_election_loses_leaves_a_transaction_that_can_be_ended(brokers: Brokers) -> None:
    """For its coordinator it has ended: it hangs (KIP-664), with its offset pending. A marker of an administrator ends it."""
    brokers.append(epoch=0)
    brokers.advance(1.0)
    brokers.group.cut.add(2)
    brokers.begin(request(epoch=0))
    until_behind(brokers)
    assert brokers.mark(epoch=0) == E.NONE  # as the coordinator repeats it
    assert brokers.partition().last_stable_offset == brokers.partition().high_watermark
    elect_unclean(brokers)
    assert brokers.partition(2).last_stable_offset == 0
    assert brokers.committed(2) == []
    assert brokers.mark(epoch=0, result=ABORT, broker_id=2) == E.NONE
    assert brokers.partition(2).last_stable_offset == 2
    assert brokers.committed(2, stable=True) == []
    until_equal(brokers, 2)


def test_records_of_an_open_transaction_that_an_unclean_election_loses(brokers: Brokers) -> None:
    """The commit finds a leader without them: its marker ends nothing there, and holds nothing back."""
    brokers.group.cut.add(2)
    brokers.append(epoch=0)
    until_behind(brokers)
    elect_unclean(brokers)
    assert brokers.mark(epoch=0, broker_id=2) == E.NONE
    assert brokers.partition(2).last_stable_offset == brokers.partition(2).log.log_end_offset == 1
    assert brokers.committed(2, stable=True) == []
    until_equal(brokers, 1)


def test_requests_of_clients_that_wait_do_not_limit_markers_and_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both wait for the followers, whose fetches wait for them."""
    defaults = Purgatory.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "parked_max", 0)
    brokers = Brokers()
    brokers.append(0)
    assert brokers.mark(0) == E.NONE
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=9, committed_metadata="")
    commit = OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name=OFFSETS_TOPIC, partitions=[partition])])
    codes: list[Any] = []
    brokers.group.call(LEADER, commit).addBoth(lambda answer: codes.append(answer.topics[0].partitions[0].error_code))
    brokers.advance(1.0)
    assert codes == [E.NONE]
    assert brokers.committed() == [9]
