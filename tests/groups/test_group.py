"""Membership, state by state: what Kafka's classic group protocol answers."""

from __future__ import annotations

import random

import pytest

from tests.groups.driving import AT_ONCE, REBALANCE_MS, SESSION_MS, Driver, protocols
from txbroker.errors import ErrorCode
from txbroker.groups.group import Group
from txbroker.groups.group_config import GroupConfig
from txbroker.groups.group_effects import GroupRecord, MemberRecord, WakeAt
from txbroker.groups.group_states import TRANSITIONS, GroupState

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


def test_a_rebalance_waits_for_those_who_were_given_an_id_until_their_session_ends():
    driver = Driver()
    (member_id,) = driver.stable(None)
    (given,) = driver.join()
    answers = driver.join(member_id)
    assert not answers
    driver.advance(SESSION_MS - 1)
    assert not answers
    driver.advance(1)
    assert answers[0].generation_id == 2
    (late,) = driver.join(given.member_id)
    assert late.error == E.UNKNOWN_MEMBER_ID


def test_the_owner_of_an_id_may_leave_before_it_joined():
    driver = Driver()
    (member_id,) = driver.stable(None)
    (given,) = driver.join()
    answers = driver.join(member_id)
    assert driver.leave(given.member_id) == [E.NONE]
    assert answers[0].generation_id == 2


def test_ids_given_out_in_a_stable_or_empty_group_end_without_a_rebalance():
    driver = Driver()
    (given,) = driver.join()
    assert driver.leave(given.member_id) == [E.NONE]
    assert driver.group.state is GroupState.EMPTY
    (member_id,) = driver.stable(None)
    driver.join()
    driver.advance(SESSION_MS - 1)
    driver.heartbeat(member_id)
    driver.advance(1)
    assert not driver.group.pending
    assert driver.group.state is GroupState.STABLE


def test_ids_given_out_end_in_their_own_time():
    driver = Driver()
    driver.stable(None)
    driver.join(session_timeout_ms=15_000)
    driver.advance(14_999)
    assert driver.group.pending
    driver.advance(1)
    assert not driver.group.pending


def test_ids_given_out_are_bounded():
    driver = Driver(GroupConfig(initial_rebalance_delay_ms=0, pending_members_max=3))
    given = [driver.join()[0].member_id for _ in range(4)]
    assert driver.join(given[0])[0].error == E.UNKNOWN_MEMBER_ID
    assert driver.join(given[1]) == []


