"""Starts: on an empty directory, with the cost of an idle broker, and on a full one, after a clean stop and after kill -9."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial

from bench import requests
from bench.brokers import make
from bench.measures import Bench, Figure, Measure, Sample, Settings
from bench.process_tree import CpuMeter, age_seconds, rss_mb
from bench.requests import BrokerClient
from tests.support.server import Server

SETTLE_S = 2.0
IDLE_S = 4.0
PARTITIONS = 4
FULL_BYTES = 3_600_000_000
SEGMENTS = 1000  # of all partitions together
SEGMENT_BYTES = 1 << 20


@contextmanager
def _start(server: Server, settings: Settings) -> Iterator[Measure]:
    """Starts separate brokers: the shared one serves the other benchmarks."""
    directory = server.directory.with_name(f"{server.kind}-start")

    def measure() -> Sample:
        started = make(server.kind, directory)
        try:
            started.start()
            seconds = age_seconds(started.pid)
            time.sleep(SETTLE_S)
            memory = rss_mb(started.pid)
            cpu = CpuMeter(started.pid)
            time.sleep(IDLE_S * settings.scale)
            return {"start": seconds, "memory": memory, "idle CPU": cpu.share() * 1e3}
        finally:
            started.kill()
            shutil.rmtree(directory, ignore_errors=True)

    yield measure


@contextmanager
def _start_full(server: Server, settings: Settings, *, total_bytes: int, configs: Mapping[str, str]) -> Iterator[Measure]:
    """A separate broker with data to load and to recover. A start ends when every partition accepts a record."""
    directory = server.directory.with_name(f"{server.kind}-start-full")
    full = make(server.kind, directory)
    try:
        full.start()
        with BrokerClient(full.address) as client:
            topic_id = client.create_topic("full", PARTITIONS, configs)
            records = requests.batch(1000, 1000)
            for partition in range(PARTITIONS):
                client.fill(topic_id, partition, records, int(total_bytes * settings.scale) // PARTITIONS // len(records))

        def started() -> float:
            full.start()
            with BrokerClient(full.address) as client:
                while not all(client.takes(topic_id, partition) for partition in range(PARTITIONS)):
                    time.sleep(0.005)
            return age_seconds(full.pid)

        def measure() -> Sample:
            full.stop()
            clean = started()
            full.kill()
            return {"after a clean stop": clean, "after kill -9": started()}

        yield measure
    finally:
        full.kill()
        shutil.rmtree(directory, ignore_errors=True)


BENCHES = (
    Bench(
        "start",
        "an empty directory, from exec to the first response; then memory, and CPU without load",
        (
            Figure("start", "s", less=True, digits=2, target=0.15),
            Figure("memory", "MB", less=True),
            Figure("idle CPU", "ms/s", less=True, digits=1, target=0.2),
        ),
        _start,
    ),
    Bench(
        "start-full",
        f"{FULL_BYTES / 1e9:.1f} GB in {PARTITIONS} partitions, from exec until every partition accepts a record",
        (
            Figure("after a clean stop", "s", less=True, digits=2, target=0.2),
            Figure("after kill -9", "s", less=True, digits=2, target=0.2),
        ),
        partial(_start_full, total_bytes=FULL_BYTES, configs={}),
    ),
    Bench(
        "start-segments",
        f"{SEGMENTS} segments of 1 MB in {PARTITIONS} partitions, from exec until every partition accepts a record",
        (
            Figure("after a clean stop", "s", less=True, digits=2),
            Figure("after kill -9", "s", less=True, digits=2),
        ),
        partial(_start_full, total_bytes=SEGMENTS * SEGMENT_BYTES, configs={"segment.bytes": str(SEGMENT_BYTES)}),
    ),
)
