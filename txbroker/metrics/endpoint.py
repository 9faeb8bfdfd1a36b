"""The metrics port of one broker: /metrics, /healthz, /readyz, from before the logs are loaded until the process is about to end."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from prometheus_client.core import Metric
from twisted.internet.defer import Deferred
from twisted.internet.error import CannotListenError

from txbroker.broker.status import Status
from txbroker.broker.world import Instruments, World
from txbroker.config.resolve import BrokerConfig
from txbroker.errors import StartError
from txbroker.metrics import cleaning, groups, partitions, process, refusals, traffic
from txbroker.metrics.families import Piece, gauge, gauges
from txbroker.metrics.http import Answer, Pages, text
from txbroker.metrics.scrape import Scrapes
from txbroker.metrics.turns import Turns
from txbroker.metrics.watched import Watched

log = logging.getLogger("txbroker.metrics")

OK, UNAVAILABLE = 200, 503


class MetricsEndpoint:
    """Tells what it is given to `watch`; before that only what the process itself has to tell."""

    def __init__(self, config: BrokerConfig, world: World, instruments: Instruments, status: Status) -> None:
        self._host = config.text("txbroker.metrics.host")
        self._port = config.int("txbroker.metrics.port")
        self._labels_max = config.int("txbroker.metrics.labels.max")
        self._world = world
        self._instruments = instruments
        self._status = status
        self._watched: Watched | None = None
        self._turns = Turns(world.reactor, world.monotonic_s, instruments.thread_cpu_s)
        self._system = process.SystemMetrics()
        self._scrapes = Scrapes(world.reactor, world.monotonic_s, self._collect)
        pages = {b"/metrics": self._metrics, b"/healthz": self._healthz, b"/readyz": self._readyz}
        self._pages = Pages(world.reactor, pages)
        self._listening: Any = None
        self.address = ("", 0)

    def start(self) -> None:
        """Take the port; StartError."""
        try:
            self._listening = self._world.reactor.listenTCP(self._port, self._pages, interface=self._host)
        except CannotListenError as error:
            why = error.socketError.strerror or error.socketError
            raise StartError(
                f"the metrics port cannot be opened on {self._host or '*'}:{self._port}: {why}; stop what uses the port, or correct"
                " txbroker.metrics.port and txbroker.metrics.host"
            ) from error
        self.address = (self._host or "0.0.0.0", self._listening.getHost().port)
        self._turns.start()
        log.info("metrics are served on %s", self.url)

    @property
    def url(self) -> str:
        """Where Prometheus finds them."""
        host, port = self.address
        return f"http://{f'[{host}]' if ':' in host else host}:{port}/metrics"

    def watch(self, watched: Watched) -> None:
        """The broker's parts are there."""
        self._watched = watched

    async def stop(self) -> None:
        """Close the port and every connection."""
        self._turns.stop()
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
        return self._world.in_worker(self._system.read).addCallback(self._pieces)

    def _pieces(self, system: list[Metric]) -> Iterator[Piece]:
        yield from process.build()
        yield from process.system(system)
        yield from process.reactor(self._turns)
        yield from process.workers(self._instruments)
        yield from process.syncs(self._instruments)
        yield from gauge("kafka_server_kafkaserver_brokerstate", "1 starting, 2 loading, 3 running, 6 stopping", self._status.phase.value)
        watched, labels_max = self._watched, self._labels_max
        if watched is None:
            return
        yield from refusals.refusals(watched)
        yield from traffic.requests(watched)
        yield from traffic.connections(watched)
        yield from traffic.waiting(watched)
        yield from partitions.replicas(watched)
        yield from partitions.controller(watched)
        yield from partitions.directories(watched)
        yield from cleaning.cleaner(watched)
        yield from groups.states(watched)
        left_out = [*partitions.left_out(watched, labels_max), *groups.left_out(watched, labels_max)]
        documentation = "What is too much to be told each on its own (txbroker.metrics.labels.max)"
        yield from gauges("txbroker_metrics_left_out", documentation, left_out)
        yield from traffic.topics(watched, labels_max)
        yield from partitions.cluster(watched, labels_max)
        yield from partitions.logs(watched, labels_max)
        yield from cleaning.partitions(watched, labels_max)
        yield from partitions.retention(watched, labels_max)
        yield from groups.consumers(watched, labels_max)