def test_the_rebalance_timeout_removes_those_who_did_not_come():
    driver = Driver()
    leader, follower, third = driver.stable(None, None, None)
    answers = driver.join(third, protocols=protocols("range", metadata=b"other topics"))
    for _ in range(REBALANCE_MS // 5_000 - 1):
        driver.advance(5_000)
        driver.heartbeat(leader)
        driver.heartbeat(follower)
    assert not answers
    driver.advance(5_000)
    assert [m.member_id for m in answers[0].members] == [third]
    assert answers[0].leader == third
    assert driver.heartbeat(leader) == E.UNKNOWN_MEMBER_ID


def test_the_longest_rebalance_timeout_counts():
    driver = Driver()
    (a,) = driver.stable(None)
    driver.join(member_id_required=False, rebalance_timeout_ms=60_000)
    for _ in range(59):
        driver.advance(1_000)
        assert driver.heartbeat(a) == E.REBALANCE_IN_PROGRESS
    driver.advance(1_000)
    assert driver.heartbeat(a) == E.UNKNOWN_MEMBER_ID


def test_static_members_that_did_not_come_stay_until_their_session_ends():
    driver = Driver()
    static, dynamic = driver.stable("i", None)
    answers = driver.join(dynamic, protocols=protocols("range", metadata=b"new"), rebalance_timeout_ms=3_000)
    driver.group.roster[static].rebalance_timeout_ms = 3_000
    driver.leave(dynamic)  # only the absent static member is left
    assert answers[0].error == E.UNKNOWN_MEMBER_ID
    driver.advance(REBALANCE_MS - 1)
    assert driver.group.state is GroupState.EMPTY
    assert driver.group.generation == 2


def test_a_static_member_that_misses_a_rebalance_keeps_its_place():
    driver = Driver()
    static, dynamic = driver.stable("i", None)
    driver.group.roster[static].session_timeout_ms = 1_000_000
    driver.heartbeat(static)
    answers = driver.join(dynamic, protocols=protocols("range", metadata=b"new"))
    driver.advance(REBALANCE_MS)
    assert [m.member_id for m in answers[0].members] == [static, dynamic]
    assert answers[0].leader == dynamic


def test_a_group_of_absent_static_members_waits_on_without_spinning():
    driver = Driver()
    (static,) = driver.stable("i")
    member = driver.group.roster[static]
    member.session_timeout_ms, member.rebalance_timeout_ms = 100_000, 0
    driver.heartbeat(static)
    other = driver.join(member_id_required=False, rebalance_timeout_ms=0)
    driver.leave(other[0].member_id if other else "c-2")
    driver.advance(99_000)
    driver.advance(1_000)
    assert driver.group.state is GroupState.EMPTY


def test_a_session_ends_without_heartbeats_and_lasts_with_them():
    driver = Driver()
    leader, follower = driver.stable(None, None)
    for _ in range(3):
        driver.advance(SESSION_MS - 1)
        assert driver.heartbeat(leader) in (E.NONE, E.REBALANCE_IN_PROGRESS)
    assert follower not in driver.group.roster
    driver.advance(SESSION_MS)
    assert driver.group.state is GroupState.EMPTY


def test_a_shorter_session_counts_at_once():
    driver = Driver()
    leader, follower = driver.stable(None, None)
    driver.join(leader, session_timeout_ms=1_000)
    driver.join(follower, session_timeout_ms=1_000)
    driver.sync(leader)
    driver.advance(999)
    assert driver.heartbeat(leader) == E.NONE
    driver.advance(1)
    assert driver.heartbeat(leader) == E.REBALANCE_IN_PROGRESS
    assert driver.heartbeat(follower) == E.UNKNOWN_MEMBER_ID


def test_a_session_restarts_with_each_generation():
    driver = Driver()
    leader, follower = driver.stable(None, None)
    driver.join(leader)
    driver.advance(SESSION_MS - 1)
    driver.heartbeat(follower)
    driver.join(follower)
    driver.advance(SESSION_MS - 1)
    assert driver.heartbeat(leader) == E.NONE


@pytest.mark.parametrize("alive", ["commit", "sync"])
def test_commits_and_syncs_count_as_heartbeats(alive):
    driver = Driver()
    (member_id,) = driver.stable(None)
    driver.advance(SESSION_MS - 1)
    driver.commit(member_id, 1) if alive == "commit" else driver.sync(member_id)
    driver.advance(SESSION_MS - 1)
    assert driver.heartbeat(member_id) == E.NONE


def test_members_that_wait_for_us_need_no_heartbeat():
    driver = Driver()
    (first,) = driver.stable(None)
    waiting = driver.join(first)  # completes at once: it is alone
    assert waiting[0].generation_id == 2
    follower = driver.join(member_id_required=False)
    assert not follower
    for _ in range(2):
        driver.advance(SESSION_MS - 1)
        assert driver.heartbeat(first) == E.REBALANCE_IN_PROGRESS
    driver.join(first)
    follower_sync = driver.sync(follower[0].member_id)
    for _ in range(2):
        driver.advance(SESSION_MS - 1)
        assert driver.heartbeat(first) == E.NONE
    driver.sync(first, {follower[0].member_id: b"x"})
    assert follower_sync[0].assignment == b"x"


def test_a_new_member_waits_no_longer_than_five_minutes():
    driver = Driver()
    (first,) = driver.stable(None)
    new = driver.join(member_id_required=False, rebalance_timeout_ms=3_600_000)
    for _ in range(299):
        driver.advance(1_000)
        driver.heartbeat(first)
    assert not new
    driver.advance(1_000)
    assert new[0].error == E.UNKNOWN_MEMBER_ID


def test_members_that_never_sync_are_removed_after_the_rebalance_timeout():
    driver = Driver()
    leader, lazy = driver.stable(None, None)
    driver.join(leader, rebalance_timeout_ms=12_300)
    driver.join(lazy, rebalance_timeout_ms=12_300)
    driver.sync(leader, {})
    assert driver.group.state is GroupState.STABLE
    for _ in range(123):
        assert lazy in driver.group.roster
        driver.heartbeat(leader)
        driver.heartbeat(lazy)
        driver.advance(100)
    assert lazy not in driver.group.roster
    assert driver.heartbeat(leader) == E.REBALANCE_IN_PROGRESS


def test_a_leader_that_never_syncs_does_not_hold_the_group():
    driver = Driver()
    leader, follower = driver.completing(None, None)
    waiting = driver.sync(follower)
    for _ in range(REBALANCE_MS // 5_000):
        driver.heartbeat(leader)
        driver.advance(5_000)
    assert waiting[0].error == E.REBALANCE_IN_PROGRESS
    (answer,) = driver.join(follower)
    assert answer.leader == follower


# The first rebalance


def test_the_first_rebalance_waits_for_more_members_up_to_the_rebalance_timeout():
    driver = Driver(GroupConfig(initial_rebalance_delay_ms=3_000))
    answers = [driver.join(member_id_required=False, rebalance_timeout_ms=10_000)]
    for _ in range(9):
        driver.advance(1_000)
        answers.append(driver.join(member_id_required=False, rebalance_timeout_ms=10_000))
    assert not any(answers)
    driver.advance(999)
    assert not any(answers)
    driver.advance(1)
    assert {a[0].generation_id for a in answers} == {1}
    assert len(answers[0][0].members) == 10


def test_the_first_rebalance_ends_after_one_delay_without_other_members():
    driver = Driver(GroupConfig(initial_rebalance_delay_ms=3_000))
    answers = driver.join(member_id_required=False)
    driver.advance(2_999)
    assert not answers
    driver.advance(1)
    assert answers[0].generation_id == 1


def test_members_that_come_back_to_an_empty_group_do_not_extend_the_delay():
    driver = Driver(GroupConfig(initial_rebalance_delay_ms=3_000))
    driver.leave(*driver.stable(None))
    answers = [driver.join(member_id_required=False)]
    driver.advance(2_000)
    answers.append(driver.join(member_id_required=False))
    driver.advance(1_000)
    assert [a[0].generation_id for a in answers] == [3, 3]


def test_what_extended_one_first_rebalance_does_not_extend_the_next():
    driver = Driver(GroupConfig(initial_rebalance_delay_ms=3_000))
    for _ in range(2):
        driver.join(member_id_required=False, rebalance_timeout_ms=3_000)
    driver.advance(3_000)
    driver.leave("c-1", "c-2")
    answers = driver.join(member_id_required=False)
    driver.advance(3_000)
    assert answers[0].generation_id == 3


def test_all_members_may_leave_during_the_first_rebalance():
    driver = Driver(GroupConfig(initial_rebalance_delay_ms=3_000))
    answers = driver.join(member_id_required=False)
    driver.leave("c-1")
    assert answers[0].error == E.UNKNOWN_MEMBER_ID
    driver.advance(3_000)
    assert driver.group.state is GroupState.EMPTY


# group.max.size


def test_a_full_group_refuses_new_members():
    driver = Driver(GroupConfig(initial_rebalance_delay_ms=0, size_max=2))
    first, second = driver.stable(None, None)
    (answer,) = driver.join()
    assert (answer.error, answer.member_id) == (E.GROUP_MAX_SIZE_REACHED, "")
    driver.join(first)
    assert driver.join(second)[0].generation_id == 2


def test_an_id_that_was_given_out_is_void_once_the_group_is_full():
    driver = Driver(GroupConfig(initial_rebalance_delay_ms=0, size_max=1))
    (given,) = driver.join()
    driver.join(member_id_required=False)
    driver.advance(0)
    assert driver.join(given.member_id)[0].error == E.GROUP_MAX_SIZE_REACHED
    assert not driver.group.pending


def test_the_last_to_join_are_shed_from_a_group_that_is_too_large():
    driver = Driver(GroupConfig(initial_rebalance_delay_ms=0, size_max=2))
    answers = [driver.join(member_id_required=False) for _ in range(3)]
    assert answers[2][0].error == E.GROUP_MAX_SIZE_REACHED
    driver.advance(0)
    assert len(answers[0][0].members) == 2


def test_a_loaded_group_that_is_too_large_rebalances():
    driver = Driver()
    a, b, c = driver.stable(None, None, None)
    driver.group = Group.restored("g", GroupConfig(size_max=2), driver.unique, driver.now_ms, driver.records[-1], driver.monotonic_ms)
    driver.settle()
    assert driver.group.state is GroupState.PREPARING_REBALANCE
    joins = [driver.join(m) for m in (a, b, c)]
    assert joins[2][0].error == E.GROUP_MAX_SIZE_REACHED
    assert joins[0][0].generation_id == joins[1][0].generation_id == 2


# Static members (KIP-345, KIP-814)


def test_a_static_member_that_restarts_gets_its_assignment_back_without_a_rebalance():
    driver = Driver()
    leader, old = driver.stable(None, "i")
    driver.advance(SESSION_MS - 1)
    driver.heartbeat(leader)
    (answer,) = driver.join(group_instance_id="i")
    assert (answer.error, answer.generation_id, answer.leader) == (E.NONE, 1, leader)
    assert answer.member_id != old
    assert driver.group.state is GroupState.STABLE
    (sync,) = driver.sync(answer.member_id, group_instance_id="i")
    assert sync.assignment == f"for {old}".encode()
    record = driver.records[-1]
    assert {m.member_id: m.assignment for m in record.members}[answer.member_id] == f"for {old}".encode()
    assert driver.heartbeat(old, instance="i") == E.FENCED_INSTANCE_ID
    assert driver.heartbeat(old) == E.UNKNOWN_MEMBER_ID
    driver.advance(SESSION_MS - 1)
    assert driver.heartbeat(answer.member_id, instance="i") == E.NONE
    assert driver.sync(old, group_instance_id="i")[0].error == E.FENCED_INSTANCE_ID
    assert driver.join(old, group_instance_id="i")[0].error == E.FENCED_INSTANCE_ID


@pytest.mark.parametrize("can_skip", [True, False])
def test_a_static_leader_that_restarts_does_not_assign_again(can_skip):
    driver = Driver()
    old, _ = driver.stable("i", None)
    (answer,) = driver.join(group_instance_id="i", can_skip_assignment=can_skip)
    assert answer.skip_assignment is can_skip
    assert answer.leader == (answer.member_id if can_skip else old)
    assert len(answer.members) == (2 if can_skip else 0)


def test_a_static_follower_that_restarts_does_not_lead():
    driver = Driver()
    leader, _ = driver.stable(None, "i")
    (answer,) = driver.join(group_instance_id="i", can_skip_assignment=True)
    assert (answer.skip_assignment, answer.leader, answer.members) == (False, leader, ())


def test_a_static_member_whose_return_changes_the_protocol_rebalances_the_group():
    driver = Driver()
    answers = [
        driver.join("", *names, group_instance_id=i, member_id_required=False)
        for i, names in [("i", ("range", "rr")), (None, ("range", "rr")), ("j", ("rr", "range"))]
    ]
    driver.advance(0)
    driver.sync(answers[0][0].member_id, {})
    assert driver.group.protocol_name == "range"
    waiting = driver.join("", "rr", "range", group_instance_id="i")
    assert not waiting
    assert driver.group.state is GroupState.PREPARING_REBALANCE


def test_a_static_member_that_restarts_while_a_generation_completes_rebalances_the_group():
    driver = Driver()
    leader, old = driver.completing(None, "i")
    returning = driver.join(group_instance_id="i")
    assert not returning
    assert driver.heartbeat(leader) == E.REBALANCE_IN_PROGRESS
    again = driver.join(leader)
    assert again[0].generation_id == returning[0].generation_id == 3
    assert old not in {m.member_id for m in again[0].members}


def test_a_static_member_that_waits_is_fenced_by_its_successor():
    driver = Driver()
    _, old = driver.stable(None, "i")
    joining = driver.join(old, group_instance_id="i", protocols=protocols("range", metadata=b"new"))
    successor = driver.join(group_instance_id="i")
    assert joining[0].error == E.FENCED_INSTANCE_ID
    assert not successor

    driver = Driver()
    _, old = driver.completing(None, "i")
    syncing = driver.sync(old)
    driver.join(group_instance_id="i")
    assert syncing[0].error == E.FENCED_INSTANCE_ID


def test_a_return_that_cannot_be_written_is_undone():
    driver = Driver(hold_writes=False)
    leader, old = driver.stable(None, "i")
    driver.hold_writes = True
    driver.advance(SESSION_MS // 2)
    driver.heartbeat(leader)
    answers = driver.join("", "range", "rr", group_instance_id="i", session_timeout_ms=6_000, rebalance_timeout_ms=1)
    assert not answers
    driver.complete_write(E.NOT_COORDINATOR)
    member = driver.group.roster[old]
    assert (member.session_timeout_ms, member.rebalance_timeout_ms, member.protocols) == (SESSION_MS, REBALANCE_MS, protocols("range"))
    driver.advance(SESSION_MS - 1)
    driver.heartbeat(leader)
    assert (answers[0].error, answers[0].member_id, answers[0].leader) == (E.NOT_COORDINATOR, "", leader)
    assert driver.heartbeat(old, instance="i") == E.NONE
    assert driver.sync(old, group_instance_id="i")[0].assignment == f"for {old}".encode()


def test_a_rebalance_that_begins_while_a_return_is_written_answers_it():
    driver = Driver()
    leader, _ = driver.stable(None, "i")
    driver.hold_writes = True
    returning = driver.join(group_instance_id="i")
    again = driver.join(leader)
    assert returning[0].generation_id == again[0].generation_id == 2
    driver.complete_write(E.NOT_COORDINATOR)
    assert len(returning) == 1
    assert driver.heartbeat(returning[0].member_id, instance="i") == E.NONE


def test_a_static_member_that_returns_before_it_synced_still_has_to_sync():
    driver = Driver()
    leader, old = driver.completing(None, "i")
    driver.sync(leader, {old: b"x"})
    (answer,) = driver.join(group_instance_id="i")
    (sync,) = driver.sync(answer.member_id, group_instance_id="i")
    assert sync.assignment == b"x"
    for _ in range(20):
        driver.advance(5_000)
        assert driver.heartbeat(leader) == driver.heartbeat(answer.member_id, instance="i") == E.NONE


def test_a_static_member_that_returns_and_never_syncs_is_removed():
    driver = Driver()
    leader, _ = driver.completing(None, "i")
    driver.sync(leader, {})
    (answer,) = driver.join(group_instance_id="i")
    for _ in range(REBALANCE_MS // 5_000):
        assert driver.heartbeat(leader) == driver.heartbeat(answer.member_id, instance="i") == E.NONE
        driver.advance(5_000)
    assert driver.heartbeat(answer.member_id, instance="i") == E.UNKNOWN_MEMBER_ID


# Endings and restarts


def test_a_group_that_ends_answers_all_waiting_requests():
    driver = Driver()
    leader, follower = driver.stable(None, None)
    joining = driver.join(leader)
    driver.group.die(E.NOT_COORDINATOR)
    driver.settle()
    assert joining[0].error == E.NOT_COORDINATOR

    driver = Driver()
    leader, follower = driver.completing(None, None)
    syncing = driver.sync(follower)
    driver.group.die(E.NOT_COORDINATOR)
    driver.settle()
    assert syncing[0].error == E.NOT_COORDINATOR
    assert driver.join()[0].error == E.COORDINATOR_NOT_AVAILABLE
    driver.advance(1_000_000)


def test_a_restored_group_goes_on_where_it_was():
    driver = Driver()
    leader, static = driver.stable(None, "i")
    before = driver.group
    driver.group = Group.restored("g", AT_ONCE, driver.unique, driver.now_ms, driver.records[-1], driver.monotonic_ms)
    driver.settle()
    for name in ("state", "generation", "protocol_type", "protocol_name"):
        assert getattr(driver.group, name) == getattr(before, name)
    assert driver.group.roster.leader == leader
    assert driver.heartbeat(leader) == driver.heartbeat(static, instance="i") == E.NONE
    assert driver.sync(static, group_instance_id="i")[0].assignment == f"for {static}".encode()
    driver.advance(SESSION_MS)
    assert driver.group.state is GroupState.EMPTY


@pytest.mark.parametrize(("leader", "taken"), [("m2", "m2"), ("unknown", "m1"), (None, "m1")])
def test_what_a_record_says_of_a_group(leader, taken):
    members = tuple(
        MemberRecord(
            member_id=f"m{n}", group_instance_id=None, client_id="c", client_host="/h", rebalance_timeout_ms=1, session_timeout_ms=2,
            subscription=b"\0\0\0\0\0\1\0\1" + topic, assignment=b"",
        )
        for n, topic in [(1, b"a"), (2, b"b"), (2, b"b")]
    )
    record = GroupRecord(protocol_type="consumer", generation=7, protocol="range", leader=leader, state_ms=5, members=members)
    group = Group.restored("g", AT_ONCE, str, lambda: 5, record, 1_000)
    assert (group.state, group.state_ms, group.generation, group.roster.leader) == (GroupState.STABLE, 5, 7, taken)
    assert group.subscribed_topics == {"a", "b"}
    assert list(group.roster.members) == ["m1", "m2"]
    assert group.effects[-1] == WakeAt(1_002)


def test_the_table_of_transitions_is_the_one_that_kafka_documents():
    ways = {(a.value, b.value) for a, targets in TRANSITIONS.items() for b in targets if b is not GroupState.DEAD}
    assert ways == {
        ("Empty", "PreparingRebalance"),
        ("Stable", "PreparingRebalance"),
        ("CompletingRebalance", "PreparingRebalance"),
        ("PreparingRebalance", "CompletingRebalance"),
        ("PreparingRebalance", "Empty"),
        ("CompletingRebalance", "Stable"),
    }
    assert all(GroupState.DEAD in targets for state, targets in TRANSITIONS.items() if state is not GroupState.DEAD)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("delay_ms", [0, 3_000])
def test_many_clients_that_join_at_once_never_get_unknown_member_id(seed, delay_ms):
    """Each client does what the protocol says, in any interleaving; all end up in one generation."""
    chance = random.Random(seed)
    driver = Driver(GroupConfig(initial_rebalance_delay_ms=delay_ms))
    clients = [{"id": "", "join": None, "generation": -1, "synced": None} for _ in range(12)]
    for _ in range(1_200):
        client = chance.choice(clients)
        if client["synced"] is not None:
            if client["synced"] and client["synced"][0].error in (E.NONE, E.REBALANCE_IN_PROGRESS):
                rejoin = client["synced"][0].error or driver.heartbeat(client["id"], client["generation"])
                assert rejoin in (E.NONE, E.REBALANCE_IN_PROGRESS)
                if rejoin:
                    client["synced"] = client["join"] = None
        elif client["join"] is None:
            client["join"] = driver.join(client["id"])
        elif client["join"]:
            answer = client["join"][0]
            assert answer.error in (E.NONE, E.MEMBER_ID_REQUIRED), answer
            client["id"] = answer.member_id
            if answer.error:
                client["join"] = None
            else:
                client["generation"] = answer.generation_id
                client["synced"] = driver.sync(answer.member_id, {}, generation_id=answer.generation_id)
        driver.advance(chance.choice([0, 0, 0, 10, 100]))
    assert len(driver.group.roster) == 12
    assert {c["generation"] for c in clients} == {driver.group.generation}
    assert driver.group.state is GroupState.STABLE
