"""Metrics of client traffic: topics, requests, connections, waiting requests."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from itertools import chain, islice

from txbroker.api.request_counts import SAMPLED_ONE_IN, SAMPLES_KEPT
from txbroker.cluster.topic_counts import TopicCounts
from txbroker.errors import error_name
from txbroker.metrics.families import Piece, Sample, counter, counters, gathered, gauge, gauges, labels, quantiles, untyped
from txbroker.metrics.sources import MetricSources

_TOPIC_COUNTS: tuple[tuple[str, str, Callable[[TopicCounts], int]], ...] = (
    ("messagesin", "Records appended by this broker as leader", lambda counts: counts.messages_in),
    ("bytesin", "Size of record batches appended by this broker as leader, in bytes", lambda counts: counts.bytes_in),
    ("bytesout", "Size of record batches in fetch responses, in bytes", lambda counts: counts.bytes_out),
    ("bytesrejected", "Size of record batches refused for their size, in bytes", lambda counts: counts.bytes_rejected),
    ("totalproducerequests", "Produce requests, counted for each partition, including failed ones", lambda counts: counts.produce_requests),
    ("totalfetchrequests", "Fetch requests, counted for each partition, including failed ones",
     lambda counts: counts.fetch_requests),
    ("failedproducerequests", "Failed produce requests for each partition, except for wrong leader, size, checksum or disk errors",
     lambda counts: counts.failed_produce_requests),
    ("failedfetchrequests", "Failed fetch requests for each partition, except for wrong leader, offset or disk errors",
     lambda counts: counts.failed_fetch_requests),
)
# Kafka counts consumers' fetches under this name too; followers do not fetch from this broker.
_ALSO = {"Fetch": "FetchConsumer"}


def topics(sources: MetricSources, labels_max: int) -> Iterator[Piece]:
    """kafka.server:type=BrokerTopicMetrics, for each topic, and without a label for all topics."""
    by_topic, together = sources.replicas.counts()
    rows: list[tuple[str, TopicCounts]] = []
    yield from gathered(((labels(topic=topic), counts) for topic, counts in islice(by_topic.items(), labels_max)), rows)
    for name, documentation, value in _TOPIC_COUNTS:
        samples = ((text, value(counts)) for text, counts in chain([("", together)], rows))
        yield from counters(f"kafka_server_brokertopicmetrics_{name}", documentation, samples)


def requests(sources: MetricSources) -> Iterator[Piece]:
    """kafka.network:type=RequestMetrics."""
    registry = sources.registry

    def names(api_key: int) -> list[str]:
        name = registry.name(api_key)
        return [name, _ALSO[name]] if name in _ALSO else [name]

    routes = sorted(registry.routes.values(), key=lambda route: (route.api_key, route.api_version))
    totals: dict[str, int] = {}
    rows: list[Sample] = []
    for route in routes:
        for name in names(route.api_key):
            rows.append((labels(request=name, version=str(route.api_version)), route.requests))
            totals[name] = totals.get(name, 0) + route.requests
    yield from counters("kafka_network_requestmetrics_requests", "Requests, by API and version", sorted(rows))
    errors = [
        (labels(request=name, error=error_name(code)), count)
        for key, of_api in sorted(registry.errors.items())
        for code, count in sorted(of_api.items())
        for name in names(key)
    ]
    yield from counters(
        "kafka_network_requestmetrics_errors",
        "Errors in responses, counted for each topic or partition; without NONE",
        sorted(errors),
    )
    times = {name: times for key, times in registry.times.items() for name in names(key)}
    yield from gauges(
        "kafka_network_requestmetrics_totaltimems",
        "Time from the receipt of a request to its response in milliseconds, quantiles of the last"
        f" {SAMPLES_KEPT} measured requests (one in {SAMPLED_ONE_IN} of each API and version)",
        (sample for name in sorted(times) for sample in quantiles(times[name].latest, 1000, request=name)),
    )
    yield from untyped(
        "kafka_network_requestmetrics_totaltimems_count",
        "Number of requests, by API",
        [(labels(request=name), total) for name, total in sorted(totals.items())],
    )


def connections(sources: MetricSources) -> Iterator[Piece]:
    """kafka.server:type=socket-server-metrics and kafka.network:type=SocketServer; the reactor is the only network processor."""
    hub = sources.hub
    here = hub.by_listener()
    prefix = "kafka_server_socket_server_metrics"
    yield from gauges(
        f"{prefix}_connection_count", "Open connections, by listener",
        [(labels(listener=name, networkProcessor="0"), here[name]) for name in sources.listeners],
    )
    quotas = hub.quotas
    yield from counter(f"{prefix}_connection_creation", "Accepted connections", quotas.accepted)
    yield from counter(f"{prefix}_connection_close", "Closed connections", quotas.accepted - quotas.count)
    buffers = hub.buffers
    budget = buffers.budget
    documentation = "Memory used by large requests that are being received, in bytes"
    yield from gauge("kafka_network_socketserver_memorypoolused", documentation, buffers.reserved)
    yield from gauge(
        "kafka_network_socketserver_memorypoolavailable",
        "Memory available for large requests that are being received, in bytes (queued.max.request.bytes)",
        max(budget - buffers.reserved, 0) if budget >= 0 else sys.maxsize,
    )


def waiting(sources: MetricSources) -> Iterator[Piece]:
    """kafka.server:type=DelayedOperationPurgatory and type=FetchSessionCache."""
    sizes: list[Sample] = [(labels(delayedOperation=name), len(purgatory)) for name, purgatory in sources.purgatories.items()]
    prefix = "kafka_server_delayedoperationpurgatory"
    yield from gauges(f"{prefix}_purgatorysize", "Requests waiting in the purgatory", sizes)
    yield from gauges(f"{prefix}_numdelayedoperations", "Requests waiting in the purgatory", sizes)
    sessions, prefix = sources.sessions, "kafka_server_fetchsessioncache"
    yield from gauge(f"{prefix}_numincrementalfetchsessions", "Incremental fetch sessions", len(sessions))
    yield from gauge(f"{prefix}_numincrementalfetchpartitionscached", "Partitions in all incremental fetch sessions", sessions.partitions)
    yield from counter(f"{prefix}_incrementalfetchsessionevictions", "Incremental fetch sessions evicted from the cache", sessions.evicted)
