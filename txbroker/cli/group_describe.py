"""`txbroker groups --describe`: the offsets and the lag of a group, its members, or its state."""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from txbroker.cli.group_requests import Group, committed_offsets, describe_groups
from txbroker.cli.partition_flags import LATEST, list_offsets, partitions_of
from txbroker.cli.results import Column, Results, Row
from txbroker.console.failures import DONE, FAILED, broker_error, warn
from txbroker.errors import ErrorCode
from txbroker.names import TopicPartition

NO_EPOCH = -1
REBALANCING = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")

GROUP = Column("group", "GROUP", 15)
OFFSETS = (
    GROUP, Column("topic", "TOPIC", 15), Column("partition", "PARTITION", 10), Column("leader_epoch", "LEADER-EPOCH", 15),
    Column("current_offset", "CURRENT-OFFSET", 15), Column("log_end_offset", "LOG-END-OFFSET", 15), Column("lag", "LAG", 15),
    Column("consumer_id", "CONSUMER-ID", 15), Column("host", "HOST", 15), Column("client_id", "CLIENT-ID"),
)  # fmt: skip
MEMBERS = (
    GROUP, Column("consumer_id", "CONSUMER-ID", 15), Column("group_instance_id", "GROUP-INSTANCE-ID", 17), Column("host", "HOST", 15),
    Column("client_id", "CLIENT-ID", 15), Column("partition_count", "#PARTITIONS", 15),
)  # fmt: skip
# Columns of Kafka's tool for groups of the protocol of KIP-848.
ASSIGNMENTS = (
    Column("current_epoch", "CURRENT-EPOCH", 15), Column("assignment_text", "CURRENT-ASSIGNMENT", 20),
    Column("target_epoch", "TARGET-EPOCH", 15), Column("target_assignment", "TARGET-ASSIGNMENT", 20),
)  # fmt: skip
STATE = (
    GROUP, Column("coordinator_text", "COORDINATOR (ID)", 25), Column("assignment_strategy", "ASSIGNMENT-STRATEGY", 20),
    Column("state", "STATE", 20),
)  # fmt: skip
EPOCHS = (Column("group_epoch", "GROUP-EPOCH", 15), Column("target_assignment_epoch", "TARGET-ASSIGNMENT-EPOCH", 25))
MEMBER_COUNT = Column("member_count", "#MEMBERS")


def describe(admin: Any, names: Sequence[str], arguments: argparse.Namespace, shown: Results) -> int:
    """Describe the groups; FAILED if one of them does not exist, or cannot be described."""
    groups = describe_groups(admin, names, arguments.timeout)
    described = [group for group in groups if group.error is None and not group.missing]
    if arguments.members:
        for group in described:
            _show_members(shown, group, arguments.verbose)
    elif arguments.state is not None:
        for group in described:
            _show_state(shown, group, arguments.verbose)
    else:
        for group, rows in zip(described, offset_rows(admin, described, arguments.timeout), strict=True):
            _show(shown, group, [column for column in OFFSETS if arguments.verbose or column.key != "leader_epoch"], rows)
    others = [group for group in groups if group not in described]
    for group in others:
        warn(_problem(group))
    return FAILED if others else DONE


def _problem(group: Group) -> str:
    if group.missing:
        return f"Consumer group '{group.name}' does not exist; see `txbroker groups --list`"
    code, message = group.error or (ErrorCode.UNKNOWN_SERVER_ERROR, None)
    return str(broker_error(f"group {group.name} cannot be described", code, message))


def _show(shown: Results, group: Group, columns: Sequence[Column], rows: Sequence[Row]) -> None:
    if group.state == "Empty":
        warn(f"Consumer group '{group.name}' has no active members.")
    elif group.state in REBALANCING:
        warn(f"Warning: Consumer group '{group.name}' is rebalancing.")
    if rows and not shown.as_json:
        shown.line("")
    if rows:
        shown.rows(columns, rows)


