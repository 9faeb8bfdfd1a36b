"""Kafka's ProducerPerformance with acks=all on topics with three replicas: throughput, latency, and CPU of all brokers."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from functools import partial

from bench.brokers import KAFKA, TXBROKER
from bench.cluster.clusters import BROKERS, cpu_of
from bench.javaperf import JAVA_OPTIONS, TIMEOUT_S, UnexpectedOutput
from bench.measures import Figure, Outcome, Sample, Settings, Work
from bench.turns import in_turn
from tests.support import java
from tests.support.cluster import Cluster

PARTITIONS = 6
RECORDS = {1024: 400_000, 100: 2_000_000}
FIGURES = (
    Figure("MiB/s", "MiB/s", digits=1),
    Figure("p99", "ms", less=True),
    Figure("CPU per GB", "s", less=True, digits=1),
)
WORKS = {
    size: Work(
        f"cluster-produce-{size}",
        f"ProducerPerformance, {'1 KiB' if size == 1024 else f'{size}-byte'} records, acks=all, {PARTITIONS} partitions, "
        f"{BROKERS} replicas; CPU of all brokers per GB of records",
        FIGURES,
    )
    for size in RECORDS
}
_SENT = re.compile(r"(\d+) records sent, .*?\(([\d.]+) MB/sec\).*?([\d.]+) ms 99th")
_numbers = itertools.count(1)


def produces(clusters: Mapping[str, Cluster], settings: Settings) -> Iterator[Outcome]:
    """Each size of records, on both clusters in turn, after a warm-up of both."""
    for size, work in WORKS.items():
        outcome = Outcome(work)
        count = int(RECORDS[size] * settings.scale)
        measures = {name: partial(_measured, clusters[name], size, count) for name in (TXBROKER, KAFKA)}
        if settings.warmup_s:
            for measure in measures.values():
                measure()
        pids = [server.pid for cluster in clusters.values() for server in cluster.brokers.values()]
        in_turn(outcome, measures, settings.rounds, pids)
        yield outcome


def _measured(cluster: Cluster, size: int, count: int) -> Sample:
    topic = f"produce-{next(_numbers)}"
    cluster.create_topic(topic, PARTITIONS, BROKERS)
    before = cpu_of(cluster)
    rate, p99 = _produce(cluster.bootstrap, topic, count, size)
    return {"MiB/s": rate, "p99": p99, "CPU per GB": (cpu_of(cluster) - before) / (count * size) * 1e9}


def _produce(bootstrap: str, topic: str, count: int, size: int) -> tuple[float, float]:
    text = java.run(
        "kafka-producer-perf-test", "--topic", topic, "--num-records", str(count), "--record-size", str(size), "--throughput", "-1",
        "--bootstrap-server", bootstrap, "--command-property", "acks=all", "linger.ms=10", "batch.size=131072", "buffer.memory=67108864",
        timeout_s=TIMEOUT_S, options=JAVA_OPTIONS,
    )  # fmt: skip
    found = _SENT.match(text.strip().rpartition("\n")[2])
    if found is None or int(found[1]) != count:
        raise UnexpectedOutput(text[-1000:])
    return float(found[2]), float(found[3])
