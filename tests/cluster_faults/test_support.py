"""The cluster of real processes that tests use: on Apache Kafka 3.9, whose behaviour is known."""

from __future__ import annotations

from collections.abc import Callable

from tests.support.cluster import Cluster
from tests.support.kafka import KafkaMember


def test_killed_paused_and_stopped_brokers_of_kafka_leave_and_return(start_cluster: Callable[..., Cluster], name: str) -> None:
    cluster = start_cluster(kinds=(KafkaMember.kind,) * 3)
    cluster.create_topic(name, partitions=3)

    victim = cluster.controller()
    cluster.brokers[victim].kill()
    cluster.until_leader_is_not(victim, name)
    assert cluster.controller() != victim
    cluster.start_brokers([victim])
    cluster.until_in_sync(name)

    victim = cluster.leader(name, 0)
    others = sorted(cluster.brokers.keys() - {victim})
    cluster.brokers[victim].pause()
    cluster.until_isr(name, 0, *others)
    cluster.brokers[victim].resume()
    cluster.until_registered()
    cluster.until_in_sync(name)

    victim = cluster.leader(name, 0)
    assert cluster.brokers[victim].stop() == cluster.brokers[victim].stopped_status
    cluster.until_leader_is_not(victim, name)
    cluster.start_brokers([victim])
    cluster.until_in_sync(name)
