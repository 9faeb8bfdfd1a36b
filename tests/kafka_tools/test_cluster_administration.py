"""Reassignments and elections on a cluster of three brokers: the tools of Apache Kafka and of txbroker have the same effect and output."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kafka.protocol.admin import AlterPartitionReassignmentsRequest

from tests.cli.commands import run as run_ours
from tests.support.cache import KAFKA_OLD
from tests.support.cluster import Cluster
from tests.support.java import run as run_kafkas
from tests.support.raw import RawConnection

pytestmark = pytest.mark.process


class Tools:
    """Both tools, connected to the brokers that run."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self.cluster = cluster
        self._directory = directory

    @property
    def server(self) -> tuple[str, str]:
        return "--bootstrap-server", ",".join(server.address for server in self.cluster.serving.values())

    def ours(self, command: str, *flags: str, status: int = 0) -> list[str]:
        return run_ours(command, *self.server, *flags, status=status)[0].splitlines()

    def kafkas(self, command: str, *flags: str) -> list[str]:
        return run_kafkas(f"kafka-{command}", *self.server, *flags, release=KAFKA_OLD).splitlines()

    def same(self, command: str, *flags: str) -> list[str]:
        ours = self.ours(command, *flags)
        assert ours == self.kafkas(command, *flags)
        return ours

    def file(self, *partitions: dict[str, Any]) -> str:
        path = self._directory / "partitions.json"
        path.write_text(json.dumps({"version": 1, "partitions": partitions}))
        return str(path)

    def moves(self, **targets: list[int]) -> tuple[str, str]:
        """The flag for a file; `t_0=[1, 2]` is the target of partition t-0."""
        named = [(*name.split("_"), replicas) for name, replicas in targets.items()]
        entries = [{"topic": topic, "partition": int(number), "replicas": replicas} for topic, number, replicas in named]
        return "--reassignment-json-file", self.file(*entries)


def reassign(controller: str, topic: str, partition: int, replicas: list[int]) -> None:
    topic_type = AlterPartitionReassignmentsRequest.ReassignableTopic
    wanted = topic_type.ReassignablePartition(partition_index=partition, replicas=replicas)
    request = AlterPartitionReassignmentsRequest(timeout_ms=10_000, topics=[topic_type(name=topic, partitions=[wanted])])
    with RawConnection(controller) as connection:
        answer = connection.call(request, 0)
    assert (answer.error_code, answer.responses[0].partitions[0].error_code) == (0, 0)


