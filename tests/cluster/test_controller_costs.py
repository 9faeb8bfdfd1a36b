"""What changes cost a controller with thousands of partitions: operations on the tree and requests to brokers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cluster.brokers import FakeCluster
from txbroker.cluster.controller.leader_balance import BalanceSettings
from txbroker.cluster.tree.interface import MULTI_OPS_MAX
from txbroker.names import TopicPartition

TOPICS, PARTITIONS = 5, 1000
ALL = TOPICS * PARTITIONS
BROKERS = (1, 2, 3)


class Costs:
    """The operations and requests since the last call."""

    def __init__(self, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
        self._cluster = cluster
        self._operations = 0
        submit = cluster.trees.submit

        def counting(*arguments: Any) -> Any:
            self._operations += 1
            return submit(*arguments)

        monkeypatch.setattr(cluster.trees, "submit", counting)

    def __call__(self) -> tuple[int, int]:
        costs = self._operations, len(self._cluster.sent)
        self._operations = 0
        self._cluster.sent.clear()
        return costs


def test_a_change_of_thousands_of_partitions_takes_few_operations_and_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = FakeCluster()
    cluster.balance = BalanceSettings(interval_s=300.0, percentage=10)
    cluster.start(*BROKERS)
    for number in range(TOPICS):
        cluster.create_topic(f"t{number}", *[(2 + index % 2, 3 - index % 2) for index in range(PARTITIONS)])
    costs = Costs(cluster, monkeypatch)
    writes = ALL // (MULTI_OPS_MAX - 1) + 1

    cluster.kill(2)
    operations, requests = costs()
    assert operations <= 2 * writes + 10  # half of the partitions lose their leader, the others a follower
    assert requests <= 3 * len(BROKERS)

    cluster.start(2)
    costs()
    moves = {TopicPartition(f"t{number}", index): (1,) for number in range(TOPICS) for index in range(PARTITIONS)}
    cluster.result(cluster.controller.reassign(moves))
    operations, requests = costs()
    assert operations <= writes + 3 * TOPICS + 10  # each topic's node is read and written once, and read for its watch
    assert requests <= 3 * len(BROKERS)
    assert len(cluster.controller.reassignments()) == ALL

    cluster.result(cluster.controller.reassign(dict.fromkeys(moves)))
    operations, requests = costs()
    assert operations <= writes + 3 * TOPICS + 10
    assert requests <= 4 * len(BROKERS)

    cluster.run_later()
    operations, _ = costs()
    assert operations == 0  # no replica of broker 2 is in sync: nothing to elect


def test_a_takeover_reads_each_node_once(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = FakeCluster()
    cluster.start(*BROKERS)
    for number in range(TOPICS):
        cluster.create_topic(f"t{number}", *[(2, 3)] * PARTITIONS)
    costs = Costs(cluster, monkeypatch)
    cluster.kill(1)
    operations, requests = costs()
    assert operations <= ALL + TOPICS + 50
    assert requests <= 4 * len(BROKERS)
