"""The coordinator stores, returns and deletes committed offsets."""

from __future__ import annotations

import logging

import pytest
from twisted.internet.defer import CancelledError

from tests.groups.coordinator_harness import A0, A1, B0, CoordinatorHarness, E, now, waits
from tests.groups.driving import protocols
from txbroker.errors import BrokerError
from txbroker.groups.group_records import OffsetEntry, read
from txbroker.groups.group_results import FetchedOffset, MemberIdentity, OffsetCommit
from txbroker.groups.offset_removal import TOMBSTONES_PER_BATCH
from txbroker.names import TopicPartition


def test_commits_are_seen_when_they_are_in_the_log():
    harness = CoordinatorHarness().loaded()
    harness.store.hold = True
    committing = harness.commit({A0: OffsetCommit(offset=5, leader_epoch=2, metadata="note"), A1: OffsetCommit(offset=6, metadata=None)})
    assert waits(committing)
    assert harness.coordinator.fetch_offsets("g", [A0])[1] == {A0: FetchedOffset()}
    assert harness.coordinator.fetch_offsets("g", [A0], require_stable=True)[1] == {A0: FetchedOffset(error=E.UNSTABLE_OFFSET_COMMIT)}
    harness.store.complete()
    assert now(committing) == {A0: E.NONE, A1: E.NONE}
    assert harness.coordinator.fetch_offsets("g", [A0, B0], require_stable=True)[1] == {
        A0: FetchedOffset(offset=5, leader_epoch=2, metadata="note"), B0: FetchedOffset(),
    }
    assert harness.coordinator.fetch_offsets("g", None)[1][A1] == FetchedOffset(offset=6)
    ((partition, pairs),) = harness.store.appends
    assert partition == 0
    assert next(read(*p) for p in pairs).offset.commit_ms == harness.now_ms


def test_a_commit_whose_client_has_disconnected_counts_when_it_is_in_the_log(caplog):
    harness = CoordinatorHarness().loaded()
    harness.store.hold = True
    committing = harness.commit({A0: OffsetCommit(offset=5)})
    committing.addErrback(lambda failure: failure.trap(CancelledError))
    committing.cancel()
    harness.store.complete()
    assert harness.coordinator.fetch_offsets("g", [A0], require_stable=True)[1] == {A0: FetchedOffset(offset=5)}
    assert not caplog.records


@pytest.mark.parametrize(
    ("append", "reported"),
    [
        (E.NOT_ENOUGH_REPLICAS, E.COORDINATOR_NOT_AVAILABLE),
        (E.NOT_ENOUGH_REPLICAS_AFTER_APPEND, E.COORDINATOR_NOT_AVAILABLE),
        (E.UNKNOWN_TOPIC_OR_PARTITION, E.COORDINATOR_NOT_AVAILABLE),
        (E.NOT_LEADER_OR_FOLLOWER, E.NOT_COORDINATOR),
        (E.KAFKA_STORAGE_ERROR, E.NOT_COORDINATOR),
        (E.REQUEST_TIMED_OUT, E.REQUEST_TIMED_OUT),
        (E.MESSAGE_TOO_LARGE, E.INVALID_COMMIT_OFFSET_SIZE),
        (E.RECORD_LIST_TOO_LARGE, E.INVALID_COMMIT_OFFSET_SIZE),
        (E.INVALID_FETCH_SIZE, E.INVALID_COMMIT_OFFSET_SIZE),
    ],
)
def test_commits_that_cannot_be_written(append, reported, caplog):
    harness = CoordinatorHarness().loaded()
    now(harness.commit({A0: 1}))
    harness.store.hold = True
    committing = harness.commit({A0: 2})
    with caplog.at_level(logging.CRITICAL, "txbroker"):
        harness.store.complete(append)
    assert now(committing) == {A0: reported}
    assert harness.offsets() == {A0: 1}
    assert harness.coordinator.fetch_offsets("g", [A0], require_stable=True)[1][A0].offset == 1


def test_long_metadata_is_refused_for_its_partition_alone():
    harness = CoordinatorHarness(offset_metadata_max=10).loaded()
    commit = {A0: OffsetCommit(offset=1, metadata="ä" * 10), A1: OffsetCommit(offset=1, metadata="a" * 11)}
    assert now(harness.commit(commit)) == {A0: E.NONE, A1: E.OFFSET_METADATA_TOO_LARGE}
    assert harness.offsets() == {A0: 1}
    assert now(harness.commit({A1: commit[A1]}, "new")) == {A1: E.OFFSET_METADATA_TOO_LARGE}
    assert [g.group_id for g in harness.coordinator.list_groups()[1]] == ["g"]


