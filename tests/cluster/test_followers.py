"""What a leader concludes from the fetches of its followers: the high watermark, and who enters and leaves the ISR."""

from __future__ import annotations

import pytest

from txbroker.cluster.followers import UNKNOWN_OFFSET, FollowerFetch, Followers, IsrProposal

OWN, A, B = 1, 2, 3
LAG_S = 10.0


class Leader:
    """A leader of three replicas with a log end offset and a clock."""

    def __init__(self, isr: tuple[int, ...] = (OWN, A, B), epoch_start: int = 0) -> None:
        self.dead: set[int] = set()
        self.epochs: dict[int, int] = {}
        self.end = 0
        self.now_s = 100.0
        self.followers = Followers(OWN, lag_max_s=lambda: LAG_S, is_eligible=self._is_eligible, epoch_start=epoch_start)
        self.take(isr, 0)

    def _is_eligible(self, replica: int, broker_epoch: int) -> bool:
        return replica not in self.dead and broker_epoch in (-1, self.epochs.get(replica, broker_epoch))

    def take(self, isr: tuple[int, ...], partition_epoch: int) -> None:
        self.followers.apply(leader_epoch=5, partition_epoch=partition_epoch, isr=isr, replicas=(OWN, A, B), now_s=self.now_s)

    def fetch(self, replica: int, offset: int, **other: int) -> bool:
        return self.followers.fetched(FollowerFetch(replica, offset, self.end, self.now_s, **other))

    @property
    def high_watermark(self) -> int:
        return self.followers.high_watermark(self.end, self.end, self.now_s)

    def leave(self) -> IsrProposal | None:
        return self.followers.propose_leave(self.end, self.now_s)


def test_the_high_watermark_waits_for_the_slowest_member() -> None:
    leader = Leader()
    leader.end = 10
    assert leader.high_watermark == UNKNOWN_OFFSET, "no replica has fetched yet"
    leader.fetch(A, 8)
    assert leader.high_watermark == UNKNOWN_OFFSET
    leader.fetch(B, 5)
    assert leader.high_watermark == 5
    leader.fetch(B, 10)
    assert leader.high_watermark == 8


def test_a_replica_outside_of_the_isr_counts_only_while_it_is_caught_up() -> None:
    leader = Leader(isr=(OWN, A))
    leader.end = 10
    leader.fetch(A, 10)
    leader.fetch(B, 3)
    assert leader.high_watermark == 10, "B is far behind"
    leader.fetch(B, 10)
    leader.end = 12
    leader.fetch(A, 12)
    assert leader.high_watermark == 10, "B is about to join"
    leader.dead.add(B)
    assert leader.high_watermark == 12, "the broker of B is gone"


def test_a_replica_that_follows_a_constant_load_is_caught_up() -> None:
    """It never reaches the end, which moves with each fetch; it always has what was there at its fetch before."""
    leader = Leader()
    leader.fetch(B, 0)
    for step in range(40):
        leader.end = 10 * (step + 1)
        leader.now_s += 1.0
        leader.fetch(A, 10 * step)
        leader.fetch(B, 0)
        proposal = leader.leave()
        if proposal is not None:
            assert proposal.members == {OWN, A} and step > LAG_S - 2
            return
    pytest.fail("B never left")


def test_a_silent_replica_leaves_after_the_lag_and_one_that_has_everything_never() -> None:
    leader = Leader()
    leader.end = 1
    leader.fetch(A, 1)
    leader.now_s += LAG_S
    assert leader.leave() is None
    leader.now_s += 0.1
    proposal = leader.leave()
    assert proposal == IsrProposal(5, 0, ((OWN, -1), (A, -1)))
    assert leader.leave() is None, "one proposal at a time"


