"""`txbroker spark upsert` of a million keys into a Delta table: the first fill, and then an update of each key."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.brokers import TXBROKER, make
from bench.measures import Figure, Outcome, Sample, Settings, Work
from bench.pipeline.sessions import spark_session, started
from bench.process_tree import CpuMeter
from bench.requests import FIRST_TIMESTAMP, BrokerClient
from tests.support.server import Server
from txbroker.spark.topic_source import TopicSource
from txbroker.spark.upsert import UpsertOptions, upsert
from txbroker.wire.records import Record, build

KEYS = 1_000_000
PARTITIONS = 4
VALUE_BYTES = 200
BATCH_RECORDS = 500
_FIGURES = (
    Figure("rows/s", "thousand/s", digits=1),
    Figure("total", "s", less=True, digits=1),
    Figure("broker CPU", "s", less=True, digits=2),
)
_WHAT = f"{KEYS:,} records with values of {VALUE_BYTES} bytes in {PARTITIONS} partitions"
WORKS = (
    Work("upsert-fill", f"{_WHAT}, one of each key, into a new table", _FIGURES),
    Work("upsert-update", f"{_WHAT}, a new value of each key in random order, into that table", _FIGURES),
)


def upserts(settings: Settings, directory: Path) -> Iterator[Outcome]:
    """Each round has a topic and a table of its own; the first round is not counted, because the JVM loads classes."""
    keys, uncounted = int(KEYS * settings.scale), 1 if settings.warmup_s else 0
    outcomes = [Outcome(work) for work in WORKS]
    with started(make(TXBROKER, directory / "upsert")) as server, spark_session() as spark:
        for number in range(settings.rounds + uncounted):
            for outcome, sample in zip(outcomes, _round(spark, server, directory, f"upsert-{number}", keys), strict=True):
                if number >= uncounted:
                    outcome.samples.setdefault(TXBROKER, []).append(sample)
    yield from outcomes


def _round(spark: Any, server: Server, directory: Path, topic: str, keys: int) -> Iterator[Sample]:
    """The samples of `WORKS`."""
    table = directory / "upserted"
    with BrokerClient(server.address) as client:
        topic_id = client.create_topic(topic, PARTITIONS)
        for updates in (False, True):
            for partition in range(PARTITIONS):
                client.append(topic_id, partition, batches(keys, partition, updates=updates))
            yield _sample(spark, server, topic, str(table), keys, updates=updates)
        client.delete_topic(topic)
    shutil.rmtree(table)


def batches(keys: int, partition: int, *, updates: bool) -> Iterator[bytes]:
    """A record of each key of a partition."""
    own = list(range(partition, keys, PARTITIONS))
    if updates:
        random.Random(partition).shuffle(own)
    time_ms = FIRST_TIMESTAMP + keys * updates
    for first in range(0, len(own), BATCH_RECORDS):
        some = own[first : first + BATCH_RECORDS]
        values = (b"%09d%d" % (key, updates) * (VALUE_BYTES // 10) for key in some)
        yield build([Record(n, time_ms + key, b"key-%08d" % key, value) for n, (key, value) in enumerate(zip(some, values, strict=True))])


def _sample(spark: Any, server: Server, topic: str, table: str, keys: int, *, updates: bool) -> Sample:
    source = TopicSource(server.address, [topic])
    meter = CpuMeter(server.pid)
    begun = time.perf_counter()
    merged = upsert(spark, UpsertOptions(source, table, brokers=source.brokers)).merged
    seconds = time.perf_counter() - begun
    # A new topic also has one record without a key in each partition.
    assert merged is not None and (merged.updated if updates else merged.inserted) == keys, merged
    return {"rows/s": keys / seconds / 1e3, "total": seconds, "broker CPU": meter.seconds()}
