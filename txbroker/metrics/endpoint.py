"""The metrics port: /metrics, /healthz and /readyz, open from before the logs are loaded until the broker has stopped."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from prometheus_client.core import Metric
from twisted.internet.defer import Deferred
from twisted.internet.error import CannotListenError

from txbroker.broker.environment import Environment, Instruments
from txbroker.broker.status import Status
from txbroker.config.resolve import BrokerConfig
from txbroker.errors import StartError
from txbroker.metrics import cleaning, groups, partitions, process, refusals, security, tls, traffic, transactions
from txbroker.metrics.families import Piece, gauge, gauges
from txbroker.metrics.host_names import HostNames
from txbroker.metrics.http import HOST_NAMES_KEY, Answer, Pages, text
from txbroker.metrics.reactor_load import ReactorLoad
from txbroker.metrics.scrape import Scrapes
from txbroker.metrics.sources import MetricSources

log = logging.getLogger("txbroker.metrics")

OK, UNAVAILABLE = 200, 503


class MetricsEndpoint:
    """Serves metrics of the process, and of the broker's components once they are added."""

    def __init__(self, config: BrokerConfig, environment: Environment, instruments: Instruments, status: Status) -> None:
        self._host = config.text("txbroker.metrics.host")
        self._port = config.int("txbroker.metrics.port")
        self._labels_max = config.int("txbroker.metrics.labels.max")
        self._environment = environment
        self._instruments = instruments
        self._status = status
        self._sources: MetricSources | None = None
        self._load = ReactorLoad(environment.reactor, environment.monotonic_s, instruments.thread_cpu_s)
        self._system = process.SystemMetrics()
        self._scrapes = Scrapes(environment.reactor, environment.monotonic_s, self._collect)
        pages = {b"/metrics": self._metrics, b"/healthz": self._healthz, b"/readyz": self._readyz}
        names = HostNames(self._host, config.list(HOST_NAMES_KEY))
        self._pages = Pages(environment.reactor, pages, names)
        self._listening: Any = None
        self.address = ("", 0)

    def start(self) -> None:
        """Bind the port; StartError."""
        try:
            self._listening = self._environment.reactor.listenTCP(self._port, self._pages, interface=self._host)
        except CannotListenError as error:
            why = error.socketError.strerror or error.socketError
            raise StartError(
                f"the metrics port cannot be bound on {self._host or '*'}:{self._port}: {why}; stop what uses the port, or correct"
                " txbroker.metrics.port and txbroker.metrics.host"
            ) from error
        self.address = (self._host or "0.0.0.0", self._listening.getHost().port)
        self._load.start()
        log.info("serving metrics on %s", self.url)

    @property
    def url(self) -> str:
        """The address for Prometheus."""
        host, port = self.address
        return f"http://{f'[{host}]' if ':' in host else host}:{port}/metrics"

    def add(self, sources: MetricSources) -> None:
        """Serve the metrics of the broker's components too."""
        self._sources = sources

    async def stop(self) -> None:
        """Close the port and every connection."""
        self._load.stop()
        if self._listening is not None:
            closed = self._listening.stopListening()
            if isinstance(closed, Deferred):
                await closed
        self._pages.abort_all()

    def _healthz(self, accept: str) -> Deferred[Answer]:
        why = self._status.why_not_healthy()
        return text(OK, "ok") if why is None else text(UNAVAILABLE, why)

    def _readyz(self, accept: str) -> Deferred[Answer]:
        why = self._status.why_not_ready()
        return text(OK, "ok") if why is None else text(UNAVAILABLE, why)

    def _metrics(self, accept: str) -> Deferred[Answer]:
        content_type, made = self._scrapes.scrape(accept)
        return made.addCallback(lambda parts: Answer(OK, content_type, parts))

    def _collect(self) -> Deferred[Iterator[Piece]]:
        return self._environment.in_worker(self._system.read).addCallback(self._pieces)

    def _pieces(self, system: list[Metric]) -> Iterator[Piece]:
        yield from process.build()
        yield from process.system(system)
        yield from process.reactor(self._load)
        yield from process.workers(self._instruments)
        yield from process.syncs(self._instruments)
        documentation = "State of the broker: 1 starting, 2 loading logs, 3 running, 6 stopping"
        yield from gauge("kafka_server_kafkaserver_brokerstate", documentation, self._status.phase.value)
        sources, labels_max = self._sources, self._labels_max
        if sources is None:
            return
        yield from refusals.refusals(sources)
        yield from tls.tls(sources)
        yield from security.security(sources)
        yield from traffic.requests(sources)
        yield from traffic.connections(sources)
        yield from traffic.waiting(sources)
        yield from partitions.replicas(sources)
        yield from partitions.controller(sources)
        yield from partitions.zookeeper(sources)
        yield from partitions.failover(sources)
        yield from partitions.directories(sources)
        yield from cleaning.cleaner(sources)
        yield from groups.states(sources)
        yield from transactions.states(sources)
        yield from transactions.load_times(sources)
        left_out = [*partitions.left_out(sources, labels_max), *groups.left_out(sources, labels_max)]
        documentation = "Number of items left out of labelled metrics by txbroker.metrics.labels.max, by kind"
        yield from gauges("txbroker_metrics_left_out", documentation, left_out)
        yield from traffic.topics(sources, labels_max)
        yield from partitions.cluster(sources, labels_max)
        yield from partitions.logs(sources, labels_max)
        yield from cleaning.partitions(sources, labels_max)
        yield from partitions.retention(sources, labels_max)
        yield from groups.consumers(sources, labels_max)
