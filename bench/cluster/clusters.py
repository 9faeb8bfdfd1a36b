"""The clusters that are measured: three brokers each, with default settings and Kafka's options of the JVM."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.brokers import DEFAULTS, KAFKA, KAFKA_JAVA_OPTIONS, TXBROKER
from bench.process_tree import cpu_seconds, rss_mb
from bench.requests import BrokerClient
from tests.support.broker import BrokerProcess
from tests.support.cluster import CLUSTER_OVERRIDES, SESSION_MS, Cluster
from tests.support.kafka import KafkaMember, KafkaProcess
from tests.support.server import free_port
from txbroker.wire.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData

BROKERS = 3
KRAFT = "kafka-kraft"
METADATA_TOPIC = "__cluster_metadata"


class KraftCluster(Cluster):
    """Three nodes of Apache Kafka 4.3, each a broker and a controller. A broker is missed after as long as ZooKeeper's sessions last."""

    def __init__(self, directory: Path, overrides: Mapping[str, str]) -> None:
        super().__init__(directory, (), zookeepers=0)
        used = {key: value for key, value in CLUSTER_OVERRIDES.items() if not key.startswith("zookeeper.")} | dict(overrides)
        used |= {"broker.session.timeout.ms": str(SESSION_MS), "broker.heartbeat.interval.ms": "2000"}
        used |= {"transaction.state.log.replication.factor": "3", "transaction.state.log.min.isr": "2"}
        nodes = {node_id: KafkaProcess(directory / f"broker-{node_id}", used) for node_id in range(1, BROKERS + 1)}
        for node_id, node in nodes.items():
            node.port = free_port()
            node.join(node_id, nodes[1].cluster_id, {each: other.controller_port for each, other in nodes.items()})
            self.brokers[node_id] = node

    def controller(self) -> int:
        """The leader of the quorum: metadata names any broker."""
        request = DescribeQuorumRequest(topics=[TopicData(topic_name=METADATA_TOPIC, partitions=[PartitionData(partition_index=0)])])

        def find() -> int | None:
            for server in self.serving.values():
                with BrokerClient(server.address) as client:
                    (topic,) = client.call(request).topics
                if topic.partitions[0].leader_id in self.serving:
                    return int(topic.partitions[0].leader_id)
            return None

        controller: int = self.until(find, "the quorum has a leader that runs")
        return controller


def cpu_of(cluster: Cluster) -> float:
    """CPU seconds that the running brokers have used."""
    return sum(cpu_seconds(server.pid) for server in cluster.serving.values())


def memory_of(cluster: Cluster) -> float:
    """Resident memory of the running brokers, in megabytes."""
    return sum(rss_mb(server.pid) for server in cluster.serving.values())


def pids_of(clusters: Mapping[str, Cluster]) -> list[int]:
    """The process ids of all brokers."""
    return [server.pid for cluster in clusters.values() for server in cluster.brokers.values()]


def make(name: str, directory: Path, brokers: int = BROKERS) -> Cluster:
    """A cluster by name, not started yet."""
    if name == KRAFT:
        cluster: Cluster = KraftCluster(directory, DEFAULTS)
    else:
        cluster = Cluster(directory, ((KafkaMember if name == KAFKA else BrokerProcess).kind,) * brokers, DEFAULTS)
    for server in cluster.brokers.values():
        if isinstance(server, KafkaMember | KafkaProcess):
            server.java_options = KAFKA_JAVA_OPTIONS
            server.archives_classes = False
    return cluster


@contextmanager
def started(directory: Path) -> Iterator[Mapping[str, Cluster]]:
    """Start all clusters, by name."""
    clusters = {name: make(name, directory / name) for name in (TXBROKER, KAFKA, KRAFT)}
    with ExitStack() as stack:
        for cluster in clusters.values():
            stack.callback(cluster.close)
            cluster.start()
        yield clusters
