"""The coordinator loads and unloads partitions of `__consumer_offsets`."""

from __future__ import annotations

import logging

import pytest

from tests.groups.coordinator_harness import A0, A1, B0, CoordinatorHarness, E, now, waits
from tests.groups.test_records import golden_log
from txbroker.errors import StorageError
from txbroker.groups.group_results import FetchedOffset, MemberIdentity, OffsetCommit
from txbroker.names import TopicPartition


def test_before_loading_nothing_is_here():
    harness = CoordinatorHarness()
    assert now(harness.join()).error == E.NOT_COORDINATOR
    assert harness.coordinator.heartbeat("g", "m", None, 1) == E.NOT_COORDINATOR
    assert now(harness.sync("g", "m", 1, {})).error == E.NOT_COORDINATOR
    assert harness.coordinator.leave_group("g", [MemberIdentity(member_id="m")]) == (E.NOT_COORDINATOR, [])
    assert now(harness.commit({A0: 1})) == {A0: E.NOT_COORDINATOR}
    assert harness.coordinator.fetch_offsets("g", [A0]) == (E.NOT_COORDINATOR, {})
    assert now(harness.coordinator.delete_offsets("g", [A0])) == (E.NOT_COORDINATOR, {})
    assert now(harness.coordinator.delete_groups(["g"])) == {"g": E.NOT_COORDINATOR}
    assert harness.coordinator.describe_groups(["g"])[0].error == E.NOT_COORDINATOR
    assert harness.coordinator.list_groups() == (E.NONE, [])


def test_without_partitions_there_is_no_coordinator():
    harness = CoordinatorHarness(partitions=0)
    assert harness.coordinator.partition_of("g") is None
    assert now(harness.join()).error == E.NOT_COORDINATOR


def test_while_loading_clients_get_a_retriable_error():
    harness = CoordinatorHarness()
    harness.store.hold_reads = True
    loading = harness.coordinator.load(0)
    assert now(harness.join()).error == E.COORDINATOR_LOAD_IN_PROGRESS
    assert harness.coordinator.heartbeat("g", "m", None, 1) == E.NONE
    assert now(harness.sync("g", "m", 1, {})).error == E.REBALANCE_IN_PROGRESS
    assert now(harness.commit({A0: 1})) == {A0: E.COORDINATOR_LOAD_IN_PROGRESS}
    assert harness.coordinator.fetch_offsets("g", None) == (E.COORDINATOR_LOAD_IN_PROGRESS, {})
    assert harness.coordinator.list_groups()[0] == E.COORDINATOR_LOAD_IN_PROGRESS
    again = harness.coordinator.load(0)
    harness.store.held_reads[0][0].callback(b"")
    assert now(loading) is None and now(again) is None
    assert harness.coordinator.list_groups() == (E.NONE, [])
    assert now(harness.coordinator.load(0)) is None
    assert len(harness.store.held_reads) == 1


@pytest.mark.parametrize("error", [StorageError("the disk is gone"), ValueError("a bug")])
def test_a_partition_that_cannot_be_read_has_no_coordinator_until_it_is_tried_again(error, caplog):
    harness = CoordinatorHarness()
    harness.store.read_error = error
    with caplog.at_level(logging.CRITICAL, "txbroker"):
        loading = harness.coordinator.load(0)
        harness.turns()
    assert now(loading) is None
    assert now(harness.join()).error == E.NOT_COORDINATOR
    harness.store.read_error = None
    harness.loaded()
    assert now(harness.join()).error == E.MEMBER_ID_REQUIRED


def test_corrupt_batches_fail_the_load(caplog):
    harness = CoordinatorHarness()
    harness.store.put(0, [(b"\x00\x02\x00\x01g", None)])
    harness.store.logs[0][0] = harness.store.logs[0][0][:-1] + b"x"
    with caplog.at_level(logging.CRITICAL, "txbroker"):
        harness.loaded()
    assert now(harness.join()).error == E.NOT_COORDINATOR


def test_unloading_while_loading_leaves_nothing(caplog):
    harness = CoordinatorHarness().loaded()
    now(harness.commit({A0: 1}))
    harness.replace()
    harness.store.hold_reads = True
    loading = harness.coordinator.load(0)
    harness.coordinator.unload(0)
    assert now(loading) is None
    hosted, chunk = harness.store.held_reads[0]
    hosted.callback(chunk)
    harness.turns()
    assert harness.coordinator.list_groups() == (E.NONE, [])
    assert now(harness.join()).error == E.NOT_COORDINATOR
    assert not caplog.records
    harness.coordinator.unload(0)


def test_unloading_answers_waiting_requests():
    harness = CoordinatorHarness().loaded()
    member = harness.member("h")
    joining = harness.join(member_id_required=False)
    completing = harness.join("h", member)
    follower = harness.join("h", member_id_required=False)
    syncing = harness.sync("h", member, 2, {})
    harness.coordinator.unload(0)
    assert now(joining).error == E.NOT_COORDINATOR
    assert now(completing).error == E.NONE
    assert now(syncing).error == E.REBALANCE_IN_PROGRESS
    assert now(follower).error == E.NOT_COORDINATOR
    assert harness.coordinator.heartbeat("h", member, None, 1) == E.NOT_COORDINATOR
    harness.coordinator.stop()
    assert not harness.clock.getDelayedCalls()
    assert now(harness.join()).error == E.COORDINATOR_NOT_AVAILABLE


def test_stopping_answers_waiting_requests_and_leaves_no_timer():
    harness = CoordinatorHarness().loaded()
    harness.coordinator.start()
    member = harness.member()
    joining = harness.join(member_id_required=False)
    harness.coordinator.stop()
    assert now(joining).error == E.NOT_COORDINATOR
    assert not harness.clock.getDelayedCalls()
    assert harness.coordinator.heartbeat("g", member, None, 1) == E.COORDINATOR_NOT_AVAILABLE
    assert harness.coordinator.list_groups() == (E.COORDINATOR_NOT_AVAILABLE, [])


