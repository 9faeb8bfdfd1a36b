"""The controller on a real ZooKeeper, with brokers that only answer: a topic whose nodes do not fit into a few requests."""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import Any

import pytest

from tests.cluster.brokers import FakeCluster
from tests.support.waiting import PATIENCE_S
from tests.support.zookeeper_threads import QueuedThreads
from txbroker.cluster import node_paths
from txbroker.cluster.broker_ids import create_structure
from txbroker.cluster.topics import NewTopic, TopicAdmin
from txbroker.cluster.tree.interface import SessionExpired
from txbroker.cluster.tree.zookeeper import ZooKeeperTree, open_zookeeper_tree
from txbroker.names import TopicPartition

PARTITIONS = 10_000
NAME = "t" * 249


class QueuedTurns:
    """`Turns` of the fake cluster, on the queue to which ZooKeeper's client adds its results."""

    def __init__(self, threads: QueuedThreads) -> None:
        self.call_soon = threads.call_from_thread
        self.result = threads.result

    def run(self) -> None:
        """Every wait runs what is queued."""


@pytest.mark.process
def test_a_topic_of_ten_thousand_partitions(zookeeper: str) -> None:
    """Created, taken over by another controller, and deleted. A request above ZooKeeper's limit would end the connection, for ever."""
    threads, cluster = QueuedThreads(), FakeCluster()
    turns: Any = QueuedTurns(threads)
    cluster.turns = turns

    def session() -> ZooKeeperTree:
        limit_ms = int(PATIENCE_S * 1000)
        return threads.result(
            open_zookeeper_tree(zookeeper, session_timeout_ms=60_000, connection_timeout_ms=limit_ms, threads=threads))

    tree, successor = session(), session()
    threads.result(create_structure(tree))
    cluster.start_on(1, tree)
    cluster.start_on(2, successor)
    admin = TopicAdmin(successor, brokers=lambda: dict.fromkeys(cluster.brokers), validate_configs=lambda _: None, partition_count=1,
                       replication_factor=1, random=Random(1), random_bytes=Random(2).randbytes)
    threads.result(admin.create(NewTopic(name=NAME, partition_count=PARTITIONS, replication_factor=2)))
    roles = cluster.brokers[2].roles
    threads.run_until(lambda: len(roles) == PARTITIONS)

    threads.result(tree.close())
    del cluster.brokers[1]
    threads.run_until(lambda: cluster.brokers[2].controller.active)
    threads.run_until(lambda: {leader for leader, _ in roles.values()} == {2})

    cluster.start_on(1, session())  # a deletion waits for all replicas
    threads.result(admin.delete(NAME))
    threads.run_until(lambda: not roles)
    threads.run_until(lambda: not admin.is_deleting(NAME))
    assert threads.result(successor.exists(node_paths.state(TopicPartition(NAME, PARTITIONS - 1)))) is None
    assert threads.result(successor.children(node_paths.TOPICS)) == []
    assert successor._session._counts.disconnects == 0
    for broker in cluster.brokers.values():
        with suppress(SessionExpired):  # on a loaded machine that of the broker that only waits may have ended
            threads.result(broker.tree.close())
