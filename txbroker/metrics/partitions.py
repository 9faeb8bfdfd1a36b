"""Metrics of partitions and of the cluster: logs, replicas, the controller, and those of kafka_exporter."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from txbroker.cluster.image import PartitionImage
from txbroker.cluster.partition import Partition
from txbroker.cluster.suspicions import FailoverCounts
from txbroker.cluster.tree.session_tree import LATENCIES_KEPT, SessionCounts
from txbroker.metrics.families import Piece, Sample, counter, counters, gathered, gauge, gauges, labels, quantiles, untyped
from txbroker.metrics.sources import MetricSources
from txbroker.names import TopicPartition


def replicas(sources: MetricSources) -> Iterator[Piece]:
    """kafka.server:type=ReplicaManager."""
    here = list(sources.replicas)
    led = [partition for partition in here if partition.is_leader]
    prefix = "kafka_server_replicamanager"
    yield from gauge(f"{prefix}_leadercount", "Partitions that this broker leads", len(led))
    offline = sources.replicas.offline_count
    yield from gauge(f"{prefix}_partitioncount", "Replicas on this broker, including offline ones", len(here) + offline)
    yield from gauge(f"{prefix}_offlinereplicacount", "Replicas in offline log directories", offline)
    refused = len(sources.replicas.refused_roles)
    documentation = "Replicas in online log directories that have refused the role that the controller gave them"
    yield from gauge("txbroker_refused_roles", documentation, refused)
    yield from gauge(
        f"{prefix}_underreplicatedpartitions", "Partitions led by this broker with replicas that are not in sync",
        sum(map(_under_replicated, led)),
    )
    yield from gauge(
        f"{prefix}_underminisrpartitioncount", "Partitions led by this broker with fewer in-sync replicas than min.insync.replicas",
        sum(_isr_room(partition) < 0 for partition in led),
    )
    yield from gauge(
        f"{prefix}_atminisrpartitioncount", "Partitions led by this broker with exactly min.insync.replicas in-sync replicas",
        sum(_isr_room(partition) == 0 for partition in led),
    )
    known = sum(len(partition.log.producers) for partition in here)
    yield from gauge(f"{prefix}_produceridcount", "Producer ids that the partitions on this broker know", known)
    yield from counter(f"{prefix}_isrshrinks", "In-sync replicas removed from partitions led by this broker", sources.replicas.isr_shrinks)
    yield from counter(f"{prefix}_isrexpands", "In-sync replicas added to partitions led by this broker", sources.replicas.isr_expands)


def _under_replicated(partition: Partition) -> int:
    return len(partition.state.isr) < len(partition.state.replicas)


def _isr_room(partition: Partition) -> int:
    """The number of in-sync replicas minus min.insync.replicas, which counts at most all replicas."""
    return len(partition.state.isr) - partition.min_in_sync


def controller(sources: MetricSources) -> Iterator[Piece]:
    """kafka.controller:type=KafkaController; most are 0 on brokers that are not the controller, as in Kafka."""
    active = sources.is_controller()
    topics = sources.image.topics.values() if active else ()
    partitions = [partition for topic in topics for partition in topic.partitions.values()]
    prefix = "kafka_controller_kafkacontroller"
    yield from gauge(f"{prefix}_activecontrollercount", "1 if this broker is the controller", active)
    yield from gauge(f"{prefix}_activebrokercount", "Live brokers", len(sources.image.brokers) if active else 0)
    yield from gauge(f"{prefix}_globaltopiccount", "Topics in the cluster", len(topics))
    yield from gauge(f"{prefix}_globalpartitioncount", "Partitions in the cluster", len(partitions))
    yield from gauge(f"{prefix}_offlinepartitionscount", "Partitions without a leader", sum(p.leader < 0 for p in partitions))
    yield from gauge(
        f"{prefix}_preferredreplicaimbalancecount", "Partitions whose leader is not the preferred replica",
        sum(not _is_preferred(p) for p in partitions),
    )


def zookeeper(sources: MetricSources) -> Iterator[Piece]:
    """kafka.server:type=SessionExpireListener and type=ZooKeeperClientMetrics; without samples for a broker alone."""
    counts = sources.zookeeper

    def sample(value: Callable[[SessionCounts], float]) -> list[Sample]:
        return [] if counts is None else [("", value(counts))]

    prefix = "kafka_server_sessionexpirelistener_zookeeper"
    yield from gauges("txbroker_zookeeper_connected", "1 while this broker is connected to ZooKeeper", sample(lambda c: c.connected))
    yield from counters(f"{prefix}syncconnects", "Connections to ZooKeeper", sample(lambda c: c.connects))
    yield from counters(f"{prefix}disconnects", "Connections to ZooKeeper that were lost", sample(lambda c: c.disconnects))
    yield from counters(f"{prefix}expires", "ZooKeeper sessions that expired", sample(lambda c: c.expirations))
    name = "kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms"
    documentation = f"Duration of requests to ZooKeeper in milliseconds, quantiles of the last {LATENCIES_KEPT}"
    yield from gauges(name, documentation, quantiles(() if counts is None else tuple(counts.latencies), 1000))
    yield from untyped(f"{name}_count", "Number of requests to ZooKeeper", sample(lambda c: c.requests))


def failover(sources: MetricSources) -> Iterator[Piece]:
    """Failover by refused connections; without samples where it is switched off."""
    counts = sources.failover

    def sample(value: Callable[[FailoverCounts], float]) -> list[Sample]:
        return [] if counts is None else [("", value(counts))]

    prefix = "txbroker_failover"
    yield from counters(f"{prefix}_reports", "Brokers that this one has reported for refused connections", sample(lambda c: c.reports))
    yield from counters(f"{prefix}_suspicions", "Brokers that were suspected to be gone", sample(lambda c: c.suspicions))
    yield from counters(f"{prefix}_reports_on_itself", "Times that others have reported this broker", sample(lambda c: c.reports_on_itself))
    takeovers = [] if counts is None else [("", sources.takeovers())]
    yield from counters(f"{prefix}_takeovers", "Times that this broker has replaced a suspected controller", takeovers)


def _is_preferred(partition: PartitionImage) -> bool:
    return partition.leader == next(iter(partition.replicas), -1)


def directories(sources: MetricSources) -> Iterator[Piece]:
    """kafka.log:type=LogManager."""
    states = dict.fromkeys(sources.directories.online(), 0) | dict.fromkeys(sources.directories.offline(), 1)
    prefix = "kafka_log_logmanager"
    yield from gauge(f"{prefix}_offlinelogdirectorycount", "Offline log directories", sum(states.values()))
    offline: list[Sample] = [(labels(logDirectory=path), state) for path, state in states.items()]
    yield from gauges(f"{prefix}_logdirectoryoffline", "1 if the log directory is offline", offline)
    yield from counter(
        "txbroker_missing_files", "Failures of log directories because a file of a log was gone or short", sources.directories.missing_files
    )
    yield from gauge(
        "txbroker_missing_records", "Offsets whose records are known to be missing: the errors in the broker's log name them",
        sum(missing.end - missing.start for log in sources.directories.logs().values() for missing in log.missing),
    )


_OF_LOGS: tuple[tuple[str, str, Callable[[Partition], float]], ...] = (
    ("kafka_log_log_size", "Size of the partition's segments, in bytes", lambda p: p.log.size),
    ("kafka_log_log_numlogsegments", "Segments of the partition", lambda p: len(p.log.segments)),
    ("kafka_log_log_logstartoffset", "Log start offset", lambda p: p.log.log_start_offset),
    ("kafka_log_log_logendoffset", "Log end offset", lambda p: p.log.log_end_offset),
)
_OF_LED: tuple[tuple[str, str, Callable[[Partition], float]], ...] = (
    ("kafka_cluster_partition_underreplicated", "1 if a replica is not in sync", _under_replicated),
    ("kafka_cluster_partition_underminisr", "1 if there are fewer in-sync replicas than min.insync.replicas", lambda p: _isr_room(p) < 0),
    ("kafka_cluster_partition_atminisr", "1 if there are exactly min.insync.replicas in-sync replicas", lambda p: _isr_room(p) == 0),
    ("kafka_cluster_partition_replicascount", "Replicas of the partition", lambda p: len(p.state.replicas)),
    ("kafka_cluster_partition_insyncreplicascount", "In-sync replicas of the partition", lambda p: len(p.state.isr)),
    ("kafka_cluster_partition_laststableoffsetlag", "Offsets between the last stable offset and the high watermark",
     lambda p: p.high_watermark - p.last_stable_offset),
    ("kafka_topic_partition_current_offset", "High watermark", lambda p: p.high_watermark),
    ("kafka_topic_partition_oldest_offset", "Log start offset", lambda p: p.log.log_start_offset),
)
_OF_IMAGE: tuple[tuple[str, str, Callable[[PartitionImage], float]], ...] = (
    ("kafka_topic_partition_leader", "Id of the leader, -1 if there is none", lambda p: p.leader),
    ("kafka_topic_partition_leader_is_preferred", "1 if the leader is the preferred replica", _is_preferred),
    ("kafka_topic_partition_replicas", "Replicas of the partition", lambda p: len(p.replicas)),
    ("kafka_topic_partition_in_sync_replica", "In-sync replicas of the partition", lambda p: len(p.isr)),
    ("kafka_topic_partition_under_replicated_partition", "1 if a replica is not in sync", lambda p: len(p.isr) < len(p.replicas)),
)


def logs(sources: MetricSources, labels_max: int) -> Iterator[Piece]:
    """kafka.log:type=Log and kafka.cluster:type=Partition of the replicas on this broker, and kafka_exporter's metrics of partitions."""
    rows: list[tuple[str, Partition]] = []
    yield from gathered(((_labels(*partition.topic_partition), partition) for partition in islice(sources.replicas, labels_max)), rows)
    for name, documentation, value in _OF_LOGS:
        yield from gauges(name, documentation, ((text, value(partition)) for text, partition in rows))
    led = [(text, partition) for text, partition in rows if partition.is_leader]
    for name, documentation, value in _OF_LED:
        yield from gauges(name, documentation, ((text, value(partition)) for text, partition in led))