def test_groups_live_in_the_partition_that_kafka_puts_them_in():
    harness = CoordinatorHarness(partitions=3)
    assert harness.coordinator.partition_of("s-group-2") == 0
    assert harness.coordinator.partition_of("s-group-1") == 1
    harness.coordinator.load(0)
    harness.turns()
    assert now(harness.join("s-group-2")).error == E.MEMBER_ID_REQUIRED
    assert now(harness.join("s-group-1")).error == E.NOT_COORDINATOR


@pytest.mark.parametrize(("group_id", "partition"), [("polygenelubricants", 0), ("", 0), ("a", 47), ("s-group-2", 40)])
def test_every_group_id_has_a_partition(group_id, partition):
    """The first one's hash is the number that has no absolute value in 32 bits, the last one's is negative."""
    assert CoordinatorHarness(partitions=50).coordinator.partition_of(group_id) == partition


def test_partitions_written_by_apache_kafka_are_served():
    harness = CoordinatorHarness(partitions=3)
    for index in (0, 1):
        harness.store.put_log(index, golden_log(index))
    harness.loaded()
    assert {(g.group_id, g.state, g.protocol_type) for g in harness.coordinator.list_groups()[1]} == {
        ("s-group-1", "Empty", "consumer"), ("s-group-2", "Empty", "consumer"), ("s-group-txn", "Empty", ""),
    }
    error, offsets = harness.coordinator.fetch_offsets("s-group-2", [TopicPartition("s-gzip", 0), TopicPartition("s-gzip", 1)])
    assert error == E.NONE
    assert offsets == {
        TopicPartition("s-gzip", 0): FetchedOffset(offset=123, leader_epoch=0, metadata="note of s-group-2"),
        TopicPartition("s-gzip", 1): FetchedOffset(),
    }
    assert harness.offsets("s-group-2") == {
        TopicPartition("s-lz4", 0): 0, TopicPartition("s-lz4", 1): 1000, TopicPartition("s-none", 0): 0,
        TopicPartition("s-none", 1): 0, TopicPartition("s-gzip", 0): 123,
    }
    assert harness.offsets("s-group-txn") == {TopicPartition("s-txn", 0): 9}
    member = harness.join("s-group-2", member_id_required=False)
    harness.turns()
    assert now(member).generation_id == 3


def test_a_restart_finds_groups_as_they_were():
    harness = CoordinatorHarness().loaded()
    member = harness.member(group_instance_id="i")
    now(harness.commit({A0: OffsetCommit(offset=5, leader_epoch=3, metadata="größe"), B0: 7}, "g", member, 1))
    now(harness.commit({A1: 9}, "simple"))
    now(harness.commit({A1: 9}, "deleted"))
    now(harness.coordinator.delete_groups(["deleted"]))
    before = harness.coordinator.describe_groups(["g", "simple", "deleted"])
    harness.coordinator.stop()
    harness.replace()
    harness.loaded()
    assert harness.coordinator.describe_groups(["g", "simple", "deleted"]) == before
    assert before[0].members[0].assignment == b"all"
    assert harness.coordinator.heartbeat("g", member, "i", 1) == E.NONE
    assert harness.coordinator.fetch_offsets("g", [A0])[1] == {A0: FetchedOffset(offset=5, leader_epoch=3, metadata="größe")}
    assert harness.offsets("simple") == {A1: 9}
    harness.clock.advance(10)
    assert harness.state() == "Empty"


def test_loading_gives_others_their_turn():
    harness = CoordinatorHarness()
    for n in range(40):
        harness.store.put(0, [(f"\0\2\0\3{n:03}".encode(), None)] * 50)
    turns = []
    real = harness.clock.callLater
    harness.clock.callLater = lambda *a, **k: (turns.append(a), real(*a, **k))[1]  # type: ignore[method-assign]
    loading = harness.coordinator.load(0)
    assert waits(loading)
    harness.turns()
    assert now(loading) is None
    assert 3 <= len(turns) <= 8


def test_aborted_transactions_and_foreign_records_are_skipped(caplog):
    from txbroker.groups.group_records import offset_key, offset_value
    from txbroker.groups.group_results import CommittedOffset

    def pair(group_id: str, offset: int) -> tuple[bytes, bytes]:
        return offset_key(group_id, A0), offset_value(CommittedOffset(offset=offset, commit_ms=1))

    harness = CoordinatorHarness()
    harness.store.put(0, [pair("g", 1)])
    harness.store.put(0, [pair("g", 2), pair("h", 2)], producer_id=7, producer_epoch=0, transactional=True)
    harness.store.put(0, [pair("i", 3)], producer_id=8, producer_epoch=0, transactional=True)
    harness.store.put(0, [(b"\0\3\0\1g", b"\0\0\0\0\0\1\0"), (b"\0\1nonsense", b"\0\3")])
    harness.store.put(0, [(b"\0\0\0\0", b"\0\0\0\0\0\0")], producer_id=7, producer_epoch=0, transactional=True, control=True)
    with caplog.at_level(logging.CRITICAL, "txbroker"):
        harness.loaded()
    assert harness.offsets("g") == {A0: 1}
    assert harness.offsets("h") == {}
    assert harness.coordinator.fetch_offsets("i", [A0], require_stable=True)[1][A0].error == E.UNSTABLE_OFFSET_COMMIT
    assert harness.coordinator.fetch_offsets("i", [A0])[1][A0] == FetchedOffset()
