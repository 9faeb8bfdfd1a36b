"""The controller of a cluster of processes on a real ZooKeeper fails in the middle of its work; the next one completes it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from kafka.protocol.admin import DeleteTopicsRequest
from kazoo.client import KazooClient

from tests.support.cluster import NOT_CONTROLLER, Cluster
from tests.support.raw import RawConnection
from tests.support.raw_admin import KEEP, creation
from tests.support.waiting import PATIENCE_S

TOPIC_ALREADY_EXISTS = 36
REQUEST_TIMED_OUT = 7


class Admin:
    """Requests to the controller of the moment."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def create(self, topic: str, replication_factor: int = 3) -> int:
        def attempt() -> Any:
            with RawConnection(self.cluster.brokers[self.cluster.controller()].address) as connection:
                answer = creation(connection, topic, 3, replication_factor, KEEP)
            return None if answer.error_code == NOT_CONTROLLER else answer

        return int(self.cluster.until(attempt, f"the controller answers the creation of {topic}").error_code)

    def delete(self, topic: str) -> int:
        def attempt() -> Any:
            with RawConnection(self.cluster.brokers[self.cluster.controller()].address) as connection:
                (answer,) = connection.call(DeleteTopicsRequest(topic_names=[topic], timeout_ms=1000), 5).responses
            return None if answer.error_code == NOT_CONTROLLER else answer

        return int(self.cluster.until(attempt, f"the controller answers the deletion of {topic}").error_code)

    def until_gone(self, topic: str) -> None:
        """Wait until no broker knows the topic, and ZooKeeper has no node of it."""
        def gone() -> bool:
            known = [self.cluster.partitions(topic, broker_id) for broker_id in self.cluster.serving]
            return not any(known)

        self.cluster.until(gone, f"no broker has {topic} in its metadata")
        with ZooKeeper(self.cluster) as client:
            paths = (f"/brokers/topics/{topic}", f"/admin/delete_topics/{topic}", f"/config/topics/{topic}")
            self.cluster.until(lambda: not any(map(client.exists, paths)), f"ZooKeeper has no node of {topic}")

    def epoch(self) -> int:
        with ZooKeeper(self.cluster) as client:
            return int(client.get("/controller_epoch")[0])


class ZooKeeper:
    """A client of the cluster's ZooKeeper, below its chroot."""

    def __init__(self, cluster: Cluster) -> None:
        self._client = KazooClient(cluster.zookeeper_connect)

    def __enter__(self) -> KazooClient:
        self._client.start(timeout=PATIENCE_S)
        return self._client

    def __exit__(self, *_: object) -> None:
        self._client.stop()
        self._client.close()


def replicas_on_disk(cluster: Cluster, topic: str) -> list[str]:
    """The directories of a topic's partitions, by broker."""
    found: list[str] = []
    for broker_id, server in cluster.brokers.items():
        data = Path(server.directory) / "data"
        names = [path.name for path in data.iterdir() if "-delete" not in path.name]
        found += [f"{broker_id}: {name}" for name in names if name.startswith(f"{topic}-")]
    return found


def test_a_controller_that_fails_is_replaced_and_its_work_is_completed(start_cluster: Callable[..., Cluster], name: str) -> None:
    cluster = start_cluster()
    admin = Admin(cluster)
    cluster.create_topic(name, partitions=6)

    # Paused for longer than its session: the others go on, and what it wrote or sent later would have the old epoch.
    victim, epoch = cluster.controller(), admin.epoch()
    cluster.brokers[victim].pause()
    cluster.until(lambda: cluster.controller() != victim, "another controller")
    assert admin.epoch() > epoch
    cluster.until_leader_is_not(victim, name)
    assert admin.create(f"{name}-during", 2) == 0
    cluster.brokers[victim].resume()
    cluster.until_registered()
    cluster.until_in_sync(name, f"{name}-during")

    # Killed right after it has accepted a creation and a deletion.
    epoch = admin.epoch()
    victim = cluster.controller()
    assert admin.create(f"{name}-last") == 0
    assert admin.delete(f"{name}-during") in (0, REQUEST_TIMED_OUT)
    cluster.brokers[victim].kill()
    cluster.until(lambda: cluster.controller() != victim, "another controller")
    assert admin.epoch() > epoch
    cluster.until_leader_is_not(victim, f"{name}-last")

    # The deletion waits for the replicas on the broker that is down.
    created = admin.create(f"{name}-during", 2)
    assert created in (0, TOPIC_ALREADY_EXISTS)
    cluster.start_brokers([victim])
    if created == 0:
        cluster.until_in_sync(f"{name}-during")
    else:
        admin.until_gone(f"{name}-during")
    cluster.until_in_sync(f"{name}-last", name)

    # All brokers killed at once, and started in another order.
    for server in cluster.brokers.values():
        server.kill()
    cluster.start_brokers(reversed(cluster.brokers))
    cluster.until_in_sync(name, f"{name}-last")


def test_a_deletion_waits_for_a_broker_that_is_down(start_cluster: Callable[..., Cluster], name: str) -> None:
    cluster = start_cluster()
    admin = Admin(cluster)
    cluster.create_topic(name, partitions=3)
    with ZooKeeper(cluster) as client:
        before = client.get(f"/brokers/topics/{name}")[0]
    victim = next(broker_id for broker_id in cluster.brokers if broker_id != cluster.controller())
    cluster.brokers[victim].kill()
    cluster.until_leader_is_not(victim, name)
    assert admin.delete(name) in (0, REQUEST_TIMED_OUT)
    cluster.until(lambda: not any(cluster.partitions(name, broker_id) for broker_id in cluster.serving), "no broker serves the topic")
    assert admin.create(name) == TOPIC_ALREADY_EXISTS
    first = cluster.controller()
    assert cluster.brokers[first].stop() == 0
    cluster.until(lambda: cluster.controller() != first, "another controller")
    cluster.start_brokers([first])
    assert admin.create(name) == TOPIC_ALREADY_EXISTS, "the next controller goes on with the deletion"
    cluster.start_brokers([victim])
    admin.until_gone(name)
    cluster.until(lambda: not replicas_on_disk(cluster, name), "no log of the topic is left")
    assert admin.create(name) == 0
    cluster.until_in_sync(name)
    with ZooKeeper(cluster) as client:
        assert client.get(f"/brokers/topics/{name}")[0] != before, "the new topic has another id"
