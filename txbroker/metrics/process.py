"""The process: what prometheus-client tells of it and of Python, the reactor, the workers, syncs."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import Metric

from txbroker import __version__
from txbroker.broker.world import Instruments
from txbroker.log.disk import SYNCS_KEPT
from txbroker.metrics.families import Piece, Sample, counters, gauge, gauges, labels, quantiles, untyped
from txbroker.metrics.turns import SAMPLES_KEPT, Turns

_LATENESS = {"0.5": 0.5, "0.99": 0.99, "1": 1.0}


class SystemMetrics:
    """process_*, python_gc_* and python_info. Reads /proc, which takes long where many files are open: for a worker."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        for collector in (ProcessCollector, GCCollector, PlatformCollector):
            collector(registry=self._registry)

    def read(self) -> list[Metric]:
        """Every family."""
        return list(self._registry.collect())


def system(metrics: list[Metric]) -> Iterator[Piece]:
    """What a worker has read."""
    return (Piece(metric, "") for metric in metrics)


def reactor(turns: Turns) -> Iterator[Piece]:
    """The one thread that serves: it is Kafka's network processors and request handlers in one."""
    yield from gauges(
        "txbroker_reactor_lateness_seconds",
        f"How late a timer fired, tried once a second, of the last {SAMPLES_KEPT} times: as long as others keep the reactor busy",
        quantiles(turns.lateness, 1, _LATENESS),
    )
    documentation = "The part of the last second in which the reactor's thread, which is all that Kafka has threads for, did not compute"
    for name in (
        "kafka_network_socketserver_networkprocessoravgidlepercent",
        "kafka_network_socketserver_networkprocessoravgidle_percent",
        "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent",
        "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
    ):
        yield from gauge(name, documentation, turns.idle)


def workers(instruments: Instruments) -> Iterator[Piece]:
    """Threads that wait for the disk, so that the reactor need not."""
    pools = sorted(instruments.pools.items())
    waiting: list[Sample] = [(labels(pool=name), max(pool.unfinished - pool.threads, 0)) for name, pool in pools]
    yield from gauges("txbroker_workers_waiting", "Jobs that wait for a thread", waiting)
    running: list[Sample] = [(labels(pool=name), min(pool.unfinished, pool.threads)) for name, pool in pools]
    yield from gauges("txbroker_workers_running", "Jobs that a thread has", running)
    threads: list[Sample] = [(labels(pool=name), pool.threads) for name, pool in pools]
    yield from gauges("txbroker_workers_threads", "Threads that a pool may have", threads)
    begun: list[Sample] = [(labels(pool=name), pool.begun) for name, pool in pools]
    yield from counters("txbroker_workers_jobs", "Jobs that were given to a pool", begun)


def syncs(instruments: Instruments) -> Iterator[Piece]:
    """kafka.log:type=LogFlushStats."""
    name = "kafka_log_logflushstats_logflushrateandtimems"
    times = instruments.syncs
    documentation = f"Milliseconds that syncs of segments took, of the last {SYNCS_KEPT}"
    yield from gauges(name, documentation, quantiles(tuple(times.latest), 1000))
    yield from untyped(f"{name}_count", "Syncs of segments", [("", times.count)])


def build() -> Iterator[Piece]:
    """Which program this is."""
    return gauges("txbroker_build_info", "The version of this broker", [(labels(version=__version__), 1)])
