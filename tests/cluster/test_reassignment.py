"""Reassignments: what the controller writes and sends, and that they converge when brokers and controllers die at any moment."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from twisted.internet.defer import Deferred

from tests.cluster.brokers import FakeCluster
from tests.support.examples import quarter
from txbroker.cluster import node_paths
from txbroker.cluster.controller.reassignment import Outcomes
from txbroker.cluster.controller.request_batch import ControllerRequest
from txbroker.cluster.node_data import PartitionState, ReplicaAssignment, TopicAssignment, decode_state, decode_topic, encode_reassignments
from txbroker.errors import ErrorCode
from txbroker.names import TopicPartition
from txbroker.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse, BrokerState, PartitionData, TopicData
from txbroker.wire.messages.leader_and_isr import LeaderAndIsrRequest
from txbroker.wire.messages.stop_replica import StopReplicaRequest
from txbroker.wire.schema import Response

T0 = TopicPartition("t", 0)


class Cluster(FakeCluster):
    """Brokers whose leaders add every replica that follows them to the ISR. No member of the ISR may ever be deleted."""

    def __init__(self) -> None:
        super().__init__()
        self.silent: set[int] = set()  # brokers that neither receive nor answer

    def send(self, broker_id: int, request: ControllerRequest) -> Deferred[Response]:
        if isinstance(request, StopReplicaRequest):
            for topic in request.topic_states:
                for state in topic.partition_states:
                    tree = self.trees._nodes.get(node_paths.state(TopicPartition(topic.topic_name, state.partition_index)))
                    assert tree is None or broker_id not in json.loads(tree.data or b"")["isr"]
        return Deferred() if broker_id in self.silent else super().send(broker_id, request)

    def reassign(self, target: Sequence[int] | None, **options: bool) -> ErrorCode:
        outcomes: Outcomes = self.result(self.controller.reassign({T0: target}, **options))
        error = outcomes[T0]
        return ErrorCode.NONE if error is None else error.code

    def topic(self) -> TopicAssignment:
        node = self.trees._nodes.get(node_paths.topic("t"))  # without a turn
        assert node is not None
        return decode_topic(node.data)

    def assignment(self) -> ReplicaAssignment:
        return self.topic().partitions[0]

    def state(self, topic: str, partition: int = 0) -> PartitionState:
        node = self.trees._nodes.get(node_paths.state(TopicPartition(topic, partition)))
        assert node is not None
        return decode_state(node.data, node.version)

    def set_isr(self, *isr: int) -> ErrorCode:
        """The leader sends AlterPartition."""
        response = self.result(self.change_isr(*isr))
        self.turns.run()
        return ErrorCode(response.error_code or response.topics[0].partitions[0].error_code)

    def change_isr(self, *isr: int) -> Deferred[AlterPartitionResponse]:
        state = self.state("t")
        data = PartitionData(
            partition_index=0,
            leader_epoch=state.leader_epoch,
            new_isr_with_epochs=[BrokerState(broker_id=broker, broker_epoch=-1) for broker in isr],
            partition_epoch=state.partition_epoch,
        )
        topic_id = self.topic().topic_id
        request = AlterPartitionRequest(
            broker_id=state.leader,
            broker_epoch=self.brokers[state.leader].epoch or -1,
            topics=[TopicData(topic_id=topic_id, partitions=[data])],
        )
        return self.controller.alter_partition(request)

    def catch_up(self) -> None:
        """Until nothing changes: all live replicas that follow the leader are in sync."""
        self.turns.run()
        while self.later or self.grow():
            self.run_later()
            self.turns.run()

    def grow(self) -> bool:
        """The leader sends AlterPartition for the next replica that follows it. Returns whether there was one."""
        state = self.state("t")
        current = (state.leader, state.leader_epoch)
        leader = self.brokers.get(state.leader)
        if leader is None or leader.roles[T0] != current or not any(broker.controller.active for broker in self.brokers.values()):
            return False
        for replica in leader.assigned[T0][1]:
            if replica in self.brokers and replica not in state.isr and self.brokers[replica].roles.get(T0) == current:
                self.change_isr(*state.isr, replica).addErrback(lambda _: None)
                return True
        return False


def cluster_of(*replicas: int, brokers: Sequence[int] = (1, 2, 3, 4)) -> Cluster:
    cluster = Cluster()
    cluster.start(*brokers)
    cluster.create_topic("t", replicas)
    return cluster


def test_a_replica_is_added() -> None:
    cluster = cluster_of(2, 1)
    assert cluster.reassign((2, 1, 3)) == ErrorCode.NONE
    data = cluster.result(cluster.observer.get(node_paths.topic("t")))[0] or b""
    assert data.startswith(b'{"partitions":{"0":[2,1,3]},"topic_id":"')
    assert data.endswith(b'","adding_replicas":{"0":[3]},"removing_replicas":{},"version":3}')
    assert cluster.state("t") == PartitionState(leader=2, leader_epoch=1, isr=(2, 1), controller_epoch=1, partition_epoch=1)
    [request] = [request for broker, request in cluster.sent if broker == 2 and isinstance(request, LeaderAndIsrRequest)]
    [role] = request.topic_states[0].partition_states
    assert (role.replicas, role.adding_replicas, role.removing_replicas) == ([2, 1, 3], [3], [])
    assert cluster.taken() == {
        1: ["LAI t-0 leader 2 epoch 1 isr 2,1", "UM t-0 leader 2 epoch 1"],
        2: ["LAI t-0 leader 2 epoch 1 isr 2,1", "UM t-0 leader 2 epoch 1"],
        3: ["LAI t-0 leader 2 epoch 1 isr 2,1 new", "UM t-0 leader 2 epoch 1"],
        4: ["UM t-0 leader 2 epoch 1"],
    }
    assert cluster.controller.reassignments() == {T0: ReplicaAssignment((2, 1, 3), adding=(3,))}

    assert cluster.set_isr(2, 1, 3) == ErrorCode.NONE
    assert cluster.assignment() == ReplicaAssignment((2, 1, 3))
    assert cluster.state("t") == PartitionState(leader=2, leader_epoch=2, isr=(2, 1, 3), controller_epoch=1, partition_epoch=3)
    replica = ["UM t-0 leader 2 epoch 1", "LAI t-0 leader 2 epoch 2 isr 2,1,3", "UM t-0 leader 2 epoch 2"]
    assert cluster.taken() == {1: replica, 2: replica, 3: replica, 4: [replica[0], replica[2]]}
    assert cluster.controller.reassignments() == {}


def test_the_leader_is_removed() -> None:
    cluster = cluster_of(2, 1, 3)
    assert cluster.reassign((3, 1)) == ErrorCode.NONE
    assert cluster.assignment() == ReplicaAssignment((3, 1))
    assert cluster.state("t") == PartitionState(leader=3, leader_epoch=1, isr=(1, 3), controller_epoch=1, partition_epoch=1)
    assert cluster.taken() == {
        1: ["LAI t-0 leader 3 epoch 1 isr 1,3", "UM t-0 leader 3 epoch 1"],
        2: ["UM t-0 leader 3 epoch 1", "SR t-0 epoch 1 delete"],
        3: ["LAI t-0 leader 3 epoch 1 isr 1,3", "UM t-0 leader 3 epoch 1"],
        4: ["UM t-0 leader 3 epoch 1"],
    }
    assert T0 not in cluster.brokers[2].roles


def test_all_replicas_are_replaced() -> None:
    cluster = cluster_of(1, 2)
    assert cluster.reassign((3, 4)) == ErrorCode.NONE
    assert cluster.assignment() == ReplicaAssignment((3, 4, 1, 2), adding=(3, 4), removing=(1, 2))
    assert cluster.set_isr(1, 2, 3) == ErrorCode.NONE
    assert cluster.assignment().is_reassigning
    cluster.catch_up()
    assert cluster.assignment() == ReplicaAssignment((3, 4))
    assert (cluster.state("t").leader, cluster.state("t").isr) == (3, (3, 4))
    assert [broker for broker in cluster.brokers if T0 in cluster.brokers[broker].roles] == [3, 4]


def test_only_the_order_changes() -> None:
    cluster = cluster_of(3, 1)
    assert cluster.reassign((1, 3)) == ErrorCode.NONE
    assert cluster.assignment() == ReplicaAssignment((1, 3))
    assert (cluster.state("t").leader, cluster.state("t").leader_epoch) == (3, 1)
    cluster.taken()
    assert cluster.reassign((1, 3)) == ErrorCode.NONE
    assert cluster.taken() == {}  # nothing to do


def test_a_cancelled_reassignment_deletes_the_added_replica() -> None:
    cluster = cluster_of(2, 1)
    cluster.reassign((3,))
    assert cluster.assignment() == ReplicaAssignment((3, 2, 1), adding=(3,), removing=(2, 1))
    cluster.taken()
    assert cluster.reassign(None) == ErrorCode.NONE
    assert cluster.assignment() == ReplicaAssignment((2, 1))
    assert cluster.taken()[3] == ["UM t-0 leader 2 epoch 2", "SR t-0 epoch 2 delete"]
    assert T0 not in cluster.brokers[3].roles
    assert cluster.reassign(None) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_a_reassignment_is_replaced_by_another() -> None:
    cluster = cluster_of(1, 2)
    cluster.reassign((1, 3))
    cluster.taken()
    assert cluster.reassign((1, 4)) == ErrorCode.NONE
    assert cluster.assignment() == ReplicaAssignment((1, 4, 2), adding=(4,), removing=(2,))
    assert cluster.taken()[3] == ["UM t-0 leader 1 epoch 2", "SR t-0 epoch 2 delete"]
    cluster.catch_up()
    assert cluster.assignment() == ReplicaAssignment((1, 4))


def test_a_reassignment_that_would_leave_no_leader_is_refused() -> None:
    cluster = cluster_of(1)
    cluster.reassign((2, 3))
    assert cluster.set_isr(1, 2) == ErrorCode.NONE
    cluster.kill(1)
    assert (cluster.state("t").leader, cluster.state("t").isr) == (2, (2,))
    assert cluster.reassign(None) == ErrorCode.INVALID_REPLICATION_ASSIGNMENT
    assert cluster.reassign((1, 4)) == ErrorCode.INVALID_REPLICATION_ASSIGNMENT
    cluster.start(1)
    cluster.catch_up()
    assert cluster.assignment() == ReplicaAssignment((2, 3))


@pytest.mark.parametrize(
    ("target", "code"),
    [
        ((), ErrorCode.INVALID_REPLICATION_ASSIGNMENT),
        ((1, 1), ErrorCode.INVALID_REPLICATION_ASSIGNMENT),
        ((1, -1), ErrorCode.INVALID_REPLICATION_ASSIGNMENT),
        ((1, 9), ErrorCode.INVALID_REPLICATION_ASSIGNMENT),  # not alive
        (None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
    ],
)
def test_refused_reassignments(target: tuple[int, ...] | None, code: ErrorCode) -> None:
    cluster = cluster_of(1, 2)
    assert cluster.reassign(target) == code
    assert cluster.assignment() == ReplicaAssignment((1, 2))
    assert cluster.taken() == {}


def test_partitions_that_do_not_exist_and_deleted_topics() -> None:
    cluster = cluster_of(1)
    unknown = TopicPartition("t", 7), TopicPartition("u", 0)
    outcomes = cluster.result(cluster.controller.reassign(dict.fromkeys(unknown, (2,))))
    assert [error and error.code for error in outcomes.values()] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2
    cluster.reassign((2,))
    cluster.brokers[1].stop_error = lambda _: ErrorCode.KAFKA_STORAGE_ERROR
    cluster.result(cluster.admin.delete("t"))
    assert cluster.reassign((3,)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert cluster.controller.reassignments() == {}
    assert T0 not in cluster.brokers[2].roles  # the added replica is deleted with the topic


def test_the_replication_factor_may_not_change() -> None:
    cluster = cluster_of(1)
    assert cluster.reassign((1, 2), factor_may_change=False) == ErrorCode.INVALID_REPLICATION_FACTOR
    assert cluster.reassign((2,), factor_may_change=False) == ErrorCode.NONE


def test_a_dead_target_delays_completion() -> None:
    cluster = cluster_of(1)
    cluster.reassign((3,))
    cluster.kill(3)
    cluster.catch_up()
    assert cluster.assignment().is_reassigning
    assert (cluster.state("t").leader, cluster.state("t").isr) == (1, (1,))
    cluster.start(3)
    cluster.catch_up()
    assert cluster.assignment() == ReplicaAssignment((3,))
    assert (cluster.state("t").leader, cluster.state("t").isr) == (3, (3,))


def test_a_removed_leader_that_has_not_heard_of_its_removal_hears_of_it_from_the_next_controller() -> None:
    cluster = cluster_of(1, 2, brokers=(5, 1, 2))
    cluster.silent.add(1)
    assert cluster.reassign((2,)) == ErrorCode.NONE
    assert cluster.state("t").leader == 2
    assert cluster.assignment() == cluster.controller.reassignments()[T0] == ReplicaAssignment((2, 1), removing=(1,))
    cluster.silent.clear()
    cluster.kill(5)
    cluster.catch_up()
    check_converged(cluster, (2,))


def test_a_removed_replica_whose_broker_dies() -> None:
    cluster = cluster_of(1, 2)
    cluster.silent.add(2)
    cluster.reassign((1,))
    assert cluster.assignment().is_reassigning
    cluster.kill(2)
    check_converged(cluster, (1,))


def test_partitions_are_added_while_another_is_reassigned() -> None:
    """The writes of the topic's node keep what others have written."""
    cluster = cluster_of(1)
    path = node_paths.topic("t")
    data = json.loads(cluster.result(cluster.observer.get(path))[0] or b"")
    cluster.result(cluster.observer.set(path, json.dumps({**data, "of_another_version": 7}).encode()))
    cluster.reassign((2,))
    during = json.loads(cluster.result(cluster.observer.get(path))[0] or b"")
    during["partitions"]["1"] = [4]  # a broker of Kafka adds partitions without a look at reassignments
    cluster.result(cluster.observer.set(path, json.dumps(during).encode()))
    cluster.catch_up()
    after = json.loads(cluster.result(cluster.observer.get(path))[0] or b"")
    assert after == {**data, "partitions": {"0": [2], "1": [4]}, "of_another_version": 7}
    assert cluster.state("t", 1).leader == 4


