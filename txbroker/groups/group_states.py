"""The states of a classic group and the transitions between them."""

from __future__ import annotations

from enum import Enum


class GroupState(Enum):
    """The state of a group; the values are the names in DescribeGroups and ListGroups."""

    EMPTY = "Empty"  # no members; it may have offsets
    PREPARING_REBALANCE = "PreparingRebalance"  # collecting JoinGroup requests
    COMPLETING_REBALANCE = "CompletingRebalance"  # a generation is formed, and waits for its leader's assignment
    STABLE = "Stable"  # every member can get its assignment
    DEAD = "Dead"  # unloaded or deleted; the object is not used again


TRANSITIONS: dict[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.PREPARING_REBALANCE: frozenset({GroupState.COMPLETING_REBALANCE, GroupState.EMPTY, GroupState.DEAD}),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.STABLE, GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.STABLE: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.DEAD: frozenset(),
}