def _show_members(shown: Results, group: Group, verbose: bool) -> None:
    static = any(member.instance_id for member in group.members)
    columns = [column for column in MEMBERS if static or column.key != "group_instance_id"]
    rows: list[dict[str, Any]] = [
        {
            "group": group.name,
            "consumer_id": member.consumer_id,
            "group_instance_id": member.instance_id,
            "host": member.host,
            "client_id": member.client_id,
            "partition_count": len(member.partitions),
            "assignment": [{"topic": topic, "partitions": numbers} for topic, numbers in _by_topic(member.partitions).items()],
        }
        for member in group.members
    ]
    if not shown.as_json:
        rows = [{**row, "assignment_text": assignment_text(row["assignment"])} for row in rows]
    _show(shown, group, [*columns, *(ASSIGNMENTS if verbose else ())], rows)


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = defaultdict(list)
    for partition in partitions:
        found[partition.topic].append(partition.partition)
    return found


def assignment_text(assignment: Iterable[Row]) -> str:
    """Topics with their partitions, as in Kafka's tool: `a:0,1;b:2`."""
    return ";".join(f"{row['topic']}:{','.join(map(str, row['partitions']))}" for row in assignment)


def _show_state(shown: Results, group: Group, verbose: bool) -> None:
    row = {
        "group": group.name,
        "coordinator": group.coordinator._asdict(),
        "assignment_strategy": group.assignor or None,
        "state": group.state,
        "member_count": len(group.members),
    }
    shown_row = row if shown.as_json else {**row, "coordinator_text": str(group.coordinator)}
    _show(shown, group, [*STATE, *(EPOCHS if verbose else ()), MEMBER_COUNT], [shown_row])


def offset_rows(admin: Any, groups: Sequence[Group], timeout_ms: int) -> list[list[Row]]:
    """For each group: the partitions of its members, beginning with the member that has most, and other partitions with offsets."""
    committed = committed_offsets(admin, [group.name for group in groups], timeout_ms)
    partitions = {partition for offsets in committed.values() for partition in offsets}
    partitions |= {partition for group in groups for member in group.members for partition in member.partitions}
    ends = _log_ends(admin, partitions)
    return [_group_rows(group, committed.get(group.name, {}), ends) for group in groups]


def _log_ends(admin: Any, partitions: set[TopicPartition]) -> dict[TopicPartition, int]:
    """The log end offsets of those that exist and have a leader."""
    topics = admin.describe_topics(sorted({partition.topic for partition in partitions})) if partitions else []
    led = [partition for partition, leader in partitions_of(topics).items() if leader >= 0 and partition in partitions]
    return {partition: found.offset for partition, found in list_offsets(admin, led, LATEST).items()}


def _group_rows(group: Group, committed: Mapping[TopicPartition, Any], ends: Mapping[TopicPartition, int]) -> list[Row]:
    rows, assigned = [], set()
    for member in sorted(group.members, key=lambda member: -len(member.partitions)):
        who = {"consumer_id": member.consumer_id, "host": member.host, "client_id": member.client_id}
        rows += [_row(group.name, partition, committed, ends, who) for partition in member.partitions]
        assigned |= set(member.partitions)
    no_member = dict.fromkeys(("consumer_id", "host", "client_id"))
    rows += [_row(group.name, partition, committed, ends, no_member) for partition in sorted(committed) if partition not in assigned]
    return rows


def _row(
    group: str,
    partition: TopicPartition,
    committed: Mapping[TopicPartition, Any],
    ends: Mapping[TopicPartition, int],
    who: Mapping[str, str | None],
) -> Row:
    at = committed.get(partition)
    end = ends.get(partition)
    epoch = None if at is None or at.leader_epoch in (None, NO_EPOCH) else at.leader_epoch
    return {
        "group": group,
        "topic": partition.topic,
        "partition": partition.partition,
        "leader_epoch": epoch,
        "current_offset": None if at is None else at.offset,
        "log_end_offset": end,
        "lag": None if at is None or end is None else end - at.offset,
        **who,
    }