def test_the_node_of_old_tools() -> None:
    cluster = cluster_of(1)
    path = node_paths.REASSIGN_PARTITIONS
    wanted = {T0: (2,), TopicPartition("gone", 0): (1,)}
    cluster.result(cluster.observer.create(path, encode_reassignments(wanted)))
    assert cluster.assignment() == ReplicaAssignment((2, 1), adding=(2,), removing=(1,))
    assert cluster.result(cluster.observer.get(path))[0] == encode_reassignments({T0: (2,)})
    cluster.catch_up()
    assert cluster.assignment() == ReplicaAssignment((2,))
    assert cluster.result(cluster.observer.exists(path)) is None


def test_the_api_takes_precedence_over_the_node_of_old_tools() -> None:
    cluster = cluster_of(1)
    cluster.result(cluster.observer.create(node_paths.REASSIGN_PARTITIONS, encode_reassignments({T0: (2,)})))
    assert cluster.reassign((3,)) == ErrorCode.NONE
    assert cluster.result(cluster.observer.exists(node_paths.REASSIGN_PARTITIONS)) is None
    cluster.catch_up()
    assert cluster.assignment() == ReplicaAssignment((3,))


def test_nodes_of_old_tools_that_a_new_controller_finds(caplog: pytest.LogCaptureFixture) -> None:
    cluster = cluster_of(2, 1, brokers=(4, 1, 2, 3))
    cluster.kill(2)
    cluster.start(2)
    cluster.catch_up()
    assert cluster.state("t").leader == 1
    others = [cluster.brokers.pop(broker) for broker in (1, 2, 3)]
    for broker in others:
        broker.controller.stop()
    cluster.kill(4)  # without a controller
    cluster.result(cluster.observer.create(node_paths.PREFERRED_ELECTION, b'{"version":1,"partitions":[{"topic":"t","partition":0}]}'))
    cluster.result(cluster.observer.create(node_paths.REASSIGN_PARTITIONS, b"?"))
    cluster.brokers.update((broker.id, broker) for broker in others)
    cluster.start(4)
    assert cluster.state("t").leader == 2
    assert cluster.result(cluster.observer.children("/admin")) == ["delete_topics"]
    assert "deleting /admin/reassign_partitions: b'?' is not a valid reassignment" in caplog.text


