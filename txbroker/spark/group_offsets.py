"""Committed offsets of a consumer group that follow a table: tools that show the lag of groups see how far `load` has come.

The table alone says what is loaded. These offsets are a copy of it for others; nothing reads them back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from txbroker.client.client_errors import ClientError
from txbroker.client.group_commits import DEAD, Committed, GroupCommits
from txbroker.console.failures import BadUsage, CommandFailed, broker_error, client_failure
from txbroker.names import TopicPartition, amount
from txbroker.spark.topic_source import TopicSource

METADATA = "txbroker spark load"


class GroupCommit(NamedTuple):
    """`committed`: of how many partitions the offset was advanced. `problem`: why it was not of all, a sentence; None if it was."""

    group: str
    committed: int
    problem: str | None


def check_group(source: TopicSource, group: str) -> None:
    """CommandFailed if the group has members: their own commits would be overwritten. BadUsage without a name, ClientError."""
    if not group:
        raise BadUsage("--commit-group must be the name of a group")
    with source.brokers.commits(group) as commits:
        _check(commits)


def advance(source: TopicSource, group: str, ends: Mapping[TopicPartition, int]) -> GroupCommit:
    """Commit these offsets where the group has none or a lower one: an offset never goes back. Failures are in the result.

    They are committed as a tool does, without a generation, and without a leader epoch: -1 is valid on a cluster that continues another
    one's log under its own epochs.
    """
    count = 0
    try:
        with source.brokers.commits(group) as commits:
            _check(commits)
            known = commits.fetch_all()
            higher = {partition: Committed(end, METADATA) for partition, end in ends.items()
                      if partition not in known or known[partition].offset < end}  # fmt: skip
            refused = commits.commit_all(higher) if higher else {}
            count = len(higher) - len(refused)
            if refused:
                first, code = min(refused.items())
                what = f"the offset of {amount(len(refused), 'partition')} was not committed to group {group}, the first is {first}"
                raise broker_error(what, code, None)
    except CommandFailed as failed:
        return GroupCommit(group, count, str(failed))
    except ClientError as error:
        return GroupCommit(group, count, str(client_failure(error)))
    return GroupCommit(group, count, None)


def _check(commits: GroupCommits) -> None:
    state = commits.state()
    if state not in ("Empty", DEAD):
        raise CommandFailed(f"group {commits.group} has members (state {state}), whose commits --commit-group would overwrite; "
                            "specify a group that no consumer uses, or stop its members")
