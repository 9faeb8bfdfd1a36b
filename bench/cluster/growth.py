"""How the figures grow with partitions, replicas and brokers: txbroker, then Apache Kafka 3.9, at each size on a new cluster."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from bench.brokers import KAFKA, TXBROKER, OthersMeter
from bench.cluster import clusters, failing, producing
from bench.measures import Sample, Settings
from bench.rawload import Load, run
from bench.requests import Refused, batch
from bench.scale.sweep import Curve, Grown, Sweep
from bench.scale.writing import OTHERS, size_table
from tests.support.cluster import Cluster
from tests.support.server import HOST

SOME_PARTITIONS = 300
RECORDS, RECORD_BYTES = 16, 1024  # of one request
IN_FLIGHT = 72  # requests of all connections, whatever the number of brokers
DEPTH = 4
SECONDS = 4.0
FIRST_RECORDS_MAX_S, WARM_UP_MAX_S = 600.0, 300.0
STILL_RISING, STEADY_RUNS = 1.05, 8  # three runs of the same rate ended the warm-up of several Java brokers too early
IDLE_S = 5.0
CURVES = (
    Curve("memory per broker", "MB", 0),
    Curve("idle CPU per broker", "ms/s"),
    Curve("creation", "s"),
    Curve("written", "MB/s"),
    Curve("p99", "ms"),
    Curve("CPU per GB", "s"),
    Curve("no controller", "s", 2),
    Curve("restart", "s"),
)


class Shape(NamedTuple):
    """A cluster: numbers of brokers, of partitions, and of the replicas of each."""

    brokers: int
    partitions: int
    replicas: int


@dataclass(frozen=True)
class ClusterSweep(Sweep):
    """`shape(size)` is the cluster of a size."""

    shape: Callable[[int], Shape]


SWEEPS = (
    ClusterSweep(
        "partitions", f"{clusters.BROKERS} brokers, {clusters.BROKERS} replicas", "partitions", (100, 1_000, 5_000), CURVES,
        lambda size: Shape(clusters.BROKERS, size, clusters.BROKERS),
    ),
    ClusterSweep(
        "replicas", f"{clusters.BROKERS} brokers, {SOME_PARTITIONS} partitions", "replicas", (1, 2, 3), CURVES,
        lambda size: Shape(clusters.BROKERS, SOME_PARTITIONS, size),
    ),
    ClusterSweep(
        "brokers", f"{SOME_PARTITIONS} partitions, {clusters.BROKERS} replicas", "brokers", (3, 5, 9), CURVES,
        lambda size: Shape(size, SOME_PARTITIONS, clusters.BROKERS),
    ),
)  # fmt: skip


def grow(sweep: ClusterSweep, settings: Settings, directory: Path) -> Grown:
    """Measure all sizes, each once; with a scale below 1 only the smallest, with fewer partitions."""
    print(f"== {sweep.name}: {sweep.what}", flush=True)
    grown = Grown(sweep)
    for size in sweep.sizes if settings.scale >= 1 else sweep.sizes[:1]:
        shape = sweep.shape(size)
        for name in (TXBROKER, KAFKA):
            grown.add(name, size, _measured(name, shape, settings, directory / f"{sweep.name}-{size}-{name}"))
        print(f"{size} {sweep.unit}\n{size_table(grown, size)}", flush=True)
    return grown


def _measured(name: str, shape: Shape, settings: Settings, directory: Path) -> Sample:
    cluster = clusters.make(name, directory, shape.brokers)
    try:
        cluster.start()
        begin_s = time.monotonic()
        topics = failing.fill(cluster, max(shape.brokers, int(shape.partitions * settings.scale)), shape.replicas)
        created_s = time.monotonic() - begin_s
        written = _written(cluster, topics, settings)
        idle = _idle(cluster, IDLE_S * settings.scale)
        return {"creation": created_s, **written, **idle, **failing.controller_killed(cluster, topics)}
    finally:
        cluster.close()
        shutil.rmtree(directory, ignore_errors=True)


def _idle(cluster: Cluster, seconds: float) -> Sample:
    """What a broker uses without clients, after the load."""
    found = failing.idle(cluster, seconds)
    return {"idle CPU per broker": found["CPU"] * 1e3 / len(cluster.brokers), "memory per broker": found["memory"] / len(cluster.brokers)}


def _written(cluster: Cluster, topics: Sequence[str], settings: Settings) -> Sample:
    """Batches to all partitions in random orders, after a warm-up."""
    load = _load(cluster, topics, SECONDS * min(settings.scale * 10, 1))
    pids = [server.pid for server in cluster.brokers.values()]
    if settings.warmup_s:
        _warm_up(cluster, topics, load)
    before, others = sum(producing.ends(cluster, topics)), OthersMeter(pids)
    result = run(load, *pids)
    if sum(producing.ends(cluster, topics)) - before < result.answers_per_s * load.seconds * RECORDS * 0.99:
        raise Refused("some acknowledged produce requests were not appended")
    assert result.cpu_us_per_answer is not None
    request_bytes = RECORDS * RECORD_BYTES
    return {
        "written": result.answers_per_s * request_bytes / 1e6, "p99": result.p99_ms,
        "CPU per GB": result.cpu_us_per_answer * 1e3 / request_bytes, OTHERS: others.cores(),
    }  # fmt: skip


def _warm_up(cluster: Cluster, topics: Sequence[str], load: Load) -> None:
    """Send the load until each partition has records, and then until the rate no longer rises.

    The first record of a partition costs several syncs, and a Java broker compiles its code.
    """
    load, best, since_best = replace(load, seconds=SECONDS), 0.0, 0
    chance = random.Random(2)
    end_s = time.monotonic() + FIRST_RECORDS_MAX_S
    while not all(producing.ends(cluster, topics)):
        if time.monotonic() > end_s:
            raise Refused(f"some partitions have no records after {FIRST_RECORDS_MAX_S:.0f} s of warm-up")
        # In the order of the load, each run would begin with the same partitions, and some might never have a turn.
        run(replace(load, frames=[chance.sample(frames, len(frames)) for frames in load.frames]))
    end_s = time.monotonic() + WARM_UP_MAX_S
    while since_best < STEADY_RUNS and time.monotonic() < end_s:
        rate = run(load).answers_per_s
        best, since_best = (rate, 0) if rate > best * STILL_RISING else (best, since_best + 1)


def _load(cluster: Cluster, topics: Sequence[str], seconds: float) -> Load:
    """Each leader gets as many connections as the others; a connection sends to all partitions of its leader, in an order of its own."""
    records = batch(RECORDS, RECORD_BYTES)
    led = {
        leader: [producing.acks_all(topic, number, records) for topic, numbers in of_topics.items() for number in numbers]
        for leader, of_topics in producing.led(cluster, topics).items()
    }
    connections = round(IN_FLIGHT / DEPTH / len(led)) * len(led)
    chance = random.Random(1)
    frames = [chance.sample(frames, len(frames)) for _ in range(connections // len(led)) for frames in led.values()]
    ports = [cluster.brokers[leader].port for leader in led]
    return Load(HOST, 0, frames, connections, DEPTH, seconds, min(seconds / 4, 1), ports=ports)
