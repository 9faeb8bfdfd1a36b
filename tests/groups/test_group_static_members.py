"""Static members of a classic group (KIP-345, KIP-814)."""

from __future__ import annotations

import pytest

from tests.groups.driving import REBALANCE_MS, SESSION_MS, Driver, protocols
from txbroker.errors import ErrorCode
from txbroker.groups.group_states import GroupState

E = ErrorCode


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
