"""Brokers that refuse connections are replaced before their ZooKeeper sessions end; others are not.

Sessions last as long as ZooKeeper allows. Where leadership has moved, the registration of the broker is still there, which shows that no
session had to end for it.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kafka.protocol.admin import CreateTopicsRequest
from kazoo.exceptions import NoNodeError

from tests.cluster_faults.test_controller_faults import ZooKeeper
from tests.support.broker import BrokerProcess
from tests.support.cluster import Cluster
from tests.support.cut_proxy import CutProxy
from tests.support.kafka import KafkaMember
from tests.support.raw import RawConnection
from tests.support.raw_admin import KEEP, creation
from tests.support.raw_log import batch, fetch, produce
from tests.support.records import numbered, numbers
from tests.support.server import Server

OURS, KAFKA = BrokerProcess.kind, KafkaMember.kind
GUARD = "txbroker.failover.on.process.end"
LONG = {"zookeeper.session.timeout.ms": "40000", "min.insync.replicas": "2"}
REPORTS = "/txbroker_refused_connections"
NOT_LEADER = 6
Start = Callable[..., Cluster]


def is_registered(cluster: Cluster, broker_id: int) -> bool:
    with ZooKeeper(cluster) as client:
        return client.exists(f"/brokers/ids/{broker_id}") is not None


def reports(cluster: Cluster) -> list[str]:
    with ZooKeeper(cluster) as client:
        found: list[str] = client.get_children(REPORTS)
        return found


def until_produced(cluster: Cluster, topic: str, number: int) -> None:
    """One record is acknowledged by all in-sync replicas."""
    def attempt() -> bool:
        with RawConnection(cluster.brokers[cluster.leader(topic)].address) as connection:
            return bool(produce(connection, topic, batch(numbered(1, start=number))).error_code == 0)

    cluster.until(attempt, f"record {number} is acknowledged")


def records(cluster: Cluster, topic: str) -> list[int]:
    with RawConnection(cluster.brokers[cluster.leader(topic)].address) as connection:
        return numbers(fetch(connection, topic, 0).records)


def guards_of(server: Server) -> list[int]:
    return [int(pid) for pid in Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()]


def logs(cluster: Cluster) -> str:
    return "".join(server.log() for server in cluster.serving.values())


@pytest.mark.parametrize("guarded", [False, True])
def test_a_killed_leader_is_replaced_while_its_session_goes_on(start_cluster: Start, guarded: bool) -> None:
    """Without the guard of its session, and with a guard that is killed together with it."""
    cluster = start_cluster({**LONG, GUARD: str(guarded).lower()})
    cluster.create_topic("t")
    until_produced(cluster, "t", 0)
    victim = cluster.leader("t")
    for guard in guards_of(cluster.brokers[victim]) if guarded else []:
        os.kill(guard, signal.SIGKILL)
    cluster.brokers[victim].kill()
    cluster.until_leader_is_not(victim, "t")
    until_produced(cluster, "t", 1)
    assert is_registered(cluster, victim), "its session has not ended"
    assert victim not in cluster.partitions("t")[0].isr
    assert f"broker {victim} is suspected to be gone before its session has ended" in logs(cluster)
    cluster.start_brokers([victim])
    cluster.until_in_sync("t")
    cluster.until(lambda: not reports(cluster), "there are no reports")
    assert records(cluster, "t") == [0, 1]


def test_a_killed_controller_is_replaced_while_its_session_goes_on(start_cluster: Start) -> None:
    cluster = start_cluster({**LONG, GUARD: "false"})
    victim = cluster.controller()
    cluster.brokers[victim].kill()
    cluster.until(lambda: cluster.controller() != victim, "another broker is the controller")
    with RawConnection(cluster.brokers[cluster.controller()].address) as connection:
        assert creation(connection, "t", 3, 2, KEEP).error_code == 0
    cluster.until_leader_is_not(victim, "t")
    assert is_registered(cluster, victim), "its session has not ended"
    cluster.start_brokers([victim])
    cluster.until_in_sync("t")


def test_a_paused_broker_is_not_suspected(start_cluster: Start) -> None:
    """The system keeps its connections and accepts new ones: its session has to expire."""
    cluster = start_cluster()
    cluster.create_topic("t")
    victim = cluster.leader("t")
    cluster.brokers[victim].pause()
    cluster.until_leader_is_not(victim, "t")
    assert not is_registered(cluster, victim)
    assert "refuses new ones" not in logs(cluster) and "suspected" not in logs(cluster)
    cluster.brokers[victim].resume()
    cluster.until_in_sync("t")


def test_nothing_is_reported_if_it_is_switched_off(start_cluster: Start) -> None:
    cluster = start_cluster({"txbroker.failover.on.connection.loss": "false", GUARD: "false"})
    cluster.create_topic("t")
    victim = cluster.leader("t")
    cluster.brokers[victim].kill()
    cluster.until_leader_is_not(victim, "t")
    assert not is_registered(cluster, victim)
    with ZooKeeper(cluster) as client:
        assert client.exists(REPORTS) is None


@pytest.fixture
def proxies() -> Iterator[list[CutProxy]]:
    made: list[CutProxy] = []
    yield made
    for proxy in made:
        proxy.close()


def behind_proxy(cluster: Cluster, broker_id: int, proxies: list[CutProxy]) -> CutProxy:
    """Start a broker again behind a proxy: other brokers reach it through the proxy only, and this test directly."""
    server = cluster.brokers[broker_id]
    assert server.stop() == server.stopped_status
    proxy = CutProxy(server.address)
    proxies.append(proxy)
    server.overrides["advertised.listeners"] = f"PLAINTEXT://{proxy.address}"
    cluster.start_brokers([broker_id])
    cluster.until_in_sync()
    return proxy


def move(cluster: Cluster, topic: str, replicas: list[int]) -> None:
    """Create a topic with these replicas; the first one leads."""
    creatable = CreateTopicsRequest.CreatableTopic
    entries = [creatable.CreatableTopicConfig(name=key, value=value) for key, value in KEEP.items()]
    assigned = creatable.CreatableReplicaAssignment(partition_index=0, broker_ids=replicas)
    wanted = creatable(name=topic, num_partitions=-1, replication_factor=-1, assignments=[assigned], configs=entries)
    with RawConnection(cluster.brokers[cluster.controller()].address) as connection:
        (created,) = connection.call(CreateTopicsRequest(topics=[wanted], timeout_ms=30_000, validate_only=False), 5).topics
    assert created.error_code == 0, created
    cluster.until_in_sync(topic)


def test_a_leader_that_lives_behind_a_firewall_steps_down_and_returns(start_cluster: Start, proxies: list[CutProxy]) -> None:
    """A wrong suspicion. No request of the controller reaches the leader: it learns of its successor from ZooKeeper."""
    cluster = start_cluster(LONG)
    victim = max(set(cluster.brokers) - {cluster.controller()})
    proxy = behind_proxy(cluster, victim, proxies)
    move(cluster, "t", [victim, *sorted(set(cluster.brokers) - {victim})])
    with RawConnection(cluster.brokers[victim].address) as connection:
        assert produce(connection, "t", batch(numbered(1))).error_code == 0
        proxy.refuse()
        code: int = cluster.until(lambda: produce(connection, "t", batch(numbered(1, start=666)), acks=1).error_code, "it leads no more")
        assert code == NOT_LEADER
    assert is_registered(cluster, victim) and "has been replaced as the leader of 1 partition" in cluster.brokers[victim].log()
    others = [broker_id for broker_id in cluster.brokers if broker_id != victim]
    cluster.until(lambda: all(cluster.partitions("t", other)[0].leader in others for other in others), "another broker leads")
    proxy.accept()
    cluster.until_in_sync("t")
    cluster.until(lambda: not reports(cluster), "there are no reports")
    cluster.until(lambda: cluster.partitions("t", victim)[0].leader != victim, "its metadata is new")
    until_produced(cluster, "t", 1)
    assert records(cluster, "t") == [0, 1], "what it took alone, with acks=1, is lost"


@pytest.mark.parametrize("kind", [OURS, KAFKA])
def test_a_controller_that_lives_behind_a_firewall_resigns(start_cluster: Start, proxies: list[CutProxy], kind: str) -> None:
    """It is replaced in ZooKeeper, sees that, and serves on as a broker."""
    cluster = start_cluster(LONG, kinds=(OURS, OURS, kind))
    proxy = behind_proxy(cluster, 3, proxies)
    make_controller(cluster, 3)
    cluster.create_topic("t")
    proxy.refuse()
    cluster.until(lambda: all(cluster.metadata([], other).controller_id in (1, 2) for other in (1, 2)), "another broker is the controller")
    assert is_registered(cluster, 3)
    proxy.accept()
    cluster.until_registered()
    assert cluster.controller() in (1, 2)
    cluster.create_topic("t2")
    cluster.until_in_sync("t", "t2")


def make_controller(cluster: Cluster, broker_id: int) -> None:
    """Delete the controller's node until this broker is elected."""
    def attempt() -> bool:
        if cluster.controller() == broker_id:
            return True
        with ZooKeeper(cluster) as client, contextlib.suppress(NoNodeError):  # there is none during an election
            client.delete("/controller")
        return False

    cluster.until(attempt, f"broker {broker_id} is the controller")
    cluster.until_registered()


