"""The coordinator answers joins, syncs, heartbeats and leaves, and ends sessions."""

from __future__ import annotations

import logging

import pytest
from twisted.internet.defer import Deferred

from tests.groups.coordinator_harness import A0, CoordinatorHarness, E, now, waits
from tests.groups.driving import protocols
from txbroker.errors import BrokerError
from txbroker.groups.group_records import GroupEntry
from txbroker.groups.group_results import FetchedOffset, JoinAnswer, MemberIdentity, SyncAnswer


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"group_id": ""}, E.INVALID_GROUP_ID),
        ({"group_id": "g" * 32_001}, E.INVALID_GROUP_ID),
        ({"member_id": "m"}, E.UNKNOWN_MEMBER_ID),
        ({"session_timeout_ms": 5_999}, E.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 1_800_001}, E.INVALID_SESSION_TIMEOUT),
        ({"protocols": ()}, E.INCONSISTENT_GROUP_PROTOCOL),
        ({"group_instance_id": "i" * 40_000}, E.INVALID_REQUEST),
        ({"protocols": protocols("a", "b", "c", metadata=bytes(350_000))}, E.INVALID_REQUEST),
        ({"session_timeout_ms": 6_000}, E.MEMBER_ID_REQUIRED),
        ({"session_timeout_ms": 1_800_000}, E.MEMBER_ID_REQUIRED),
    ],
)
def test_joins_of_a_group_that_does_not_exist(changes, error):
    harness = CoordinatorHarness().loaded()
    answer = now(harness.join(**changes))
    assert answer.error == error
    assert len(harness.coordinator.list_groups()[1]) == (error == E.MEMBER_ID_REQUIRED)


def test_a_member_that_is_evicted_is_unknown():
    harness = CoordinatorHarness().loaded()
    member = harness.member()
    harness.coordinator.evict("g", [member])
    assert harness.coordinator.heartbeat("g", member, None, 1) == E.UNKNOWN_MEMBER_ID
    assert harness.state() == "Empty"
    harness.coordinator.evict("absent", [])
    assert len(harness.coordinator.list_groups()[1]) == 1


def test_requests_for_a_group_that_does_not_exist():
    harness = CoordinatorHarness().loaded()
    assert harness.coordinator.heartbeat("g", "m", None, 1) == E.UNKNOWN_MEMBER_ID
    assert now(harness.sync("g", "m", 1, {})).error == E.UNKNOWN_MEMBER_ID
    error, results = harness.coordinator.leave_group("g", [MemberIdentity(member_id="m", group_instance_id="i")])
    assert (error, [(r.member_id, r.group_instance_id, r.error) for r in results]) == (E.NONE, [("m", "i", E.UNKNOWN_MEMBER_ID)])
    assert now(harness.commit({A0: 1}, generation_id=3, member_id="m")) == {A0: E.ILLEGAL_GENERATION}
    assert harness.coordinator.fetch_offsets("g", [A0]) == (E.NONE, {A0: FetchedOffset()})
    assert harness.coordinator.fetch_offsets("g", None) == (E.NONE, {})
    assert now(harness.coordinator.delete_offsets("g", [A0])) == (E.GROUP_ID_NOT_FOUND, {})
    assert now(harness.coordinator.delete_groups(["g"])) == {"g": E.GROUP_ID_NOT_FOUND}
    (group,) = harness.coordinator.describe_groups(["g"])
    assert (group.error, group.state, group.error_message) == (E.GROUP_ID_NOT_FOUND, "Dead", "Group g not found.")
    assert not harness.store.appends


@pytest.mark.parametrize("call", ["heartbeat", "sync", "leave", "delete_offsets"])
def test_the_empty_group_id_is_for_offsets_only(call):
    harness = CoordinatorHarness().loaded()
    coordinator = harness.coordinator
    answers = {
        "heartbeat": lambda: coordinator.heartbeat("", "m", None, 1),
        "sync": lambda: now(harness.sync("", "m", 1, {})).error,
        "leave": lambda: coordinator.leave_group("", [])[0],
        "delete_offsets": lambda: now(coordinator.delete_offsets("", []))[0],
    }
    assert answers[call]() == E.INVALID_GROUP_ID
    assert now(harness.commit({A0: 1}, "")) == {A0: E.NONE}
    assert harness.offsets("") == {A0: 1}
    assert now(coordinator.delete_groups([""])) == {"": E.NONE}


