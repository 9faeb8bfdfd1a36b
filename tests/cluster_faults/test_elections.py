"""Elections without a request: preferred leaders of a broker that has returned, and unclean ones once a configuration allows them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.cli.commands import run
from tests.support.cluster import Cluster

pytestmark = pytest.mark.process


def test_leadership_returns_and_an_unclean_election_follows_the_configuration(start_cluster: Callable[..., Cluster]) -> None:
    cluster = start_cluster({"leader.imbalance.check.interval.seconds": "1"})
    controller = cluster.controller()
    first, second = sorted(cluster.brokers.keys() - {controller})
    server = ("--bootstrap-server", cluster.brokers[controller].address)
    run("topics", *server, "--create", "--topic", "t", "--replica-assignment", f"{first}:{second}:{controller}")
    run("topics", *server, "--create", "--topic", "lost", "--replica-assignment", f"{first}:{second}")
    cluster.until_in_sync("t", "lost")

    cluster.brokers[first].kill()
    cluster.until_isr("lost", 0, second)
    cluster.until_leader_is_not(first)
    cluster.start_brokers([first])
    cluster.until(lambda: cluster.partitions("t")[0].leader == first == cluster.partitions("lost")[0].leader, "leadership has returned")
    cluster.until_in_sync("t", "lost")

    cluster.brokers[second].kill()
    cluster.until_isr("lost", 0, first)
    cluster.brokers[first].kill()
    cluster.until(lambda: cluster.partitions("lost")[0].leader < 0, "no replica in sync is left")
    cluster.start_brokers([second])
    assert cluster.partitions("lost")[0].leader < 0
    # The controller has no replica of this topic.
    run("topics", *server, "--alter", "--topic", "lost", "--config", "unclean.leader.election.enable=true")
    cluster.until(lambda: cluster.partitions("lost")[0].leader == second, "the replica that is left leads")
    cluster.start_brokers([first])
    cluster.until_in_sync("t", "lost")
