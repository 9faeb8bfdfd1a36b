"""What a broker of Apache Kafka with ZooKeeper has left, as values: its cluster's metadata, and the logs in its directories.

Where ZooKeeper is gone, the directories tell most of the metadata too (`cluster_from_logs`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from txbroker.cluster.node_data import ProducerIdBlock
from txbroker.cluster.producer_ids import BLOCK_SIZE
from txbroker.log.meta_properties import Identity
from txbroker.names import INTERNAL_TOPICS, NULL_TOPIC_ID, OFFSETS_TOPIC, TRANSACTIONS_TOPIC, TopicPartition, amount

EVERY_TOPIC = "*"
# Ids of producers that were silent for long are in no snapshot any more, nor are those of a block that a crash has left half used.
PRODUCER_ID_MARGIN = 1_000_000
# A power cut may take the last lines of the file that lists the epochs.
EPOCH_MARGIN = 100
# Of many, so many are named.
NAMED_MAX = 5

# As Kafka makes them, whatever the broker is configured for.
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
    """A partition in the metadata: who has it, who is in sync, the last leader epoch (-1: nobody has led it yet)."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignTopic:
    """A topic in the metadata. `configs` is None where nothing is known of them."""

    topic_id: bytes
    partitions: Mapping[int, ForeignPartition]
    configs: Mapping[str, str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignCluster:
    """The metadata of a cluster, as far as one broker can take it over.

    `left`: sentences about what is there and cannot be taken over. `doubts`: sentences about what somebody should agree to.
    `alive`: brokers that are running. `epoch_margin`: by how much leader epochs may be higher than what is known.
    """

    place: str
    cluster_id: str | None
    topics: Mapping[str, ForeignTopic]
    broker_configs: Mapping[str, str] = field(default_factory=dict)
    default_configs: Mapping[str, str] = field(default_factory=dict)
    controller_epoch: int = 0
    producer_ids: ProducerIdBlock | None = None
    deleting: frozenset[str] = frozenset()
    alive: frozenset[int] = frozenset()
    left: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    epoch_margin: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundLog:
    """A partition's log as its directory tells without being opened. Epoch, id: -1 where there is none."""

    directory: str
    topic_id: bytes = NULL_TOPIC_ID
    leader_epoch: int = -1
    producer_id_max: int = -1
    open_transactions: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundLogs:
    """The log directories of one broker: whose they are, what is in them. `cleaned`: partitions that a log cleaner has cleaned."""

    directories: tuple[str, ...]
    identity: Identity
    logs: Mapping[TopicPartition, FoundLog]
    clean: bool
    cleaned: frozenset[TopicPartition] = frozenset()


def cluster_from_logs(found: FoundLogs, configs: Mapping[str, Mapping[str, str]]) -> ForeignCluster:
    """What the directories tell of the metadata, without ZooKeeper; `configs` of topics (`EVERY_TOPIC`: of all) are the user's."""
    counts: dict[str, int] = {}
    ids: dict[str, bytes] = {}
    for (topic, partition), log in found.logs.items():
        counts[topic] = max(counts.get(topic, 0), partition + 1)
        if log.topic_id != NULL_TOPIC_ID:
            ids.setdefault(topic, log.topic_id)
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
        place="the log directories alone",
        cluster_id=found.identity.cluster_id,
        topics=topics,
        producer_ids=ProducerIdBlock(-1 if broker_id is None else broker_id, end - BLOCK_SIZE + 1, end),
        doubts=tuple(_config_doubts(unknown, found)),
        epoch_margin=EPOCH_MARGIN,
    )


def _config_doubts(unknown: Sequence[str], found: FoundLogs) -> Iterable[str]:
    if unknown:
        yield (
            f"the directories do not tell the configurations of {counted(unknown, 'topic')}: the broker's defaults apply, which delete "
            "records by age (log.retention.hours); --topic-config TOPIC:KEY=VALUE says what they are, "
            "--topic-config '*:retention.ms=-1' keeps everything"
        )
    cleaned = sorted({topic for topic, _ in found.cleaned if topic in unknown})
    if cleaned:
        yield f"a log cleaner has worked on {named(cleaned)}: say --topic-config TOPIC:cleanup.policy=compact for those that are compacted"


def named(names: Sequence[str]) -> str:
    """The first of these names, and how many more there are."""
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return ", ".join(names[:NAMED_MAX]) + more


def counted(names: Sequence[str], what: str) -> str:
    """`2 topics (a, b)`."""
    return f"{amount(len(names), what)}{f' ({named(names)})' if names else ''}"
