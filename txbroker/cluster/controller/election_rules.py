"""Who leads a partition next: Kafka's rules of election, as functions of a partition's state and of which replicas are online.

Each returns the state to be written, or None when there is nobody to elect. A new state has the next leader epoch, so that leaders
and followers of before are fenced; its partition epoch is still that of the state it replaces. The preferred leader is the first replica,
and of several candidates the first in the order of the assignment leads.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from txbroker.cluster.node_data import NO_LEADER, PartitionState

INITIAL_LEADER_EPOCH = 0


def first_state(replicas: Sequence[int], online: Collection[int], controller_epoch: int) -> PartitionState | None:
    """The state of a new partition: all replicas that are online are in sync, since it is empty."""
    isr = tuple(replica for replica in replicas if replica in online)
    if not isr:
        return None
    return PartitionState(leader=isr[0], leader_epoch=INITIAL_LEADER_EPOCH, isr=isr, controller_epoch=controller_epoch)


def elect_offline(state: PartitionState, replicas: Sequence[int], online: Collection[int], *, unclean: bool) -> PartitionState | None:
    """The leader is gone: one of the in-sync replicas leads; with `unclean` any other, at the price of records that only the ISR has."""
    in_sync = tuple(replica for replica in state.isr if replica in online)
    leader = _first(replicas, in_sync)
    if leader is not None:
        return _next(state, leader, in_sync)
    leader = _first(replicas, online) if unclean else None
    return None if leader is None else replace(_next(state, leader, (leader,)), recovering=True)


def elect_preferred(state: PartitionState, replicas: Sequence[int], online: Collection[int]) -> PartitionState | None:
    """Back to the first replica, if it is online and in sync; the ISR stays."""
    preferred = replicas[0]
    if preferred not in online or preferred not in state.isr:
        return None
    return _next(state, preferred, state.isr)


def elect_for_shutdown(
    state: PartitionState, replicas: Sequence[int], online: Collection[int], shutting_down: Collection[int]
) -> PartitionState | None:
    """The leader is about to stop: an in-sync replica that is online and does not stop leads; those that stop leave the ISR."""
    leader = _first(replicas, [replica for replica in state.isr if replica in online and replica not in shutting_down])
    if leader is None:
        return None
    return _next(state, leader, tuple(replica for replica in state.isr if replica not in shutting_down))


def without_replicas(state: PartitionState, offline: Collection[int]) -> PartitionState | None:
    """Offline replicas leave the ISR and lead no longer; None when that changes nothing.

    An ISR that is offline as a whole stays: each of its replicas has every committed record, and the first that is back leads.
    """
    isr = tuple(replica for replica in state.isr if replica not in offline) or state.isr
    leader = NO_LEADER if state.leader in offline else state.leader
    if (leader, isr) == (state.leader, state.isr):
        return None
    return _next(state, leader, isr)


def _first(replicas: Sequence[int], candidates: Collection[int]) -> int | None:
    return next((replica for replica in replicas if replica in candidates), None)


def _next(state: PartitionState, leader: int, isr: tuple[int, ...]) -> PartitionState:
    return replace(state, leader=leader, leader_epoch=state.leader_epoch + 1, isr=isr)
