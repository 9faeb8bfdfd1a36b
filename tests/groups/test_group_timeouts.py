"""Timeouts of a classic group: sessions, rebalances, pending member ids, the initial rebalance delay."""

from __future__ import annotations

import pytest

from tests.groups.driving import REBALANCE_MS, SESSION_MS, Driver, protocols
from txbroker.errors import ErrorCode
from txbroker.groups.group_config import GroupConfig
from txbroker.groups.group_states import GroupState

E = ErrorCode


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
