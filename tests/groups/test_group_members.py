"""Joins, syncs, heartbeats and leaves of a classic group, state by state, as in Kafka."""

from __future__ import annotations

import pytest

from tests.groups.driving import Driver, protocols
from txbroker.errors import ErrorCode
from txbroker.groups.group_states import GroupState

E = ErrorCode


def test_a_client_without_member_id_takes_one_and_asks_again():
    driver = Driver()
    (refusal,) = driver.join()
    assert refusal.error == E.MEMBER_ID_REQUIRED
    assert refusal.member_id == "c-1"
    assert driver.group.state is GroupState.EMPTY

    answers = driver.join(refusal.member_id)
    driver.advance(0)
    (answer,) = answers
    assert (answer.error, answer.generation_id, answer.member_id, answer.leader) == (E.NONE, 1, "c-1", "c-1")
    assert (answer.protocol_type, answer.protocol_name, answer.skip_assignment) == ("consumer", "range", False)
    assert [(m.member_id, m.metadata) for m in answer.members] == [("c-1", b"range")]


def test_an_old_client_is_admitted_without_asking_twice():
    driver = Driver()
    answers = driver.join(member_id_required=False)
    driver.advance(0)
    assert answers[0].generation_id == 1


def test_only_the_leader_receives_all_members():
    driver = Driver()
    first, second = driver.join(member_id_required=False), driver.join(member_id_required=False)
    driver.advance(0)
    assert [m.member_id for m in first[0].members] == ["c-1", "c-2"]
    assert second[0].members == ()
    assert second[0].leader == "c-1"


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"member_id": "unknown"}, E.UNKNOWN_MEMBER_ID),
        ({"member_id": "unknown", "group_instance_id": "i"}, E.UNKNOWN_MEMBER_ID),
        ({"protocol_type": "connect"}, E.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": protocols("sticky")}, E.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": ()}, E.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_joins_that_a_stable_group_refuses(changes, error):
    driver = Driver()
    driver.stable(None)
    (answer,) = driver.join(**changes)
    assert answer.error == error
    assert driver.group.state is GroupState.STABLE


@pytest.mark.parametrize("changes", [{"protocol_type": ""}, {"protocols": ()}])
def test_joins_that_an_empty_group_refuses(changes):
    (answer,) = Driver().join(**changes)
    assert answer.error == E.INCONSISTENT_GROUP_PROTOCOL


def test_all_members_get_what_the_leader_assigned_once_it_is_written():
    driver = Driver(hold_writes=True)
    joins = [driver.join(member_id_required=False) for _ in range(3)]
    driver.advance(0)
    leader, other, missing = (j[0].member_id for j in joins)
    follower = driver.sync(other)
    assert not follower
    own = driver.sync(leader, {leader: b"a", other: b"b", "stranger": b"x"})
    assert not own
    assert driver.group.state is GroupState.COMPLETING_REBALANCE
    driver.complete_write()
    assert (own[0].assignment, follower[0].assignment) == (b"a", b"b")
    assert (own[0].protocol_type, own[0].protocol_name) == ("consumer", "range")
    (late,) = driver.sync(missing)
    assert (late.error, late.assignment) == (E.NONE, b"")
    record = driver.records[0]
    assert (record.generation, record.protocol, record.leader) == (1, "range", leader)
    assert [(m.member_id, m.subscription, m.assignment) for m in record.members] == [
        (leader, b"range", b"a"), (other, b"range", b"b"), (missing, b"range", b""),
    ]


def test_an_assignment_that_cannot_be_written_starts_over():
    driver = Driver(hold_writes=True)
    ids = [driver.join(member_id_required=False) for _ in range(2)]
    driver.advance(0)
    leader, other = (j[0].member_id for j in ids)
    waiting = [driver.sync(other), driver.sync(leader, {leader: b"a"})]
    driver.complete_write(E.COORDINATOR_NOT_AVAILABLE)
    assert [w[0].error for w in waiting] == [E.COORDINATOR_NOT_AVAILABLE] * 2
    assert driver.group.state is GroupState.PREPARING_REBALANCE
    assert driver.heartbeat(other) == E.REBALANCE_IN_PROGRESS


def test_a_write_that_ends_after_the_next_rebalance_began_changes_nothing():
    driver = Driver(hold_writes=True)
    answers = driver.join(member_id_required=False)
    driver.advance(0)
    leader = answers[0].member_id
    waiting = driver.sync(leader, {leader: b"old"})
    driver.join(member_id_required=False)
    assert waiting[0].error == E.REBALANCE_IN_PROGRESS
    driver.complete_write()
    assert driver.group.state is GroupState.PREPARING_REBALANCE