def retention(sources: MetricSources, labels_max: int) -> Iterator[Piece]:
    """How late retention is: for each partition with retention.ms, how long ago its first record expired."""
    lags: list[tuple[TopicPartition, int]] = []
    known = ((tp, lag) for tp in sources.directories.logs() if (lag := sources.retention.lag_ms(tp)) is not None)
    yield from gathered(known, lags)
    samples = ((_labels(*topic_partition), lag) for topic_partition, lag in islice(lags, labels_max))
    documentation = "Time since the first record of the partition exceeded retention.ms, in milliseconds"
    yield from gauges("txbroker_retention_lag_ms", documentation, samples)
    largest = max((lag for _, lag in lags), default=0)
    yield from gauge("txbroker_retention_lag_max_ms", "Largest txbroker_retention_lag_ms of all partitions on this broker", largest)
    if sources.retention.pass_s is not None:
        documentation = "Duration of the last retention check of all logs, in seconds"
        yield from gauge("txbroker_retention_pass_seconds", documentation, sources.retention.pass_s)


def cluster(sources: MetricSources, labels_max: int) -> Iterator[Piece]:
    """The metrics of kafka_exporter about brokers, topics and partitions."""
    image = sources.image
    yield from gauge("kafka_brokers", "Brokers in the cluster", len(image.brokers))
    addresses: list[Sample] = [
        (labels(id=str(broker.id), address=f"{endpoint.host}:{endpoint.port}"), 1)
        for broker in image.brokers.values()
        for endpoint in islice(broker.endpoints.values(), 1)
    ]
    yield from gauges("kafka_broker_info", "Address of the broker", addresses)
    topics = list(islice(image.topics.items(), labels_max))
    counts = ((labels(topic=name), len(topic.partitions)) for name, topic in topics)
    yield from gauges("kafka_topic_partitions", "Partitions of the topic", counts)
    every = ((_labels(name, index), partition) for name, topic in topics for index, partition in topic.partitions.items())
    rows: list[tuple[str, PartitionImage]] = []
    yield from gathered(islice(every, labels_max), rows)
    for name, documentation, value in _OF_IMAGE:
        yield from gauges(name, documentation, ((text, value(partition)) for text, partition in rows))


def left_out(sources: MetricSources, labels_max: int) -> list[Sample]:
    """The number of topics and partitions above `labels_max`."""
    topics = sources.image.topics
    partitions = sum(len(topic.partitions) for topic in topics.values())
    counts = {"topic": len(topics), "partition": max(partitions, len(sources.replicas))}
    return [(labels(kind=kind), max(count - labels_max, 0)) for kind, count in counts.items()]


def _labels(topic: str, partition: int) -> str:
    return labels(topic=topic, partition=str(partition))
