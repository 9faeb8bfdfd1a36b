"""What the controller writes and sends, and in which order: as Apache Kafka 3.9.1 was seen to do."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from tests.cluster.brokers import LISTENER, FakeCluster, registration
from txbroker.cluster import node_paths
from txbroker.cluster.broker_ids import register, report_log_dir_failure
from txbroker.cluster.controller.elect_leaders import ElectionType
from txbroker.cluster.controller.term import ControllerTerm
from txbroker.cluster.node_data import BrokerRegistration, PartitionState, TopicAssignment, decode_topic
from txbroker.cluster.topics import NewTopic
from txbroker.errors import BrokerError, ErrorCode, StartError
from txbroker.names import NULL_TOPIC_ID, TopicPartition
from txbroker.wire.messages.leader_and_isr import LeaderAndIsrRequest
from txbroker.wire.messages.update_metadata import UpdateMetadataRequest


def cluster_of(*brokers: int) -> FakeCluster:
    cluster = FakeCluster()
    cluster.start(*brokers)
    cluster.sent.clear()
    return cluster


def test_the_first_broker_is_elected() -> None:
    cluster = FakeCluster()
    cluster.start(1)
    assert cluster.controller.epoch == 1
    assert cluster.result(cluster.observer.get(node_paths.CONTROLLER))[0] == (
        b'{"version":2,"brokerid":1,"timestamp":"1234","kraftControllerEpoch":-1}'
    )
    data, stat = cluster.result(cluster.observer.get(node_paths.CONTROLLER_EPOCH))
    assert (data, stat.version) == (b"1", 1)
    assert cluster.result(cluster.observer.get(node_paths.FEATURE))[0] == b'{"features":{},"version":2,"status":1}'
    assert cluster.taken() == {
        1: [
            "UM brokers 1",
        ],
    }
    image = cluster.brokers[1].image
    assert image.controller_id == 1
    endpoint = image.endpoint(1, LISTENER)
    assert endpoint is not None and (endpoint.host, endpoint.port) == ("b1", 9001)


def test_a_second_broker_is_announced_and_receives_all_metadata() -> None:
    cluster = cluster_of(1)
    cluster.create_topic("t", (1,))
    cluster.start(2)
    assert cluster.taken() == {
        1: [
            "UM brokers 1,2",
        ],
        2: [
            "UM t-0 leader 1 epoch 0",
        ],
    }
    assert not cluster.brokers[2].controller.active
    assert cluster.brokers[2].image.controller_id == 1


def test_a_new_topic() -> None:
    cluster = cluster_of(1, 2)
    cluster.result(cluster.admin.create(new_topic("t", (2, 1), (1, 2))))
    assert cluster.taken() == {
        1: [
            "LAI t-0 leader 2 epoch 0 isr 2,1 new",
            "LAI t-1 leader 1 epoch 0 isr 1,2 new",
            "UM t-0 leader 2 epoch 0",
            "UM t-1 leader 1 epoch 0",
        ],
        2: [
            "LAI t-0 leader 2 epoch 0 isr 2,1 new",
            "LAI t-1 leader 1 epoch 0 isr 1,2 new",
            "UM t-0 leader 2 epoch 0",
            "UM t-1 leader 1 epoch 0",
        ],
    }
    assert cluster.result(cluster.observer.get("/brokers/topics/t/partitions/0/state"))[0] == (
        b'{"controller_epoch":1,"leader":2,"version":1,"leader_epoch":0,"isr":[2,1]}'
    )
    assert cluster.result(cluster.observer.children("/brokers/topics/t/partitions")) == ["0", "1"]


def test_the_brokers_and_epochs_in_a_request() -> None:
    cluster = cluster_of(1, 2)
    cluster.result(cluster.admin.create(new_topic("t", (2, 1))))
    stat = cluster.result(cluster.observer.exists(node_paths.broker(2)))
    assert stat is not None
    roles = next(r for b, r in cluster.sent if b == 2 and isinstance(r, LeaderAndIsrRequest))
    assert (roles.controller_id, roles.controller_epoch, roles.broker_epoch, roles.type) == (1, 1, stat.czxid, 0)
    assert [(leader.broker_id, leader.host_name, leader.port) for leader in roles.live_leaders] == [(2, "b2", 9002)]
    topic = roles.topic_states[0]
    partition = topic.partition_states[0]
    assert topic.topic_id != bytes(16)
    assert (partition.replicas, partition.controller_epoch, partition.partition_epoch) == ([2, 1], 1, 0)
    metadata = next(r for b, r in cluster.sent if b == 2 and isinstance(r, UpdateMetadataRequest))
    assert metadata.broker_epoch == stat.czxid
    assert [(b.id, b.rack, [e.port for e in b.endpoints]) for b in metadata.live_brokers] == [(1, None, [9001]), (2, None, [9002])]


def test_a_thousand_partitions_are_one_request_per_broker() -> None:
    cluster = cluster_of(1, 2)
    cluster.result(cluster.admin.create(new_topic("t", *[(1, 2)] * 1000)))
    assert [(b, type(r).__name__) for b, r in cluster.sent] == [
        (1, "LeaderAndIsrRequest"),
        (2, "LeaderAndIsrRequest"),
        (1, "UpdateMetadataRequest"),
        (2, "UpdateMetadataRequest"),
    ]
    assert len(cluster.brokers[2].image.topics["t"].partitions) == 1000
    assert cluster.state("t", 999).isr == (1, 2)


def test_more_partitions() -> None:
    cluster = cluster_of(1)
    cluster.create_topic("t", (1,))
    cluster.result(cluster.admin.create_partitions("t", 3))
    assert cluster.taken() == {
        1: [
            "LAI t-1 leader 1 epoch 0 isr 1 new",
            "LAI t-2 leader 1 epoch 0 isr 1 new",
            "UM t-1 leader 1 epoch 0",
            "UM t-2 leader 1 epoch 0",
        ],
    }
    cluster.result(cluster.admin.create_partitions("t", 4))
    assert cluster.taken() == {
        1: [
            "LAI t-3 leader 1 epoch 0 isr 1 new",
            "UM t-3 leader 1 epoch 0",
        ],
    }


def test_deleting_a_topic() -> None:
    cluster = cluster_of(1, 2)
    cluster.create_topic("t", (1, 2), retention_ms="1")
    cluster.result(cluster.admin.delete("t"))
    assert cluster.taken() == {
        1: [
            "UM t-0 leader -2 epoch 0",
            "SR t-0 epoch -2",
            "SR t-0 epoch -2 delete",
        ],
        2: [
            "UM t-0 leader -2 epoch 0",
            "SR t-0 epoch -2",
            "SR t-0 epoch -2 delete",
        ],
    }
    for parent in (node_paths.TOPICS, "/config/topics", node_paths.DELETE_TOPICS):
        assert cluster.result(cluster.observer.children(parent)) == []
    assert cluster.brokers[2].image.topics == {}


def test_the_leader_goes_from_the_tree_before_replicas_stop() -> None:
    cluster = cluster_of(1)
    cluster.create_topic("t", (1,))
    cluster.brokers[1].stop_error = lambda _: ErrorCode.KAFKA_STORAGE_ERROR
    cluster.result(cluster.admin.delete("t"))
    state = cluster.state("t")
    assert (state.leader, state.leader_epoch, state.isr) == (-1, 1, (1,))


def test_a_topic_can_be_recreated_after_its_deletion() -> None:
    cluster = cluster_of(1)
    cluster.create_topic("t", (1,))
    first = cluster.brokers[1].image.topics["t"].topic_id
    cluster.result(cluster.admin.delete("t"))
    cluster.result(cluster.admin.create(new_topic("t", (1,))))
    image = cluster.brokers[1].image
    second = image.topics["t"].topic_id
    assert second != first
    assert image.topic_by_id(first) is None
    assert image.topic_by_id(second) is image.topics["t"]


def test_a_deletion_request_during_the_creation_of_the_topic() -> None:
    """The watch on deletions may be served before the one on topics: the request must not be lost."""
    cluster = cluster_of(1)
    creation = cluster.admin.create(new_topic("t", (1,)))
    cluster.observer.create(node_paths.deletion("early"))  # of no topic: dropped
    while cluster.result(cluster.observer.exists(node_paths.topic("t"))) is None:
        cluster.turns.step()
    cluster.result(cluster.observer.create(node_paths.deletion("t")))
    cluster.result(creation)
    for parent in (node_paths.TOPICS, node_paths.DELETE_TOPICS):
        assert cluster.result(cluster.observer.children(parent)) == []
    assert "t" not in cluster.brokers[1].image.topics


def test_topic_and_its_deletion_appear_together() -> None:
    cluster = cluster_of(1)
    create = cluster.observer.create(node_paths.topic("t"), b'{"partitions":{"0":[1]},"topic_id":"fbPM-RkOQOqWgBiwlRhyzw","version":3}')
    cluster.observer.create(node_paths.deletion("t"))
    cluster.result(create)
    assert cluster.result(cluster.observer.children(node_paths.TOPICS)) == []
    assert cluster.result(cluster.observer.children(node_paths.DELETE_TOPICS)) == []


@pytest.mark.parametrize("turns", range(0, 40, 3))
def test_a_deletion_that_is_read_before_its_topic(turns: int) -> None:
    """While a step takes long, a topic is created and asked to be deleted behind another deletion: that must not be dropped."""
    cluster = cluster_of(1)
    creation = cluster.admin.create(new_topic("big", *[(1,)] * 20))
    for _ in range(turns):
        cluster.turns.step()
    cluster.observer.create(node_paths.deletion("unknown"))
    cluster.observer.create(node_paths.topic("t"), b'{"partitions":{"0":[1]},"topic_id":"fbPM-RkOQOqWgBiwlRhyzw","version":3}')
    cluster.observer.create(node_paths.deletion("t"))
    cluster.result(creation)
    assert cluster.result(cluster.observer.children(node_paths.TOPICS)) == ["big"]
    assert cluster.result(cluster.observer.children(node_paths.DELETE_TOPICS)) == []


@pytest.mark.parametrize("turns", range(60))
def test_a_deletion_request_during_a_takeover(turns: int) -> None:
    cluster = cluster_of(1)
    cluster.create_topic("old", (1,), (1,))
    cluster.observer.delete(node_paths.CONTROLLER)
    for _ in range(turns):
        cluster.turns.step()
    cluster.observer.create(node_paths.topic("t"), b'{"partitions":{"0":[1]},"topic_id":"fbPM-RkOQOqWgBiwlRhyzw","version":3}')
    cluster.observer.create(node_paths.deletion("t"))
    cluster.turns.run()
    assert cluster.result(cluster.observer.children(node_paths.TOPICS)) == ["old"]
    assert cluster.result(cluster.observer.children(node_paths.DELETE_TOPICS)) == []


def test_deletion_waits_for_a_broker_that_is_down() -> None:
    cluster = cluster_of(1, 2)
    cluster.create_topic("t", (1, 2))
    cluster.kill(2)
    cluster.sent.clear()
    cluster.result(cluster.admin.delete("t"))
    assert cluster.taken() == {
        1: [
            "UM t-0 leader -2 epoch 0 offline 2",
            "SR t-0 epoch -2",
            "SR t-0 epoch -2 delete",
        ],
    }
    assert cluster.result(cluster.observer.exists(node_paths.deletion("t"))) is not None
    cluster.start(2)
    assert cluster.taken()[2][-2:] == ["SR t-0 epoch -2", "SR t-0 epoch -2 delete"]
    assert cluster.result(cluster.observer.exists(node_paths.deletion("t"))) is None
    assert cluster.result(cluster.observer.exists(node_paths.topic("t"))) is None


@pytest.mark.parametrize("restarted", [True, False])
def test_a_deleted_replica_gets_no_role_while_another_one_waits_for_its_deletion(restarted: bool) -> None:
    """It would be created again, after the last StopReplica."""
    cluster = cluster_of(1, 2)
    cluster.create_topic("t", (1, 2))
    cluster.kill(2)
    cluster.result(cluster.admin.delete("t"))
    cluster.sent.clear()
    if restarted:
        cluster.kill(1)
        cluster.start(1)
    else:
        cluster.result(report_log_dir_failure(cluster.brokers[1].tree, 1))
    sent = cluster.taken().get(1, [])
    last = max((at for at, request in enumerate(sent) if request.startswith("LAI t-0")), default=-1)
    assert last < 0 or "SR t-0 epoch -2 delete" in sent[last:]


@pytest.mark.parametrize("victim", [1, 2, 3])
def test_a_broker_dies_at_any_step_of_a_deletion(victim: int) -> None:
    """The controller (1), the leader (2) or a follower (3), which returns later. Until then the topic cannot be created again."""
    after: set[bool] = set()
    for step in range(40):
        cluster = cluster_of(1, 2, 3)
        cluster.create_topic("t", (2, 3))
        cluster.admin.delete("t")
        for _ in range(step):
            cluster.turns.step()
        cluster.kill(victim)
        requested = cluster.result(cluster.observer.exists(node_paths.deletion("t"))) is not None
        exists = cluster.result(cluster.observer.exists(node_paths.topic("t"))) is not None
        after.add(exists)
        assert requested == exists or step == 0, step
        cluster.start(victim)
        if step == 0 and not requested:
            continue  # it died before the request was written
        assert cluster.result(cluster.observer.children(node_paths.TOPICS)) == [], step
        assert cluster.result(cluster.observer.children(node_paths.DELETE_TOPICS)) == [], step
        assert all(broker.image.topic("t") is None for broker in cluster.brokers.values()), step
        cluster.create_topic("t", (2, 3))
        assert cluster.state("t").leader == 2, step
    assert after == ({False} if victim == 1 else {True, False}), "the deletion waits for a replica, and not for another broker"


def test_a_new_controller_continues_a_deletion() -> None:
    cluster = cluster_of(1, 2)
    cluster.create_topic("t", (2,))
    cluster.brokers[2].stop_error = lambda _: ErrorCode.KAFKA_STORAGE_ERROR
    cluster.result(cluster.admin.delete("t"))
    cluster.brokers[2].stop_error = lambda _: 0
    cluster.kill(1)
    assert cluster.controller.epoch == 2
    assert cluster.result(cluster.observer.children(node_paths.TOPICS)) == []
    assert cluster.result(cluster.observer.children(node_paths.DELETE_TOPICS)) == []


@pytest.mark.parametrize("expired", [True, False])
def test_a_broker_that_no_request_reached_forgets_deleted_topics(expired: bool) -> None:
    """When it registers again, or the next controller is elected: the one that has deleted the topic does not repeat its request then."""
    cluster = cluster_of(1, 2, 3)
    cluster.create_topic("t", (2,))
    cluster.create_topic("u", (2,))
    away = cluster.brokers.pop(3)
    if expired:
        cluster.trees.expire(away.tree)
    cluster.result(cluster.admin.delete("t"))
    assert cluster.result(cluster.observer.exists(node_paths.topic("t"))) is None
    assert sorted(away.image.topics) == ["t", "u"]
    cluster.brokers[3] = away
    if expired:
        away.epoch = None  # any one, until it knows its new one
        cluster.result(register(cluster.trees.session(), 3, registration(3), 1234))
        cluster.turns.run()
    else:
        cluster.kill(1)
    assert sorted(away.image.topics) == ["u"]


def test_brokers_do_not_forget_a_topic_whose_nodes_are_malformed() -> None:
    cluster = cluster_of(1, 2)
    cluster.create_topic("t", (2,))
    cluster.create_topic("u", (2,))
    cluster.result(cluster.observer.set(node_paths.topic("t"), b"?"))
    cluster.result(cluster.observer.set(node_paths.state(TopicPartition("u", 0)), b"?"))
    cluster.kill(1)
    assert sorted(cluster.brokers[2].image.topics) == ["t", "u"]


def test_a_restart_of_a_single_broker() -> None:
    """It has all topics from the first request on, which is not repeated: its clients never see that one does not exist."""
    cluster = cluster_of(1)
    cluster.create_topic("a", (1,), (1,))
    cluster.create_topic("b", (1,))
    cluster.kill(1)
    cluster.start(1)
    assert cluster.controller.epoch == 2
    assert cluster.taken() == {
        1: [
            "UM a-0 leader 1 epoch 0",
            "UM a-1 leader 1 epoch 0",
            "UM b-0 leader 1 epoch 0",
            "LAI a-0 leader 1 epoch 0 isr 1",
            "LAI a-1 leader 1 epoch 0 isr 1",
            "LAI b-0 leader 1 epoch 0 isr 1",
        ],
    }


def test_a_topic_that_was_created_without_a_controller() -> None:
    cluster = cluster_of(1)
    cluster.kill(1)
    cluster.result(cluster.observer.create(node_paths.topic("t"), b'{"partitions":{"0":[1],"1":[1]},"version":3}'))
    cluster.result(cluster.observer.create(node_paths.partitions("t")))
    cluster.result(cluster.observer.create(node_paths.partition(TopicPartition("t", 1))))  # and half of its nodes
    cluster.start(1)
    assert "LAI t-0 leader 1 epoch 0 isr 1 new" in cluster.taken()[1]
    assert cluster.state("t", 1).leader == 1


def test_the_controller_is_killed() -> None:
    """The new controller elects before it removes the dead broker from ISRs: each state is written, and sent, once."""
    cluster = cluster_of(1, 2)
    cluster.create_topic("t", (1, 2))
    cluster.create_topic("u", (2, 1))
    cluster.create_topic("v", (1,))
    cluster.kill(1)
    assert cluster.controller.epoch == 2
    assert cluster.taken() == {
        2: [
            "UM t-0 leader 1 epoch 0 offline 1",
            "UM u-0 leader 2 epoch 0 offline 1",
            "UM v-0 leader 1 epoch 0 offline 1",
            "LAI t-0 leader 2 epoch 1 isr 2",
            "LAI u-0 leader 2 epoch 1 isr 2",
            "UM t-0 leader 2 epoch 1 offline 1",
            "UM u-0 leader 2 epoch 1 offline 1",
            "UM v-0 leader -1 epoch 1 offline 1",
        ],
    }
    assert cluster.state("v") == PartitionState(leader=-1, leader_epoch=1, isr=(1,), controller_epoch=2, partition_epoch=1)


def test_a_broker_is_killed_and_restarted() -> None:
    cluster = cluster_of(1, 2)
    cluster.create_topic("t", (2, 1))
    cluster.create_topic("u", (1, 2))
    cluster.create_topic("v", (2,))
    cluster.kill(2)
    assert cluster.taken() == {
        1: [
            "LAI t-0 leader 1 epoch 1 isr 1",
            "LAI u-0 leader 1 epoch 1 isr 1",
            "UM t-0 leader 1 epoch 1 offline 2",
            "UM u-0 leader 1 epoch 1 offline 2",
            "UM v-0 leader -1 epoch 1 offline 2",
        ],
    }
    cluster.start(2)
    assert cluster.taken() == {
        1: [
            "UM brokers 1,2",
            "UM t-0 leader 1 epoch 1",
            "UM u-0 leader 1 epoch 1",
            "UM v-0 leader -1 epoch 1",
            "UM v-0 leader 2 epoch 2",
        ],
        2: [
            "UM t-0 leader 1 epoch 1",
            "UM u-0 leader 1 epoch 1",
            "UM v-0 leader -1 epoch 1",
            "LAI t-0 leader 1 epoch 1 isr 1",
            "LAI u-0 leader 1 epoch 1 isr 1",
            "LAI v-0 leader -1 epoch 1 isr 2",
            "UM t-0 leader 1 epoch 1",
            "UM u-0 leader 1 epoch 1",
            "UM v-0 leader -1 epoch 1",
            "LAI v-0 leader 2 epoch 2 isr 2",
            "UM v-0 leader 2 epoch 2",
        ],
    }


def test_a_broker_restarts_before_its_failure_is_seen() -> None:
    cluster = cluster_of(1, 2)
    cluster.create_topic("t", (2, 1))
    old = cluster.brokers.pop(2)
    cluster.trees.expire(old.tree)
    cluster.start(2)  # both changes are in the tree before the controller looks
    assert cluster.state("t").leader == 1
    assert "LAI t-0 leader 1 epoch 1 isr 1" in cluster.taken()[2]


def test_a_broker_restarts_while_there_is_no_controller() -> None:
    """Its leader epochs end, as it may have lost records which its followers have; the only replica of a partition goes on."""
    cluster = cluster_of(1, 2)
    cluster.create_topic("t", (1, 2))
    cluster.create_topic("u", (2, 1))
    cluster.create_topic("v", (1,))
    cluster.trees.expire(cluster.brokers.pop(1).tree)
    cluster.start(1)  # it is registered again before the next controller reads the brokers
    states = {name: cluster.state(name) for name in "tuv"}
    assert {name: (state.leader, state.leader_epoch, state.isr) for name, state in states.items()} == {
        "t": (2, 1, (2,)), "u": (2, 1, (2,)), "v": (1, 0, (1,)),
    }  # fmt: skip


def test_brokers_do_not_forget_a_topic_without_states() -> None:
    """An operator has deleted a damaged state node, as the log says: the topic exists, and groups have offsets in it."""
    cluster = cluster_of(1, 2)
    cluster.create_topic("t", (1, 2))
    cluster.result(cluster.observer.delete(node_paths.state(TopicPartition("t", 0))))
    forgotten: list[str] = []
    image, apply = cluster.brokers[2].image, cluster.brokers[2].image.apply
    image.apply = lambda request: forgotten.extend((found := apply(request)).deleted) or found  # type: ignore[method-assign, func-returns-value]
    cluster.kill(1)
    assert not forgotten
    assert cluster.state("t").leader == 2


def test_two_of_three_brokers_are_killed_at_once() -> None:
    cluster = cluster_of(1, 2, 3)
    cluster.create_topic("t", (2, 3, 1))
    cluster.kill(2, 3)
    state = cluster.state("t")
    assert (state.leader, state.isr) == (1, (1,))
    assert cluster.brokers[1].image.topics["t"].partitions[0].offline_replicas == (2, 3)


@pytest.mark.parametrize(("default", "topic", "elected"), [(False, None, -1), (True, None, 3), (False, "true", 3), (True, "false", -1)])
def test_unclean_elections_follow_the_configuration(default: bool, topic: str | None, elected: int) -> None:
    cluster = cluster_of(1, 2, 3)
    cluster.unclean_default = default
    configs = {} if topic is None else {"unclean_leader_election_enable": topic}
    cluster.create_topic("t", (2, 3), **configs)
    cluster.kill(3)
    assert cluster.state("t").isr == (2,)
    cluster.start(3)
    cluster.kill(2)
    state = cluster.state("t")
    assert state.leader == elected
    assert state.recovering == (elected == 3)
    assert state.isr == ((3,) if elected == 3 else (2,))


def test_the_controller_node_is_deleted_by_hand() -> None:
    cluster = cluster_of(1)
    cluster.result(cluster.observer.delete(node_paths.CONTROLLER))
    assert cluster.controller.epoch == 2


def test_another_controller_was_elected_in_between() -> None:
    """A term whose fence does not hold any longer writes nothing, and this broker stands again."""
    cluster = cluster_of(1)
    cluster.create_topic("t", (1,))
    cluster.result(cluster.observer.set(node_paths.CONTROLLER_EPOCH, b"7"))
    cluster.result(cluster.admin.create(new_topic("u", (1,))))
    assert cluster.result(cluster.observer.exists(node_paths.partitions("u"))) is None
    assert not cluster.brokers[1].controller.active
    cluster.run_later()
    assert cluster.controller.epoch == 8
    assert cluster.state("u").leader == 1


def test_the_node_of_a_failed_term_is_deleted_by_another_one(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """What a broker reads from ZooKeeper may be old: the node that it finds is no longer there when it deletes it."""
    cluster = cluster_of(1)
    cluster.result(cluster.observer.set(node_paths.CONTROLLER_EPOCH, b"7"))
    cluster.result(cluster.admin.create(new_topic("u", (1,))))
    assert not cluster.brokers[1].controller.active
    tree = cluster.brokers[1].tree
    exists = type(tree).exists
    deleted: list[Deferred[None]] = []

    def exists_then_deleted(self: Any, path: str, *, watch: Any = None) -> Any:
        found = exists(self, path, watch=watch)
        if self is tree and not deleted:
            deleted.append(cluster.observer.delete(node_paths.CONTROLLER))
        return found

    monkeypatch.setattr(type(tree), "exists", exists_then_deleted)
    cluster.run_later()
    assert deleted and cluster.controller.epoch == 8
    assert "a controller step failed" not in caplog.text


def test_a_session_that_expires_ends_the_term() -> None:
    cluster = cluster_of(1, 2)
    controller = cluster.brokers[1].controller
    cluster.trees.expire(cluster.brokers[1].tree)
    cluster.result(cluster.observer.create(node_paths.topic("t"), b'{"partitions":{"0":[2]},"version":3}'))
    with pytest.raises(BrokerError) as caught:
        cluster.result(controller.elect_leaders(ElectionType.PREFERRED, None))
    assert caught.value.code == ErrorCode.NOT_CONTROLLER
    assert cluster.brokers[2].controller.active


def test_a_stopped_controller_sends_nothing() -> None:
    cluster = cluster_of(1)
    cluster.brokers[1].controller.stop()
    cluster.result(cluster.admin.create(new_topic("t", (1,))))
    assert cluster.taken() == {}


def test_a_state_written_by_another_process_is_read_again() -> None:
    """A leader of an old Kafka version writes the ISR itself."""
    cluster = cluster_of(1, 2, 3)
    cluster.create_topic("t", (2, 3, 1))
    cluster.create_topic("u", (2, 3, 1))
    cluster.put_state("t", PartitionState(leader=2, leader_epoch=0, isr=(2, 1), controller_epoch=1))
    cluster.kill(2)
    assert (cluster.state("t").leader, cluster.state("t").isr) == (1, (1,))
    assert (cluster.state("u").leader, cluster.state("u").isr) == (3, (3, 1))


def test_a_failed_log_directory_moves_leaders() -> None:
    cluster = cluster_of(1, 2)
    cluster.create_topic("t", (1, 2), (1, 2))
    cluster.brokers[1].roles_error = lambda tp: ErrorCode.KAFKA_STORAGE_ERROR if tp.partition == 0 else ErrorCode.STALE_CONTROLLER_EPOCH
    cluster.result(report_log_dir_failure(cluster.brokers[1].tree, 1))
    assert (cluster.state("t", 0).leader, cluster.state("t", 0).isr) == (2, (2,))
    assert cluster.state("t", 1).leader == 1
    assert cluster.result(cluster.observer.children(node_paths.LOG_DIR_EVENTS)) == []
    assert cluster.taken() == {
        1: [
            "LAI t-0 leader 1 epoch 0 isr 1,2",
            "LAI t-1 leader 1 epoch 0 isr 1,2",
            "UM t-0 leader 1 epoch 0",
            "UM t-1 leader 1 epoch 0",
            "LAI t-0 leader 2 epoch 1 isr 2",
            "UM t-0 leader 2 epoch 1 offline 1",
        ],
        2: [
            "UM t-0 leader 1 epoch 0",
            "UM t-1 leader 1 epoch 0",
            "LAI t-0 leader 2 epoch 1 isr 2",
            "UM t-0 leader 2 epoch 1 offline 1",
        ],
    }


def test_a_replica_that_can_be_written_again_leads_again() -> None:
    cluster = cluster_of(1)
    cluster.create_topic("t", (1,))
    cluster.brokers[1].roles_error = lambda _: ErrorCode.KAFKA_STORAGE_ERROR
    cluster.result(report_log_dir_failure(cluster.brokers[1].tree, 1))
    assert cluster.state("t").leader == -1
    cluster.brokers[1].roles_error = lambda _: 0
    cluster.result(report_log_dir_failure(cluster.brokers[1].tree, 1))
    assert (cluster.state("t").leader, cluster.state("t").isr) == (1, (1,))


def test_a_topic_is_deleted_although_the_disk_of_a_replica_was_full() -> None:
    cluster = cluster_of(1, 2)
    cluster.brokers[2].roles_error = lambda _: ErrorCode.KAFKA_STORAGE_ERROR
    cluster.create_topic("t", (2,))
    cluster.result(cluster.admin.delete("t"))
    assert cluster.result(cluster.observer.children(node_paths.TOPICS)) == ["t"]
    cluster.result(report_log_dir_failure(cluster.brokers[2].tree, 2))  # it asks for its roles again
    assert cluster.result(cluster.observer.children(node_paths.TOPICS)) == []
    assert cluster.result(cluster.observer.children(node_paths.DELETE_TOPICS)) == []


def test_the_only_replica_is_on_a_failed_directory() -> None:
    cluster = cluster_of(1)
    cluster.create_topic("t", (1,))
    cluster.brokers[1].roles_error = lambda _: ErrorCode.KAFKA_STORAGE_ERROR
    cluster.result(report_log_dir_failure(cluster.brokers[1].tree, 1))
    assert (cluster.state("t").leader, cluster.state("t").isr) == (-1, (1,))
    assert cluster.brokers[1].image.topics["t"].partitions[0].offline_replicas == (1,)
    cluster.kill(1)
    cluster.start(1)
    assert cluster.state("t").leader == 1


def test_damaged_nodes_are_ignored(caplog: pytest.LogCaptureFixture) -> None:
    cluster = cluster_of(1)
    cluster.result(cluster.observer.create(node_paths.topic("bad"), b"?"))
    cluster.result(cluster.observer.create(node_paths.topic("not valid!"), b'{"version":1,"partitions":{"0":[1]}}'))
    for number, partitions in enumerate(("-1:[1]", "4294967296:[1]", "0:[1,1]", "0:[-1]", "0:[4294967296]", "0:[]")):
        index, _, replicas = partitions.partition(":")
        data = f'{{"version":1,"partitions":{{"{index}":{replicas}}}}}'
        cluster.result(cluster.observer.create(node_paths.topic(f"bad{number}"), data.encode()))
    cluster.result(cluster.observer.create(node_paths.broker(9), b"{}", ephemeral=True))
    cluster.result(cluster.observer.create(node_paths.broker(4294967296), BrokerRegistration(()).encode(0), ephemeral=True))
    cluster.result(cluster.admin.create(new_topic("good", (1,))))
    assert cluster.state("good").leader == 1
    assert list(cluster.brokers[1].image.brokers) == [1]
    assert "ignoring topic bad" in caplog.text
    cluster.kill(1)
    cluster.start(1)
    assert list(cluster.brokers[1].image.topics) == ["good"], "a new controller can send requests about all the others"
    assert list(cluster.brokers[1].image.brokers) == [1]
    assert "ignoring the malformed registration of broker 9" in caplog.text


def test_a_malformed_partition_state_stops_neither_a_takeover_nor_other_partitions(caplog: pytest.LogCaptureFixture) -> None:
    cluster = cluster_of(1, 2)
    cluster.create_topic("good", (1, 2))
    cluster.create_topic("bad", (1, 2), (2, 1))
    cluster.result(cluster.observer.set(node_paths.state(TopicPartition("bad", 0)), b"?"))
    cluster.kill(1)
    assert cluster.controller.epoch == 2
    assert cluster.state("good").leader == 2 == cluster.state("bad", 1).leader
    assert cluster.result(cluster.observer.get(node_paths.state(TopicPartition("bad", 0))))[0] == b"?"
    assert "partition bad-0 is not served, repair or delete /brokers/topics/bad/partitions/0/state" in caplog.text


def test_a_controller_that_fails_to_take_over_deletes_its_node(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    cluster = cluster_of(1, 2, 3)
    cluster.create_topic("t", (1, 2, 3))
    failed: list[int] = []
    take_over = ControllerTerm._take_over_partitions

    async def failing_once(self: ControllerTerm, restarted: dict[TopicPartition, set[int]]) -> None:
        if not failed:
            failed.append(self.controlling.broker_id)
            raise ZeroDivisionError
        await take_over(self, restarted)

    monkeypatch.setattr(ControllerTerm, "_take_over_partitions", failing_once)
    cluster.kill(1)
    [first] = failed
    assert not cluster.brokers[first].controller.active
    assert cluster.brokers[5 - first].controller.active
    assert "a controller step failed, next election in 10 s" in caplog.text
    assert cluster.state("t").leader in (2, 3)


def test_an_unexpected_error_ends_the_term_and_the_next_one_repairs(caplog: pytest.LogCaptureFixture) -> None:
    cluster = cluster_of(1)
    term = cluster.term

    def failing(_: object) -> None:
        raise ZeroDivisionError

    term.outbox.send = failing  # type: ignore[method-assign]
    cluster.result(cluster.admin.create(new_topic("t", (1,))))
    assert not cluster.brokers[1].controller.active
    assert cluster.result(cluster.observer.exists(node_paths.CONTROLLER)) is None
    assert "ZeroDivisionError" in caplog.text
    assert cluster.run_later() == [10.0]
    assert (cluster.controller.epoch, cluster.state("t").leader) == (2, 1)
    assert cluster.brokers[1].roles[TopicPartition("t", 0)] == (1, 0)


def test_a_malformed_controller_epoch_refuses_the_start() -> None:
    cluster = FakeCluster()
    cluster.result(cluster.observer.create(node_paths.CONTROLLER_EPOCH, b"?"))
    with pytest.raises(StartError, match=r"'\?' is not a controller epoch. Repair or restore it."):
        cluster.start(1)


def test_a_lost_request_does_not_stop_the_next(caplog: pytest.LogCaptureFixture) -> None:
    cluster = cluster_of(1, 2)
    cluster.lost = 1
    cluster.create_topic("t", (2,))
    assert "failed to send LeaderAndIsrRequest to broker 2: gone" in caplog.text
    assert cluster.brokers[2].image.topic("t") is not None


def test_json_of_the_nodes_is_kafkas() -> None:
    cluster = cluster_of(1)
    cluster.create_topic("t", (1,), retention_ms="5")
    topic = json.loads(cluster.result(cluster.observer.get(node_paths.topic("t")))[0] or b"")
    assert list(topic) == ["partitions", "topic_id", "adding_replicas", "removing_replicas", "version"]
    config = cluster.result(cluster.observer.get("/config/topics/t"))[0]
    assert config == b'{"version":1,"config":{"retention.ms":"5"}}'


def new_topic(name: str, *replicas: tuple[int, ...]) -> NewTopic:
    return NewTopic(name=name, assignments=list(enumerate(replicas)))


def test_a_role_that_a_broker_refuses_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    cluster = cluster_of(1, 2)
    cluster.brokers[2].roles_error = lambda tp: (ErrorCode.INCONSISTENT_TOPIC_ID, ErrorCode.STALE_CONTROLLER_EPOCH)[tp.partition == 2]
    cluster.create_topic("t", (1, 2), (1, 2), (1, 2))
    assert "broker 2 refused its role in 2 partitions: INCONSISTENT_TOPIC_ID" in caplog.text
    assert "STALE_CONTROLLER_EPOCH" not in caplog.text and "broker 1 refused" not in caplog.text


def test_the_failover_of_a_controller_takes_as_many_requests_for_many_partitions_as_for_few() -> None:
    counts = []
    for partitions in (3, 300):
        cluster = cluster_of(1, 2, 3)
        cluster.create_topic("t", *[(1 + i % 3, 1 + (i + 1) % 3, 1 + (i + 2) % 3) for i in range(partitions)])
        cluster.kill(1)
        assert {cluster.state("t", i).leader for i in range(partitions)} == {2, 3}
        counts.append(Counter((broker, type(request)) for broker, request in cluster.sent if broker != 1))
    assert counts[0] == counts[1]
    assert set(counts[0].values()) <= set(range(1, 5))


def test_topics_of_old_tools_get_ids() -> None:
    """As by Kafka's controller: fetches of followers name topics by their ids."""
    cluster = cluster_of(1, 2)
    cluster.result(cluster.observer.create(node_paths.topic("old"), b'{"version":1,"partitions":{"0":[1,2]},"kept":1}'))
    assert cluster.state("old").isr == (1, 2)

    def node() -> tuple[TopicAssignment, int]:
        data, stat = cluster.result(cluster.observer.get(node_paths.topic("old")))
        return decode_topic(data), stat.version

    topic, version = node()
    assert topic.topic_id != NULL_TOPIC_ID
    assert topic.other == {"kept": 1}
    assert {broker.image.topics["old"].topic_id for broker in cluster.brokers.values()} == {topic.topic_id}
    assert cluster.brokers[2].assigned[TopicPartition("old", 0)][0] == topic.topic_id
    cluster.kill(next(broker.id for broker in cluster.brokers.values() if broker.controller.active))
    assert node() == (topic, version), "the next controller keeps it"
