"""Applications that read, process and write in transactions (KIP-447): while members come and go, are fenced, and brokers are killed, each
input has exactly one committed output."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.cluster import Cluster
from tests.support.raw_admin import create_topic
from tests.support.server import Server
from tests.support.waiting import until
from tests.transactions.applications import PARTITIONS, SETTINGS, Outputs, Worker, fill, survive_kills

pytestmark = pytest.mark.process


def test_rebalances_and_zombies(broker: Server, name: str) -> None:
    source, target, count = f"{name}-in", f"{name}-out", 300
    create_topic(broker, source, PARTITIONS)
    create_topic(broker, target, PARTITIONS)
    fill(broker.address, source, range(count))
    outputs = Outputs(broker.address, target)
    started: list[Worker] = []

    def start(transactional_id: str) -> Worker:
        started.append(Worker(broker.address, name, source, target, f"{name}-{transactional_id}"))
        return started[-1]

    zombie = start("a")
    zombie.may_commit.clear()
    until(zombie.holds.is_set, "a transaction is open")
    successor = start("a")  # fences the zombie, whose transaction is aborted
    until(lambda: len(outputs) > 20, "the successor's outputs")
    zombie.may_commit.set()
    other = start("b")
    outputs.check(count)
    for worker in started:
        worker.stop()
    assert zombie.fenced and not successor.fenced and not other.fenced


def test_brokers_that_are_killed(start_cluster: Callable[..., Cluster]) -> None:
    """The coordinators of group and transactions, and leaders. `make crash-transactions ARGS=--applications` is the long form."""
    survive_kills(start_cluster(SETTINGS), (1, 2, 3))