def test_partitions_are_reassigned_and_leaders_elected(start_cluster: Callable[..., Cluster], tmp_path: Path) -> None:
    # A throttle whose rate was exceeded holds until the end of the test.
    cluster = start_cluster({"auto.leader.rebalance.enable": "false", "replication.quota.window.size.seconds": "1000"})
    tools = Tools(cluster, tmp_path)
    tools.ours("topics", "--create", "--topic", "t", "--replica-assignment", "1:2,2:3,3:1")
    cluster.until_in_sync("t")
    assert tools.same("reassign-partitions", "--list") == ["No partition reassignments found."]

    # To other brokers, with another number of replicas, and with another order.
    moves = tools.moves(t_0=[3, 2], t_1=[2, 3, 1], t_2=[1, 3])
    started = tools.ours("reassign-partitions", "--execute", *moves, "--throttle", "1000000")
    assert [list(entry["replicas"]) for entry in json.loads(started[2])["partitions"]] == [[1, 2], [2, 3], [3, 1]]
    assert started[5:] == [
        "Warning: You must run --verify periodically, until the reassignment completes, to ensure the throttle is removed.",
        "The inter-broker throttle limit was set to 1000000 B/s",
        "Successfully started partition reassignments for t-0,t-1,t-2",
    ]
    cluster.until(lambda: [state.replicas for _, state in sorted(cluster.partitions("t").items())] == [(3, 2), (2, 3, 1), (1, 3)], "moved")
    cluster.until(lambda: tools.ours("reassign-partitions", "--list") == ["No partition reassignments found."], "the controller is done")
    assert "leader.replication.throttled.replicas=0:1,0:2,1:2,1:3,2:1,2:3" in tools.ours("topics", "--describe", "--topic", "t")[0]
    kept = tools.same("reassign-partitions", "--verify", *moves, "--preserve-throttles")
    assert kept[1:] == [*(f"Reassignment of partition t-{number} is completed." for number in range(3)), ""]
    assert tools.same("reassign-partitions", "--verify", *moves) == [
        *kept,
        "Clearing broker-level throttles on brokers 1,2,3",
        "Clearing topic-level throttles on topic t",
    ]
    assert "throttled" not in "".join(tools.ours("topics", "--describe", "--topic", "t"))

    # A throttled replica, for which the doctor says how far behind it is. The traffic to a replica in sync exceeds the rate, too.
    tools.ours("topics", "--create", "--topic", "slow", "--replica-assignment", "1:2")
    cluster.until_in_sync("slow")
    tools.ours("configs", "--alter", "--broker", "1", "--add-config", "leader.replication.throttled.rate=1")
    tools.ours("configs", "--alter", "--topic", "slow", "--add-config", "leader.replication.throttled.replicas=*")
    run_ours("produce", *tools.server, "--topic", "slow", stdin="".join(f"{'x' * 1000}\n" for _ in range(70)))
    tools.ours("reassign-partitions", "--execute", *tools.moves(slow_0=[1, 2, 3]))
    found = [json.loads(line)["found"] for line in tools.ours("doctor", "--topic", "slow", "--json") if "replicas of slow" in line]
    assert found == ["a reassignment adds the replica of broker 3, which is still copied, 70 records behind (partition 0)"]
    tools.ours("configs", "--alter", "--topic", "slow", "--delete-config", "leader.replication.throttled.replicas")
    cluster.until_in_sync("slow")

    # A target that does not answer, and dies: the reassignment remains in progress until it is cancelled.
    victim = next(broker_id for broker_id in cluster.brokers if broker_id != cluster.controller())
    a, b = sorted(cluster.brokers.keys() - {victim})
    tools.ours("topics", "--create", "--topic", "u", "--replica-assignment", f"{a}:{b},{victim}:{a}")
    cluster.until_in_sync("u")
    controller = cluster.brokers[cluster.controller()].address
    moves = tools.moves(u_0=[victim, b])
    cluster.brokers[victim].pause()  # while it is paused, tools may ask it
    reassign(controller, "u", 0, [victim, b])
    cluster.brokers[victim].kill()
    cluster.until_leader_is_not(victim, "u")
    cluster.until_registered()  # else a tool may ask the victim
    assert tools.same("reassign-partitions", "--list")[1:] == [f"u-0: replicas: {victim},{b},{a}. adding: {victim}. removing: {a}."]
    for flags in (("--topic", "u"), ("--topic", "u", "--under-replicated-partitions")):
        theirs = [line.partition("\tElr:")[0] for line in tools.kafkas("topics", "--describe", *flags)]
        assert tools.ours("topics", "--describe", *flags) == theirs
    assert theirs == [f"\tTopic: u\tPartition: 1\tLeader: {a}\tReplicas: {victim},{a}\tIsr: {a}"]
    reasons = [json.loads(line)["found"] for line in tools.ours("doctor", "--topic", "u", "--json") if "replicas of u" in line]
    missing = f"broker {victim} is not registered: it is stopped, or has lost ZooKeeper (partition 0, partition 1)"
    assert reasons == [missing]
    assert tools.ours("reassign-partitions", "--cancel", *moves)[0] == "Successfully cancelled partition reassignment for: u-0"
    assert cluster.until_isr("u", 0, a, b).replicas == (b, a)

    # The preferred leader of u-1.
    preferred = ("--election-type", "preferred", "--topic", "u", "--partition", "1")
    assert tools.ours("leader-election", *preferred, status=1) == []
    cluster.start_brokers([victim])
    cluster.until_in_sync("u")
    assert tools.ours("leader-election", *preferred) == ["Successfully completed leader election (PREFERRED) for partitions u-1"]
    cluster.until(lambda: cluster.leader("u", 1) == victim, "the preferred replica leads u-1")
    assert tools.same("leader-election", *preferred) == ["Valid replica already elected for partitions u-1"]

    # Without ZooKeeper there is no controller; partitions can be described.
    for server in cluster.zookeepers.values():
        server.kill()
    isr = ",".join(map(str, sorted((victim, a))))
    expected = [
        "configurations of 1 topic cannot be read, such as u",
        "reassignments cannot be shown: the cluster has no controller or no ZooKeeper at the moment",
    ]

    def is_described() -> bool:  # until all brokers have noticed
        described, warnings = run_ours("topics", *tools.server, "--describe", "--topic", "u")
        assert described.splitlines()[2] == f"\tTopic: u\tPartition: 1\tLeader: {victim}\tReplicas: {victim},{a}\tIsr: {isr}"
        return warnings.splitlines() == expected

    cluster.until(is_described, "the reassignments cannot be shown")
    assert "cannot be read" in run_ours("topics", *tools.server, "--describe", "--under-min-isr-partitions", status=1)[1]
    assert "no broker is the controller" in run_ours("topics", *tools.server, "--create", "--topic", "v", status=1)[1]
    found = {row["check"]: row["found"] for row in map(json.loads, tools.ours("doctor", "--topic", "u", "--json"))}
    assert found["controller"] == "no broker is the controller at the moment"
    assert "The metadata cannot be read or written now" in found["configuration of u"]
