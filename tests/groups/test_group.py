"""A classic group as a whole: its maximum size, its end, its restoration, its transitions, and many clients at once."""

from __future__ import annotations

import random

import pytest

from tests.groups.driving import AT_ONCE, SESSION_MS, Driver
from txbroker.errors import ErrorCode
from txbroker.groups.group import Group
from txbroker.groups.group_config import GroupConfig
from txbroker.groups.group_effects import GroupRecord, MemberRecord, WakeAt
from txbroker.groups.group_states import TRANSITIONS, GroupState

E = ErrorCode


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
