"""`txbroker spark load` from txbroker and from Apache Kafka in turn, and what a partition costs.

Both brokers have the same topic. Each round loads it from one broker and then from the other into a new table, in one Spark session. The
second part loads topics with few records in more and more partitions: what a load costs that has hardly any data.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from bench.brokers import KAFKA, TXBROKER, make
from bench.measures import Figure, Outcome, Sample, Settings, Work
from bench.pipeline.sessions import spark_session, started
from bench.process_tree import CpuMeter
from bench.requests import FIRST_TIMESTAMP, BrokerClient
from bench.turns import in_turn
from tests.support.server import Server
from txbroker.spark.load import LoadOptions, load
from txbroker.spark.topic_source import TopicSource
from txbroker.wire.records import Record, build

RECORDS = 2_000_000
PARTITIONS = 4
VALUE_BYTES = 200
BATCH_RECORDS = 500
WARMUP_ROUNDS = 4  # until Spark's JVM has compiled its code
ROUNDS = 2  # in place of one of other measurements: a load takes seconds
_WHAT = f"{RECORDS / 1e6:.0f} million records with values of {VALUE_BYTES} bytes in {PARTITIONS} partitions, into a new {{}} table"
_FIGURES = (
    Figure("rows/s", "thousand/s", target=1.0),
    Figure("MB/s", "MB/s", digits=1),
    Figure("total", "s", less=True, digits=1),
    Figure("broker CPU per GB", "s", less=True, digits=2),
)
LOADS = {form: Work(f"load-{form}", _WHAT.format(name), _FIGURES) for form, name in (("parquet", "Parquet"), ("delta", "Delta"))}
WIDE_FIGURES = (
    Figure("total", "s", less=True, digits=1),
    Figure("per partition", "ms", less=True),
    Figure("broker CPU", "s", less=True, digits=2),
)
WIDE = {
    count: Work(f"partitions-{count}", f"{BATCH_RECORDS} records in each of {count:,} partitions, into a new Parquet table", WIDE_FIGURES)
    for count in (1, 10, 100, 1000)
}


def loads(settings: Settings, directory: Path) -> Iterator[Outcome]:
    """Loads from both brokers, in turn. A short run (`scale` below 1) has the first format only."""
    batches = max(int(RECORDS * settings.scale) // PARTITIONS // BATCH_RECORDS, 1)
    with ExitStack() as stack:
        servers = {name: stack.enter_context(started(make(name, directory / name))) for name in (TXBROKER, KAFKA)}
        sizes = {name: fill(server, "loaded", PARTITIONS, batches) for name, server in servers.items()}
        spark = stack.enter_context(spark_session())
        for form, work in list(LOADS.items())[: 1 if settings.scale < 1 else None]:
            measures = {name: partial(_load_sample, spark, server, form, directory, sizes[name]) for name, server in servers.items()}
            if settings.warmup_s:
                in_turn(Outcome(work), measures, WARMUP_ROUNDS, None)
            outcome = Outcome(work)
            in_turn(outcome, measures, settings.rounds * ROUNDS, None)
            yield outcome


def partitions(settings: Settings, directory: Path) -> Iterator[Outcome]:
    """Loads of more and more partitions from txbroker."""
    with started(make(TXBROKER, directory / "wide")) as server, spark_session() as spark:
        for count, work in WIDE.items():
            if count > max(settings.scale * max(WIDE), 1):
                break
            fill(server, f"wide-{count}", count, 1)
            measure = partial(_wide_sample, spark, server, count, directory)
            if count == min(WIDE) and settings.warmup_s:
                measure()
            outcome = Outcome(work)
            in_turn(outcome, {TXBROKER: measure}, settings.rounds, None)
            yield outcome


def fill(server: Server, topic: str, count: int, batches: int) -> int:
    """A topic of so many partitions, with so many batches in each; its bytes."""
    records = build([Record(n, FIRST_TIMESTAMP + n, b"key-%08d" % n, bytes([97 + n % 26]) * VALUE_BYTES) for n in range(BATCH_RECORDS)])
    with BrokerClient(server.address) as client:
        topic_id = client.create_topic(topic, count)
        for partition in range(count):
            client.append(topic_id, partition, (records for _ in range(batches)))
    return count * batches * len(records)


class _Loaded:
    """A load of a topic into a new table, which is deleted. `read_s`: from the plan to the commit; `total_s`: with plan and check."""

    def __init__(self, spark: Any, server: Server, topic: str, form: str, directory: Path) -> None:
        marks: dict[str, float] = {}
        meter = CpuMeter(server.pid)
        begun = time.perf_counter()
        options = LoadOptions(TopicSource(server.address, [topic]), str(directory / "table"), format=form)
        found = load(spark, options, on_step=lambda step: marks.update({step: time.perf_counter()}))
        self.total_s = time.perf_counter() - begun
        self.read_s = marks["committed"] - marks["created"]
        self.broker_s = meter.seconds()
        self.rows = found.rows
        assert not found.wrong, found.wrong
        shutil.rmtree(directory / "table")


def _load_sample(spark: Any, server: Server, form: str, directory: Path, size: int) -> Sample:
    found = _Loaded(spark, server, "loaded", form, directory)
    return {
        "rows/s": found.rows / found.read_s / 1e3,
        "MB/s": size / found.read_s / 1e6,
        "total": found.total_s,
        "broker CPU per GB": found.broker_s / size * 1e9,
    }


def _wide_sample(spark: Any, server: Server, count: int, directory: Path) -> Sample:
    found = _Loaded(spark, server, f"wide-{count}", "parquet", directory)
    return {"total": found.total_s, "per partition": found.read_s / count * 1e3, "broker CPU": found.broker_s}
