"""Clusters of txbroker and Apache Kafka 3.9: faults under load, a rolling replacement and back, and each kind as controller."""

from __future__ import annotations

import json
import random
import re
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.cluster_faults import faults
from tests.cluster_faults.faults import Fault, Harm
from tests.cluster_faults.rounds import OVERRIDES, run
from tests.support import java
from tests.support.broker import BrokerProcess
from tests.support.cache import KAFKA_OLD
from tests.support.cluster import Cluster
from tests.support.kafka import KafkaMember

OURS, KAFKA = BrokerProcess.kind, KafkaMember.kind


def replace_all(kind: str) -> Fault:
    """Every broker is stopped cleanly, and one of another kind starts with its id, its address and its data."""

    def replace(cluster: Cluster, chance: random.Random) -> Iterator[Harm]:
        for broker_id in list(cluster.brokers):
            faults.stop_cleanly(cluster, broker_id)
            cluster.add(broker_id, kind, same_data=True)
            cluster.start_brokers([broker_id])
            cluster.until_in_sync()
        yield Harm(f"replaced all brokers by {kind}, one after the other")

    return replace


def test_a_rolling_replacement_of_kafka_and_back_loses_nothing(start_cluster: Callable[..., Cluster]) -> None:
    run(start_cluster(OVERRIDES, kinds=(KAFKA,) * 3), [[replace_all(OURS)], [replace_all(KAFKA)]], random.Random())


def test_faults_of_a_mixed_cluster_lose_nothing(start_cluster: Callable[..., Cluster]) -> None:
    seed = secrets.token_hex(4)
    print(f"to run this again: random.Random({seed!r})")
    planned = [[faults.kill_leader], [faults.kill_controller], [faults.pause_leader], [faults.stop]]
    run(start_cluster(OVERRIDES, kinds=(KAFKA, OURS, KAFKA)), planned, random.Random(seed))


def test_each_kind_takes_over_the_controller_and_kafkas_tools_work_with_both(start_cluster: Callable[..., Cluster], tmp_path: Path) -> None:
    cluster = start_cluster(OVERRIDES, kinds=(OURS, KAFKA))
    first = cluster.controller()
    administer(cluster, "first", tmp_path)
    cluster.brokers[first].kill()
    cluster.until(lambda: cluster.controller() != first, "the other broker is the controller")
    cluster.start_brokers([first])
    administer(cluster, "second", tmp_path)


def administer(cluster: Cluster, topic: str, folder: Path) -> None:
    """Create a topic, move its leaders, change its configuration, add partitions and delete it, with Kafka's tools through both brokers."""
    for broker_id, server in cluster.brokers.items():
        name = f"{topic}-{broker_id}"

        def tool(which: str, *arguments: str | Path, address: str = server.address) -> str:
            return java.run(which, "--bootstrap-server", address, *arguments, release=KAFKA_OLD)

        tool("kafka-topics", "--create", "--topic", name, "--replica-assignment", "1:2,2:1,1:2")
        cluster.until_in_sync(name)
        plan = folder / f"{name}.json"
        moves = [{"topic": name, "partition": 0, "replicas": [2, 1]}, {"topic": name, "partition": 2, "replicas": [2]}]
        plan.write_text(json.dumps({"version": 1, "partitions": moves}))
        tool("kafka-reassign-partitions", "--execute", "--reassignment-json-file", plan)
        cluster.until(lambda name=name: cluster.partitions(name)[2].replicas == (2,), f"{name}-2 has moved")
        cluster.until(lambda name=name: cluster.partitions(name)[0].replicas == (2, 1), f"the replicas of {name}-0 have another order")
        verified = tool("kafka-reassign-partitions", "--verify", "--reassignment-json-file", plan)
        assert verified.count("is completed") == 2
        tool("kafka-leader-election", "--election-type", "preferred", "--topic", name, "--partition", "0")
        cluster.until(lambda name=name: cluster.leader(name, 0) == 2, f"the preferred replica leads {name}-0")
        tool("kafka-configs", "--alter", "--entity-type", "topics", "--entity-name", name, "--add-config", "retention.ms=123456789")
        tool("kafka-topics", "--alter", "--topic", name, "--partitions", "5")
        cluster.until(lambda name=name: len(cluster.partitions(name)) == 5, f"{name} has five partitions")
        cluster.until_in_sync(name)
        # Kafka 3.9 does not know the request that has the eligible leader replicas.
        described = {other: re.sub(r"\tElr:.*", "", java.run("kafka-topics", "--bootstrap-server", cluster.brokers[other].address,
                                                             "--describe", "--topic", name, release=KAFKA_OLD))
                     for other in cluster.brokers}
        assert described[1] == described[2]
        assert "retention.ms=123456789" in described[1]
        tool("kafka-topics", "--delete", "--topic", name)
        cluster.until(lambda name=name: not any(in_use(other.data, name) for other in cluster.brokers.values()),
                      f"the logs of {name} are deleted everywhere")


def in_use(data: Path, topic: str) -> list[str]:
    """The directories of a topic that are not being deleted."""
    return [path.name for path in data.iterdir() if path.name.startswith(f"{topic}-") and not path.name.endswith("-delete")]
