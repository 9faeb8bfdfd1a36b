"""Metrics of the process: those of prometheus-client, the reactor, the workers, and syncs."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import Metric

from txbroker import __version__
from txbroker.broker.environment import Instruments
from txbroker.build_info import commit
from txbroker.log.os_disk import SYNCS_KEPT
from txbroker.metrics.families import Piece, Sample, counters, gauge, gauges, labels, quantiles, untyped
from txbroker.metrics.reactor_load import SAMPLES_KEPT, ReactorLoad

_LATENESS = {"0.5": 0.5, "0.99": 0.99, "1": 1.0}


class SystemMetrics:
    """process_*, python_gc_* and python_info. It reads /proc, which is slow with many open files, so run it in a worker."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        for collector in (ProcessCollector, GCCollector, PlatformCollector):
            collector(registry=self._registry)

    def read(self) -> list[Metric]:
        """All families."""
        return list(self._registry.collect())


def system(metrics: list[Metric]) -> Iterator[Piece]:
    """The families that a worker has read."""
    return (Piece(metric, "") for metric in metrics)


def reactor(load: ReactorLoad) -> Iterator[Piece]:
    """The reactor's thread, which does the work of Kafka's network processors and request handlers."""
    yield from gauges(
        "txbroker_reactor_lateness_seconds",
        f"Lateness of a timer that fires once a second, in seconds, quantiles of the last {SAMPLES_KEPT}",
        quantiles(load.lateness, 1, _LATENESS),
    )
    documentation = "Idle part of the reactor's thread in the last second, from 0 to 1"
    for name in (
        "kafka_network_socketserver_networkprocessoravgidlepercent",
        "kafka_network_socketserver_networkprocessoravgidle_percent",
        "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent",
        "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
    ):
        yield from gauge(name, documentation, load.idle)


def workers(instruments: Instruments) -> Iterator[Piece]:
    """The thread pools for blocking work."""
    pools = sorted(instruments.pools.items())
    waiting: list[Sample] = [(labels(pool=name), max(pool.unfinished - pool.threads, 0)) for name, pool in pools]
    yield from gauges("txbroker_workers_waiting", "Jobs that wait for a thread of the pool", waiting)
    running: list[Sample] = [(labels(pool=name), min(pool.unfinished, pool.threads)) for name, pool in pools]
    yield from gauges("txbroker_workers_running", "Jobs that are running in the pool", running)
    threads: list[Sample] = [(labels(pool=name), pool.threads) for name, pool in pools]
    yield from gauges("txbroker_workers_threads", "Maximum number of threads of the pool", threads)
    begun: list[Sample] = [(labels(pool=name), pool.begun) for name, pool in pools]
    yield from counters("txbroker_workers_jobs", "Jobs given to the pool", begun)


def syncs(instruments: Instruments) -> Iterator[Piece]:
    """kafka.log:type=LogFlushStats."""
    name = "kafka_log_logflushstats_logflushrateandtimems"
    times = instruments.syncs
    documentation = f"Duration of syncs (fsync) of segments in milliseconds, quantiles of the last {SYNCS_KEPT}"
    yield from gauges(name, documentation, quantiles(tuple(times.latest), 1000))
    yield from untyped(f"{name}_count", "Number of syncs of segments", [("", times.count)])


def build() -> Iterator[Piece]:
    """The version and the commit."""
    documentation = "Version of txbroker, and the commit that it was built from (unknown: neither git nor the build says it)"
    return gauges("txbroker_build_info", documentation, [(labels(version=__version__, commit=commit()), 1)])
