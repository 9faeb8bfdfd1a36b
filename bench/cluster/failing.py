"""What idle brokers use, and how long a cluster does not serve after kill -9 of a leader or of the controller."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from confluent_kafka import KafkaError, Producer

from bench.brokers import KAFKA, TXBROKER
from bench.cluster.clusters import BROKERS, cpu_of, memory_of
from bench.measures import Figure, Outcome, Sample, Settings, Work
from bench.turns import in_turn
from tests.support.cluster import SESSION_MS, Cluster

PARTITIONS = 5_000
PARTITIONS_OF_A_TOPIC = 500
IDLE_S = 10.0
PAUSE_S = 0.002
WAIT_S = 120.0

LEADER = Work(
    "cluster-failover",
    f"kill -9 of a leader to the next acknowledged record of its partition; ZooKeeper's session is {SESSION_MS / 1000:g} s",
    (Figure("silence", "s", less=True, digits=2),),
)
CONTROLLER = Work(
    "cluster-controller",
    f"kill -9 of the controller to the next topic that is created, with {PARTITIONS:,} partitions of {BROKERS} replicas; the restart of "
    "that broker until all its replicas are in sync",
    (Figure("no controller", "s", less=True, digits=1), Figure("restart", "s", less=True, digits=1)),
)
IDLE = Work(
    "cluster-idle",
    f"{BROKERS} brokers without clients and topics",
    (Figure("CPU", "cores", less=True, digits=3), Figure("memory", "MB", less=True)),
)
WORKS = (IDLE, LEADER, CONTROLLER)
_numbers = itertools.count(1)


def idles(clusters: Mapping[str, Cluster], settings: Settings) -> Iterator[Outcome]:
    """What brokers that do nothing use."""
    outcome = Outcome(IDLE)
    measures = {name: partial(_idle, clusters[name], IDLE_S if settings.scale >= 1 else 0.5) for name in (TXBROKER, KAFKA)}
    in_turn(outcome, measures, settings.rounds, _pids(clusters))
    yield outcome


def failovers(clusters: Mapping[str, Cluster], settings: Settings) -> Iterator[Outcome]:
    """Leaders are killed, on both clusters in turn."""
    outcome = Outcome(LEADER)
    in_turn(outcome, {name: partial(_leader_killed, clusters[name]) for name in (TXBROKER, KAFKA)}, settings.rounds, None)
    yield outcome


def controllers(clusters: Mapping[str, Cluster], settings: Settings) -> Iterator[Outcome]:
    """Controllers of clusters with many partitions are killed, on both clusters in turn."""
    outcome = Outcome(CONTROLLER)
    topics = {name: _fill(clusters[name], int(PARTITIONS * settings.scale)) for name in (TXBROKER, KAFKA)}
    in_turn(outcome, {name: partial(_controller_killed, clusters[name], topics[name]) for name in topics}, settings.rounds, None)
    yield outcome


def _pids(clusters: Mapping[str, Cluster]) -> list[int]:
    return [server.pid for cluster in clusters.values() for server in cluster.brokers.values()]


def _idle(cluster: Cluster, seconds: float) -> Sample:
    before, since = cpu_of(cluster), time.perf_counter()
    time.sleep(seconds)
    return {"CPU": (cpu_of(cluster) - before) / (time.perf_counter() - since), "memory": memory_of(cluster)}


def _leader_killed(cluster: Cluster) -> Sample:
    topic = f"failover-{next(_numbers)}"
    cluster.create_topic(topic, 1, BROKERS)
    acknowledged_s: list[float] = []
    producer = Producer({
        "bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 0, "enable.idempotence": True, "log_level": 0,
        "reconnect.backoff.max.ms": 100, "retry.backoff.ms": 20, "topic.metadata.refresh.fast.interval.ms": 50,
    })  # fmt: skip

    def delivered(error: KafkaError | None, _: object) -> None:
        if error is None:
            acknowledged_s.append(time.monotonic())

    def run(ends_s: float, after_s: float) -> None:
        """Produce until a record was acknowledged that was sent later than `after_s`."""
        while time.monotonic() < ends_s and not (acknowledged_s and acknowledged_s[-1] > after_s):
            producer.produce(topic, b"x" * 100, on_delivery=delivered)
            producer.poll(PAUSE_S)

    started_s = time.monotonic()
    run(started_s + WAIT_S, started_s + 1.0)
    victim = cluster.leader(topic)
    killed_s = time.monotonic()
    cluster.brokers[victim].kill()
    # What was acknowledged before the kill may still arrive: the silence ends with the first record after a pause.
    run(killed_s + WAIT_S, killed_s + 0.2)
    producer.flush(WAIT_S)
    cluster.start_brokers([victim])
    cluster.until_in_sync(topic)
    after = next(at for at in acknowledged_s if at > killed_s + 0.2)
    return {"silence": after - killed_s}


def _fill(cluster: Cluster, partitions: int) -> list[str]:
    """Create topics with so many partitions; their names."""
    topics = []
    for start in range(0, partitions, PARTITIONS_OF_A_TOPIC):
        topics.append(f"many-{next(_numbers)}")
        cluster.create_topic(topics[-1], min(partitions - start, PARTITIONS_OF_A_TOPIC), BROKERS)
    return topics


def _controller_killed(cluster: Cluster, topics: Sequence[str]) -> Sample:
    victim = cluster.controller()
    killed_s = time.monotonic()
    cluster.brokers[victim].kill()
    cluster.create_topic(f"after-{next(_numbers)}", 1, BROKERS - 1)
    created_s = time.monotonic()
    cluster.start_brokers([victim])
    for topic in topics:
        cluster.until_in_sync(topic)
    return {"no controller": created_s - killed_s, "restart": time.monotonic() - created_s}
