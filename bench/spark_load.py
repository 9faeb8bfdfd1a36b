"""`python -m bench.spark_load`: `txbroker spark load` from txbroker and from Apache Kafka, in turn, and the cost of a partition.

Both brokers have the same topic. Each round loads it from one broker and then from the other into a new table, on one Spark session. The
second part loads topics of few records in more and more partitions: what a load costs that has hardly any data.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from bench import report
from bench.brokers import KAFKA, TXBROKER, CpuMeter, make
from bench.requests import FIRST_TIMESTAMP, BrokerClient
from tests.support import cache
from tests.support.server import Server
from txbroker.spark.load import LoadOptions, load
from txbroker.spark.session import open_session
from txbroker.spark.topic_source import TopicSource
from txbroker.wire.records import Record, build

HERE = Path(__file__).resolve().parent
PARTITIONS = 4
VALUE_BYTES = 200
BATCH_RECORDS = 500
FORMATS = ("parquet", "delta")


class Loaded(NamedTuple):
    """One load. `read_s`: until the commit; `total_s`: with plan and check. `broker_s`: CPU of the broker."""

    rows: int
    read_s: float
    total_s: float
    broker_s: float


def batch() -> bytes:
    """Records as a producer sends them, without compression."""
    return build([Record(n, FIRST_TIMESTAMP + n, b"key-%08d" % n, bytes([97 + n % 26]) * VALUE_BYTES) for n in range(BATCH_RECORDS)])


def fill(server: Server, topic: str, partitions: int, batches: int) -> int:
    """A topic with so many batches in each partition; its bytes."""
    records = batch()
    with BrokerClient(server.address) as client:
        topic_id = client.create_topic(topic, partitions)
        for partition in range(partitions):
            client.append(topic_id, partition, (records for _ in range(batches)))
    return partitions * batches * len(records)


def measure(spark: Any, server: Server, topic: str, form: str, directory: Path) -> Loaded:
    """Load a topic into a new table."""
    marks: dict[str, float] = {}
    meter = CpuMeter(server.pid)
    begun = time.perf_counter()
    options = LoadOptions(TopicSource(server.address, [topic]), str(directory / "table"), format=form)
    found = load(spark, options, on_step=lambda step: marks.update({step: time.perf_counter()}))
    total_s = time.perf_counter() - begun
    assert not found.wrong
    shutil.rmtree(directory / "table")
    return Loaded(found.rows, marks["committed"] - marks["created"], total_s, meter.seconds())


def throughput(
    spark: Any, servers: dict[str, Server], formats: Sequence[str], records: int, rounds: int, directory: Path, tell: Callable[[str], None]
) -> Iterator[str]:
    """The rows of the table of loads in turn."""
    batches = max(records // PARTITIONS // BATCH_RECORDS, 1)
    size = {name: fill(server, "loaded", PARTITIONS, batches) for name, server in servers.items()}[TXBROKER]
    for form in formats:
        samples: dict[str, list[Loaded]] = {name: [] for name in servers}
        for number in range(rounds + 1):
            for name, server in servers.items():
                found = measure(spark, server, "loaded", form, directory)
                tell(f"{form}, {name}: {found.rows / found.read_s:,.0f} rows/s")
                if number:  # the first ones load classes
                    samples[name].append(found)
        for name, loads in samples.items():
            read_s = median(one.read_s for one in loads)
            rows = loads[0].rows
            yield (f"| {form} | {name} | {rows / read_s:,.0f} | {size / read_s / 1e6:.1f} | {median(one.total_s for one in loads):.1f} "
                   f"| {median(one.broker_s for one in loads):.2f} |")  # fmt: skip


def partition_costs(spark: Any, server: Server, counts: Sequence[int], directory: Path, tell: Callable[[str], None]) -> Iterator[str]:
    """The rows of the table of topics with one batch in each partition."""
    for count in counts:
        fill(server, f"wide-{count}", count, 1)
        found = measure(spark, server, f"wide-{count}", "parquet", directory)
        tell(f"{count} partitions: {found.total_s:.1f} s")
        yield f"| {count:,} | {found.total_s:.1f} | {1000 * found.read_s / count:.0f} | {found.broker_s:.2f} |"


def main() -> int:
    """Print the tables, and write SPARK.md with --results."""
    parser = argparse.ArgumentParser(prog="python -m bench.spark_load", description=__doc__.split("\n\n")[0])
    parser.add_argument("--formats", choices=FORMATS, nargs="*", default=FORMATS, help="of the tables; none leaves this part out")
    parser.add_argument("--records", type=int, default=2_000_000, help="of the topic that is loaded (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="loads from each broker into each format (%(default)s)")
    parser.add_argument("--partitions", type=int, nargs="*", default=[1, 10, 100, 1000], help="of the topics with few records")
    parser.add_argument("--results", action="store_true", help="write bench/SPARK.md")
    arguments = parser.parse_args()
    sys.path.append(str(cache.pyspark()))
    cache.jars(cache.SPARK)

    def tell(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    directory = Path(tempfile.mkdtemp(prefix="bench-spark-"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        servers = {name: make(name, directory / name) for name in (TXBROKER, KAFKA)}
        for server in servers.values():
            stack.callback(server.close)
            server.start()
        spark = open_session("local[*]", cache.jar_directory(cache.SPARK), delta=True)
        stack.callback(spark.stop)
        loads = list(throughput(spark, servers, arguments.formats, arguments.records, arguments.rounds, directory, tell))
        wide = list(partition_costs(spark, servers[TXBROKER], arguments.partitions, directory, tell))
    text = TEXT.format(facts=report.facts(), records=arguments.records, rounds=arguments.rounds, value_bytes=VALUE_BYTES,
                       batch_records=BATCH_RECORDS, partitions=PARTITIONS, loads="\n".join(loads), wide="\n".join(wide))  # fmt: skip
    print(text)
    if arguments.results:
        (HERE / "SPARK.md").write_text(text)
    return 0


TEXT = """\
# Loads with Spark

`python -m bench.spark_load --results` writes this page. {facts}

## From txbroker and from Apache Kafka

{records:,} records with values of {value_bytes} bytes, in batches of {batch_records} and {partitions} partitions, into a new table on
`local[*]`, from both brokers in turn: the median of {rounds} loads. Rows and bytes (of the log) per second are those from the first
task to the commit; the total has the plan and the check of gaps as well.

| table | broker | rows/s | MB/s | total, s | CPU of the broker, s |
|---|---|---|---|---|---|
{loads}

## The cost of a partition

Topics with {batch_records} records in each partition, from txbroker into a Parquet table. One task reads one partition.

| partitions | total, s | ms per partition until the commit | CPU of the broker, s |
|---|---|---|---|
{wide}
"""


if __name__ == "__main__":
    sys.exit(main())