def test_two_members_two_rebalances():
    harness = CoordinatorHarness().loaded()
    first = harness.member()
    given = now(harness.join()).member_id
    second = harness.join(member_id=given)
    assert waits(second)
    assert harness.coordinator.heartbeat("g", first, None, 1) == E.REBALANCE_IN_PROGRESS
    again = now(harness.join(member_id=first))
    assert (again.generation_id, again.leader, len(again.members)) == (2, first, 2)
    assert now(second).generation_id == 2
    waiting = harness.sync("g", given, 2, {})
    assert waits(waiting)
    assert now(harness.sync("g", first, 2, {first: b"1", given: b"2"})).assignment == b"1"
    assert now(waiting).assignment == b"2"
    assert harness.coordinator.leave_group("g", [MemberIdentity(member_id=given)])[1][0].error == E.NONE
    assert harness.coordinator.heartbeat("g", first, None, 2) == E.REBALANCE_IN_PROGRESS
    assert now(harness.join(member_id=first)).generation_id == 3


def test_leaving_and_expired_members_do_not_block_the_others():
    harness = CoordinatorHarness().loaded()
    first = harness.member()
    given = now(harness.join()).member_id
    again = harness.join(member_id=first)
    assert waits(again)
    harness.coordinator.leave_group("g", [MemberIdentity(member_id=given)])
    assert now(again).generation_id == 2
    now(harness.sync("g", first, 2, {}))
    harness.join()
    again = harness.join(member_id=first)
    harness.clock.advance(9)
    assert waits(again)
    harness.clock.advance(1.1)
    assert now(again).generation_id == 3


def test_sessions_of_loaded_members_end_too():
    harness = CoordinatorHarness().loaded()
    harness.member()
    harness.replace()
    harness.loaded()
    harness.clock.advance(9)
    assert harness.state() == "Stable"
    harness.clock.advance(1.1)
    assert harness.state() == "Empty"


def test_assignments_are_answered_when_they_are_in_the_log():
    harness = CoordinatorHarness().loaded()
    joining = harness.join(member_id_required=False)
    harness.turns()
    harness.store.hold = True
    syncing = harness.sync("g", now(joining).member_id, 1, {"c-1": b"x"})
    assert waits(syncing)
    harness.store.complete()
    assert now(syncing).assignment == b"x"


def test_an_answer_that_makes_its_client_ask_again_at_once():
    """The next request arrives while the answer is given: effects still keep their order."""
    harness = CoordinatorHarness().loaded()
    syncs: list[Deferred[SyncAnswer]] = []

    def sync_at_once(answer: JoinAnswer) -> None:
        everything = {m.member_id: m.member_id.encode() for m in answer.members}
        syncs.append(harness.sync("g", answer.member_id, answer.generation_id, everything))

    for _ in range(3):
        harness.join(member_id_required=False).addCallback(sync_at_once)
    harness.turns()
    assert [now(s).assignment for s in syncs] == [b"c-1", b"c-2", b"c-3"]
    assert harness.state() == "Stable"


