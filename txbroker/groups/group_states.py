"""The states of a classic group, and every way from one to another."""

from __future__ import annotations

from enum import Enum


class GroupState(Enum):
    """Where a group stands; the values are the names that DescribeGroups and ListGroups show."""

    EMPTY = "Empty"  # no members; it may still keep offsets
    PREPARING_REBALANCE = "PreparingRebalance"  # collecting JoinGroup requests
    COMPLETING_REBALANCE = "CompletingRebalance"  # a generation is formed and waits for its leader's assignment
    STABLE = "Stable"  # every member can have its assignment
    DEAD = "Dead"  # unloaded or deleted; it never comes back


TRANSITIONS: dict[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.PREPARING_REBALANCE: frozenset({GroupState.COMPLETING_REBALANCE, GroupState.EMPTY, GroupState.DEAD}),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.STABLE, GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.STABLE: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.DEAD: frozenset(),
}
