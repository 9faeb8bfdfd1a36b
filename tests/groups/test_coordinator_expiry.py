"""Committed offsets expire."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from tests.groups.coordinator_harness import A0, A1, B0, DAY_MS, CoordinatorHarness, E, now, waits
from txbroker.errors import BrokerError
from txbroker.groups.group import Group
from txbroker.groups.group_records import GroupEntry, OffsetEntry
from txbroker.groups.group_results import MemberIdentity
from txbroker.groups.offsets_expiry import expired
from txbroker.names import TopicPartition


def expiring(**settings: Any) -> CoordinatorHarness:
    harness = CoordinatorHarness(**settings).loaded()
    harness.coordinator.start()
    return harness


def days(harness: CoordinatorHarness, count: float) -> None:
    """Time passes with its expiry checks."""
    for _ in range(round(count * 24)):
        harness.clock.advance(3_600)


def test_offsets_of_simple_consumers_expire_by_their_commit():
    harness = expiring()
    now(harness.commit({A0: 1}))
    days(harness, 4)
    now(harness.commit({A1: 1}))
    days(harness, 2.9)
    assert harness.offsets() == {A0: 1, A1: 1}
    days(harness, 0.2)
    assert harness.offsets() == {A1: 1}
    days(harness, 4)
    assert harness.state() == "Dead"
    assert harness.written()[-1] == OffsetEntry("g", A1, None)


def test_offsets_expire_on_request_and_their_tombstones_are_written_then():
    harness = CoordinatorHarness().loaded()
    now(harness.commit({A0: 1}))
    assert now(harness.coordinator.expire_offsets()) == E.NONE
    assert harness.offsets() == {A0: 1}
    harness.clock.advance(8 * 86_400)  # no check is started
    harness.store.hold = True
    expiring_now = harness.coordinator.expire_offsets()
    assert waits(expiring_now)
    harness.store.hold = False
    harness.store.complete()
    assert now(expiring_now) == E.NONE
    assert harness.state() == "Dead"


def test_offsets_of_a_group_expire_when_it_has_been_empty_for_long():
    harness = expiring()
    member = harness.member(session_timeout_ms=1_800_000)
    now(harness.commit({A0: 1}, "g", member, 1))
    for _ in range(10 * 24 * 4):
        harness.clock.advance(900)
        harness.coordinator.heartbeat("g", member, None, 1)
    assert harness.offsets() == {A0: 1}
    harness.coordinator.leave_group("g", [MemberIdentity(member_id=member)])
    days(harness, 6.9)
    assert harness.offsets() == {A0: 1}
    days(harness, 0.2)
    assert harness.state() == "Dead"
    assert harness.written()[-2:] == [OffsetEntry("g", A0, None), GroupEntry("g", None)]
    harness.replace()
    harness.loaded()
    assert harness.coordinator.list_groups()[1] == []


def test_a_live_group_loses_offsets_of_topics_it_left():
    harness = expiring()
    member = harness.member(session_timeout_ms=1_800_000)
    now(harness.commit({A0: 1, B0: 1}, "g", member, 1))
    for _ in range(round(7.1 * 24 * 4)):
        harness.clock.advance(900)
        harness.coordinator.heartbeat("g", member, None, 1)
    assert harness.offsets() == {A0: 1}


def test_a_live_group_of_another_protocol_type_keeps_its_offsets():
    harness = expiring()
    member = harness.member(session_timeout_ms=1_800_000, protocol_type="connect")
    now(harness.commit({B0: 1}, "g", member, 1))
    for _ in range(round(7.1 * 24 * 4)):
        harness.clock.advance(900)
        harness.coordinator.heartbeat("g", member, None, 1)
    assert harness.offsets() == {B0: 1}


def test_offsets_with_a_retention_time_of_their_own():
    harness = expiring()
    now(harness.commit({A0: 1}, retention_ms=DAY_MS))
    now(harness.commit({A1: 1}, retention_ms=30 * DAY_MS))
    assert harness.written()[0].offset.expire_ms == harness.now_ms + DAY_MS
    days(harness, 0.9)
    assert harness.offsets() == {A0: 1, A1: 1}
    days(harness, 0.2)
    assert harness.offsets() == {A1: 1}
    days(harness, 20)
    assert harness.offsets() == {A1: 1}


def test_an_offset_being_committed_does_not_expire():
    harness = expiring()
    now(harness.commit({A0: 1}))
    days(harness, 6.9)
    harness.store.hold = True
    committing = harness.commit({A0: 2})
    days(harness, 0.2)
    harness.store.complete()
    assert now(committing) == {A0: E.NONE}
    assert harness.offsets() == {A0: 2}
    assert not harness.store.hosted


def test_expiry_that_cannot_be_written_is_tried_again(caplog):
    harness = expiring()
    now(harness.commit({A0: 1}))
    days(harness, 6.9)
    harness.store.append_error = BrokerError(E.NOT_ENOUGH_REPLICAS)
    with caplog.at_level(logging.CRITICAL, "txbroker"):
        days(harness, 1)
    assert harness.offsets() == {A0: 1}
    harness.store.append_error = None
    days(harness, 0.1)
    assert harness.state() == "Dead"


def test_an_empty_group_waits_for_the_owner_of_an_id_it_gave_out():
    harness = expiring(offsets_retention_check_interval_ms=1_000)
    given = now(harness.join()).member_id
    harness.clock.advance(5)
    joining = harness.join(member_id=given)
    harness.turns()
    assert now(joining).error == E.NONE
    now(harness.sync("g", given, 1, {}))
    harness.coordinator.leave_group("g", [MemberIdentity(member_id=given)])
    harness.clock.advance(1.1)
    assert harness.state() == "Dead"


def test_an_error_in_one_group_does_not_keep_others_from_expiring(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture):
    harness = expiring()
    now(harness.commit({A0: 1}, "broken"))
    now(harness.commit({A0: 1}, "g"))

    def failing(group: Group, *arguments: Any) -> list[TopicPartition]:
        if group.group_id == "broken":
            raise RuntimeError("a bug")
        return expired(group, *arguments)

    monkeypatch.setattr("txbroker.groups.offset_removal.expired", failing)
    days(harness, 7.1)
    assert harness.state() == "Dead"
    assert "group broken: internal error while expiring its offsets" in caplog.text
    monkeypatch.undo()
    days(harness, 0.2)
    assert harness.state("broken") == "Dead"