def test_members_commit_with_their_generation_and_others_not_at_all():
    harness = CoordinatorHarness().loaded()
    member = harness.member()
    assert now(harness.commit({A0: 1}, "g", member, 1)) == {A0: E.NONE}
    assert now(harness.commit({A0: 2}, "g", member, 0)) == {A0: E.ILLEGAL_GENERATION}
    assert now(harness.commit({A0: 2}, "g", "other", 1)) == {A0: E.UNKNOWN_MEMBER_ID}
    assert now(harness.commit({A0: 2})) == {A0: E.UNKNOWN_MEMBER_ID}
    assert harness.offsets() == {A0: 1}
    harness.coordinator.leave_group("g", [MemberIdentity(member_id=member)])
    assert now(harness.commit({A0: 2})) == {A0: E.NONE}


def test_deleting_offsets_spares_what_members_subscribe_to():
    harness = CoordinatorHarness().loaded()
    member = harness.member()
    now(harness.commit({A0: 1, B0: 2}, "g", member, 1))
    answer = now(harness.coordinator.delete_offsets("g", [A0, B0, TopicPartition("b", 9)]))
    assert answer == (E.NONE, {A0: E.GROUP_SUBSCRIBED_TO_TOPIC, B0: E.NONE, TopicPartition("b", 9): E.NONE})
    assert harness.offsets() == {A0: 1}
    assert harness.written()[-2:] == [OffsetEntry("g", B0, None), OffsetEntry("g", TopicPartition("b", 9), None)]
    harness.coordinator.leave_group("g", [MemberIdentity(member_id=member)])
    assert now(harness.coordinator.delete_offsets("g", [A0])) == (E.NONE, {A0: E.NONE})
    assert harness.state() == "Empty"


@pytest.mark.parametrize(
    ("changes", "answer"),
    [
        ({"protocol_type": "connect"}, (E.NON_EMPTY_GROUP, {})),
        ({"protocols": protocols("range", metadata=b"unreadable")}, (E.NONE, {B0: E.GROUP_SUBSCRIBED_TO_TOPIC})),
    ],
)
def test_deleting_offsets_of_groups_whose_subscriptions_are_unknown(changes, answer):
    harness = CoordinatorHarness().loaded()
    member = harness.member(**changes)
    now(harness.commit({B0: 2}, "g", member, 1))
    assert now(harness.coordinator.delete_offsets("g", [B0])) == answer
    assert harness.offsets() == {B0: 2}


def test_a_deletion_that_cannot_be_written_deletes_nothing(caplog):
    harness = CoordinatorHarness().loaded()
    now(harness.commit({A0: 1}))
    harness.store.append_error = BrokerError(E.NOT_ENOUGH_REPLICAS)
    with caplog.at_level(logging.CRITICAL, "txbroker"):
        assert now(harness.coordinator.delete_offsets("g", [A0])) == (E.NONE, {A0: E.COORDINATOR_NOT_AVAILABLE})
        assert now(harness.coordinator.delete_groups(["g"])) == {"g": E.COORDINATOR_NOT_AVAILABLE}
    assert harness.offsets() == {A0: 1}


def test_offsets_of_deleted_topics_go_with_tombstones():
    harness = CoordinatorHarness(partitions=3).loaded()
    member = harness.member("g")
    now(harness.commit({A0: 1, A1: 1, B0: 1}, "g", member, 1))
    now(harness.commit({A0: 1}, "simple"))
    assert now(harness.coordinator.topics_deleted(["a", "never-committed"])) is None
    assert harness.offsets("g") == {B0: 1}
    assert harness.state("g") == "Stable"
    assert harness.state("simple") == "Dead"
    assert OffsetEntry("simple", A0, None) in harness.written()
    harness.replace()
    harness.loaded()
    assert harness.offsets("g") == {B0: 1}


def test_topics_that_are_deleted_while_a_partition_loads():
    harness = CoordinatorHarness().loaded()
    now(harness.commit({A0: 1, B0: 1}))
    harness.replace()
    harness.store.hold_reads = True
    harness.coordinator.load(0)
    now(harness.coordinator.topics_deleted(["a"]))
    harness.store.hold_reads = False
    hosted, chunk = harness.store.held_reads[0]
    hosted.callback(chunk)
    harness.turns()
    assert harness.offsets() == {B0: 1}


def test_many_tombstones_go_in_several_batches():
    harness = CoordinatorHarness().loaded()
    now(harness.commit({TopicPartition("a", n): n for n in range(TOMBSTONES_PER_BATCH + 1)}))
    now(harness.coordinator.topics_deleted(["a"]))
    assert [len(pairs) for _, pairs in harness.store.appends[1:]] == [TOMBSTONES_PER_BATCH, 1]
    assert harness.state() == "Dead"
