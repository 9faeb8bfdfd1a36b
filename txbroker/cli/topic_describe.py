"""`txbroker topics --describe`: topics with their partitions and configurations (Kafka's class TopicCommand)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from txbroker.cli.clients import without_controller
from txbroker.cli.ongoing_reassignments import Ongoing, find_ongoing
from txbroker.cli.results import Results, Row, cell
from txbroker.cli.tables import paragraph, table
from txbroker.console.failures import CommandFailed, warn
from txbroker.names import TopicPartition, amount, id_to_text

Topic = Mapping[str, Any]

# Flags that select partitions -> their help.
FILTERS = {
    "--under-replicated-partitions": "only partitions with replicas that are not in sync",
    "--unavailable-partitions": "only partitions without a leader",
    "--under-min-isr-partitions": "only partitions with fewer in-sync replicas than min.insync.replicas",
    "--at-min-isr-partitions": "only partitions with exactly min.insync.replicas in-sync replicas",
}
NEED_CONFIGS = ("--under-min-isr-partitions", "--at-min-isr-partitions")
# Conditions on a partition and min.insync.replicas of its topic.
_MATCHES: Mapping[str, Callable[[Row, int], bool]] = {
    "--under-replicated-partitions": lambda partition, least: _is_under_replicated(partition),
    "--unavailable-partitions": lambda partition, least: partition["leader"] is None,
    "--under-min-isr-partitions": lambda partition, least: len(partition["isr"]) < least,
    "--at-min-isr-partitions": lambda partition, least: len(partition["isr"]) == least,
}


def _factor(partition: Row) -> int:
    """The number of replicas, as Kafka's tool counts: without those that a reassignment is adding."""
    return len(partition["replicas"]) - len(partition.get("adding", ()))


def _is_under_replicated(partition: Row) -> bool:
    return len(partition["isr"]) < _factor(partition)


NOTHING: Mapping[TopicPartition, Ongoing] = {}
DEFAULT_SOURCE = "DEFAULT_CONFIG"
LEAST = "min.insync.replicas"
MOVING = {"adding": "Adding Replicas", "removing": "Removing Replicas"}  # only while a partition is reassigned


def show(
    shown: Results, admin: Any, topics: Sequence[Topic], only: str | None, with_overrides: bool, *, fold_internal: bool
) -> None:
    """Print topics. `only`, a flag of `FILTERS`, selects partitions; `with_overrides` selects the topics that override configurations.

    `fold_internal`: on a terminal, print one line for all partitions of an internal topic.
    """
    found = _configs(admin, topics)
    unread = [topic["name"] for topic in topics if not found.get(topic["name"])]
    if unread:
        problem = f"configurations of {amount(len(unread), 'topic')} cannot be read, such as {unread[0]}"
        if only in NEED_CONFIGS or with_overrides:
            raise CommandFailed(f"{problem}; try again, and see whether the brokers reach ZooKeeper")
        warn(problem)
    ongoing = without_controller("reassignments", lambda: find_ongoing(admin), NOTHING) if topics else NOTHING
    for topic in topics:
        configs = found.get(topic["name"], {})
        changed = {key: entry["value"] for key, entry in sorted(configs.items()) if entry["config_source"] != DEFAULT_SOURCE}
        row = description(topic, changed, ongoing)
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
    """By topic. The library has no entries for a topic whose configuration the broker cannot read."""
    from kafka.admin import ConfigResource, ConfigResourceType

    if not topics:
        return {}
    resources = [ConfigResource(ConfigResourceType.TOPIC, topic["name"]) for topic in topics]
    found: Mapping[str, Any] = admin.describe_configs(resources, config_filter="all")["topic"]
    return found


def shown_id(topic: Topic) -> str:
    """A topic's id in Kafka's text form; empty if the broker has none."""
    return id_to_text(bytes.fromhex((topic.get("topic_id") or "").replace("-", "")))


def description(topic: Topic, configs: Mapping[str, str], ongoing: Mapping[TopicPartition, Ongoing] = NOTHING) -> Row:
    """The description of a topic, as printed with --json. `ongoing`: the reassignments in progress."""
    ordered = sorted(topic["partitions"], key=lambda partition: int(partition["partition_index"]))
    partitions = [_partition(each, ongoing.get(TopicPartition(topic["name"], each["partition_index"]))) for each in ordered]
    return {
        "topic": topic["name"],
        "topic_id": shown_id(topic) or None,
        "internal": bool(topic.get("is_internal")),
        "partition_count": len(partitions),
        "replication_factor": _factor(partitions[0]) if partitions else 0,
        "configs": configs,
        "partitions": partitions,
    }


def _partition(partition: Mapping[str, Any], ongoing: Ongoing | None) -> Row:
    leader = partition["leader_id"]
    lists = {"replicas": partition["replica_nodes"], "isr": partition["isr_nodes"]}
    if ongoing is not None:
        lists |= {"adding": list(ongoing.adding), "removing": list(ongoing.removing)}
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
    return [str(partition["partition"]), leader, _ids(partition["replicas"]), _ids(partition["isr"])]


def _ids(brokers: Sequence[int]) -> str:
    return ",".join(map(str, brokers))


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
        moving = "".join(f"\t{title}: {_ids(partition[key])}" for key, title in MOVING.items() if key in partition)
        lines.append(f"\tTopic: {row['topic']}\tPartition: {index}\tLeader: {leader}\tReplicas: {replicas}\tIsr: {isr}{moving}")
    return lines


def terminal_description(row: Row, width: int) -> list[str]:
    """A topic for a terminal: no line is wider than `width`."""
    headings, cells = ["Partition", "Leader", "Replicas", "Isr"], [_cells(partition) for partition in row["partitions"]]
    if any("adding" in partition for partition in row["partitions"]):
        headings += ["Adding", "Removing"]
        cells = [[*each, *(cell(partition.get(key)) for key in MOVING)] for each, partition in zip(cells, row["partitions"], strict=True)]
    rows = table(headings, cells, width - 2)
    return [*_terminal_summary(row, width), *(f"  {line}" for line in rows)]


def folded_description(row: Row, width: int) -> list[str]:
    """The same with one line for all partitions."""
    partitions = row["partitions"]
    leaderless = sum(partition["leader"] is None for partition in partitions)
    behind = sum(map(_is_under_replicated, partitions))
    states = [
        f"{leaderless} without a leader" if leaderless else "all with a leader",
        f"{behind} under-replicated" if behind else "all replicas in sync",
    ]
    text = f"{amount(len(partitions), 'partition')}: {', '.join(states)} (see --topic {row['topic']})"
    return [*_terminal_summary(row, width), *(f"  {line}" for line in paragraph(text, width - 2))]


def _terminal_summary(row: Row, width: int) -> list[str]:
    return paragraph("  ".join(_summary(row)).replace(",", ", "), width)