def is_connected(server: Server, port: int) -> bool:
    """Whether the process of a server has a connection to this port."""
    sockets = set()
    for link in Path(f"/proc/{server.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            sockets.add(os.readlink(link))
    rows = [row.split() for name in ("tcp", "tcp6") for row in Path(f"/proc/{server.pid}/net/{name}").read_text().splitlines()[1:]]
    return any(int(row[2].rpartition(":")[2], 16) == port and row[3] == "01" and f"socket:[{row[9]}]" in sockets for row in rows)


def test_a_killed_controller_of_kafka_is_replaced_while_its_session_goes_on(start_cluster: Start) -> None:
    cluster = start_cluster(LONG, kinds=(OURS, OURS, KAFKA))
    make_controller(cluster, 3)
    # Kafka registers before it listens: the first attempt may be refused, and the next one comes a second later.
    cluster.until(lambda: all(is_connected(cluster.brokers[one], cluster.brokers[3].port) for one in (1, 2)), "it would be missed")
    cluster.create_topic("t")
    cluster.brokers[3].kill()
    cluster.until(lambda: cluster.controller() in (1, 2), "a txbroker is the controller")
    cluster.until_leader_is_not(3, "t")
    until_produced(cluster, "t", 0)
    assert is_registered(cluster, 3), "its session has not ended"
