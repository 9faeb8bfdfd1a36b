"""What clients sent and were sent: topics, requests, connections, what waits for something."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from itertools import chain, islice

from txbroker.api.request_counts import SAMPLED_ONE_IN, SAMPLES_KEPT
from txbroker.cluster.topic_counts import TopicCounts
from txbroker.errors import error_name
from txbroker.metrics.families import Piece, Sample, counter, counters, gathered, gauge, gauges, labels, quantiles, untyped
from txbroker.metrics.watched import Watched

_TOPIC_COUNTS: tuple[tuple[str, str, Callable[[TopicCounts], int]], ...] = (
    ("messagesin", "Records appended by this broker as leader", lambda counts: counts.messages_in),
    ("bytesin", "Bytes of record batches appended by this broker as leader", lambda counts: counts.bytes_in),
    ("bytesout", "Bytes of record batches in answers to fetches", lambda counts: counts.bytes_out),
    ("bytesrejected", "Bytes of record batches refused for their size", lambda counts: counts.bytes_rejected),
    ("totalproducerequests", "Appends to partitions that are here, the failed ones among them", lambda counts: counts.produce_requests),
    ("totalfetchrequests", "Reads of partitions that are here for fetches, one that waits counting again each time it is tried",
     lambda counts: counts.fetch_requests),
    ("failedproducerequests", "Appends that failed for other reasons than a wrong place, a size, a checksum or the disk",
     lambda counts: counts.failed_produce_requests),
    ("failedfetchrequests", "Reads that failed for other reasons than a wrong place or offset, or the disk",
     lambda counts: counts.failed_fetch_requests),
)
# The name under which Kafka tells consumers' fetches beside all fetches; there are no followers here that would fetch.
_ALSO = {"Fetch": "FetchConsumer"}


def topics(watched: Watched, labels_max: int) -> Iterator[Piece]:
    """kafka.server:type=BrokerTopicMetrics, for all topics together (without a label) and for each."""
    by_topic, together = watched.replicas.counts()
    told: list[tuple[str, TopicCounts]] = []
    yield from gathered(((labels(topic=topic), counts) for topic, counts in islice(by_topic.items(), labels_max)), told)
    for name, documentation, value in _TOPIC_COUNTS:
        rows = chain([("", together)], told)
        samples = ((text, value(counts)) for text, counts in rows)
        yield from counters(f"kafka_server_brokertopicmetrics_{name}", documentation, samples)


def requests(watched: Watched) -> Iterator[Piece]:
    """kafka.network:type=RequestMetrics."""
    registry = watched.registry

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
    yield from counters("kafka_network_requestmetrics_requests", "Requests received, by API and version", sorted(rows))
    errors = [
        (labels(request=name, error=error_name(code)), count)
        for key, of_api in sorted(registry.errors.items())
        for code, count in sorted(of_api.items())
        for name in names(key)
    ]
    yield from counters(
        "kafka_network_requestmetrics_errors",
        "Errors told in answers, each error of a topic or partition on its own; NONE is not counted",
        sorted(errors),
    )
    times = {name: times for key, times in registry.times.items() for name in names(key)}
    yield from gauges(
        "kafka_network_requestmetrics_totaltimems",
        "Milliseconds from when a request was received until its answer was made, of the last"
        f" {SAMPLES_KEPT} requests that were timed: one in {SAMPLED_ONE_IN} of each API and version",
        (sample for name in sorted(times) for sample in quantiles(times[name].latest, 1000, request=name)),
    )
    yield from untyped(
        "kafka_network_requestmetrics_totaltimems_count",
        "Requests received",
        [(labels(request=name), total) for name, total in sorted(totals.items())],
    )


def connections(watched: Watched) -> Iterator[Piece]:
    """kafka.server:type=socket-server-metrics and kafka.network:type=SocketServer; one reactor is the one network processor."""
    hub = watched.hub
    here = hub.by_listener()
    prefix = "kafka_server_socket_server_metrics"
    yield from gauges(
        f"{prefix}_connection_count", "Connections now",
        [(labels(listener=name, networkProcessor="0"), here[name]) for name in watched.listeners],
    )
    quotas = hub.quotas
    yield from counter(f"{prefix}_connection_creation", "Connections accepted", quotas.accepted)
    yield from counter(f"{prefix}_connection_close", "Connections that have ended", quotas.accepted - quotas.count)
    buffers = hub.buffers
    budget = buffers.budget
    yield from gauge("kafka_network_socketserver_memorypoolused", "Bytes that large requests in the making take up", buffers.reserved)
    yield from gauge(
        "kafka_network_socketserver_memorypoolavailable",
        "Bytes that large requests in the making may still take up (queued.max.request.bytes)",
        max(budget - buffers.reserved, 0) if budget >= 0 else sys.maxsize,
    )


def waiting(watched: Watched) -> Iterator[Piece]:
    """kafka.server:type=DelayedOperationPurgatory and type=FetchSessionCache."""
    sizes: list[Sample] = [(labels(delayedOperation=name), len(purgatory)) for name, purgatory in watched.purgatories.items()]
    prefix = "kafka_server_delayedoperationpurgatory"
    yield from gauges(f"{prefix}_purgatorysize", "Requests that wait for something", sizes)
    yield from gauges(f"{prefix}_numdelayedoperations", "Requests that wait for something", sizes)
    sessions, prefix = watched.sessions, "kafka_server_fetchsessioncache"
    yield from gauge(f"{prefix}_numincrementalfetchsessions", "Fetch sessions", len(sessions))
    yield from gauge(f"{prefix}_numincrementalfetchpartitionscached", "Partitions in all fetch sessions", sessions.partitions)
    yield from counter(f"{prefix}_incrementalfetchsessionevictions", "Fetch sessions that made room for others", sessions.evicted)