def test_a_leader_that_repeats_itself_while_its_assignment_is_written_changes_nothing():
    driver = Driver(hold_writes=True)
    joining = driver.join(member_id_required=False)
    driver.advance(0)
    leader = joining[0].member_id
    first, second = driver.sync(leader, {leader: b"a"}), driver.sync(leader, {leader: b"b"})
    assert len(driver.writes) == 1
    driver.complete_write()
    assert (first[0].error, second[0].assignment) == (E.REBALANCE_IN_PROGRESS, b"a")


def test_protocol_with_the_most_votes_wins_among_those_that_all_follow():
    driver = Driver()
    lists = [("sticky", "range", "rr"), ("rr", "range"), ("rr", "sticky", "range")]
    answers = [driver.join("", *names, member_id_required=False) for names in lists]
    driver.advance(0)
    assert {a[0].protocol_name for a in answers} == {"rr"}
    assert {m.metadata for m in answers[0][0].members} == {b"rr"}


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"member_id": "unknown"}, E.UNKNOWN_MEMBER_ID),
        ({"generation_id": 0}, E.ILLEGAL_GENERATION),
        ({"generation_id": 7}, E.ILLEGAL_GENERATION),
        ({"protocol_type": "connect"}, E.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_name": "sticky"}, E.INCONSISTENT_GROUP_PROTOCOL),
        ({"group_instance_id": "unknown"}, E.UNKNOWN_MEMBER_ID),
        ({"protocol_type": "consumer", "protocol_name": "range"}, E.NONE),
        ({}, E.NONE),
    ],
)
def test_sync_checks(changes, error):
    driver = Driver()
    (member_id,) = driver.stable(None)
    (answer,) = driver.sync(**({"member_id": member_id} | changes))
    assert answer.error == error