def test_an_isr_written_by_an_old_broker_completes_a_reassignment() -> None:
    cluster = cluster_of(1)
    cluster.reassign((2,))
    cluster.put_state("t", PartitionState(leader=1, leader_epoch=1, isr=(1, 2), controller_epoch=1))
    note = b'{"version":1,"partitions":[{"topic":"t","partition":0}]}'
    cluster.result(cluster.observer.create(f"{node_paths.ISR_CHANGES}/isr_change_", note, sequential=True))
    assert cluster.assignment() == ReplicaAssignment((2,))
    assert cluster.result(cluster.observer.children(node_paths.ISR_CHANGES)) == []


STEPS = range(45)  # all are complete after 37


@pytest.mark.parametrize(("origin", "target"), [((1, 2), (3, 4)), ((1, 2), (2, 1, 3)), ((1, 2, 3), (3,))])
@pytest.mark.parametrize("victim", quarter([5, 1, 3]))
def test_a_broker_dies_at_any_step_of_a_reassignment(origin: tuple[int, ...], target: tuple[int, ...], victim: int) -> None:
    """The controller (5), the leader (1) or a target (3), which returns later."""
    for step in STEPS:
        cluster = cluster_of(*origin, brokers=(5, 1, 2, 3, 4))
        begun = cluster.controller.reassign({T0: target})
        begun.addErrback(lambda _: None)
        for _ in range(step):
            if not cluster.turns.step():
                cluster.grow()
        cluster.trees.expire(cluster.brokers.pop(victim).tree)
        cluster.catch_up()
        cluster.start(victim)
        cluster.catch_up()
        if cluster.assignment().replicas != target:  # it died before the request was carried out
            assert step < 6 and cluster.reassign(target) == ErrorCode.NONE
            cluster.catch_up()
        check_converged(cluster, target)


