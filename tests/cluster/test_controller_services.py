"""What other brokers and admin clients ask of the controller: ISR changes, shutdowns, elections."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.defer import CancelledError, Deferred

from tests.cluster.brokers import FakeCluster
from txbroker.cluster import node_paths
from txbroker.cluster.controller.elect_leaders import ElectionType
from txbroker.cluster.node_data import PartitionState
from txbroker.errors import BrokerError, ErrorCode
from txbroker.names import TopicPartition
from txbroker.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    PartitionData,
    PartitionDataResult,
    TopicData,
)
from txbroker.wire.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse


@pytest.fixture
def cluster() -> FakeCluster:
    cluster = FakeCluster()
    cluster.start(1, 2, 3)
    cluster.create_topic("t", (1, 2, 3))
    return cluster


def broker_epoch(cluster: FakeCluster, broker_id: int) -> int:
    epoch = cluster.controller.broker_epoch(broker_id)
    assert epoch is not None
    return epoch


def alter(
    cluster: FakeCluster,
    isr: list[int],
    *,
    broker: int = 1,
    epoch: int | None = None,
    leader_epoch: int = 0,
    partition_epoch: int = 0,
    partition: int = 0,
    topic_id: bytes | None = None,
    isr_epoch: int = -1,
    recovering: int = 0,
) -> AlterPartitionResponse:
    data = PartitionData(
        partition_index=partition,
        leader_epoch=leader_epoch,
        new_isr_with_epochs=[BrokerState(broker_id=b, broker_epoch=isr_epoch) for b in isr],
        leader_recovery_state=recovering,
        partition_epoch=partition_epoch,
    )
    known_id = cluster.brokers[1].image.topics["t"].topic_id
    topic = TopicData(topic_id=known_id if topic_id is None else topic_id, partitions=[data])
    request_epoch = broker_epoch(cluster, broker) if epoch is None else epoch
    return cluster.result(
        cluster.controller.alter_partition(AlterPartitionRequest(broker_id=broker, broker_epoch=request_epoch, topics=[topic]))
    )


def only(response: AlterPartitionResponse) -> PartitionDataResult:
    assert response.error_code == ErrorCode.NONE
    return response.topics[0].partitions[0]


def test_a_smaller_isr_is_sent_to_all_brokers(cluster: FakeCluster) -> None:
    answer = only(alter(cluster, [1, 3]))
    assert (answer.error_code, answer.leader_id, answer.leader_epoch, answer.isr, answer.partition_epoch) == (0, 1, 0, [1, 3], 1)
    assert cluster.state("t") == PartitionState(leader=1, leader_epoch=0, isr=(1, 3), controller_epoch=1, partition_epoch=1)
    assert cluster.taken() == {broker: ["UM t-0 leader 1 epoch 0"] for broker in (1, 2, 3)}
    assert cluster.brokers[3].image.topics["t"].partitions[0].isr == (1, 3)
    grown = only(alter(cluster, [1, 3, 2], partition_epoch=1))
    assert (grown.error_code, grown.isr, grown.partition_epoch) == (0, [1, 3, 2], 2)


def test_the_same_isr_is_answered_without_a_write(cluster: FakeCluster) -> None:
    alter(cluster, [1])
    cluster.taken()
    answer = only(alter(cluster, [1], partition_epoch=0))
    assert (answer.error_code, answer.partition_epoch) == (0, 1)
    assert cluster.taken() == {}


def test_an_isr_change_of_old_versions(cluster: FakeCluster) -> None:
    data = PartitionData(partition_index=0, leader_epoch=0, new_isr=[1], partition_epoch=0)
    request = AlterPartitionRequest(
        broker_id=1, broker_epoch=broker_epoch(cluster, 1), topics=[TopicData(topic_name="t", partitions=[data])]
    )
    assert only(cluster.result(cluster.controller.alter_partition(request))).isr == [1]


def test_isr_changes_that_are_refused(cluster: FakeCluster) -> None:
    assert alter(cluster, [1], epoch=7).error_code == ErrorCode.STALE_BROKER_EPOCH
    assert alter(cluster, [1], broker=1, epoch=-1).error_code == ErrorCode.STALE_BROKER_EPOCH
    assert only(alter(cluster, [1], topic_id=bytes(15) + b"x")).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert only(alter(cluster, [1], partition=9)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert only(alter(cluster, [1], leader_epoch=1)).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert only(alter(cluster, [1], partition_epoch=3)).error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert only(alter(cluster, [])).error_code == ErrorCode.INVALID_REQUEST
    assert only(alter(cluster, [2, 3])).error_code == ErrorCode.INVALID_REQUEST  # without the leader
    assert only(alter(cluster, [1, 1])).error_code == ErrorCode.INVALID_REQUEST
    assert only(alter(cluster, [1, 9])).error_code == ErrorCode.INVALID_REQUEST  # no replica
    assert only(alter(cluster, [2, 1], broker=2)).error_code == ErrorCode.INVALID_REQUEST  # not the leader
    assert only(alter(cluster, [1], recovering=1)).error_code == ErrorCode.INVALID_REQUEST
    assert cluster.state("t").partition_epoch == 0


def test_an_ineligible_replica_does_not_join_the_isr(cluster: FakeCluster) -> None:
    cluster.kill(3)
    assert cluster.state("t").isr == (1, 2)
    refused = only(alter(cluster, [1, 2, 3], leader_epoch=1, partition_epoch=1))
    assert (refused.error_code, refused.isr) == (ErrorCode.INELIGIBLE_REPLICA, [])
    cluster.start(3)
    of_before = only(alter(cluster, [1, 2, 3], leader_epoch=1, partition_epoch=1, isr_epoch=3))
    assert of_before.error_code == ErrorCode.INELIGIBLE_REPLICA
    assert only(alter(cluster, [1, 2, 3], leader_epoch=1, partition_epoch=1)).error_code == 0


def test_a_concurrently_changed_state_is_not_overwritten(cluster: FakeCluster) -> None:
    cluster.put_state("t", PartitionState(leader=1, leader_epoch=0, isr=(1, 2), controller_epoch=1))
    assert only(alter(cluster, [1])).error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert cluster.state("t").isr == (1, 2)
    assert only(alter(cluster, [1], partition_epoch=1)).error_code == ErrorCode.NONE


def test_a_broker_that_is_not_the_controller_refuses(cluster: FakeCluster) -> None:
    other = cluster.brokers[2].controller
    requests: list[Deferred[Any]] = [
        other.alter_partition(AlterPartitionRequest(broker_id=1, topics=[])),
        other.controlled_shutdown(ControlledShutdownRequest(broker_id=1)),
        other.elect_leaders(ElectionType.PREFERRED, None),
    ]
    for asked in requests:
        with pytest.raises(BrokerError) as caught:
            cluster.result(asked)
        assert caught.value.code == ErrorCode.NOT_CONTROLLER


def test_the_writes_of_a_replaced_controller_fail(cluster: FakeCluster) -> None:
    controller = cluster.controller
    cluster.result(cluster.observer.set(node_paths.CONTROLLER_EPOCH, b"9"))
    with pytest.raises(BrokerError) as caught:
        alter(cluster, [1])
    assert caught.value.code == ErrorCode.NOT_CONTROLLER
    assert not controller.active
    assert cluster.state("t").isr == (1, 2, 3)


def shut_down(cluster: FakeCluster, broker_id: int, epoch: int | None = None) -> ControlledShutdownResponse:
    request = ControlledShutdownRequest(broker_id=broker_id, broker_epoch=broker_epoch(cluster, broker_id) if epoch is None else epoch)
    return cluster.result(cluster.controller.controlled_shutdown(request))


def test_a_controlled_shutdown(cluster: FakeCluster) -> None:
    cluster.create_topic("led", (2, 3, 1))
    cluster.create_topic("own", (2,))
    response = shut_down(cluster, 2)
    assert (response.error_code, response.remaining_partitions) == (0, [])
    assert (cluster.state("led").leader, cluster.state("led").isr) == (3, (3, 1))
    assert (cluster.state("t").leader, cluster.state("t").isr) == (1, (1, 3))
    assert cluster.state("own").leader == 2  # no other replica
    taken = cluster.taken()
    assert taken[2] == [
        "LAI led-0 leader 3 epoch 1 isr 3,1",
        "UM led-0 leader 3 epoch 1 offline 2",
        "SR t-0 epoch 0",
        "UM t-0 leader 1 epoch 1 offline 2",
        "UM led-0 leader 3 epoch 1 offline 2",
        "UM own-0 leader 2 epoch 0 offline 2",
    ]
    assert taken[1][:3] == [
        "LAI led-0 leader 3 epoch 1 isr 3,1",
        "UM led-0 leader 3 epoch 1 offline 2",
        "LAI t-0 leader 1 epoch 1 isr 1,3",
    ]
    cluster.kill(2)
    assert cluster.state("led").leader == 3
    assert cluster.state("own").leader == -1
    assert list(cluster.brokers[1].image.brokers) == [1, 3]
    cluster.start(2)
    assert cluster.state("own").leader == 2


def test_a_shutdown_does_not_wait_for_a_topic_that_is_being_deleted(cluster: FakeCluster) -> None:
    cluster.kill(3)
    cluster.result(cluster.admin.delete("t"))
    assert cluster.result(cluster.observer.exists(node_paths.deletion("t"))) is not None, "it waits for broker 3"
    response = shut_down(cluster, 2)
    assert (response.error_code, response.remaining_partitions) == (0, [])


def test_a_stopping_replica_does_not_join_an_isr(cluster: FakeCluster) -> None:
    shut_down(cluster, 3)
    assert only(alter(cluster, [1, 2, 3], leader_epoch=1, partition_epoch=1)).error_code == ErrorCode.INELIGIBLE_REPLICA


def test_partitions_without_another_replica_keep_their_leader(cluster: FakeCluster) -> None:
    alter(cluster, [1])
    response = shut_down(cluster, 1)
    assert [(p.topic_name, p.partition_index) for p in response.remaining_partitions] == [("t", 0)]
    assert cluster.state("t").leader == 1


def test_shutdowns_that_are_refused(cluster: FakeCluster) -> None:
    assert shut_down(cluster, 9, epoch=1).error_code == ErrorCode.BROKER_NOT_AVAILABLE
    assert shut_down(cluster, 2, epoch=1).error_code == ErrorCode.STALE_BROKER_EPOCH
    assert cluster.state("t").isr == (1, 2, 3)


def test_the_single_broker_shuts_down() -> None:
    cluster = FakeCluster()
    cluster.start(1)
    cluster.create_topic("t", (1,))
    assert shut_down(cluster, 1).error_code == 0
    assert cluster.state("t").leader == 1
    assert cluster.taken() == {1: ["UM t-0 leader 1 epoch 0 offline 1"]}


def elect(cluster: FakeCluster, kind: ElectionType, partitions: list[TopicPartition] | None) -> dict[TopicPartition, ErrorCode]:
    """The error codes; an elected leader is that of the tree."""
    elections = cluster.result(cluster.controller.elect_leaders(kind, partitions))
    for topic_partition, election in elections.items():
        if election.error is ErrorCode.NONE:
            assert election.leader == cluster.state(*topic_partition).leader
    return {topic_partition: election.error for topic_partition, election in elections.items()}


def test_preferred_leaders(cluster: FakeCluster) -> None:
    cluster.create_topic("moved", (3, 1))
    cluster.kill(3)
    cluster.start(3)
    moved, here, nowhere = TopicPartition("moved", 0), TopicPartition("t", 0), TopicPartition("x", 0)
    assert elect(cluster, ElectionType.PREFERRED, [moved, here, nowhere]) == {
        moved: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,  # it is not in sync yet
        here: ErrorCode.ELECTION_NOT_NEEDED,
        nowhere: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    cluster.put_state("moved", PartitionState(leader=1, leader_epoch=1, isr=(1, 3), controller_epoch=1))
    cluster.result(Deferred.fromCoroutine(cluster.term.leadership.refresh([moved])))
    cluster.sent.clear()
    assert elect(cluster, ElectionType.PREFERRED, None)[moved] == ErrorCode.NONE
    assert (cluster.state("moved").leader, cluster.state("moved").isr, cluster.state("moved").leader_epoch) == (3, (1, 3), 2)
    assert cluster.taken()[3] == ["LAI moved-0 leader 3 epoch 2 isr 1,3", "UM moved-0 leader 3 epoch 2"]


def test_a_new_epoch_with_the_same_leader(cluster: FakeCluster) -> None:
    cluster.create_topic("lost", (2,))
    cluster.kill(2)
    before = {name: cluster.state(name) for name in ("t", "lost")}
    cluster.sent.clear()
    cluster.result(cluster.controller.begin_epochs([TopicPartition(name, 0) for name in ("t", "lost", "absent")]))
    state = cluster.state("t")
    assert (state.leader, state.leader_epoch, state.isr) == (before["t"].leader, before["t"].leader_epoch + 1, (before["t"].leader,))
    assert any(f"LAI t-0 leader {state.leader} epoch {state.leader_epoch}" in line for line in cluster.taken()[state.leader])
    assert cluster.state("lost") == before["lost"], "it has no leader"


def test_unclean_elections_on_request(cluster: FakeCluster) -> None:
    cluster.create_topic("lost", (2, 3))
    lost = TopicPartition("lost", 0)
    cluster.kill(3)
    cluster.start(3)
    cluster.kill(2)
    assert cluster.state("lost").leader == -1
    assert elect(cluster, ElectionType.UNCLEAN, [lost]) == {lost: ErrorCode.NONE}
    state = cluster.state("lost")
    assert (state.leader, state.isr, state.recovering) == (3, (3,), True)
    assert elect(cluster, ElectionType.UNCLEAN, [lost]) == {lost: ErrorCode.ELECTION_NOT_NEEDED}
    recovered = AlterPartitionRequest(
        broker_id=3,
        broker_epoch=broker_epoch(cluster, 3),
        topics=[
            TopicData(
                topic_name="lost",
                partitions=[
                    PartitionData(
                        partition_index=0, leader_epoch=state.leader_epoch, new_isr=[3], partition_epoch=state.partition_epoch
                    )
                ],
            )
        ],
    )
    assert only(cluster.result(cluster.controller.alter_partition(recovered))).leader_recovery_state == 0
    assert not cluster.state("lost").recovering
    cluster.kill(3)
    assert elect(cluster, ElectionType.UNCLEAN, [lost]) == {lost: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}


def test_an_unclean_election_that_is_allowed_later(cluster: FakeCluster) -> None:
    """By the configuration of the topic, or by the broker's default."""
    for topic in ("a", "b"):
        cluster.create_topic(topic, (2, 3))
    cluster.kill(3)
    cluster.start(3)
    cluster.kill(2)
    node = node_paths.topic_entity("a").path
    cluster.result(cluster.observer.set(node, b'{"version":1,"config":{"unclean.leader.election.enable":"true"}}'))
    cluster.controller.unclean_election_changed()
    cluster.turns.run()
    assert (cluster.state("a").leader, cluster.state("b").leader) == (3, -1)
    cluster.unclean_default = True
    cluster.controller.unclean_election_changed()
    cluster.turns.run()
    assert cluster.state("b").leader == 3
    cluster.brokers[3].controller.unclean_election_changed()  # it is not the controller: nothing to do
    cluster.turns.run()
    assert cluster.controller is cluster.brokers[1].controller


