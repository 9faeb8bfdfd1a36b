"""Apache Kafka's ProducerPerformance and ConsumerPerformance on either broker: Java clients with their default settings."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial

from bench.measures import ERRORS, RETRIES, Bench, Figure, Measure, Sample, Settings
from bench.process_tree import CpuMeter
from bench.real import PARTITIONS, PER_BYTE, warm
from bench.topics import new_topic
from tests.support import java
from tests.support.server import Server

RECORDS = {100: 4_000_000, 1024: 600_000}  # by their size in bytes
RECORDS_IN_TRANSACTIONS = 300_000
TIMEOUT_S = 600.0
JAVA_OPTIONS = ("-Xmx512M", "-server", "-XX:+UseG1GC")

_SENT = re.compile(r"^(\d+) records sent, .*?\(([\d.]+) MB/sec\).* 99\.9th\.$", re.MULTILINE)  # with percentiles: of the whole run
_METRIC = r"^producer-metrics:{}:.*: ([\d.]+)$"
_FETCH_RATE_COLUMN = 8  # of ConsumerPerformance's output: fetch.MB.sec
_MIB = 1 << 20


class UnexpectedOutput(Exception):
    """The output of a tool lacks the expected line."""


def _run(tool: str, *arguments: str) -> str:
    return java.run(tool, *arguments, timeout_s=TIMEOUT_S, options=JAVA_OPTIONS)


def _produce(address: str, topic: str, records: int, record_bytes: int, transaction_ms: int = 0) -> Sample:
    """MB/s, errors and retries. `transaction_ms`: the duration of transactions, 0 without them."""
    transactional = ["--transactional-id", topic, "--transaction-duration-ms", str(transaction_ms)] if transaction_ms else []
    sizes = ["--num-records", str(records), "--record-size", str(record_bytes), "--throughput", "-1"]
    text = _run(
        "kafka-producer-perf-test", "--topic", topic, *sizes, "--bootstrap-server", address, *transactional, "--print-metrics"
    )  # fmt: skip
    found = _SENT.search(text)
    if found is None or int(found[1]) != records:
        raise UnexpectedOutput(text[-1000:])
    return {"MB/s": float(found[2]) * _MIB / 1e6, ERRORS: _metric(text, "record-error-total"), RETRIES: _metric(text, "record-retry-total")}


def _metric(text: str, name: str) -> float:
    found = re.search(_METRIC.format(name), text, re.MULTILINE)
    if found is None:
        raise UnexpectedOutput(f"there is no metric {name}: {text[-1000:]}")
    return float(found[1])


def _consume(address: str, topic: str, records: int) -> Sample:
    """MB/s of the time spent fetching."""
    text = _run(
        "kafka-consumer-perf-test",
        "--bootstrap-server",
        address,
        "--topic",
        topic,
        "--num-records",
        str(records),
        "--hide-header",
        "--timeout",
        "20000",
    )
    try:
        return {"MB/s": float(text.strip().rpartition("\n")[2].split(",")[_FETCH_RATE_COLUMN]) * _MIB / 1e6}
    except (IndexError, ValueError) as error:
        raise UnexpectedOutput(text[-1000:]) from error


def _with_cpu(server: Server, work: Callable[[], Sample], payload_bytes: int) -> Sample:
    cpu = CpuMeter(server.pid)
    sample = work()
    return {**sample, "CPU per GB": cpu.seconds() / payload_bytes * 1e9}


def _producing(record_bytes: int, records: int, transaction_ms: int = 0) -> Callable[[Server, Settings], AbstractContextManager[Measure]]:
    @contextmanager
    def ready(server: Server, settings: Settings) -> Iterator[Measure]:
        numbers = itertools.count()  # several brokers may still have the topic that was deleted last
        count = int(records * settings.scale)

        def measure() -> Sample:
            with new_topic(server, f"perf-{record_bytes}-{transaction_ms}-{next(numbers)}", PARTITIONS) as topic:
                work = partial(_produce, server.address, topic.name, count, record_bytes, transaction_ms)
                return _with_cpu(server, work, count * record_bytes)

        warm(measure, settings)
        yield measure

    return ready


def _consuming(record_bytes: int) -> Callable[[Server, Settings], AbstractContextManager[Measure]]:
    @contextmanager
    def ready(server: Server, settings: Settings) -> Iterator[Measure]:
        count = int(RECORDS[record_bytes] * settings.scale)
        with new_topic(server, f"perf-consume-{record_bytes}", PARTITIONS) as topic:
            topic.fill_records(count, record_bytes)

            def measure() -> Sample:
                return _with_cpu(server, partial(_consume, server.address, topic.name, count), count * record_bytes)

            warm(measure, settings)
            yield measure

    return ready


BENCHES = (
    *(
        Bench(f"java-produce-{size}", f"ProducerPerformance, {size}-byte records", PER_BYTE, _producing(size, count))
        for size, count in RECORDS.items()
    ),
    *(
        Bench(
            f"java-consume-{size}",
            f"ConsumerPerformance, {size}-byte records, fetch phase",
            PER_BYTE,
            _consuming(size),
        )
        for size in RECORDS
    ),
    *(
        Bench(
            f"java-transactions-{duration_ms}",
            f"ProducerPerformance, transactions of {duration_ms} ms, 1 KiB records, {PARTITIONS} partitions",
            (Figure("MB/s", "MB/s", target=1.0), Figure("CPU per GB", "s", less=True, digits=1, target=0.6)),
            _producing(1024, RECORDS_IN_TRANSACTIONS, duration_ms),
        )
        for duration_ms in (10, 100)
    ),
)
