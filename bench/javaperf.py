"""Apache Kafka's ProducerPerformance and ConsumerPerformance on either broker: throughput with the Java client."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from bench.brokers import CpuMeter
from bench.measures import Bench, Figure, Measure, Sample, Settings
from bench.requests import BrokerClient
from tests.support import java
from tests.support.server import Server

RECORDS_SMALL = 4_000_000
RECORDS_KIB = 600_000
RECORDS_IN_TRANSACTIONS = 300_000
TIMEOUT_S = 600.0
JAVA_OPTIONS = ("-Xmx512M", "-server", "-XX:+UseG1GC")

_SENT = re.compile(r"(\d+) records sent, .*?\(([\d.]+) MB/sec\)")
_FETCH_RATE_COLUMN = 8  # of ConsumerPerformance's output: fetch.MB.sec


class UnexpectedOutput(Exception):
    """The output of a tool lacks the expected line."""


def _run(tool: str, *arguments: str) -> str:
    return java.run(tool, *arguments, timeout_s=TIMEOUT_S, options=JAVA_OPTIONS)


def _produce(address: str, topic: str, records: int, record_bytes: int, batch_bytes: int, transaction_ms: int = 0) -> float:
    """MiB per second. `transaction_ms`: the duration of transactions, 0 without them."""
    transactional = ["--transactional-id", topic, "--transaction-duration-ms", str(transaction_ms)] if transaction_ms else []
    text = _run(
        "kafka-producer-perf-test",
        "--topic",
        topic,
        "--num-records",
        str(records),
        "--record-size",
        str(record_bytes),
        "--throughput",
        "-1",
        "--bootstrap-server",
        address,
        *transactional,
        "--command-property",
        "acks=all" if transactional else "acks=1",
        "linger.ms=10",
        f"batch.size={batch_bytes}",
        "buffer.memory=67108864",
    )
    found = _SENT.match(text.strip().rpartition("\n")[2])
    if found is None or int(found[1]) != records:
        raise UnexpectedOutput(text[-1000:])
    return float(found[2])


def _consume(address: str, topic: str, records: int) -> float:
    """MiB per second of the time spent fetching."""
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
        return float(text.strip().rpartition("\n")[2].split(",")[_FETCH_RATE_COLUMN])
    except (IndexError, ValueError) as error:
        raise UnexpectedOutput(text[-1000:]) from error


def _sample(cpu: CpuMeter, rate: float, payload_bytes: int) -> Sample:
    return {"MiB/s": rate, "CPU per GB": cpu.seconds() / payload_bytes * 1e9}


def _producing(
    record_bytes: int, records: int, partitions: int, batch_bytes: int, transaction_ms: int = 0
) -> Callable[[Server, Settings], AbstractContextManager[Measure]]:
    @contextmanager
    def ready(server: Server, settings: Settings) -> Iterator[Measure]:
        name = f"perf-{record_bytes}-{batch_bytes}-{transaction_ms}"
        count = int(records * settings.scale)

        def measure() -> Sample:
            with BrokerClient(server.address) as client:
                client.create_topic(name, partitions)
                cpu = CpuMeter(server.pid)
                rate = _produce(server.address, name, count, record_bytes, batch_bytes, transaction_ms)
                sample = _sample(cpu, rate, count * record_bytes)
                client.delete_topic(name)
            return sample

        measure()
        yield measure

    return ready


@contextmanager
def _consuming(server: Server, settings: Settings) -> Iterator[Measure]:
    name, size = "perf-consume", 1024
    count = int(RECORDS_KIB * settings.scale)
    with BrokerClient(server.address) as client:
        client.create_topic(name, 6)
        _produce(server.address, name, count, size, 131072)

        def measure() -> Sample:
            cpu = CpuMeter(server.pid)
            return _sample(cpu, _consume(server.address, name, count), count * size)

        measure()
        try:
            yield measure
        finally:
            client.delete_topic(name)


def _figures(target: float, digits: int = 1) -> tuple[Figure, ...]:
    return (
        Figure("MiB/s", "MiB/s", target=target),
        Figure("CPU per GB", "s", less=True, digits=digits, target=0.6),
    )


BENCHES = (
    Bench(
        "java-100-131072",
        "ProducerPerformance, 100-byte records, 1 partition, batch.size 131072",
        _figures(1.1),
        _producing(100, RECORDS_SMALL, 1, 131072),
    ),
    Bench("java-100-16384", "the same, batch.size 16384", _figures(1.1), _producing(100, RECORDS_SMALL, 1, 16384)),
    Bench(
        "java-1024-131072",
        "ProducerPerformance, 1 KiB records, 6 partitions, batch.size 131072",
        _figures(1.1),
        _producing(1024, RECORDS_KIB, 6, 131072),
    ),
    *(
        Bench(
            f"java-transactions-{duration_ms}",
            f"ProducerPerformance, transactions of {duration_ms} ms with acks=all, 1 KiB records, 6 partitions, batch.size 16384",
            _figures(1.0),
            _producing(1024, RECORDS_IN_TRANSACTIONS, 6, 16384, duration_ms),
        )
        for duration_ms in (10, 100)
    ),
    Bench("java-consume", "ConsumerPerformance, 1 KiB records, 6 partitions, fetch phase", _figures(1.0, 2), _consuming),
)
