"""The internal topics: how they are created, and the logs through which coordinators read and write them."""

from __future__ import annotations

from txbroker.broker import settings
from txbroker.broker.identity import is_clustered
from txbroker.broker.partition_state_log import InWorker, PartitionStateLog
from txbroker.cluster.image import ClusterImage
from txbroker.cluster.replicas import Replicas
from txbroker.cluster.topics import NewTopic
from txbroker.config.resolve import BrokerConfig
from txbroker.names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from txbroker.purgatory import Purgatory
from txbroker.wire.compression import Codec

# Kafka waits for the transaction's own timeout. A client gives up sooner: this is request.timeout.ms of its producers.
TRANSACTION_WRITE_TIMEOUT_MS = 30_000


def new_internal_topic(config: BrokerConfig, name: str) -> NewTopic:
    """The settings with which an internal topic is created. A broker alone is its only replica.

    In a cluster, creation fails until as many brokers are alive as the topic has replicas, and clients retry: a topic that the first
    broker had created for itself would stay there.
    """
    configs = {"cleanup.policy": "compact"}
    if name == TRANSACTIONS_TOPIC:
        sizes = "transaction.state.log.num.partitions", "transaction.state.log.replication.factor", "transaction.state.log.segment.bytes"
        configs["compression.type"] = "uncompressed"
        configs["min.insync.replicas"] = str(config.int("transaction.state.log.min.isr"))
        configs["unclean.leader.election.enable"] = "false"
    else:
        sizes = "offsets.topic.num.partitions", "offsets.topic.replication.factor", "offsets.topic.segment.bytes"
        configs["compression.type"] = "producer"
    partition_count, replication_factor, segment_bytes = map(config.int, sizes)
    configs["segment.bytes"] = str(segment_bytes)
    return NewTopic(
        name=name,
        partition_count=partition_count,
        replication_factor=replication_factor if is_clustered(config) else 1,
        configs=configs,
    )


def partition_count(image: ClusterImage, name: str) -> int:
    """The number of partitions of a topic; 0 while it does not exist."""
    topic = image.topic(name)
    return 0 if topic is None else len(topic.partitions)


def offsets_log(config: BrokerConfig, replicas: Replicas, purgatory: Purgatory, in_worker: InWorker) -> PartitionStateLog:
    """The log of `__consumer_offsets`."""
    return PartitionStateLog(
        OFFSETS_TOPIC,
        replicas,
        purgatory,
        codec=settings.OFFSETS_CODECS[config.int("offsets.topic.compression.codec")],
        timeout_ms=config.int("offsets.commit.timeout.ms"),
        load_bytes=lambda: config.int("offsets.load.buffer.size"),
        in_worker=in_worker,
    )


def transactions_log(config: BrokerConfig, replicas: Replicas, purgatory: Purgatory, in_worker: InWorker) -> PartitionStateLog:
    """The log of `__transaction_state`."""
    return PartitionStateLog(
        TRANSACTIONS_TOPIC,
        replicas,
        purgatory,
        codec=Codec.NONE,
        timeout_ms=TRANSACTION_WRITE_TIMEOUT_MS,
        load_bytes=lambda: config.int("transaction.state.log.load.buffer.size"),
        in_worker=in_worker,
    )
