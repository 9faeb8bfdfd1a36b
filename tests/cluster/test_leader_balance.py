"""Automatic preferred leader election: by whom, when, and for which partitions."""

from __future__ import annotations

from tests.cluster.brokers import FakeCluster
from txbroker.cluster import node_paths
from txbroker.cluster.controller.leader_balance import FIRST_CHECK_S, BalanceSettings
from txbroker.cluster.node_data import PartitionState


def cluster_of(*brokers: int, percentage: int = 10) -> FakeCluster:
    cluster = FakeCluster()
    cluster.balance = BalanceSettings(interval_s=300.0, percentage=percentage)
    cluster.start(*brokers)
    return cluster


def restart(cluster: FakeCluster, broker_id: int, *topics: str) -> None:
    """Kill and start a broker; it catches up with the leaders of these topics."""
    cluster.kill(broker_id)
    cluster.start(broker_id)
    for topic in topics:
        state = cluster.state(topic)
        cluster.put_state(topic, PartitionState(state.leader, state.leader_epoch, (*state.isr, broker_id), state.controller_epoch))
        note = b'{"version":1,"partitions":[{"topic":"%s","partition":0}]}' % topic.encode()
        cluster.result(cluster.observer.create(f"{node_paths.ISR_CHANGES}/isr_change_", note, sequential=True))


def leaders(cluster: FakeCluster, *topics: str) -> list[tuple[int, int]]:
    return [(cluster.state(topic).leader, cluster.state(topic).leader_epoch) for topic in topics]


def test_leadership_returns_to_a_broker_that_has_caught_up() -> None:
    cluster = cluster_of(1, 2)
    cluster.create_topic("t", (2, 1))
    restart(cluster, 2, "t")
    cluster.taken()
    assert leaders(cluster, "t") == [(1, 1)]
    assert cluster.run_later() == [FIRST_CHECK_S]
    assert leaders(cluster, "t") == [(2, 2)]
    replica = ["LAI t-0 leader 2 epoch 2 isr 1,2", "UM t-0 leader 2 epoch 2"]
    assert cluster.taken() == {1: replica, 2: replica}
    assert cluster.run_later() == [300.0]
    assert cluster.taken() == {}  # a balanced cluster stays as it is


def test_a_replica_that_is_not_in_sync_is_not_elected() -> None:
    cluster = cluster_of(1, 2)
    cluster.create_topic("t", (2, 1))
    restart(cluster, 2)
    cluster.run_later()
    assert leaders(cluster, "t") == [(1, 1)]


def test_an_imbalance_up_to_the_percentage_is_tolerated() -> None:
    for percentage, moved in ((50, False), (49, True)):
        cluster = cluster_of(1, 2, percentage=percentage)
        cluster.create_topic("t", (2, 1))
        restart(cluster, 2, "t")
        cluster.create_topic("u", (2, 1))
        assert leaders(cluster, "t", "u") == [(1, 1), (2, 0)]
        cluster.run_later()
        assert leaders(cluster, "t", "u") == ([(2, 2), (2, 0)] if moved else [(1, 1), (2, 0)])


def test_checks_end_with_the_term() -> None:
    cluster = cluster_of(1, 2)
    assert [scheduled.delay_s for scheduled in cluster.later] == [FIRST_CHECK_S]
    cluster.kill(1)
    assert cluster.controller is cluster.brokers[2].controller
    assert [scheduled.delay_s for scheduled in cluster.later] == [FIRST_CHECK_S]  # that of the new term
    cluster.kill(2)
    assert cluster.later == []


def test_without_settings_nothing_is_checked() -> None:
    cluster = FakeCluster()
    cluster.start(1)
    assert cluster.later == []