def test_a_caller_that_does_not_wait_for_the_response_stops_nothing(cluster: FakeCluster) -> None:
    """The connection of a broker that is killed ends while its request is served."""
    data = PartitionData(partition_index=0, leader_epoch=0, new_isr=[1], partition_epoch=0)
    topics = [TopicData(topic_name="t", partitions=[data])]
    request = AlterPartitionRequest(broker_id=1, broker_epoch=broker_epoch(cluster, 1), topics=topics)
    epoch = cluster.controller.epoch
    served = cluster.controller.alter_partition(request)
    waiting = cluster.controller.controlled_shutdown(ControlledShutdownRequest(broker_id=3))
    for deferred in (served, waiting):
        deferred.addErrback(lambda failure: failure.trap(CancelledError) and None)
        deferred.cancel()
    cluster.turns.run()
    assert cluster.controller.epoch == epoch
    assert cluster.state("t").isr == (1,)


def test_a_request_is_refused_as_not_controller_when_the_session_ends_during_it(cluster: FakeCluster) -> None:
    controller = cluster.controller
    epoch = broker_epoch(cluster, 1)
    state = BrokerState(broker_id=1, broker_epoch=-1)
    data = PartitionData(partition_index=0, leader_epoch=0, new_isr_with_epochs=[state], partition_epoch=0)
    topic = TopicData(topic_name="t", topic_id=cluster.term.context.topics["t"].topic_id, partitions=[data])
    cluster.trees.expire(next(broker.tree for broker in cluster.brokers.values() if broker.controller is controller))
    assert controller.active, "it does not know it yet"
    with pytest.raises(BrokerError) as refused:
        cluster.result(controller.alter_partition(AlterPartitionRequest(broker_id=1, broker_epoch=epoch, topics=[topic])))
    assert refused.value.code is ErrorCode.NOT_CONTROLLER
