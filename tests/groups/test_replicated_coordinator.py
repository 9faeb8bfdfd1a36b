"""The coordinator of groups whose partition of `__consumer_offsets` moves between brokers."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.python.failure import Failure

from tests.groups.broker_group import COMMIT_TIMEOUT_MS, LAG_S, SESSION_MS, BrokerGroup
from tests.groups.failovers import History
from tests.groups.model_controller import DATA, ModelController
from txbroker.errors import ErrorCode
from txbroker.names import OFFSETS_TOPIC
from txbroker.wire.messages.find_coordinator import FindCoordinatorRequest
from txbroker.wire.messages.heartbeat import HeartbeatRequest
from txbroker.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from txbroker.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from txbroker.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from txbroker.wire.messages.stop_replica import StopReplicaPartitionState, StopReplicaRequest, StopReplicaTopicState
from txbroker.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from txbroker.wire.schema import Request

E = ErrorCode
BROKERS = range(1, 4)
GROUP = "g"
NOTHING = -1


class Brokers:
    """Three brokers and one partition of `__consumer_offsets`, which broker 1 leads."""

    def __init__(self) -> None:
        self.group = BrokerGroup(1, BROKERS)
        self.controller = ModelController(self.group, BROKERS, 1)
        self.settle()

    def advance(self, seconds: float) -> None:
        end = self.group.reactor.seconds() + seconds
        while self.group.reactor.seconds() < end:
            self.group.reactor.advance(0.01)
        assert not self.group.problems

    def settle(self) -> None:
        self.advance(3.0)

    def begin(self, broker_id: int, request: Request) -> list[Any]:
        """The list that receives the response."""
        responses: list[Any] = []
        self.group.call(broker_id, request).addBoth(responses.append)
        return responses

    def ask(self, broker_id: int, request: Request, seconds: float = 1.0) -> Any:
        responses = self.begin(broker_id, request)
        self.advance(seconds)
        (response,) = responses
        assert not isinstance(response, Failure), response
        return response

    def commit(self, broker_id: int, offset: int) -> list[Any]:
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
        topics = [OffsetCommitRequestTopic(name=DATA, partitions=[partition])]
        request = OffsetCommitRequest(group_id=GROUP, generation_id_or_member_epoch=-1, member_id="", topics=topics)
        return self.begin(broker_id, request)

    def committed(self, broker_id: int, offset: int) -> int:
        responses = self.commit(broker_id, offset)
        self.settle()
        return code(responses)

    def offset(self, broker_id: int) -> tuple[int, int]:
        """The error of the group, and the offset that is committed."""
        wanted = OffsetFetchRequestGroup(group_id=GROUP, topics=[OffsetFetchRequestTopics(name=DATA, partition_indexes=[0])])
        group = self.ask(broker_id, OffsetFetchRequest(groups=[wanted])).groups[0]
        return group.error_code, NOTHING if group.error_code else group.topics[0].partitions[0].committed_offset

    def heartbeat(self, broker_id: int, member_id: str) -> int:
        request = HeartbeatRequest(group_id=GROUP, generation_id=1, member_id=member_id)
        return self.ask(broker_id, request, 0.2).error_code

    def member(self, broker_id: int) -> str:
        """The id of the only member of the group."""
        member_id, generation = "", -1
        while generation < 0:
            protocols = [JoinGroupRequestProtocol(name="range", metadata=b"")]
            join = JoinGroupRequest(group_id=GROUP, session_timeout_ms=SESSION_MS, member_id=member_id, protocol_type="consumer",
                                    rebalance_timeout_ms=SESSION_MS, protocols=protocols)  # fmt: skip
            response = self.ask(broker_id, join)
            member_id, generation = response.member_id, response.generation_id
        assignments = [SyncGroupRequestAssignment(member_id=member_id, assignment=b"all")]
        sync = SyncGroupRequest(group_id=GROUP, generation_id=generation, member_id=member_id, assignments=assignments)
        assert self.ask(broker_id, sync).error_code == E.NONE
        return member_id

    def lose(self, broker_id: int) -> None:
        """Cut a broker off from everything but its clients, until its session is over."""
        self.group.cut.add(broker_id)
        self.group.deaf.add(broker_id)
        self.controller.lost(broker_id)

    def connect(self) -> None:
        self.group.cut.clear()
        self.group.deaf.clear()
        for broker_id, process in self.group.processes.items():
            if broker_id not in self.controller.registered:
                self.group.new_epoch(process)
                self.controller.register(process)


def code(responses: list[Any]) -> int:
    (response,) = responses
    return response.topics[0].partitions[0].error_code


@pytest.fixture
def brokers() -> Brokers:
    return Brokers()


def test_the_coordinator_is_the_leader_and_every_broker_knows_it(brokers: Brokers) -> None:
    assert brokers.committed(1, 5) == E.NONE
    brokers.controller.elect(0, 3)
    brokers.settle()
    found = [brokers.ask(b, FindCoordinatorRequest(coordinator_keys=[GROUP])).coordinators[0] for b in BROKERS]
    assert [(f.error_code, f.node_id, f.port) for f in found] == [(E.NONE, 3, 3)] * 3
    assert [brokers.offset(broker_id) for broker_id in BROKERS] == [(E.NOT_COORDINATOR, NOTHING), (E.NOT_COORDINATOR, NOTHING), (E.NONE, 5)]
    assert [brokers.committed(broker_id, 6) for broker_id in BROKERS] == [E.NOT_COORDINATOR, E.NOT_COORDINATOR, E.NONE]


def test_an_offset_that_was_never_committed_is_unknown_after_a_failover(brokers: Brokers) -> None:
    brokers.group.kill(1)
    brokers.controller.lost(1)
    brokers.settle()
    assert brokers.offset(2) == (E.NONE, NOTHING)


def test_a_deposed_coordinator_does_not_acknowledge_by_its_successors_records(brokers: Brokers) -> None:
    assert brokers.committed(1, 5) == E.NONE
    brokers.lose(1)
    late = brokers.commit(1, 100)
    brokers.settle()
    assert not late
    for offset in range(6, 12):
        assert len(responses := brokers.commit(2, offset)) == 0
        brokers.advance(0.2)
        assert code(responses) == E.NONE
    brokers.connect()
    brokers.advance(0.5)  # before the commit times out
    assert code(late) == E.NOT_COORDINATOR
    brokers.settle()
    assert brokers.offset(2) == (E.NONE, 11)
    brokers.controller.elect(0, 1)
    brokers.settle()
    assert brokers.offset(1) == (E.NONE, 11)


def test_a_coordinator_that_does_not_know_its_successor_acknowledges_nothing(brokers: Brokers) -> None:
    assert brokers.committed(1, 5) == E.NONE
    brokers.lose(1)
    late = brokers.commit(1, 100)
    brokers.advance(COMMIT_TIMEOUT_MS / 1000 + 1.0)
    assert code(late) == E.REQUEST_TIMED_OUT
    assert brokers.offset(1) == (E.NONE, 5), "what is not replicated is not visible"


def test_a_new_coordinator_answers_from_replicated_records_only(brokers: Brokers) -> None:
    """Broker 3 lacks a record that broker 2 has: before it has it, broker 2 must not return it, as broker 3 may lead next."""
    assert brokers.committed(1, 5) == E.NONE
    brokers.group.cut.add(3)
    pending = brokers.commit(1, 6)
    brokers.advance(1.0)
    assert not pending
    brokers.controller.elect(0, 2)
    brokers.advance(1.0)
    assert code(pending) == E.NOT_COORDINATOR
    assert brokers.offset(2) == (E.COORDINATOR_LOAD_IN_PROGRESS, NOTHING)
    brokers.group.cut.clear()
    brokers.settle()
    assert brokers.offset(2) == (E.NONE, 6)


def test_a_load_ends_when_the_replica_that_it_waits_for_leaves_the_isr(brokers: Brokers) -> None:
    brokers.group.cut.add(3)
    brokers.commit(1, 6)
    brokers.advance(1.0)
    brokers.controller.elect(0, 2)
    brokers.advance(2 * LAG_S)
    assert sorted(brokers.controller.states[0].isr) == [1, 2]
    assert brokers.offset(2) == (E.NONE, 6)


def test_a_load_in_a_new_epoch_of_the_same_leader_goes_on(brokers: Brokers) -> None:
    brokers.group.cut.add(3)
    brokers.commit(1, 6)
    brokers.advance(1.0)
    brokers.controller.elect(0, 2)
    brokers.advance(1.0)
    brokers.controller.elect(0, 2)
    brokers.advance(1.0)
    assert brokers.offset(2) == (E.COORDINATOR_LOAD_IN_PROGRESS, NOTHING)
    brokers.group.cut.clear()
    brokers.settle()
    assert brokers.offset(2) == (E.NONE, 6)


@pytest.mark.parametrize("pause_s", [0.0, 0.005, 0.02, 0.06, 0.2])
def test_leadership_that_goes_and_returns_at_once(brokers: Brokers, pause_s: float) -> None:
    assert brokers.committed(1, 5) == E.NONE
    for leader in (2, 1, 2, 3, 2, 1):
        brokers.controller.elect(0, leader)
        brokers.group.reactor.advance(pause_s)
    brokers.settle()
    assert brokers.offset(1) == (E.NONE, 5)
    assert brokers.committed(1, 6) == E.NONE
    assert [brokers.offset(broker_id)[0] for broker_id in (2, 3)] == [E.NOT_COORDINATOR] * 2
    brokers.controller.repeat(1)
    brokers.settle()
    assert brokers.offset(1) == (E.NONE, 6)


def test_the_deletion_of_the_partition_ends_the_coordinator(brokers: Brokers) -> None:
    assert brokers.committed(1, 5) == E.NONE
    state = StopReplicaPartitionState(partition_index=0, leader_epoch=-2, delete_partition=True)
    topic = StopReplicaTopicState(topic_name=OFFSETS_TOPIC, partition_states=[state])
    brokers.group.processes[1].replicas.stop_replica(
        StopReplicaRequest(controller_id=1, controller_epoch=1, topic_states=[topic])
    )
    assert brokers.offset(1) == (E.NOT_COORDINATOR, NOTHING)


def test_a_commit_after_which_too_few_replicas_are_in_sync_is_not_visible(brokers: Brokers) -> None:
    assert brokers.committed(1, 5) == E.NONE
    brokers.group.cut |= {2, 3}
    brokers.advance(LAG_S - 3.0)
    late = brokers.commit(1, 6)
    brokers.advance(LAG_S)
    assert brokers.controller.states[0].isr == (1,)
    assert code(late) in (E.COORDINATOR_NOT_AVAILABLE, E.REQUEST_TIMED_OUT)
    assert brokers.offset(1) == (E.NONE, 5)
    assert brokers.committed(1, 7) == E.COORDINATOR_NOT_AVAILABLE, "min.insync.replicas is 2"
    brokers.group.cut.clear()
    brokers.settle()
    brokers.controller.elect(0, 2)
    brokers.settle()
    assert brokers.offset(2) == (E.NONE, 6), "the record is in the log"


def test_a_member_has_a_full_session_after_a_failover(brokers: Brokers) -> None:
    member_id = brokers.member(1)
    brokers.advance(SESSION_MS / 1000 - 2.0)
    assert brokers.heartbeat(1, member_id) == E.NONE
    brokers.advance(SESSION_MS / 1000 - 0.3)
    brokers.controller.elect(0, 2)
    brokers.advance(SESSION_MS / 1000 - 1.0)
    assert brokers.heartbeat(2, member_id) == E.NONE
    brokers.advance(SESSION_MS / 1000 + 1.0)
    assert brokers.heartbeat(2, member_id) == E.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("seed", range(12))
def test_random_histories(seed: int) -> None:
    History(seed, loss=(0.0, 0.01, 0.05)[seed % 3]).run()
