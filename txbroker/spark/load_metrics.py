"""The metrics of `load --every` for Prometheus, and whether it is ready, on an HTTP port of its own.

    /metrics  counters of the rounds, and the lag: brokers are asked for it when it is scraped, at most every `LAG_S`
    /ready    200 once a round has succeeded and as long as the last one has, otherwise 503 with the reason
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder

from txbroker.client.client_errors import ClientError
from txbroker.console.failures import CommandFailed
from txbroker.names import TopicPartition
from txbroker.spark.load import LoadReport
from txbroker.spark.snapshot import Snapshot

LAG_S = 5.0


class LoadMetrics:
    """Of one loop. Rounds come from the thread that loads, scrapes from others. `newest` asks the brokers for the offsets of now."""

    def __init__(self, newest: Callable[[], Snapshot], now_s: Callable[[], float]) -> None:
        self._newest = newest
        self._now_s = now_s
        self._lock = Lock()
        self._asking = Lock()
        self._began_s = 0.0
        self._loaded: Mapping[TopicPartition, int] = {}  # up to where the table has each partition
        self._loaded_s = 0.0
        self._problem = "no round has ended yet"
        self._asked: Snapshot | None = None
        self._asked_s = 0.0
        self.registry = CollectorRegistry()
        self._commits = self._counter("commits", "Rounds that have committed rows.")
        self._rounds = self._counter("rounds", "Rounds that have ended, also those that found nothing new.")
        self._retries = self._counter("retries", "Rounds in which no broker could be reached. The next one tries again.")
        self._rows = self._counter("rows", "Rows that were committed and checked.")
        self._undecodable = self._counter("undecodable_rows", "Rows whose value could not be decoded.")
        self._wrong = self._counter("wrong_ranges", "Ranges of offsets with lost or doubled records.")
        self.registry.register(self)

    def _counter(self, name: str, description: str) -> Counter:
        return Counter(f"txbroker_load_{name}", description, registry=self.registry)

    def began(self) -> None:
        """A round begins."""
        self._began_s = self._now_s()

    def ended(self, report: LoadReport) -> None:
        """It has succeeded."""
        self._rounds.inc()
        self._commits.inc(1 if report.loaded else 0)
        self._rows.inc(report.rows)
        self._undecodable.inc(report.undecodable)
        self._wrong.inc(len(report.wrong))
        with self._lock:
            self._loaded, self._loaded_s, self._problem = _ends(report.snapshot), self._began_s, ""

    def unreachable(self, problem: str) -> None:
        """It has not reached a broker."""
        self._retries.inc()
        with self._lock:
            self._problem = problem

    def problem(self) -> str:
        """Why it is not ready; empty if it is."""
        with self._lock:
            return self._problem

    def describe(self) -> list[GaugeMetricFamily]:
        """The families that `collect` may return, without samples."""
        return [
            GaugeMetricFamily("txbroker_load_complete_timestamp_seconds", "When the table had all offsets, by the last round."),
            GaugeMetricFamily("txbroker_load_lag_records", "Offsets that the table does not have yet.", labels=("topic", "partition")),
            GaugeMetricFamily("txbroker_load_lag_seconds", "For how long there may have been offsets that the table does not have."),
        ]

    def collect(self) -> Iterator[Metric]:
        """The lag, and when the table was complete; no lag while brokers cannot be asked."""
        with self._lock:
            loaded, loaded_s = self._loaded, self._loaded_s
        if not loaded_s:
            return
        with self._asking:
            newest = self._newest_ends()
        complete, records, seconds = self.describe()
        complete.add_metric((), loaded_s)
        yield complete
        if newest is not None:
            lags = {partition: max(0, end - loaded.get(partition, 0)) for partition, end in newest.items()}
            for (topic, index), lag in sorted(lags.items()):
                records.add_metric((topic, str(index)), lag)
            seconds.add_metric((), max(0.0, self._now_s() - loaded_s) if any(lags.values()) else 0.0)
            yield records
            yield seconds

    def _newest_ends(self) -> Mapping[TopicPartition, int] | None:
        if self._asked is None or not 0 <= self._now_s() - self._asked_s < LAG_S:
            try:
                self._asked = self._newest()
            except (ClientError, CommandFailed):
                return None
            self._asked_s = self._now_s()
        return _ends(self._asked)


def _ends(snapshot: Snapshot) -> Mapping[TopicPartition, int]:
    return {TopicPartition(topic.name, index): found.end for topic in snapshot.topics for index, found in topic.partitions.items()}


class _Handler(BaseHTTPRequestHandler):
    metrics: LoadMetrics
    timeout = 10  # seconds; of a client that sends nothing

    def do_GET(self) -> None:
        """Answer one request."""
        path = self.path.partition("?")[0]
        if path == "/metrics":
            encode, content_type = choose_encoder(self.headers.get("Accept", ""))
            self._respond(200, content_type, encode(self.metrics.registry))
        elif path == "/ready":
            problem = self.metrics.problem()
            self._respond(503 if problem else 200, "text/plain; charset=utf-8", f"{problem or 'ready'}\n".encode())
        else:
            self._respond(404, "text/plain; charset=utf-8", b"/metrics and /ready are here\n")

    def _respond(self, status: int, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Requests are not logged."""


class _Server(ThreadingHTTPServer):
    allow_reuse_address = os.name == "posix"  # on Windows it would share a port that is in use


class _ServerV6(_Server):
    address_family = socket.AF_INET6


def serve(metrics: LoadMetrics, *addresses: tuple[str, int]) -> list[ThreadingHTTPServer]:
    """Serve them until the process ends, or `shutdown`; CommandFailed if an address cannot be used. Port 0: any free one."""
    handler = type("Handler", (_Handler,), {"metrics": metrics})
    servers: list[ThreadingHTTPServer] = []
    for host, port in addresses:
        try:
            servers.append((_ServerV6 if ":" in host else _Server)((host, port), handler))
        except OSError as error:
            raise CommandFailed(f"cannot listen on {host}:{port} ({error.strerror or error}); specify another --metrics") from error
    for server in servers:
        Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return servers