def test_the_high_watermark_counts_both_sets_while_a_proposal_waits() -> None:
    leader = Leader()
    leader.end = 10
    leader.fetch(A, 10)
    leader.fetch(B, 4)
    leader.now_s += LAG_S + 1
    leader.fetch(A, 10)
    proposal = leader.leave()
    assert proposal is not None and leader.high_watermark == 4, "the controller may refuse that B leaves"
    assert not leader.followers.withdraw(IsrProposal(5, 0, ()))
    assert leader.followers.withdraw(proposal) and leader.high_watermark == 4
    assert leader.leave() is not None
    leader.take((OWN, A), 1)
    assert leader.high_watermark == 10

    leader.fetch(B, 10)
    joining = leader.followers.propose_join(B, leader.high_watermark)
    assert joining is not None
    leader.end = 20
    leader.fetch(A, 20)
    assert leader.high_watermark == 10, "the controller may have accepted B already"
    assert leader.followers.maximal == {OWN, A, B} and leader.followers.committed == {OWN, A}


def test_the_controllers_state_voids_a_proposal() -> None:
    leader = Leader(isr=(OWN, A))
    leader.fetch(B, 0)
    proposal = leader.followers.propose_join(B, 0)
    assert proposal is not None
    leader.take((OWN,), 1)
    assert leader.followers.maximal == {OWN}
    assert not leader.followers.withdraw(proposal), "a late answer"


def test_who_may_join() -> None:
    leader = Leader(isr=(OWN,), epoch_start=7)
    leader.end = 10
    propose = leader.followers.propose_join
    assert propose(A, 5) is None, "it has not fetched"
    leader.fetch(A, 6)
    assert propose(A, 5) is None, "it has nothing of this leader epoch yet"
    leader.fetch(A, 8)
    assert propose(A, 9) is None, "it is below the high watermark"
    leader.dead.add(A)
    assert propose(A, 8) is None, "its broker is not alive"
    leader.dead.clear()
    assert propose(9, 0) is None, "no replica of the partition"
    found = propose(A, 8)
    assert found == IsrProposal(5, 0, ((OWN, -1), (A, -1)))
    leader.followers.withdraw(found)
    leader.take((OWN, A), 1)
    assert propose(A, 8) is None, "it is a member"


def test_an_incarnation_that_the_controller_does_not_know_may_not_join() -> None:
    leader = Leader(isr=(OWN,))
    leader.epochs[A] = 50
    leader.fetch(A, 0, broker_epoch=49)
    assert leader.followers.propose_join(A, 0) is None
    leader.fetch(A, 0, broker_epoch=50)
    proposal = leader.followers.propose_join(A, 0)
    assert proposal is not None and proposal.isr == ((OWN, -1), (A, 50))


def test_a_fetch_from_before_a_restart_is_ignored() -> None:
    leader = Leader()
    leader.end = 10
    assert leader.fetch(A, 3, broker_epoch=50)
    assert not leader.fetch(A, 9, broker_epoch=49)
    state = leader.followers.state(A)
    assert state is not None and (state.end_offset, state.broker_epoch) == (3, 50)
    assert not leader.fetch(7, 9), "no replica of the partition"


def test_a_restarted_replica_with_a_shorter_log_lowers_what_is_known_of_it() -> None:
    leader = Leader()
    leader.end = 10
    leader.fetch(A, 10, broker_epoch=50)
    leader.fetch(B, 10)
    assert leader.high_watermark == 10
    leader.fetch(A, 2, broker_epoch=51)
    assert leader.high_watermark == 2, "the partition keeps its high watermark, which never goes back"


def test_the_low_watermark_is_that_of_live_replicas() -> None:
    leader = Leader()
    assert leader.followers.low_watermark(5) == UNKNOWN_OFFSET
    leader.fetch(A, 10, log_start_offset=3)
    leader.fetch(B, 10, log_start_offset=2)
    assert leader.followers.low_watermark(5) == 2
    leader.dead.add(B)
    assert leader.followers.low_watermark(5) == 3
    leader.fetch(A, 10, log_start_offset=9)
    assert leader.followers.low_watermark(5) == 5
