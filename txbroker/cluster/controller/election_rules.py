"""Kafka's leader election rules, as functions of a partition's state and its online replicas.

Each returns the new state, or None when no replica can be elected. A new state has the next leader epoch, which fences the previous
leader and followers; its partition epoch is still that of the state that it replaces. The preferred leader is the first replica, and the
first candidate in assignment order is elected.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from txbroker.cluster.node_data import NO_LEADER, PartitionState

INITIAL_LEADER_EPOCH = 0


def first_state(replicas: Sequence[int], online: Collection[int], controller_epoch: int) -> PartitionState | None:
    """The state of a new partition: all online replicas are in sync, because it is empty."""
    isr = tuple(replica for replica in replicas if replica in online)
    if not isr:
        return None
    return PartitionState(leader=isr[0], leader_epoch=INITIAL_LEADER_EPOCH, isr=isr, controller_epoch=controller_epoch)


def elect_offline(state: PartitionState, replicas: Sequence[int], online: Collection[int], *, unclean: bool) -> PartitionState | None:
    """The leader is offline: elect an in-sync replica; with `unclean` any other replica, which loses the records that only the ISR has."""
    in_sync = tuple(replica for replica in state.isr if replica in online)
    leader = _first(replicas, in_sync)
    if leader is not None:
        return _next(state, leader, in_sync)
    leader = _first(replicas, online) if unclean else None
    return None if leader is None else replace(_next(state, leader, (leader,)), recovering=True)


def elect_preferred(state: PartitionState, replicas: Sequence[int], online: Collection[int]) -> PartitionState | None:
    """Elect the first replica if it is online and in sync; the ISR stays."""
    preferred = replicas[0]
    if preferred not in online or preferred not in state.isr:
        return None
    return _next(state, preferred, state.isr)


def begin_epoch(state: PartitionState) -> PartitionState:
    """The same leader in a new epoch, alone in sync: its log has changed, and its followers must compare theirs with it."""
    return _next(state, state.leader, (state.leader,))


def elect_for_shutdown(
    state: PartitionState, replicas: Sequence[int], online: Collection[int], shutting_down: Collection[int]
) -> PartitionState | None:
    """The leader shuts down: elect an online in-sync replica that does not; replicas that shut down leave the ISR."""
    leader = _first(replicas, [replica for replica in state.isr if replica in online and replica not in shutting_down])
    if leader is None:
        return None
    return _next(state, leader, tuple(replica for replica in state.isr if replica not in shutting_down))


def elect_among(state: PartitionState, replicas: Sequence[int], online: Collection[int]) -> PartitionState | None:
    """A reassignment changes the replicas: the others leave the ISR and leadership. None when no replica would be in sync.

    The leader epoch grows also if the leader stays, so that it and its followers learn the new replicas.
    """
    isr = tuple(replica for replica in state.isr if replica in replicas)
    if not isr:
        return None
    candidates = [replica for replica in isr if replica in online]
    leader = state.leader if state.leader in candidates else _first(replicas, candidates)
    return _next(state, NO_LEADER if leader is None else leader, isr)


def without_replicas(state: PartitionState, offline: Collection[int]) -> PartitionState | None:
    """Remove offline replicas from the ISR and from leadership; None when nothing changes.

    An ISR that is entirely offline stays: each of its replicas has every committed record, and the first that returns leads.
    """
    isr = tuple(replica for replica in state.isr if replica not in offline) or state.isr
    leader = NO_LEADER if state.leader in offline else state.leader
    if (leader, isr) == (state.leader, state.isr):
        return None
    return _next(state, leader, isr)


def without_restarted(
    state: PartitionState,
    replicas: Sequence[int],
    online: Collection[int],
    restarted: Collection[int],
    suspected: Collection[int],
) -> PartitionState:
    """Members of the ISR have started again unnoticed: they leave it, and leadership, if another one is online and not suspected.

    The leader epoch grows in any case: a leader that has lost records may not write others in the epoch in which it wrote those.
    """
    candidates = [replica for replica in state.isr if replica in online]
    others = [replica for replica in candidates if replica not in restarted and replica not in suspected]
    isr = tuple(others or candidates) or state.isr
    leader = state.leader if state.leader in isr and state.leader in candidates else _first(replicas, others or candidates)
    return _next(state, NO_LEADER if leader is None else leader, isr)


def without_suspects(
    state: PartitionState, replicas: Sequence[int], online: Collection[int], suspected: Collection[int]
) -> PartitionState | None:
    """Suspected brokers leave the ISR, and leadership; None when nothing changes.

    None also if no other online replica is in sync, or the partition has another leader that is offline: a suspicion may be wrong, and is
    no reason to leave a partition without a leader.
    """
    isr = tuple(replica for replica in state.isr if replica not in suspected)
    candidates = [replica for replica in isr if replica in online]
    leader = _first(replicas, candidates) if state.leader in suspected else state.leader
    if leader not in candidates or (leader, isr) == (state.leader, state.isr):
        return None
    assert leader is not None
    return _next(state, leader, isr)


def _first(replicas: Sequence[int], candidates: Collection[int]) -> int | None:
    return next((replica for replica in replicas if replica in candidates), None)


def _next(state: PartitionState, leader: int, isr: tuple[int, ...]) -> PartitionState:
    return replace(state, leader=leader, leader_epoch=state.leader_epoch + 1, isr=isr)
