"""The controller's part in the deletion of topics: what it sends, and that each deletion ends."""

from __future__ import annotations

import pytest

from tests.cluster.brokers import cluster_of, new_topic, registration
from txbroker.cluster import node_paths
from txbroker.cluster.broker_ids import register, report_log_dir_failure
from txbroker.errors import ErrorCode


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


def test_a_topic_is_deleted_although_the_disk_of_a_replica_was_full() -> None:
    cluster = cluster_of(1, 2)
    cluster.brokers[2].roles_error = lambda _: ErrorCode.KAFKA_STORAGE_ERROR
    cluster.create_topic("t", (2,))
    cluster.result(cluster.admin.delete("t"))
    assert cluster.result(cluster.observer.children(node_paths.TOPICS)) == ["t"]
    cluster.result(report_log_dir_failure(cluster.brokers[2].tree, 2))  # it asks for its roles again
    assert cluster.result(cluster.observer.children(node_paths.TOPICS)) == []
    assert cluster.result(cluster.observer.children(node_paths.DELETE_TOPICS)) == []


@pytest.mark.parametrize("turns", range(40))
def test_a_replica_gets_its_role_while_the_deletion_of_its_topic_begins(turns: int) -> None:
    """Its disk was full, so the deletion does not ask its broker; the answer to the role then says that it is online."""
    cluster = cluster_of(1, 2)
    full = cluster.brokers[2]
    full.roles_error = lambda _: ErrorCode.KAFKA_STORAGE_ERROR
    cluster.create_topic("t", (1, 2))
    full.roles_error = lambda _: 0
    reported = report_log_dir_failure(full.tree, 2)
    for _ in range(turns):
        cluster.turns.step()
    deleted = cluster.admin.delete("t")
    cluster.result(reported)
    cluster.result(deleted)
    assert cluster.result(cluster.observer.children(node_paths.TOPICS)) == []
    assert not full.roles
