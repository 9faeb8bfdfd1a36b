"""What the controller writes when a broker is suspected, and how another broker replaces a suspected controller."""

from __future__ import annotations

import pytest

from tests.cluster.brokers import FakeCluster
from txbroker.cluster import node_paths
from txbroker.cluster.controller.elect_leaders import ElectionType
from txbroker.errors import BrokerError, ErrorCode
from txbroker.names import TopicPartition
from txbroker.wire.messages.alter_partition import AlterPartitionRequest, BrokerState, PartitionData, TopicData
from txbroker.wire.messages.controlled_shutdown import ControlledShutdownRequest


def cluster_of(*brokers: int) -> FakeCluster:
    cluster = FakeCluster()
    cluster.start(*brokers)
    cluster.sent.clear()
    return cluster


def roles(cluster: FakeCluster, topic: str) -> tuple[int, tuple[int, ...], int]:
    found = cluster.state(topic)
    return found.leader, found.isr, found.leader_epoch


def test_leadership_leaves_a_suspect_in_the_write_that_takes_it_out_of_the_isr() -> None:
    """Also the suspect gets its roles, and its registration is not touched."""
    cluster = cluster_of(1, 2, 3)
    for topic, replicas in {"led": (2, 3, 1), "followed": (1, 2, 3), "alone": (2,), "other": (1, 3)}.items():
        cluster.create_topic(topic, replicas)
    cluster.suspect(2)
    assert roles(cluster, "led") == (3, (3, 1), 1)
    assert cluster.state("led").partition_epoch == 1, "one write"
    assert roles(cluster, "followed") == (1, (1, 3), 1)
    assert roles(cluster, "alone") == (2, (2,), 0) and roles(cluster, "other") == (1, (1, 3), 0)
    sent = cluster.taken()
    assert {"LAI led-0 leader 3 epoch 1 isr 3,1", "LAI followed-0 leader 1 epoch 1 isr 1,3"} <= set(sent[2])
    assert not any(line.endswith("offline 2") for lines in sent.values() for line in lines)
    assert cluster.result(cluster.observer.exists(node_paths.broker(2))) is not None
    cluster.suspect(2)
    assert cluster.taken() == {}
    cluster.kill(2)
    assert roles(cluster, "led") == (3, (3, 1), 1), "the end of its session changes nothing more"
    assert roles(cluster, "alone") == (-1, (2,), 1)


def test_a_suspect_returns_to_the_isr_and_to_leadership_when_it_is_trusted_again() -> None:
    cluster = cluster_of(1, 2, 3)
    cluster.create_topic("t", (2, 3, 1))
    cluster.suspect(2)
    state, epoch = cluster.state("t"), cluster.brokers[3].epoch
    assert epoch is not None
    members = [BrokerState(broker_id=id_, broker_epoch=cluster.brokers[id_].epoch or 0) for id_ in (3, 1, 2)]
    partition = PartitionData(partition_index=0, leader_epoch=state.leader_epoch, new_isr_with_epochs=members,
                              partition_epoch=state.partition_epoch)  # fmt: skip
    topics = [TopicData(topic_name="t", partitions=[partition])]
    answer = cluster.result(cluster.controller.alter_partition(AlterPartitionRequest(broker_id=3, broker_epoch=epoch, topics=topics)))
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE and roles(cluster, "t")[1] == (3, 1, 2)
    preferred = [TopicPartition("t", 0)]
    election = cluster.result(cluster.controller.elect_leaders(ElectionType.PREFERRED, preferred))
    assert election[preferred[0]].error == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    cluster.suspect()
    election = cluster.result(cluster.controller.elect_leaders(ElectionType.PREFERRED, preferred))
    assert election[preferred[0]].leader == 2


def test_suspects_lead_new_partitions_only_if_there_is_no_other_replica() -> None:
    cluster = cluster_of(1, 2, 3)
    cluster.suspect(3)
    cluster.create_topic("t", (3, 1))
    cluster.create_topic("alone", (3,))
    assert (roles(cluster, "t"), roles(cluster, "alone")) == ((1, (1,), 0), (3, (3,), 0))


