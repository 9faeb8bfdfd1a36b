"""The metadata of an Apache Kafka cluster with ZooKeeper, and the logs in one broker's directories, as plain values.

Without ZooKeeper, most of the metadata can be derived from the directories (`cluster_from_logs`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from txbroker.cluster.node_data import ProducerIdBlock
from txbroker.cluster.producer_ids import BLOCK_SIZE
from txbroker.log.meta_properties import Identity
from txbroker.names import INTERNAL_TOPICS, NULL_TOPIC_ID, OFFSETS_TOPIC, TRANSACTIONS_TOPIC, TopicPartition, amount

EVERY_TOPIC = "*"
# Snapshots do not contain the ids of expired producers, nor unused ids of a block that was in use at a crash.
PRODUCER_ID_MARGIN = 1_000_000
# A power failure may lose the last lines of leader-epoch-checkpoint.
EPOCH_MARGIN = 100
# The maximum number of names in a message.
NAMED_MAX = 5

# As Kafka creates them, independent of the broker's configuration.
INTERNAL_CONFIGS: Mapping[str, Mapping[str, str]] = {
    OFFSETS_TOPIC: {"compression.type": "producer", "cleanup.policy": "compact", "segment.bytes": "104857600"},
    TRANSACTIONS_TOPIC: {
        "compression.type": "uncompressed",
        "cleanup.policy": "compact",
        "min.insync.replicas": "1",
        "segment.bytes": "104857600",
        "unclean.leader.election.enable": "false",
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignPartition:
    """A partition in the metadata: replicas, ISR, the last leader epoch (-1: no leader yet)."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignTopic:
    """A topic in the metadata. `configs` is None when they are unknown."""

    topic_id: bytes
    partitions: Mapping[int, ForeignPartition]
    configs: Mapping[str, str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignCluster:
    """The part of a cluster's metadata that one broker can import.

    `source`: a name for messages. `notes`: what cannot be imported. `concerns`: what the operator has to accept.
    `alive`: running brokers. `acls`: the nodes with ACLs, by path; `clients`: those with quotas and SCRAM credentials; `tokens`: those
    with delegation tokens. `epoch_margin`: by how much leader epochs may exceed the known ones.
    """

    source: str
    cluster_id: str | None
    topics: Mapping[str, ForeignTopic]
    broker_configs: Mapping[str, str] = field(default_factory=dict)
    default_configs: Mapping[str, str] = field(default_factory=dict)
    controller_epoch: int = 0
    producer_ids: ProducerIdBlock | None = None
    deleting: frozenset[str] = frozenset()
    alive: frozenset[int] = frozenset()
    acls: Mapping[str, bytes | None] = field(default_factory=dict)
    clients: Mapping[str, bytes | None] = field(default_factory=dict)
    tokens: Mapping[str, bytes | None] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    concerns: tuple[str, ...] = ()
    epoch_margin: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundLog:
    """A partition's log, read from its directory without opening it. Epoch, id: -1 when there is none."""

    directory: str
    topic_id: bytes = NULL_TOPIC_ID
    leader_epoch: int = -1
    producer_id_max: int = -1
    open_transactions: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundLogs:
    """The log directories of one broker: identity and logs. `cleaned`: partitions that a log cleaner has cleaned.

    `new`: directories without meta.properties, if others have it: those of disks that were replaced.
    """

    directories: tuple[str, ...]
    identity: Identity
    logs: Mapping[TopicPartition, FoundLog]
    clean: bool
    cleaned: frozenset[TopicPartition] = frozenset()
    new: tuple[str, ...] = ()


def cluster_from_logs(
    found: FoundLogs, configs: Mapping[str, Mapping[str, str]], partitions: Mapping[str, int] | None = None
) -> ForeignCluster:
    """The metadata derived from the directories, without ZooKeeper. `configs`: by topic (`EVERY_TOPIC`: all), from the command line.

    `partitions`: how many an internal topic has at least, if a directory is new: what is in a partition depends on their number.
    """
    counts: dict[str, int] = {}
    ids: dict[str, bytes] = {}
    for (topic, partition), log in found.logs.items():
        counts[topic] = max(counts.get(topic, 0), partition + 1)
        if log.topic_id != NULL_TOPIC_ID:
            ids.setdefault(topic, log.topic_id)
    if found.new:
        counts |= {topic: max(counts[topic], least) for topic, least in (partitions or {}).items() if topic in counts}
    broker_id = found.identity.broker_id
    only = () if broker_id is None else (broker_id,)
    alone = ForeignPartition(replicas=only, isr=only, leader_epoch=-1)
    topics = {
        topic: ForeignTopic(
            topic_id=ids.get(topic, NULL_TOPIC_ID),
            partitions=dict.fromkeys(range(count), alone),
            configs=INTERNAL_CONFIGS.get(topic),
        )
        for topic, count in sorted(counts.items())
    }
    unknown = [topic for topic in topics if topic not in INTERNAL_TOPICS and topic not in configs and EVERY_TOPIC not in configs]
    last_id = max((log.producer_id_max for log in found.logs.values()), default=-1)
    end = (last_id + PRODUCER_ID_MARGIN) // BLOCK_SIZE * BLOCK_SIZE + BLOCK_SIZE - 1
    return ForeignCluster(
        source="the log directories alone",
        cluster_id=found.identity.cluster_id,
        topics=topics,
        producer_ids=ProducerIdBlock(-1 if broker_id is None else broker_id, end - BLOCK_SIZE + 1, end),
        concerns=(*_config_concerns(unknown, found), *_new_directories(found)),
        epoch_margin=EPOCH_MARGIN,
    )


def _config_concerns(unknown: Sequence[str], found: FoundLogs) -> Iterable[str]:
    if unknown:
        yield (
            f"the directories do not contain the configurations of {counted(unknown, 'topic')}: the broker's defaults apply, which delete "
            "records by age (log.retention.hours); --topic-config TOPIC:KEY=VALUE sets them, "
            "--topic-config '*:retention.ms=-1' keeps everything"
        )
    cleaned = sorted({topic for topic, _ in found.cleaned if topic in unknown})
    if cleaned:
        yield f"a log cleaner has cleaned {named(cleaned)}: specify --topic-config TOPIC:cleanup.policy=compact for compacted topics"


def _new_directories(found: FoundLogs) -> Iterable[str]:
    if found.new:
        have = "has" if len(found.new) == 1 else "have"
        yield (
            f"{named(found.new)} {have} no meta.properties, as a disk that was replaced: what was only there is missing, and a topic whose "
            "last partitions were there gets fewer partitions"
        )


def named(names: Sequence[str]) -> str:
    """The first of these names, and how many more there are."""
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return ", ".join(names[:NAMED_MAX]) + more


def counted(names: Sequence[str], what: str) -> str:
    """`2 topics (a, b)`."""
    return f"{amount(len(names), what)}{f' ({named(names)})' if names else ''}"
