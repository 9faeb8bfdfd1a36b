"""acks=all on topics with three replicas: Kafka's ProducerPerformance, and raw requests of one record."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from bench.cluster.clusters import BROKERS, cpu_of, pids_of
from bench.javaperf import JAVA_OPTIONS, TIMEOUT_S, UnexpectedOutput
from bench.measures import Figure, Outcome, Sample, Settings, Work
from bench.rawload import Load, run
from bench.requests import LATEST, BrokerClient, Refused, batch, frame, offset_at
from bench.throughput import CONNECTIONS, DEPTH, SMALL_BYTES
from bench.turns import in_turn
from tests.support import java
from tests.support.cluster import Cluster
from tests.support.server import HOST
from txbroker.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

PARTITIONS = 6
RAW_VERSION = 11  # Kafka 3.9 has no newer one
RECORDS = {1024: 400_000, 100: 2_000_000}
FIGURES = (
    Figure("MiB/s", "MiB/s", target=1.0, digits=1),
    Figure("p99", "ms", less=True, target=1.0),
    Figure("CPU per GB", "s", less=True, target=0.6, digits=1),
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
RAW = Work(
    "cluster-raw",
    f"{CONNECTIONS} connections x {DEPTH} requests in flight, over all leaders of {PARTITIONS} partitions, acks=all, "
    f"one {SMALL_BYTES}-byte record, {BROKERS} replicas; CPU of all brokers",
    (
        Figure("requests/s", "requests/s", target=1.5),
        Figure("p99", "ms", less=True, digits=1),
        Figure("CPU per request", "µs", less=True, digits=1),
    ),
)
_SENT = re.compile(r"(\d+) records sent, .*?\(([\d.]+) MB/sec\).*?([\d.]+) ms 99th")
_numbers = itertools.count(1)


def produces(clusters: Mapping[str, Cluster], settings: Settings) -> Iterator[Outcome]:
    """Each size of records, on both clusters in turn, after a warm-up of both."""
    for size, work in WORKS.items():
        outcome = Outcome(work)
        count = int(RECORDS[size] * settings.scale)
        measures = {name: partial(_measured, cluster, size, count) for name, cluster in clusters.items()}
        if settings.warmup_s:
            for measure in measures.values():
                measure()
        in_turn(outcome, measures, settings.rounds, pids_of(clusters))
        yield outcome


def raws(clusters: Mapping[str, Cluster], settings: Settings) -> Iterator[Outcome]:
    """Prepared requests at all leaders, on all clusters in turn, after a warm-up of all."""
    outcome = Outcome(RAW)
    measures = {}
    for name, cluster in clusters.items():
        topic = f"raw-{next(_numbers)}"
        cluster.create_topic(topic, PARTITIONS, BROKERS)
        measures[name] = partial(_raw, cluster, topic, settings.seconds * min(settings.scale * 10, 1))
    if settings.warmup_s:
        for measure in measures.values():
            measure()
    in_turn(outcome, measures, settings.rounds, pids_of(clusters))
    yield outcome


def _raw(cluster: Cluster, topic: str, seconds: float) -> Sample:
    records = batch(1, SMALL_BYTES)
    leaders = {number: cluster.brokers[cluster.leader(topic, number)] for number in range(PARTITIONS)}
    frames = []
    for number in leaders:
        frames.append([acks_all(topic, number, records)])
    ports = [leader.port for leader in leaders.values()]
    before = sum(ends(cluster, [topic]))
    load = Load(HOST, 0, frames, CONNECTIONS, DEPTH, seconds, min(seconds / 4, 1), ports=ports)
    result = run(load, *(server.pid for server in cluster.brokers.values()))
    if sum(ends(cluster, [topic])) - before < result.answers_per_s * seconds * 0.99:
        raise Refused("some acknowledged produce requests were not appended")
    assert result.cpu_us_per_answer is not None
    return {
        "requests/s": result.answers_per_s, "p99": result.p99_ms, "CPU per request": result.cpu_us_per_answer,
        "generator": result.generator_share,
    }  # fmt: skip


def acks_all(topic: str, partition: int, records: bytes) -> bytes:
    """A whole request with acks=all for one partition."""
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=records)])
    return frame(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[data]), version=RAW_VERSION)


def ends(cluster: Cluster, topics: Sequence[str]) -> list[int]:
    """The end offsets of all partitions of some topics, which must have leaders."""
    offsets: list[int] = []
    for leader, of_topics in led(cluster, topics).items():
        with BrokerClient(cluster.brokers[leader].address) as client:
            for topic, numbers in of_topics.items():
                found = client.call(offset_at(topic, dict.fromkeys(numbers, LATEST))).topics[0].partitions
                if any(partition.error_code for partition in found):
                    raise Refused(f"ListOffsets of {topic} at broker {leader} was answered with an error")
                offsets += [partition.offset for partition in found]
    return offsets


def led(cluster: Cluster, topics: Sequence[str]) -> dict[int, dict[str, list[int]]]:
    """The partitions that each broker leads, by topic."""
    found: dict[int, dict[str, list[int]]] = {}
    for topic in topics:
        for number, state in cluster.partitions(topic).items():
            found.setdefault(state.leader, {}).setdefault(topic, []).append(number)
    return found


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