@pytest.mark.parametrize(
    ("append", "reported"),
    [
        (E.NOT_ENOUGH_REPLICAS, E.COORDINATOR_NOT_AVAILABLE),
        (E.NOT_ENOUGH_REPLICAS_AFTER_APPEND, E.COORDINATOR_NOT_AVAILABLE),
        (E.UNKNOWN_TOPIC_OR_PARTITION, E.COORDINATOR_NOT_AVAILABLE),
        (E.NOT_LEADER_OR_FOLLOWER, E.NOT_COORDINATOR),
        (E.KAFKA_STORAGE_ERROR, E.NOT_COORDINATOR),
        (E.REQUEST_TIMED_OUT, E.REBALANCE_IN_PROGRESS),
        (E.MESSAGE_TOO_LARGE, E.UNKNOWN_SERVER_ERROR),
        (E.RECORD_LIST_TOO_LARGE, E.UNKNOWN_SERVER_ERROR),
        (E.POLICY_VIOLATION, E.POLICY_VIOLATION),
        (None, E.UNKNOWN_SERVER_ERROR),
    ],
)
def test_the_errors_of_members_when_an_assignment_cannot_be_written(append, reported, caplog):
    harness = CoordinatorHarness().loaded()
    joining = harness.join(member_id_required=False)
    harness.turns()
    member = now(joining).member_id
    harness.store.append_error = ValueError("a bug") if append is None else BrokerError(append)
    with caplog.at_level(logging.CRITICAL, "txbroker"):
        assert now(harness.sync("g", member, 1, {})).error == reported
    assert harness.state() == "PreparingRebalance"


@pytest.mark.parametrize(
    ("error", "described"),
    [
        (BrokerError(E.KAFKA_STORAGE_ERROR, "the disk is full"), "KAFKA_STORAGE_ERROR: the disk is full"),
        (BrokerError(E.KAFKA_STORAGE_ERROR), "KAFKA_STORAGE_ERROR"),
    ],
)
def test_a_group_that_rebalances_because_nothing_can_be_written_is_logged_once(error, described, caplog):
    caplog.set_level(logging.INFO, "txbroker")
    harness = CoordinatorHarness().loaded()
    joining = harness.join(member_id_required=False)
    harness.turns()
    member = now(joining).member_id
    harness.store.append_error = error
    caplog.clear()
    for generation in range(1, 6):
        assert now(harness.sync("g", member, generation, {member: b"all"})).error == E.NOT_COORDINATOR
        assert now(harness.join(member_id=member)).generation_id == generation + 1
        assert now(harness.commit({A0: 1}, "other")) == {A0: E.NOT_COORDINATOR}
    assert caplog.messages == [
        f"__consumer_offsets-0: cannot append the records of its groups: {described}",
        "group g: preparing to rebalance after generation 1: the assignment cannot be written: NOT_COORDINATOR",
    ]
    caplog.clear()
    harness.store.append_error = None
    assert now(harness.sync("g", member, 6, {member: b"all"})).error == E.NONE
    assert caplog.messages == [
        "__consumer_offsets-0: records of its groups can be appended again", "group g: the assignment of generation 6 is written",
    ]


def test_sessions_end_by_the_clock():
    harness = CoordinatorHarness().loaded()
    member = harness.member()
    for _ in range(5):
        harness.clock.advance(9)
        assert harness.coordinator.heartbeat("g", member, None, 1) == E.NONE
    harness.clock.advance(9.9)
    assert harness.state() == "Stable"
    harness.clock.advance(0.2)
    assert harness.state() == "Empty"
    entry = harness.written()[-1]
    assert isinstance(entry, GroupEntry)
    assert (entry.record.generation, entry.record.members) == (2, ())


def test_a_thousand_groups_need_one_delayed_call_and_heartbeats_none():
    harness = CoordinatorHarness().loaded()
    members = {f"g{n}": harness.member(f"g{n}") for n in range(1_000)}
    calls = []
    real = harness.clock.callLater
    harness.clock.callLater = lambda *a, **k: (calls.append(a), real(*a, **k))[1]  # type: ignore[method-assign]
    for _ in range(3):
        for group_id, member in members.items():
            assert harness.coordinator.heartbeat(group_id, member, None, 1) == E.NONE
    assert not calls
    assert len(harness.clock.getDelayedCalls()) == 1
    harness.clock.advance(9)
    for group_id, member in members.items():
        harness.coordinator.heartbeat(group_id, member, None, 1)
    harness.clock.advance(9)
    assert {harness.state(g) for g in members} == {"Stable"}
    assert len(calls) < 10