def test_a_suspicion_of_another_start_of_the_broker_changes_nothing() -> None:
    cluster = cluster_of(1, 2, 3)
    cluster.create_topic("t", (2, 3, 1))
    cluster.suspected = {2: (cluster.brokers[2].epoch or 0) - 1}
    cluster.controller.suspects_changed()
    cluster.turns.run()
    assert roles(cluster, "t") == (2, (2, 3, 1), 0)


def test_a_suspected_controller_is_replaced_by_one_broker_and_resigns() -> None:
    """It is alive: what it writes after that fails, and its partitions have other leaders."""
    cluster = cluster_of(1, 2, 3)
    cluster.create_topic("t", (1, 2, 3))
    first = cluster.brokers[1].controller
    cluster.suspect(1)
    assert not first.active and cluster.controller.epoch == 2
    assert sum(broker.controller.takeovers for broker in cluster.brokers.values()) == 1
    assert roles(cluster, "t") == (2, (2, 3), 1) and cluster.state("t").controller_epoch == 2
    with pytest.raises(BrokerError, match="NOT_CONTROLLER"):
        cluster.result(first.elect_leaders(ElectionType.PREFERRED, None))
    before = cluster.controller
    cluster.suspect(1)
    assert cluster.controller is before, "another broker than the suspect is the controller now"
    cluster.kill(1)
    assert cluster.controller is before and before.epoch == 2


def test_a_controller_that_does_not_notice_is_fenced() -> None:
    cluster = cluster_of(1, 2, 3)
    cluster.create_topic("t", (1, 2, 3))
    first = cluster.brokers[1].controller
    first._controller_changed = _nothing  # type: ignore[method-assign]
    cluster.suspect(1)
    assert first.active and cluster.brokers[1].epoch is not None
    with pytest.raises(BrokerError, match="NOT_CONTROLLER"):
        cluster.result(first.controlled_shutdown(ControlledShutdownRequest(broker_id=2, broker_epoch=-1)))


async def _nothing() -> None: ...


def test_only_the_session_of_the_suspect_is_replaced() -> None:
    """It has been restarted since, or another broker has been elected."""
    cluster = cluster_of(1, 2, 3)
    gone = cluster.brokers[1].epoch or 0
    cluster.suspected = {1: gone - 1}
    for broker_id in (2, 3):
        cluster.brokers[broker_id].controller.suspects_changed()
    cluster.turns.run()
    assert cluster.controller.epoch == 1
    cluster.kill(1)
    assert cluster.controller.epoch == 2
    cluster.suspected = {1: gone}
    for broker_id in (2, 3):
        cluster.brokers[broker_id].controller.suspects_changed()
    cluster.turns.run()
    assert cluster.controller.epoch == 2


def test_an_election_meanwhile_wins() -> None:
    """The epoch is read before the node of the suspect: a transaction that another election has overtaken fails."""
    cluster = cluster_of(1, 2, 3)
    cluster.suspected = {1: cluster.brokers[1].epoch or 0}
    tree = cluster.brokers[2].tree
    exists = tree.exists

    def overtaken(path: str, **arguments: object) -> object:
        if path == node_paths.CONTROLLER and not arguments:
            tree.exists = exists  # type: ignore[method-assign]
            cluster.brokers[3].controller.suspects_changed()
            cluster.turns.run()
        return exists(path, **arguments)  # type: ignore[arg-type]

    tree.exists = overtaken  # type: ignore[assignment,method-assign]
    cluster.brokers[2].controller.suspects_changed()
    cluster.turns.run()
    assert cluster.controller is cluster.brokers[3].controller and cluster.controller.epoch == 2
    assert cluster.brokers[2].controller.takeovers == 0


def test_a_new_controller_finds_suspects_that_were_not_dealt_with() -> None:
    cluster = cluster_of(1, 2, 3, 4, 5)
    cluster.create_topic("t", (3, 2, 4))
    cluster.suspected = {3: cluster.brokers[3].epoch or 0}
    cluster.kill(1)
    assert cluster.controller.epoch == 2 and roles(cluster, "t") == (2, (2, 4), 1)
