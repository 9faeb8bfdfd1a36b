"""What idle brokers use, and how long a cluster does not serve after kill -9 of a leader or of the controller."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial

from bench.brokers import TXBROKER
from bench.cluster.clusters import BROKERS, cpu_of, memory_of, pids_of
from bench.measures import Figure, Outcome, Sample, Settings, Work
from bench.turns import in_turn
from tests.support.cluster import SESSION_MS, Cluster
from tests.support.raw import RawConnection
from tests.support.raw_log import batch, produce
from tests.support.records import numbered

PARTITIONS = 5_000
PARTITIONS_OF_A_TOPIC = 500
IDLE_S = 10.0
PAUSE_S = 0.002
WAIT_S = 120.0
BEFORE = 20
NONE = 0

LEADER = Work(
    "cluster-failover",
    f"kill -9 of a leader to the next acknowledged record of its partition; ZooKeeper's session is {SESSION_MS / 1000:g} s",
    (Figure("silence", "s", less=True, target=0.2, digits=2),),
)
CONTROLLER = Work(
    "cluster-controller",
    f"kill -9 of the controller to the next topic that is created, with {PARTITIONS:,} partitions of {BROKERS} replicas; the restart of "
    "that broker until all its replicas are in sync",
    (Figure("no controller", "s", less=True, target=1, digits=1), Figure("restart", "s", less=True, target=0.5, digits=1)),
)
UNGUARDED = Work(
    "cluster-failover-unguarded",
    f"the same without the process that ends the session of a killed txbroker; ZooKeeper's session is {SESSION_MS / 1000:g} s",
    LEADER.figures,
)
SMALL_CONTROLLER = Work(
    "cluster-failover-controller",
    f"kill -9 of the controller to the next topic that is created; ZooKeeper's session is {SESSION_MS / 1000:g} s",
    (Figure("no controller", "s", less=True, target=0.2, digits=2),),
)
IDLE = Work(
    "cluster-idle",
    f"{BROKERS} brokers without clients and topics",
    (Figure("CPU", "cores", less=True, target=0.3, digits=3), Figure("memory", "MB", less=True, target=0.2)),
)
WORKS = (IDLE, LEADER, UNGUARDED, SMALL_CONTROLLER, CONTROLLER)
GUARD = "txbroker.failover.on.process.end"
_numbers = itertools.count(1)


def idles(clusters: Mapping[str, Cluster], settings: Settings) -> Iterator[Outcome]:
    """What brokers that do nothing use."""
    outcome = Outcome(IDLE)
    measures = {name: partial(idle, cluster, IDLE_S if settings.scale >= 1 else 0.5) for name, cluster in clusters.items()}
    in_turn(outcome, measures, settings.rounds, pids_of(clusters))
    yield outcome


def failovers(clusters: Mapping[str, Cluster], settings: Settings) -> Iterator[Outcome]:
    """Leaders are killed, on all clusters in turn."""
    outcome = Outcome(LEADER)
    leaders = {name: partial(_leader_killed, cluster) for name, cluster in clusters.items()}
    in_turn(outcome, leaders, settings.rounds, None)
    yield outcome
    outcome = Outcome(SMALL_CONTROLLER)
    in_turn(outcome, {name: partial(_controller_killed_small, cluster) for name, cluster in clusters.items()}, settings.rounds, None)
    yield outcome
    outcome = Outcome(UNGUARDED)
    _restart(clusters[TXBROKER], {GUARD: "false"})
    in_turn(outcome, leaders, settings.rounds, None)
    _restart(clusters[TXBROKER], {GUARD: "true"})
    yield outcome


def controllers(clusters: Mapping[str, Cluster], settings: Settings) -> Iterator[Outcome]:
    """Controllers of clusters with many partitions are killed, on all clusters in turn."""
    outcome = Outcome(CONTROLLER)
    topics = {name: fill(cluster, int(PARTITIONS * settings.scale)) for name, cluster in clusters.items()}
    in_turn(outcome, {name: partial(controller_killed, clusters[name], topics[name]) for name in topics}, settings.rounds, None)
    yield outcome


def idle(cluster: Cluster, seconds: float) -> Sample:
    """What all brokers of a cluster use in so many seconds without clients."""
    before, since = cpu_of(cluster), time.perf_counter()
    time.sleep(seconds)
    return {"CPU": (cpu_of(cluster) - before) / (time.perf_counter() - since), "memory": memory_of(cluster)}


def _leader_killed(cluster: Cluster) -> Sample:
    """Requests go to the other replicas in turn: clients look for a new leader less often, librdkafka once a second."""
    topic = f"failover-{next(_numbers)}"
    cluster.create_topic(topic, 1, BROKERS)
    victim = cluster.leader(topic)
    records = batch(numbered(1))
    with ExitStack() as stack:
        connections = [
            stack.enter_context(RawConnection(server.address)) for broker_id, server in cluster.brokers.items() if broker_id != victim
        ]
        with RawConnection(cluster.brokers[victim].address) as leader:
            for _ in range(BEFORE):
                assert produce(leader, topic, records).error_code == NONE
        cluster.brokers[victim].kill()
        killed_s = time.monotonic()
        for connection in itertools.cycle(connections):
            code = produce(connection, topic, records).error_code
            silence_s = time.monotonic() - killed_s
            if code == NONE:
                break
            assert silence_s < WAIT_S, f"broker {victim} was killed, and no other one leads after {WAIT_S:g} s"
            time.sleep(PAUSE_S)
    cluster.start_brokers([victim])
    cluster.until_in_sync(topic)
    return {"silence": silence_s}


def _restart(cluster: Cluster, overrides: Mapping[str, str]) -> None:
    """Start the brokers again, one after the other, with other values of some keys."""
    for broker_id, server in cluster.brokers.items():
        server.stop()
        server.overrides.update(overrides)
        cluster.start_brokers([broker_id])
    cluster.until_in_sync()


def fill(cluster: Cluster, partitions: int, replicas: int = BROKERS) -> list[str]:
    """Create topics with so many partitions; their names."""
    topics = []
    for start in range(0, partitions, PARTITIONS_OF_A_TOPIC):
        topics.append(f"many-{next(_numbers)}")
        cluster.create_topic(topics[-1], min(partitions - start, PARTITIONS_OF_A_TOPIC), replicas)
    return topics


def _controller_killed_small(cluster: Cluster) -> Sample:
    victim = cluster.controller()
    killed_s = time.monotonic()
    cluster.brokers[victim].kill()
    cluster.create_topic(f"after-{next(_numbers)}", 1, BROKERS - 1)
    silence_s = time.monotonic() - killed_s
    cluster.start_brokers([victim])
    cluster.until_in_sync()
    return {"no controller": silence_s}


def controller_killed(cluster: Cluster, topics: Sequence[str]) -> Sample:
    """kill -9 of the controller to the next topic that is created, and from then on until all replicas of `topics` are in sync again."""
    victim = cluster.controller()
    killed_s = time.monotonic()
    cluster.brokers[victim].kill()
    cluster.create_topic(f"after-{next(_numbers)}", 1, BROKERS - 1)
    created_s = time.monotonic()
    cluster.start_brokers([victim])
    for topic in topics:
        cluster.until_in_sync(topic)
    return {"no controller": created_s - killed_s, "restart": time.monotonic() - created_s}
