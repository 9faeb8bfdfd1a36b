"""Partitions and the cluster: logs, replicas, the controller's counts, and what kafka_exporter tells of topics."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from txbroker.cluster.image import PartitionImage
from txbroker.cluster.partition import Partition
from txbroker.metrics.families import Piece, Sample, counter, gathered, gauge, gauges, labels
from txbroker.metrics.watched import Watched
from txbroker.names import TopicPartition


def replicas(watched: Watched) -> Iterator[Piece]:
    """kafka.server:type=ReplicaManager."""
    here = list(watched.replicas)
    led = [partition for partition in here if partition.is_leader]
    prefix = "kafka_server_replicamanager"
    yield from gauge(f"{prefix}_leadercount", "Partitions that this broker leads", len(led))
    offline = watched.replicas.offline_count
    yield from gauge(f"{prefix}_partitioncount", "Replicas on this broker, the offline ones among them", len(here) + offline)
    yield from gauge(f"{prefix}_offlinereplicacount", "Replicas in log directories that failed", offline)
    yield from gauge(
        f"{prefix}_underreplicatedpartitions", "Partitions led here with a replica that is not in sync", sum(map(_under_replicated, led))
    )
    yield from gauge(
        f"{prefix}_underminisrpartitioncount", "Partitions led here with fewer replicas in sync than min.insync.replicas",
        sum(_isr_room(partition) < 0 for partition in led),
    )
    yield from gauge(
        f"{prefix}_atminisrpartitioncount", "Partitions led here with just as many replicas in sync as min.insync.replicas",
        sum(_isr_room(partition) == 0 for partition in led),
    )
    yield from counter(f"{prefix}_isrshrinks", "How often a partition led here lost an in-sync replica", watched.replicas.isr_shrinks)
    yield from counter(f"{prefix}_isrexpands", "How often a partition led here gained an in-sync replica", watched.replicas.isr_expands)


def _under_replicated(partition: Partition) -> int:
    return len(partition.state.isr) < len(partition.state.replicas)


def _isr_room(partition: Partition) -> int:
    """How many in-sync replicas it has above what min.insync.replicas needs of those that it can have."""
    state = partition.state
    return len(state.isr) - min(partition.log.config.min_insync_replicas, len(state.replicas))


def controller(watched: Watched) -> Iterator[Piece]:
    """kafka.controller:type=KafkaController; what only the controller tells is 0 on the others, as in Kafka."""
    active = watched.is_controller()
    topics = watched.image.topics.values() if active else ()
    partitions = [partition for topic in topics for partition in topic.partitions.values()]
    prefix = "kafka_controller_kafkacontroller"
    yield from gauge(f"{prefix}_activecontrollercount", "Whether this broker is the controller", active)
    yield from gauge(f"{prefix}_activebrokercount", "Brokers that are there", len(watched.image.brokers) if active else 0)
    yield from gauge(f"{prefix}_globaltopiccount", "Topics of the cluster", len(topics))
    yield from gauge(f"{prefix}_globalpartitioncount", "Partitions of the cluster", len(partitions))
    yield from gauge(f"{prefix}_offlinepartitionscount", "Partitions without a leader", sum(p.leader < 0 for p in partitions))
    yield from gauge(
        f"{prefix}_preferredreplicaimbalancecount", "Partitions whose leader is not the first of their replicas",
        sum(not _is_preferred(p) for p in partitions),
    )


def _is_preferred(partition: PartitionImage) -> bool:
    return partition.leader == next(iter(partition.replicas), -1)


def directories(watched: Watched) -> Iterator[Piece]:
    """kafka.log:type=LogManager."""
    states = dict.fromkeys(watched.directories.online(), 0) | dict.fromkeys(watched.directories.offline(), 1)
    prefix = "kafka_log_logmanager"
    yield from gauge(f"{prefix}_offlinelogdirectorycount", "Log directories that failed", sum(states.values()))
    offline: list[Sample] = [(labels(logDirectory=path), state) for path, state in states.items()]
    yield from gauges(f"{prefix}_logdirectoryoffline", "Whether a log directory failed", offline)


_OF_LOGS: tuple[tuple[str, str, Callable[[Partition], float]], ...] = (
    ("kafka_log_log_size", "Bytes of a partition's segments", lambda p: p.log.size),
    ("kafka_log_log_numlogsegments", "Segments of a partition", lambda p: len(p.log.segments)),
    ("kafka_log_log_logstartoffset", "The first offset of a partition's log", lambda p: p.log.log_start_offset),
    ("kafka_log_log_logendoffset", "The next offset of a partition's log", lambda p: p.log.log_end_offset),
)
_OF_LED: tuple[tuple[str, str, Callable[[Partition], float]], ...] = (
    ("kafka_cluster_partition_underreplicated", "Whether a replica is not in sync", _under_replicated),
    ("kafka_cluster_partition_underminisr", "Whether fewer replicas are in sync than min.insync.replicas", lambda p: _isr_room(p) < 0),
    ("kafka_cluster_partition_atminisr", "Whether just as many replicas are in sync as min.insync.replicas", lambda p: _isr_room(p) == 0),
    ("kafka_cluster_partition_replicascount", "Replicas of a partition", lambda p: len(p.state.replicas)),
    ("kafka_cluster_partition_insyncreplicascount", "In-sync replicas of a partition", lambda p: len(p.state.isr)),
    ("kafka_cluster_partition_laststableoffsetlag", "Records that a read_committed consumer may not see yet",
     lambda p: p.high_watermark - p.last_stable_offset),
    ("kafka_topic_partition_current_offset", "The offset up to which consumers may read a partition", lambda p: p.high_watermark),
    ("kafka_topic_partition_oldest_offset", "The first offset of a partition", lambda p: p.log.log_start_offset),
)
_OF_IMAGE: tuple[tuple[str, str, Callable[[PartitionImage], float]], ...] = (
    ("kafka_topic_partition_leader", "The broker that leads a partition, -1 for none", lambda p: p.leader),
    ("kafka_topic_partition_leader_is_preferred", "Whether the leader is the first of the replicas", _is_preferred),
    ("kafka_topic_partition_replicas", "Replicas of a partition", lambda p: len(p.replicas)),
    ("kafka_topic_partition_in_sync_replica", "In-sync replicas of a partition", lambda p: len(p.isr)),
    ("kafka_topic_partition_under_replicated_partition", "Whether a replica is not in sync", lambda p: len(p.isr) < len(p.replicas)),
)


def logs(watched: Watched, labels_max: int) -> Iterator[Piece]:
    """kafka.log:type=Log and kafka.cluster:type=Partition, of the replicas here; and what kafka_exporter tells of each partition."""
    rows: list[tuple[str, Partition]] = []
    yield from gathered(((_labels(*partition.topic_partition), partition) for partition in islice(watched.replicas, labels_max)), rows)
    for name, documentation, value in _OF_LOGS:
        yield from gauges(name, documentation, ((text, value(partition)) for text, partition in rows))
    led = [(text, partition) for text, partition in rows if partition.is_leader]
    for name, documentation, value in _OF_LED:
        yield from gauges(name, documentation, ((text, value(partition)) for text, partition in led))


def retention(watched: Watched, labels_max: int) -> Iterator[Piece]:
    """How late expiry is: of each partition that deletes by time how long ago its first record expired, and the largest of all."""
    lags: list[tuple[TopicPartition, int]] = []
    known = ((tp, lag) for tp in watched.directories.logs() if (lag := watched.retention.lag_ms(tp)) is not None)
    yield from gathered(known, lags)
    samples = ((_labels(*topic_partition), lag) for topic_partition, lag in islice(lags, labels_max))
    yield from gauges("txbroker_retention_lag_ms", "For how long the first record of a partition has been past retention.ms", samples)
    largest = max((lag for _, lag in lags), default=0)
    yield from gauge("txbroker_retention_lag_max_ms", "The largest txbroker_retention_lag_ms of all partitions here", largest)
    if watched.retention.pass_s is not None:
        yield from gauge("txbroker_retention_pass_seconds", "How long the last pass of retention took", watched.retention.pass_s)


def cluster(watched: Watched, labels_max: int) -> Iterator[Piece]:
    """What kafka_exporter tells of the cluster's brokers, topics and partitions."""
    image = watched.image
    yield from gauge("kafka_brokers", "Brokers of the cluster", len(image.brokers))
    addresses: list[Sample] = [
        (labels(id=str(broker.id), address=f"{endpoint.host}:{endpoint.port}"), 1)
        for broker in image.brokers.values()
        for endpoint in islice(broker.endpoints.values(), 1)
    ]
    yield from gauges("kafka_broker_info", "Where a broker is", addresses)
    topics = list(islice(image.topics.items(), labels_max))
    counts = ((labels(topic=name), len(topic.partitions)) for name, topic in topics)
    yield from gauges("kafka_topic_partitions", "Partitions of a topic", counts)
    every = ((_labels(name, index), partition) for name, topic in topics for index, partition in topic.partitions.items())
    rows: list[tuple[str, PartitionImage]] = []
    yield from gathered(islice(every, labels_max), rows)
    for name, documentation, value in _OF_IMAGE:
        yield from gauges(name, documentation, ((text, value(partition)) for text, partition in rows))


def left_out(watched: Watched, labels_max: int) -> list[Sample]:
    """How many topics and partitions are too many to be told each on its own."""
    topics = watched.image.topics
    partitions = sum(len(topic.partitions) for topic in topics.values())
    counts = {"topic": len(topics), "partition": max(partitions, len(watched.replicas))}
    return [(labels(kind=kind), max(count - labels_max, 0)) for kind, count in counts.items()]


def _labels(topic: str, partition: int) -> str:
    return labels(topic=topic, partition=str(partition))
