"""The two clusters that are measured: three brokers each, with default settings and Kafka's options of the JVM."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.brokers import DEFAULTS, KAFKA, KAFKA_JAVA_OPTIONS, TXBROKER, cpu_seconds, rss_mb
from tests.support.broker import BrokerProcess
from tests.support.cluster import Cluster
from tests.support.kafka import KafkaMember

BROKERS = 3
KINDS = {TXBROKER: BrokerProcess.kind, KAFKA: KafkaMember.kind}


def cpu_of(cluster: Cluster) -> float:
    """CPU seconds that the running brokers have used."""
    return sum(cpu_seconds(server.pid) for server in cluster.serving.values())


def memory_of(cluster: Cluster) -> float:
    """Resident memory of the running brokers, in megabytes."""
    return sum(rss_mb(server.pid) for server in cluster.serving.values())


@contextmanager
def both(directory: Path) -> Iterator[Mapping[str, Cluster]]:
    """Start both clusters, by name."""
    clusters = {name: Cluster(directory / name, (kind,) * BROKERS, DEFAULTS) for name, kind in KINDS.items()}
    with ExitStack() as stack:
        for cluster in clusters.values():
            for server in cluster.brokers.values():
                if isinstance(server, KafkaMember):
                    server.java_options = KAFKA_JAVA_OPTIONS
                    server.archives_classes = False
            stack.callback(cluster.close)
            cluster.start()
        yield clusters
