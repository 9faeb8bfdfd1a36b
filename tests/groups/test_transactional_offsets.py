"""Offsets that are committed in transactions: pending until the marker, fenced by generation, member and instance (KIP-447)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.groups.coordinator_harness import A0, A1, B0, DAY_MS, CoordinatorHarness, E, now, waits
from txbroker.coordinators.state_log import TransactionalProducer
from txbroker.errors import BrokerError
from txbroker.groups.group_results import FetchedOffset, OffsetCommit
from txbroker.names import TopicPartition
from txbroker.wire.control import Marker, build_marker

P1, P2 = TransactionalProducer(1000, 0), TransactionalProducer(2000, 3)


class Harness(CoordinatorHarness):
    def pend(
        self, offsets: dict[TopicPartition, Any], producer: TransactionalProducer = P1, *, group_id: str = "g", member_id: str = "",
        instance_id: str | None = None, generation_id: int = -1,
    ) -> Any:  # fmt: skip
        values = {p: o if isinstance(o, OffsetCommit) else OffsetCommit(offset=o) for p, o in offsets.items()}
        return self.coordinator.commit_pending_offsets(group_id, member_id, instance_id, generation_id, producer, values)

    def end(self, producer: TransactionalProducer = P1, *, committed: bool = True) -> None:
        """A marker is written, and is on all in-sync replicas."""
        marker = build_marker(Marker(committed, 0), producer_id=producer.id, producer_epoch=producer.epoch, timestamp=0,
                              base_offset=self.store.ends[0])  # fmt: skip
        self.store.put_log(0, marker)
        assert self.coordinator.end_transaction(0, producer.id, committed) == E.NONE

    def stable(self, *partitions: TopicPartition) -> dict[TopicPartition, FetchedOffset]:
        error, offsets = self.coordinator.fetch_offsets("g", partitions, require_stable=True)
        assert error == E.NONE
        return offsets

    def restart(self) -> None:
        self.coordinator.stop()
        self.replace()
        self.loaded()


@pytest.fixture
def harness() -> Harness:
    made = Harness()
    made.loaded()
    return made


@pytest.fixture(params=["kept in memory", "loaded again"])
def later(request: pytest.FixtureRequest) -> Any:
    """What happens between two steps: nothing, or a failover, after which everything comes from the log."""
    return (lambda harness: None) if request.param == "kept in memory" else Harness.restart


def test_offsets_count_when_the_transaction_is_committed(harness: Harness, later: Any) -> None:
    now(harness.commit({A0: 1}))
    assert now(harness.pend({A0: 5, B0: 6})) == {A0: E.NONE, B0: E.NONE}
    later(harness)
    assert harness.offsets() == {A0: 1}
    unstable = [p for p, o in harness.stable(A0, A1, B0).items() if o.error == E.UNSTABLE_OFFSET_COMMIT]
    assert unstable == [A0, B0]
    harness.end()
    later(harness)
    assert harness.offsets() == {A0: 5, B0: 6}
    assert {p: o.offset for p, o in harness.stable(A0, B0).items()} == {A0: 5, B0: 6}


def test_offsets_of_an_aborted_transaction_are_dropped(harness: Harness, later: Any) -> None:
    now(harness.commit({A0: 1}))
    now(harness.pend({A0: 5, B0: 6}))
    later(harness)
    harness.end(committed=False)
    later(harness)
    assert harness.offsets() == {A0: 1}
    assert harness.stable(B0) == {B0: FetchedOffset()}


def test_a_group_with_nothing_but_an_aborted_transaction_is_gone(harness: Harness, later: Any) -> None:
    now(harness.pend({A0: 5}))
    later(harness)
    assert harness.state() == "Empty"
    harness.end(committed=False)
    later(harness)
    assert harness.state() == "Dead"


def test_the_last_of_the_log_counts(harness: Harness, later: Any) -> None:
    """A plain commit later in the log beats one that is committed by a marker behind it."""
    now(harness.pend({A0: 5, A1: 5}))
    now(harness.commit({A0: 7}))
    now(harness.pend({A1: 6}))
    later(harness)
    harness.end()
    later(harness)
    assert harness.offsets() == {A0: 7, A1: 6}


def test_transactions_of_two_producers_end_independently(harness: Harness, later: Any) -> None:
    now(harness.pend({A0: 5}, P1))
    now(harness.pend({A0: 6, B0: 8}, P2))
    later(harness)
    harness.end(P2, committed=False)
    assert harness.stable(A0)[A0].error == E.UNSTABLE_OFFSET_COMMIT
    assert harness.stable(B0)[B0].error == E.NONE
    later(harness)
    harness.end(P1)
    assert harness.offsets() == {A0: 5}


def test_a_failed_append_leaves_nothing_pending(harness: Harness) -> None:
    harness.store.append_error = BrokerError(E.NOT_ENOUGH_REPLICAS)
    assert now(harness.pend({A0: 5})) == {A0: E.COORDINATOR_NOT_AVAILABLE}
    harness.store.append_error = BrokerError(E.INVALID_PRODUCER_EPOCH)
    assert now(harness.pend({A0: 5})) == {A0: E.INVALID_PRODUCER_EPOCH}
    assert harness.state() == "Dead"
    assert harness.stable(A0) == {A0: FetchedOffset()}


@pytest.mark.parametrize("error", [E.REQUEST_TIMED_OUT, E.NOT_ENOUGH_REPLICAS_AFTER_APPEND])
def test_what_is_in_the_log_is_pending_although_its_client_got_an_error(harness: Harness, later: Any, error: Any) -> None:
    """The marker is behind it: if it is committed, all replicas that have the marker have the offset."""
    harness.store.hold = True
    answer = harness.pend({A0: 5})
    assert waits(answer)
    harness.store.complete(error)
    assert now(answer)[A0] != E.NONE
    harness.store.hold = False
    later(harness)
    harness.end()
    later(harness)
    assert harness.offsets() == {A0: 5}


def test_while_the_append_is_under_way_the_offset_is_unstable(harness: Harness) -> None:
    harness.store.hold = True
    answer = harness.pend({A0: 5})
    assert harness.stable(A0)[A0].error == E.UNSTABLE_OFFSET_COMMIT
    harness.store.complete()
    assert now(answer) == {A0: E.NONE}
    assert harness.stable(A0)[A0].error == E.UNSTABLE_OFFSET_COMMIT


@pytest.mark.parametrize("error", [None, E.REQUEST_TIMED_OUT])
@pytest.mark.parametrize("committed", [True, False])
def test_the_marker_may_be_replicated_before_the_append_is_answered(harness: Harness, committed: bool, error: Any) -> None:
    """Both are in the log when the ISR shrinks, and the request with the marker is completed first."""
    now(harness.commit({A0: 1}))
    harness.store.hold = True
    answer = harness.pend({A0: 5})
    harness.end(committed=committed)
    assert harness.offsets() == {A0: 1}
    harness.store.complete(error)
    assert not waits(answer)
    expected = 5 if committed else 1
    assert harness.stable(A0)[A0] == FetchedOffset(offset=expected)
    harness.store.hold = False
    now(harness.pend({A0: 9}))
    assert harness.stable(A0)[A0].error == E.UNSTABLE_OFFSET_COMMIT, "the next transaction of this producer"
    harness.end(committed=False)
    assert harness.stable(A0)[A0] == FetchedOffset(offset=expected)


def test_an_append_that_fails_after_the_marker_leaves_nothing(harness: Harness) -> None:
    harness.store.hold = True
    answer = harness.pend({A0: 5})
    harness.end()
    harness.store.complete(E.NOT_LEADER_OR_FOLLOWER)
    assert now(answer) == {A0: E.NOT_COORDINATOR}
    assert harness.stable(A0) == {A0: FetchedOffset()}
    assert harness.state() == "Dead"


def test_members_are_fenced(harness: Harness) -> None:
    member = harness.member()
    assert now(harness.pend({A0: 1}, member_id=member, generation_id=1)) == {A0: E.NONE}
    assert now(harness.pend({A0: 2}, member_id=member, generation_id=0)) == {A0: E.ILLEGAL_GENERATION}
    assert now(harness.pend({A0: 2}, member_id="other", generation_id=1)) == {A0: E.UNKNOWN_MEMBER_ID}
    assert now(harness.pend({A0: 2}, member_id="other")) == {A0: E.UNKNOWN_MEMBER_ID}
    assert now(harness.pend({A0: 2}, member_id=member, generation_id=1, instance_id="i")) == {A0: E.UNKNOWN_MEMBER_ID}
    assert now(harness.pend({A0: 3})) == {A0: E.NONE}  # a producer that does not know KIP-447
    harness.end()
    assert harness.offsets() == {A0: 3}


def test_a_replaced_static_member_is_fenced(harness: Harness) -> None:
    first = harness.member(group_instance_id="i")
    joining = harness.join(group_instance_id="i")
    harness.turns()
    second = now(joining).member_id
    assert first != second
    assert now(harness.pend({A0: 1}, member_id=first, generation_id=1, instance_id="i")) == {A0: E.FENCED_INSTANCE_ID}
    assert now(harness.pend({A0: 1}, member_id=second, generation_id=1, instance_id="i")) == {A0: E.NONE}


def test_what_else_is_refused(harness: Harness) -> None:
    assert now(harness.pend({A0: 1}, generation_id=1)) == {A0: E.ILLEGAL_GENERATION}  # there is no such group
    assert now(harness.pend({A0: 1}, group_id="")) == {A0: E.INVALID_GROUP_ID}
    large = OffsetCommit(offset=1, metadata="x" * 5000)
    assert now(harness.pend({A0: 1, A1: large})) == {A0: E.NONE, A1: E.OFFSET_METADATA_TOO_LARGE}
    harness.coordinator.unload(0)
    assert now(harness.pend({A0: 1})) == {A0: E.NOT_COORDINATOR}
    assert harness.coordinator.end_transaction(0, P1.id, True) == E.NOT_COORDINATOR


def test_deleting_a_group_drops_its_pending_offsets(harness: Harness, later: Any) -> None:
    now(harness.commit({B0: 1}))
    now(harness.pend({A0: 5}))
    assert now(harness.coordinator.delete_groups(["g"])) == {"g": E.NONE}
    assert harness.state() == "Dead"
    later(harness)
    harness.end()
    later(harness)
    assert harness.state() == "Dead"


def test_deleting_offsets_drops_pending_ones(harness: Harness, later: Any) -> None:
    now(harness.commit({B0: 1}))
    now(harness.pend({A0: 5, A1: 6}))
    assert now(harness.coordinator.delete_offsets("g", [A0])) == (E.NONE, {A0: E.NONE})
    later(harness)
    harness.end()
    assert harness.offsets() == {B0: 1, A1: 6}


def test_deleting_a_topic_drops_pending_offsets(harness: Harness, later: Any) -> None:
    now(harness.pend({A0: 5, B0: 6}))
    now(harness.coordinator.topics_deleted(["a"]))
    later(harness)
    harness.end()
    assert harness.offsets() == {B0: 6}


def test_pending_offsets_do_not_expire(harness: Harness) -> None:
    harness.coordinator.start()
    now(harness.commit({A0: 1, A1: 1}))
    now(harness.pend({A0: 5}))
    harness.clock.pump([DAY_MS / 1000] * 8)
    assert harness.offsets() == {A0: 1}
    harness.end()
    assert harness.offsets() == {A0: 5}
    harness.coordinator.stop()
