from __future__ import annotations

import pytest

from txbroker.cluster.controller.election_rules import (
    elect_for_shutdown,
    elect_offline,
    elect_preferred,
    first_state,
    without_replicas,
    without_restarted,
    without_suspects,
)
from txbroker.cluster.node_data import PartitionState


def state(leader: int, *isr: int, epoch: int = 5) -> PartitionState:
    return PartitionState(leader=leader, leader_epoch=epoch, isr=isr, controller_epoch=1, partition_epoch=9)


def test_a_new_partition_is_led_by_its_first_online_replica() -> None:
    assert first_state((3, 1, 2), {1, 2}, 4) == PartitionState(leader=1, leader_epoch=0, isr=(1, 2), controller_epoch=4)
    assert first_state((3,), {1, 2}, 4) is None


def test_an_in_sync_replica_takes_over_in_the_order_of_the_assignment() -> None:
    assert elect_offline(state(3, 3, 2, 1), (3, 1, 2), {1, 2}, unclean=False) == state(1, 2, 1, epoch=6)
    # 1 is online but not in sync
    assert elect_offline(state(3, 3, 2), (3, 1, 2), {1, 2}, unclean=True) == state(2, 2, epoch=6)


def test_without_an_in_sync_replica_only_an_unclean_election_helps() -> None:
    before = state(3, 3)
    assert elect_offline(before, (3, 2, 1), {1, 2}, unclean=False) is None
    elected = elect_offline(before, (3, 2, 1), {1, 2}, unclean=True)
    assert elected is not None
    assert (elected.leader, elected.isr, elected.leader_epoch, elected.recovering) == (2, (2,), 6, True)
    assert elect_offline(before, (3, 2, 1), set(), unclean=True) is None


def test_the_same_leader_may_lead_again_in_the_next_epoch() -> None:
    assert elect_offline(state(-1, 1), (1,), {1}, unclean=False) == state(1, 1, epoch=6)


def test_the_preferred_leader_must_be_online_and_in_sync() -> None:
    assert elect_preferred(state(2, 2, 1), (1, 2), {1, 2}) == state(1, 2, 1, epoch=6)
    assert elect_preferred(state(2, 2, 1), (1, 2), {2}) is None
    assert elect_preferred(state(2, 2), (1, 2), {1, 2}) is None


def test_a_leader_that_stops_hands_over() -> None:
    assert elect_for_shutdown(state(1, 1, 2, 3), (1, 2, 3), {1, 2, 3}, {1}) == state(2, 2, 3, epoch=6)
    assert elect_for_shutdown(state(1, 1, 2, 3), (1, 2, 3), {1, 2, 3}, {1, 2}) == state(3, 3, epoch=6)
    assert elect_for_shutdown(state(1, 1, 2), (1, 2, 3), {1, 3}, {1}) is None  # 2 is dead, 3 out of sync
    assert elect_for_shutdown(state(1, 1), (1,), {1}, {1}) is None


def test_offline_replicas_leave_the_isr_but_never_empty_it() -> None:
    assert without_replicas(state(1, 1, 2, 3), {2, 3}) == state(1, 1, epoch=6)
    assert without_replicas(state(1, 1, 2), {1}) == state(-1, 2, epoch=6)
    assert without_replicas(state(1, 1), {1}) == state(-1, 1, epoch=6)
    assert without_replicas(state(1, 1, 2), {1, 2}) == state(-1, 1, 2, epoch=6)
    assert without_replicas(state(1, 1), {2}) is None
    assert without_replicas(state(-1, 1), {1}) is None


def test_a_suspect_leaves_leadership_and_the_isr_at_once_if_another_replica_is_in_sync() -> None:
    replicas, online = (1, 2, 3), {1, 2, 3}
    assert without_suspects(state(1, 1, 2, 3), replicas, online, {1}) == state(2, 2, 3, epoch=6)
    assert without_suspects(state(2, 1, 2, 3), replicas, online, {1}) == state(2, 2, 3, epoch=6)
    assert without_suspects(state(1, 1), replicas, online, {1}) is None
    assert without_suspects(state(1, 1, 2), replicas, {1, 3}, {1}) is None  # 2 is offline
    assert without_suspects(state(2, 1, 2, 3), replicas, {1, 3}, {1}) is None  # the leader is offline: a matter of its own
    assert without_suspects(state(-1, 1, 2), replicas, online, {1}) is None
    assert without_suspects(state(2, 2, 3), replicas, online, {1}) is None
    assert without_suspects(state(1, 1, 2, 3), replicas, online, {1, 2, 3}) is None


@pytest.mark.parametrize(("suspected", "leader", "isr"), [((), 2, (2,)), ((2,), 2, (1, 2)), ((1,), 2, (2,))])
def test_a_restarted_broker_leaves_the_isr_unless_the_others_are_suspected(
    suspected: tuple[int, ...], leader: int, isr: tuple[int, ...]
) -> None:
    assert without_restarted(state(2, 1, 2), (1, 2), (1, 2), {1}, suspected) == state(leader, *isr, epoch=6)