@pytest.mark.parametrize("victim", quarter([5, 1, 3]))
def test_a_broker_dies_at_any_step_and_the_reassignment_is_cancelled(victim: int) -> None:
    for step in STEPS:
        cluster = cluster_of(1, 2, brokers=(5, 1, 2, 3, 4))
        cluster.controller.reassign({T0: (3, 4)}).addErrback(lambda _: None)
        for _ in range(step):
            cluster.turns.step()
        cluster.trees.expire(cluster.brokers.pop(victim).tree)
        cluster.turns.run()
        cancelled = cluster.reassign(None) == ErrorCode.NONE
        assert cancelled or step < 6
        cluster.start(victim)
        cluster.catch_up()
        check_converged(cluster, (1, 2))


def check_converged(cluster: Cluster, replicas: tuple[int, ...]) -> None:
    """The assignment is complete, all replicas are in sync, all brokers know it, and no other broker has a replica."""
    state = cluster.state("t")
    assert cluster.assignment() == ReplicaAssignment(replicas)
    assert cluster.controller.reassignments() == {}
    assert state.leader in state.isr
    assert sorted(state.isr) == sorted(replicas)
    for broker in cluster.brokers.values():
        known = broker.image.partition("t", 0)
        assert known is not None
        assert (known.leader, known.leader_epoch, known.replicas) == (state.leader, state.leader_epoch, replicas)
        assert broker.roles.get(T0) == ((state.leader, state.leader_epoch) if broker.id in replicas else None)
