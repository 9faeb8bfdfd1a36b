"""Committed offsets of a consumer group that follow a table: tools that show the lag of groups see how far `load` has come.

The table alone says what is loaded. These offsets are a copy of it for others; nothing reads them back.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from txbroker.cli.failures import BadUsage, CommandFailed, broker_error
from txbroker.cli.group_requests import commit_offsets, committed_offsets, describe_groups
from txbroker.cli.group_reset import RESETTABLE
from txbroker.cli.partition_flags import Partition
from txbroker.client.topic_leaders import RETRIABLE
from txbroker.names import amount
from txbroker.spark.brokers import administering
from txbroker.spark.topic_source import TopicSource

TIMEOUT_MS = 30_000
RETRY_S = 0.2
METADATA = "txbroker spark load"


class GroupCommit(NamedTuple):
    """`committed`: of how many partitions the offset was advanced. `problem`: why it was not of all, a sentence; None if it was."""

    group: str
    committed: int
    problem: str | None


def check_group(source: TopicSource, group: str) -> None:
    """CommandFailed if the group has members: their own commits would be overwritten. BadUsage without a name."""
    if not group:
        raise BadUsage("--commit-group must be the name of a group")
    with administering(source.servers, source.properties) as admin:
        _check(admin, group)


def advance(source: TopicSource, group: str, ends: Mapping[Partition, int]) -> GroupCommit:
    """Commit these offsets where the group has none or a lower one: an offset never goes back. Failures are in the result.

    They are committed as a tool does, without a generation, and without a leader epoch: -1 is valid on a cluster that continues another
    one's log under its own epochs.
    """
    count = 0
    try:
        with administering(source.servers, source.properties) as admin:
            _check(admin, group)
            known = committed_offsets(admin, [group], TIMEOUT_MS)[group]
            higher = {partition: end for partition, end in ends.items() if partition not in known or known[partition].offset < end}
            refused = commit_offsets(admin, group, higher, METADATA) if higher else {}
            count = len(higher) - len(refused)
            if refused:
                first, code = min(refused.items())
                what = f"the offset of {amount(len(refused), 'partition')} was not committed to group {group}, the first is {first}"
                raise broker_error(what, code, None)
    except CommandFailed as failed:
        return GroupCommit(group, count, str(failed))
    return GroupCommit(group, count, None)


def _check(admin: Any, group: str) -> None:
    deadline_s = time.monotonic() + TIMEOUT_MS / 1000
    (found,) = describe_groups(admin, [group], TIMEOUT_MS)
    # A new cluster has no coordinator until it has created __consumer_offsets.
    while found.error is not None and found.error[0] in RETRIABLE and time.monotonic() < deadline_s:
        time.sleep(RETRY_S)
        (found,) = describe_groups(admin, [group], TIMEOUT_MS)
    if found.missing or found.state in RESETTABLE:
        return
    if found.error is not None:
        raise broker_error(f"group {group} cannot be described", *found.error)
    raise CommandFailed(f"group {group} has members (state {found.state}), whose commits --commit-group would overwrite; "
                        "specify a group that no consumer uses, or stop its members")
