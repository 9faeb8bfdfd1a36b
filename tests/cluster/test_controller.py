"""What the controller writes and sends, and in which order: as Apache Kafka 3.9.1 was seen to do."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from tests.cluster.brokers import LISTENER, FakeCluster, cluster_of, new_topic
from txbroker.cluster import node_paths
from txbroker.cluster.broker_ids import report_log_dir_failure
from txbroker.cluster.controller import takeover
from txbroker.cluster.controller.fenced_writes import StateNodes, Updated
from txbroker.cluster.image import FULL, INCREMENTAL, ClusterImage
from txbroker.cluster.node_data import PartitionState
from txbroker.errors import ErrorCode
from txbroker.names import TopicPartition
from txbroker.wire.messages.leader_and_isr import LeaderAndIsrRequest
from txbroker.wire.messages.update_metadata import UpdateMetadataRequest


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
    epochs = ",".join(str(cluster.brokers[id_].epoch) for id_ in (2, 1))
    assert cluster.result(cluster.observer.get("/brokers/topics/t/partitions/0/state"))[0] == (
        b'{"controller_epoch":1,"leader":2,"version":1,"leader_epoch":0,"isr":[2,1],"txbroker_isr_epochs":[%s]}' % epochs.encode()
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
            "UM brokers 2",  # it has the topics, and its clients find the new controller
            "LAI t-0 leader 2 epoch 1 isr 2",  # those without a leader come first
            "LAI u-0 leader 2 epoch 1 isr 2",
            "UM t-0 leader 2 epoch 1 offline 1",
            "UM v-0 leader -1 epoch 1 offline 1",
            "UM u-0 leader 2 epoch 1 offline 1",
        ],
    }
    assert cluster.state("v") == PartitionState(leader=-1, leader_epoch=1, isr=(1,), controller_epoch=2, partition_epoch=1)


def test_a_new_topic_does_not_wait_for_all_partitions_of_a_takeover(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(takeover, "PARTITIONS_TOGETHER", 1)
    cluster = cluster_of(1, 2, 3)
    cluster.create_topic("t", *[(1, 2)] * 10)
    update = StateNodes.update
    creations: list[Deferred[Any]] = []

    async def create_first(self: StateNodes, states: dict[TopicPartition, PartitionState]) -> Updated:
        if not creations:
            creations.append(cluster.admin.create(new_topic("new", (2, 3))))
        return await update(self, states)

    monkeypatch.setattr(StateNodes, "update", create_first)
    cluster.kill(1)
    assert cluster.result(creations[0]).partition_count == 1
    assert cluster.brokers[2].image.partition("new", 0) is not None
    roles = [line.split(" epoch")[0] for line in cluster.taken()[2] if line.startswith("LAI")]
    assert sorted(set(roles)) == ["LAI new-0 leader 2", *(f"LAI t-{number} leader 2" for number in range(10))]
    assert roles.index("LAI new-0 leader 2") < roles.index("LAI t-9 leader 2")


def test_a_broker_that_started_unnoticed_has_no_complete_metadata_before_the_end_of_a_takeover() -> None:
    """To the new controller it seems to have the metadata of the predecessor."""
    cluster = cluster_of(1, 2, 3)
    cluster.create_topic("t", (1, 2), (2, 1))
    cluster.create_topic("u", (3,))
    cluster.kill(1)
    requests = [request for broker_id, request in cluster.sent if broker_id == 3 and isinstance(request, UpdateMetadataRequest)]
    assert [request.type for request in requests] == [INCREMENTAL] * (len(requests) - 1) + [FULL]
    started = ClusterImage()
    for request in requests:
        assert not started.is_complete
        started.apply(request)
    assert started.is_complete
    assert {name: len(topic.partitions) for name, topic in started.topics.items()} == {"t": 2, "u": 1}


@pytest.mark.parametrize("damaged", ["a topic without state", "a topic without live replicas", "a topic", "a state"])
def test_a_controller_with_incomplete_topics_completes_the_metadata_of_brokers(damaged: str) -> None:
    cluster = cluster_of(1)
    cluster.create_topic("good", (1,))
    cluster.create_topic("bad", (1,))
    cluster.kill(1)
    observer = cluster.observer
    if damaged == "a topic without state":
        cluster.result(observer.create(node_paths.topic("new"), b'{"partitions":{"0":[1]},"version":3}'))
    elif damaged == "a topic without live replicas":
        cluster.result(observer.create(node_paths.topic("new"), b'{"partitions":{"0":[7]},"version":3}'))
    elif damaged == "a topic":
        cluster.result(observer.set(node_paths.topic("bad"), b"?"))
    else:
        cluster.result(observer.set(node_paths.state(TopicPartition("bad", 0)), b"?"))
    cluster.start(1)
    image = cluster.brokers[1].image
    assert image.is_complete and image.partition("good", 0) is not None


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


@pytest.mark.parametrize("by_kafka", [False, True], ids=["states of txbroker", "states of Kafka"])
def test_a_broker_restarts_while_there_is_no_controller(by_kafka: bool) -> None:
    """Its leader epochs end, as it may have lost records which its followers have; the only replica of a partition goes on."""
    cluster = cluster_of(1, 2)
    cluster.create_topic("t", (1, 2))
    cluster.create_topic("u", (2, 1))
    cluster.create_topic("v", (1,))
    if by_kafka:
        for name in "tuv":
            cluster.put_state(name, cluster.state(name))  # without broker epochs
    cluster.trees.expire(cluster.brokers.pop(1).tree)
    cluster.start(1)  # it is registered again before the next controller reads the brokers
    states = {name: cluster.state(name) for name in "tuv"}
    assert {name: (state.leader, state.leader_epoch, state.isr) for name, state in states.items()} == {
        "t": (2, 1, (2,)), "u": (2, 1, (2,)), "v": (1, 0, (1,)),
    }  # fmt: skip


def test_a_broker_restarts_before_a_state_is_written_by_a_controller_that_has_not_seen_it() -> None:
    """As above. The next controller sees it by the broker epochs in the state: the state is newer than the registration."""
    cluster = cluster_of(1, 2, 3, 4)
    cluster.create_topic("t", (2, 3, 4))
    cluster.create_topic("u", (3, 4, 2))
    controller, leadership = cluster.controller, cluster.term.leadership
    cluster.result(controller._steps.acquire())  # a step of it is in progress, and the next ones wait
    cluster.trees.expire(cluster.brokers.pop(2).tree)
    cluster.start(2)
    both = [TopicPartition("t", 0), TopicPartition("u", 0)]
    without_4 = leadership.change(both, lambda _, state: replace(state, isr=tuple(id_ for id_ in state.isr if id_ != 4)))
    assert cluster.result(Deferred.fromCoroutine(without_4)) == both
    assert (cluster.state("t").leader, cluster.state("t").isr, cluster.state("u").isr) == (2, (2, 3), (3, 2))
    cluster.kill(1)
    states = {name: cluster.state(name) for name in "tu"}
    assert {name: (state.leader, state.leader_epoch, state.isr) for name, state in states.items()} == {
        "t": (3, 1, (3,)), "u": (3, 1, (3,)),
    }  # fmt: skip
    assert cluster.controller.epoch == 2
    cluster.result(cluster.observer.delete(node_paths.CONTROLLER))
    assert cluster.controller.epoch == 3
    assert cluster.state("t").leader_epoch == 1, "a restart counts once"


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


def test_a_replica_whose_log_is_another_topics_is_offline(caplog: pytest.LogCaptureFixture) -> None:
    """Kafka's controller leaves the partition to a leader that refuses it."""
    cluster = cluster_of(1, 2)
    cluster.brokers[1].roles_error = lambda tp: ErrorCode.INCONSISTENT_TOPIC_ID
    cluster.create_topic("t", (1, 2))
    cluster.create_topic("u", (1,))
    assert (cluster.state("t").leader, cluster.state("t").isr) == (2, (2,))
    assert (cluster.state("u").leader, cluster.state("u").isr) == (-1, (1,))
    assert cluster.brokers[2].image.topics["u"].partitions[0].offline_replicas == (1,)
    assert "broker 1 cannot serve its logs of 1 partition: INCONSISTENT_TOPIC_ID" in caplog.text


def test_a_lost_request_does_not_stop_the_next(caplog: pytest.LogCaptureFixture) -> None:
    cluster = cluster_of(1, 2)
    cluster.lost = 1
    cluster.create_topic("t", (2,))
    assert "failed to send LeaderAndIsrRequest to broker 2: gone" in caplog.text
    assert cluster.brokers[2].image.topic("t") is not None


def test_a_role_that_a_broker_refuses_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    cluster = cluster_of(1, 2)
    cluster.brokers[2].roles_error = lambda tp: (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.STALE_CONTROLLER_EPOCH)[tp.partition == 2]
    cluster.create_topic("t", (1, 2), (1, 2), (1, 2))
    assert "broker 2 refused its role in 2 partitions: UNKNOWN_SERVER_ERROR" in caplog.text
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