# What is answered to heartbeats, syncs and commits of a member, by state.
@pytest.mark.parametrize(
    ("state", "heartbeat", "sync", "commit"),
    [
        ("PreparingRebalance", E.REBALANCE_IN_PROGRESS, E.REBALANCE_IN_PROGRESS, E.NONE),
        ("CompletingRebalance", E.NONE, None, E.REBALANCE_IN_PROGRESS),
        ("Stable", E.NONE, E.NONE, E.NONE),
        ("Dead", E.COORDINATOR_NOT_AVAILABLE, E.COORDINATOR_NOT_AVAILABLE, E.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_answers_to_a_member_by_state(state, heartbeat, sync, commit):
    driver = Driver()
    leader, member = driver.completing(None, None) if state == "CompletingRebalance" else driver.stable(None, None)
    if state == "PreparingRebalance":
        driver.join(leader)
    if state == "Dead":
        driver.group.die(E.NOT_COORDINATOR)
    assert driver.group.state.value == state
    generation = driver.group.generation
    assert driver.heartbeat(member) == heartbeat
    assert driver.commit(member, generation) == commit
    answers = driver.sync(member)
    assert [a.error for a in answers] == ([] if sync is None else [sync])


@pytest.mark.parametrize(
    ("empty", "arguments", "error"),
    [
        (True, ("", -1, None), E.NONE),
        (True, ("someone", -1, None), E.NONE),
        (True, ("someone", 1, None), E.UNKNOWN_MEMBER_ID),
        (False, ("", -1, None), E.UNKNOWN_MEMBER_ID),
        (False, ("unknown", 1, None), E.UNKNOWN_MEMBER_ID),
        (False, ("c-1", 0, None), E.ILLEGAL_GENERATION),
        (False, ("c-1", -1, None), E.ILLEGAL_GENERATION),
        (False, ("c-1", 1, None), E.NONE),
        (False, ("c-1", 1, "i"), E.FENCED_INSTANCE_ID),
        (False, ("i-2", 1, "i"), E.NONE),
        (False, ("", -1, "i"), E.FENCED_INSTANCE_ID),
        (False, ("", -1, "other"), E.UNKNOWN_MEMBER_ID),
    ],
)
def test_who_may_commit(empty, arguments, error):
    driver = Driver()
    if not empty:
        assert driver.stable(None, "i") == ["c-1", "i-2"]
    member_id, generation_id, instance = arguments
    assert driver.commit(member_id, generation_id, instance) == error


def test_heartbeats_with_a_wrong_generation_or_id_are_refused():
    driver = Driver()
    (member_id,) = driver.stable(None)
    assert driver.heartbeat(member_id, 0) == E.ILLEGAL_GENERATION
    assert driver.heartbeat("unknown") == E.UNKNOWN_MEMBER_ID
    assert Driver().heartbeat("unknown") == E.UNKNOWN_MEMBER_ID


def test_the_leader_of_a_stable_group_may_ask_for_a_new_assignment():
    driver = Driver()
    leader, follower = driver.stable(None, None)
    again = driver.join(leader)
    assert driver.group.state is GroupState.PREPARING_REBALANCE
    other = driver.join(follower)
    assert (again[0].generation_id, other[0].generation_id) == (2, 2)
    assert again[0].leader == leader


def test_a_follower_that_joins_again_unchanged_gets_the_present_generation():
    driver = Driver()
    leader, follower = driver.stable(None, None)
    (answer,) = driver.join(follower)
    assert (answer.error, answer.generation_id, answer.leader, answer.members) == (E.NONE, 1, leader, ())
    assert driver.group.state is GroupState.STABLE


def test_a_follower_with_other_protocols_rebalances_the_group():
    driver = Driver()
    leader, follower = driver.stable(None, None)
    answers = driver.join(follower, protocols=protocols("range", metadata=b"other topics"))
    assert not answers
    driver.join(leader)
    assert answers[0].generation_id == 2


def test_a_member_that_joins_again_may_change_its_timeouts():
    driver = Driver()
    (member_id,) = driver.stable(None)
    driver.join(member_id, session_timeout_ms=100_000, rebalance_timeout_ms=50_000)
    driver.sync(member_id)
    (member,) = driver.records[-1].members
    assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (100_000, 50_000)
    driver.advance(99_999)
    assert driver.heartbeat(member_id) == E.NONE


@pytest.mark.parametrize("leads", [True, False])
def test_a_member_that_missed_its_answer_gets_the_same_generation_again(leads):
    driver = Driver()
    leader, follower = driver.completing(None, None)
    (answer,) = driver.join(leader if leads else follower)
    assert (answer.error, answer.generation_id, len(answer.members)) == (E.NONE, 2, 2 if leads else 0)
    assert driver.group.state is GroupState.COMPLETING_REBALANCE


def test_a_request_that_is_repeated_while_it_waits_is_answered_too():
    driver = Driver()
    leader, follower = driver.stable(None, None)
    first, second = driver.join(leader), driver.join(leader)
    assert first[0].error == E.REBALANCE_IN_PROGRESS
    assert not second
    driver.join(follower)
    assert second[0].generation_id == 2
    first_sync, second_sync = driver.sync(follower), driver.sync(follower)
    driver.sync(leader, {follower: b"f"})
    assert (first_sync[0].error, second_sync[0].assignment) == (E.REBALANCE_IN_PROGRESS, b"f")


def test_the_last_member_leaves_an_empty_generation_behind():
    driver = Driver()
    ids = driver.stable(None, None)
    assert driver.leave(*ids) == [E.NONE, E.NONE]
    assert driver.group.state is GroupState.EMPTY
    record = driver.records[-1]
    assert (record.generation, record.protocol, record.leader, record.members) == (2, None, None, ())
    assert (record.protocol_type, record.state_ms) == ("consumer", driver.now_ms())


def test_a_member_that_leaves_while_it_waits_is_answered():
    driver = Driver()
    _, follower = driver.completing(None, None)
    syncing = driver.sync(follower)
    driver.leave(follower)
    assert syncing[0].error == E.UNKNOWN_MEMBER_ID
    joining = driver.join(member_id_required=False)
    driver.leave("c-3")
    assert joining[0].error == E.UNKNOWN_MEMBER_ID


def test_leaving_makes_the_others_rebalance():
    driver = Driver()
    leader, follower = driver.stable(None, None)
    assert driver.leave(leader, leader, "unknown") == [E.NONE, E.UNKNOWN_MEMBER_ID, E.UNKNOWN_MEMBER_ID]
    assert driver.heartbeat(follower) == E.REBALANCE_IN_PROGRESS
    (answer,) = driver.join(follower)
    assert (answer.generation_id, answer.leader) == (2, follower)


def test_static_members_are_removed_by_instance_id_alone():
    driver = Driver()
    one, two = driver.stable("one", "two")
    assert driver.leave(("", "three"), ("wrong", "one"), ("", "one"), (two, "two")) == [
        E.UNKNOWN_MEMBER_ID, E.FENCED_INSTANCE_ID, E.NONE, E.NONE,
    ]
    assert driver.group.state is GroupState.EMPTY
    assert driver.leave(one, "") == [E.UNKNOWN_MEMBER_ID, E.UNKNOWN_MEMBER_ID]
