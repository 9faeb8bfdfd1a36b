"""The backup of a cluster, and its restore, as docs/operations.md describes them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from tests.cli.commands import run
from tests.support.cluster import Cluster


def records(cluster: Cluster, topic: str) -> set[str]:
    output, _ = run("consume", "--bootstrap-server", cluster.bootstrap, "--topic", topic, "--from-beginning", "--timeout-ms", "5000")
    return set(output.split())


def stop(cluster: Cluster) -> list[Path]:
    """Stop all; the directories with their data."""
    cluster.stop()
    return [server.data for server in [*cluster.brokers.values(), *cluster.zookeepers.values()]]


def test_a_restored_cluster_has_topics_records_offsets_and_configurations(
    start_cluster: Callable[..., Cluster], name: str, tmp_path: Path
) -> None:
    cluster = start_cluster({"default.replication.factor": "3", "min.insync.replicas": "2"})
    server = ("--bootstrap-server", cluster.bootstrap)
    run("topics", *server, "--create", "--topic", name, "--partitions", "6", "--config", "retention.ms=123456789")
    run("produce", *server, "--topic", name, stdin="".join(f"{i}\n" for i in range(200)))
    run("consume", *server, "--topic", name, "--group", name, "--from-beginning", "--max-messages", "200")
    cluster.until_in_sync(name, "__consumer_offsets")

    directories = stop(cluster)
    for number, directory in enumerate(directories):
        shutil.copytree(directory, tmp_path / str(number))
    cluster.start()
    run("topics", *server, "--delete", "--topic", name)
    run("topics", *server, "--create", "--topic", f"{name}-later")

    for number, directory in enumerate(stop(cluster)):
        shutil.rmtree(directory)
        shutil.copytree(tmp_path / str(number), directory)
    cluster.start()
    cluster.until_in_sync(name, "__consumer_offsets")
    assert run("topics", *server, "--list")[0].split() == ["__consumer_offsets", name]
    assert records(cluster, name) == {str(i) for i in range(200)}
    assert "retention.ms=123456789" in run("topics", *server, "--describe", "--topic", name)[0]
    described = run("groups", *server, "--describe", "--group", name)[0]
    assert sum(int(line.split()[3]) for line in described.splitlines() if line.startswith(name)) == 200
    run("doctor", *server)


def test_a_broker_with_an_empty_disk_copies_its_replicas(start_cluster: Callable[..., Cluster], name: str) -> None:
    cluster = start_cluster({"default.replication.factor": "3"})
    server = ("--bootstrap-server", cluster.bootstrap)
    run("topics", *server, "--create", "--topic", name)
    run("produce", *server, "--topic", name, stdin="".join(f"{i}\n" for i in range(200)))
    lost = cluster.brokers[2]
    assert lost.stop() == lost.stopped_status
    shutil.rmtree(lost.data)
    lost.start()
    cluster.until_in_sync(name)
    log = "0" * 20 + ".log"
    copies = {(each.data / f"{name}-0" / log).read_bytes() for each in cluster.brokers.values()}
    assert len(copies) == 1
