"""Fault sequences that have broken replication or controllers elsewhere (README.md of this folder), each by itself."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import Any

import pytest

from tests.cluster.brokers import FakeCluster, cluster_of
from tests.cluster.replica_host import BROKERS, OTHER, OWN, THIRD, TOPIC, Fetching, ReplicaHost
from tests.log.support import NOW, batch
from txbroker.cluster import node_paths
from txbroker.errors import ErrorCode
from txbroker.names import TopicPartition
from txbroker.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from txbroker.wire.messages.stop_replica import StopReplicaPartitionState, StopReplicaRequest, StopReplicaTopicState

E = ErrorCode


# A29: StopReplica and LeaderAndIsr overtake each other


def stopped(host: ReplicaHost, leader_epoch: int, *, delete: bool = False) -> ErrorCode:
    state = StopReplicaPartitionState(partition_index=0, leader_epoch=leader_epoch, delete_partition=delete)
    topic = StopReplicaTopicState(topic_name=TOPIC, partition_states=[state])
    response = host.replicas.stop_replica(StopReplicaRequest(controller_id=1, controller_epoch=1, topic_states=[topic]))
    return ErrorCode(response.partition_errors[0].error_code)


@pytest.mark.parametrize("delete", [False, True])
def test_a_stop_of_an_older_leader_epoch_stops_nothing(delete: bool) -> None:
    host = ReplicaHost()
    host.append(0)
    assert host.roles(epoch=5) == [E.NONE]
    assert stopped(host, 4, delete=delete) == E.FENCED_LEADER_EPOCH
    assert host.partition().is_leader and host.partition().log.log_end_offset == 1
    host.append(0)


@pytest.mark.parametrize("leader_epoch", [5, 6, -1, -2])
def test_a_stop_of_this_epoch_or_of_a_deletion_counts_and_may_be_repeated(leader_epoch: int) -> None:
    host = ReplicaHost()
    assert host.roles(epoch=5) == [E.NONE]
    assert stopped(host, leader_epoch) == stopped(host, leader_epoch) == E.NONE
    assert not host.partition().is_leader
    assert stopped(host, leader_epoch, delete=True) == stopped(host, leader_epoch, delete=True) == E.NONE
    assert host.replicas.find(TOPIC, 0) is None


# B7: an exception between a write to the tree and its requests


STORE_CALLS = ("get_all", "get", "exists", "children", "create", "set", "delete", "multi")


def scenario(cluster: FakeCluster) -> None:
    """Topics are created, enlarged and deleted, a broker dies and returns."""
    for step in (
        lambda: cluster.create_topic("a", (1, 2, 3), (2, 3, 1)),
        lambda: cluster.kill(2),
        lambda: cluster.create_topic("b", (1, 3)),
        lambda: cluster.start(2),
        lambda: cluster.result(cluster.admin.delete("b")),
    ):
        step()
        cluster.run_later()
        cluster.run_later()


@pytest.mark.parametrize("nth", range(1, 26))
def test_an_unexpected_error_of_any_store_call_of_the_controller_is_repaired_by_the_next_term(
    nth: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = cluster_of(1, 2, 3)
    calls = [0]

    def failing(call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **kwargs: Any) -> Any:
            calls[0] += 1
            if calls[0] == nth:
                raise ZeroDivisionError
            return call(*args, **kwargs)

        return called

    tree = cluster.brokers[1].tree
    for name in STORE_CALLS:
        monkeypatch.setattr(tree, name, failing(getattr(tree, name)))
    scenario(cluster)
    assert calls[0] >= nth and "ZeroDivisionError" in caplog.text
    for partition in (0, 1):
        state = cluster.state("a", partition)
        assert state.leader in BROKERS and set(state.isr) <= set(BROKERS)
        assert cluster.brokers[state.leader].roles[TopicPartition("a", partition)] == (state.leader, state.leader_epoch)
    assert cluster.result(cluster.observer.exists(node_paths.topic("b"))) is None
    assert all(broker.image.topic("b") is None and broker.image.topic("a") is not None for broker in cluster.brokers.values())


# B10: all brokers die, one after the other, and start in any order


@pytest.mark.parametrize("order", list(permutations(BROKERS)))
def test_the_last_member_of_the_isr_leads_again_whatever_starts_first(order: tuple[int, ...]) -> None:
    cluster = cluster_of(*BROKERS)
    cluster.create_topic("t", BROKERS)
    for broker in (1, 2, 3):
        cluster.kill(broker)
    for started, broker in enumerate(order, 1):
        cluster.start(broker)
        state = cluster.state("t")
        assert state.isr == (3,) and state.leader == (3 if 3 in order[:started] else -1)


# F1, F3: repeated batches of idempotent producers


def idempotent(host: ReplicaHost, sequence: int) -> list[tuple[ErrorCode, int]]:
    """Produce with acks=all; the list has error and offset once there is an answer."""
    records = bytes(batch(b"v", producer_id=7, producer_epoch=0, base_sequence=sequence))
    topic = TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=0, records=records)])

    def seen(response: Any) -> tuple[ErrorCode, int]:
        answer = response.responses[0].partition_responses[0]
        return ErrorCode(answer.error_code), answer.base_offset

    return host.send(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic]), 9, seen)


def test_a_repeated_batch_waits_for_the_replicas_as_the_first_and_gets_its_offset() -> None:
    host = ReplicaHost()
    first, repeated = idempotent(host, 0), idempotent(host, 0)
    later = idempotent(host, 1)
    assert first == repeated == later == []
    Fetching(host, OTHER).fetch({0: 1})
    Fetching(host, THIRD).fetch({0: 1})
    assert first == repeated == [(E.NONE, 0)] and later == []
    assert host.partition().log.log_end_offset == 2


def test_a_follower_takes_what_the_log_says_and_knows_its_producers_when_it_leads() -> None:
    """The first batch of the producer is gone at the leader, so that the follower's copy begins with sequence 5."""
    host = ReplicaHost()
    host.roles(leader=OTHER, epoch=1)
    records = batch(b"v", producer_id=7, producer_epoch=0, base_sequence=5)
    host.partition().replicate(records, high_watermark=0, log_start_offset=0, now_ms=NOW)
    host.roles(leader=OWN, epoch=2, isr=(OWN,))
    assert idempotent(host, 5) == [(E.NONE, 0)] and host.partition().log.log_end_offset == 1
    assert idempotent(host, 7) == [(E.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)]
    assert idempotent(host, 6) == [(E.NONE, 1)]
