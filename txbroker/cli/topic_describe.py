"""`txbroker topics --describe`: topics with their partitions and configurations (Kafka's class TopicCommand)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from txbroker.cli.results import Results, Row
from txbroker.cli.tables import paragraph, table
from txbroker.names import amount, id_to_text

Topic = Mapping[str, Any]

# Flags that select partitions -> their help.
FILTERS = {
    "--under-replicated-partitions": "only partitions with replicas that are not in sync",
    "--unavailable-partitions": "only partitions without a leader",
    "--under-min-isr-partitions": "only partitions with fewer in-sync replicas than min.insync.replicas",
    "--at-min-isr-partitions": "only partitions with exactly min.insync.replicas in-sync replicas",
}
# Conditions on a partition and min.insync.replicas of its topic.
_MATCHES: Mapping[str, Callable[[Row, int], bool]] = {
    "--under-replicated-partitions": lambda partition, least: len(partition["isr"]) < len(partition["replicas"]),
    "--unavailable-partitions": lambda partition, least: partition["leader"] is None,
    "--under-min-isr-partitions": lambda partition, least: len(partition["isr"]) < least,
    "--at-min-isr-partitions": lambda partition, least: len(partition["isr"]) == least,
}
DEFAULT_SOURCE = "DEFAULT_CONFIG"
LEAST = "min.insync.replicas"


def show(
    shown: Results, admin: Any, topics: Sequence[Topic], only: str | None, with_overrides: bool, *, fold_internal: bool
) -> None:
    """Print topics. `only`, a flag of `FILTERS`, selects partitions; `with_overrides` selects the topics that override configurations.

    `fold_internal`: on a terminal, print one line for all partitions of an internal topic.
    """
    found = _configs(admin, topics)
    for topic in topics:
        configs = found.get(topic["name"], {})
        changed = {key: entry["value"] for key, entry in sorted(configs.items()) if entry["config_source"] != DEFAULT_SOURCE}
        row = description(topic, changed)
        if only is not None:
            least = int(configs.get(LEAST, {}).get("value") or 1)
            row = {**row, "partitions": [partition for partition in row["partitions"] if _MATCHES[only](partition, least)]}
            if row["partitions"]:
                shown.either(row, partial(plain_partitions, row), partial(terminal_description, row))
        elif not with_overrides:
            shape = folded_description if fold_internal and row["internal"] else terminal_description
            shown.either(row, partial(plain_description, row), partial(shape, row))
        elif changed:
            shown.either(row, partial(_plain_summary, row), partial(_terminal_summary, row))


def _configs(admin: Any, topics: Sequence[Topic]) -> Mapping[str, Any]:
    from kafka.admin import ConfigResource, ConfigResourceType

    if not topics:
        return {}
    resources = [ConfigResource(ConfigResourceType.TOPIC, topic["name"]) for topic in topics]
    found: Mapping[str, Any] = admin.describe_configs(resources, config_filter="all")["topic"]
    return found


def shown_id(topic: Topic) -> str:
    """A topic's id in Kafka's text form; empty if the broker has none."""
    return id_to_text(bytes.fromhex((topic.get("topic_id") or "").replace("-", "")))


def description(topic: Topic, configs: Mapping[str, str]) -> Row:
    """The description of a topic, as printed with --json."""
    partitions = sorted(topic["partitions"], key=lambda partition: int(partition["partition_index"]))
    return {
        "topic": topic["name"],
        "topic_id": shown_id(topic) or None,
        "internal": bool(topic.get("is_internal")),
        "partition_count": len(partitions),
        "replication_factor": len(partitions[0]["replica_nodes"]) if partitions else 0,
        "configs": configs,
        "partitions": [_partition(partition) for partition in partitions],
    }


def _partition(partition: Mapping[str, Any]) -> Row:
    leader = partition["leader_id"]
    lists = {"replicas": partition["replica_nodes"], "isr": partition["isr_nodes"]}
    return {"partition": partition["partition_index"], "leader": None if leader < 0 else leader, **lists}


def _summary(row: Row) -> list[str]:
    return [
        f"Topic: {row['topic']}",
        f"TopicId: {row['topic_id'] or 'none'}",
        f"PartitionCount: {row['partition_count']}",
        f"ReplicationFactor: {row['replication_factor']}",
        f"Configs: {','.join(f'{key}={value}' for key, value in row['configs'].items())}",
    ]


def _cells(partition: Row) -> list[str]:
    leader = "none" if partition["leader"] is None else str(partition["leader"])
    return [str(partition["partition"]), leader, *(",".join(map(str, partition[key])) for key in ("replicas", "isr"))]


def plain_description(row: Row) -> list[str]:
    """A topic as printed by Kafka's tool, with fields separated by tabs."""
    return [*_plain_summary(row), *plain_partitions(row)]


def _plain_summary(row: Row) -> list[str]:
    return ["\t".join(_summary(row))]


def plain_partitions(row: Row) -> list[str]:
    """The partitions of a topic as printed by Kafka's tool."""
    lines = []
    for partition in row["partitions"]:
        index, leader, replicas, isr = _cells(partition)
        lines.append(f"\tTopic: {row['topic']}\tPartition: {index}\tLeader: {leader}\tReplicas: {replicas}\tIsr: {isr}")
    return lines


def terminal_description(row: Row, width: int) -> list[str]:
    """A topic for a terminal: no line is wider than `width`."""
    rows = table(("Partition", "Leader", "Replicas", "Isr"), [_cells(partition) for partition in row["partitions"]], width - 2)
    return [*_terminal_summary(row, width), *(f"  {line}" for line in rows)]


def folded_description(row: Row, width: int) -> list[str]:
    """The same with one line for all partitions."""
    partitions = row["partitions"]
    leaderless = sum(partition["leader"] is None for partition in partitions)
    behind = sum(len(partition["isr"]) < len(partition["replicas"]) for partition in partitions)
    states = [
        f"{leaderless} without a leader" if leaderless else "all with a leader",
        f"{behind} under-replicated" if behind else "all replicas in sync",
    ]
    text = f"{amount(len(partitions), 'partition')}: {', '.join(states)} (see --topic {row['topic']})"
    return [*_terminal_summary(row, width), *(f"  {line}" for line in paragraph(text, width - 2))]


def _terminal_summary(row: Row, width: int) -> list[str]:
    return paragraph("  ".join(_summary(row)).replace(",", ", "), width)
