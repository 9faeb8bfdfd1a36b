"""The coordinator lists, describes and deletes groups."""

from __future__ import annotations

from twisted.internet.defer import FirstError

from tests.groups.coordinator_harness import A0, A1, B0, SUBSCRIBED_TO_A, CoordinatorHarness, E, now
from tests.support.unhandled import no_unhandled_errors
from txbroker.groups.group_records import GroupEntry, OffsetEntry
from txbroker.groups.group_results import MemberIdentity


def test_listing_with_filters():
    harness = CoordinatorHarness().loaded()
    harness.member("stable")
    harness.join("forming", member_id_required=False)
    now(harness.commit({A0: 1}, "simple"))
    rows = harness.coordinator.list_groups()[1]
    assert {(r.group_id, r.protocol_type, r.state, r.group_type) for r in rows} == {
        ("stable", "consumer", "Stable", "classic"), ("forming", "consumer", "PreparingRebalance", "classic"),
        ("simple", "", "Empty", "classic"),
    }

    def names(*filters: list[str]) -> set[str]:
        return {r.group_id for r in harness.coordinator.list_groups(*filters)[1]}

    assert names(["stable", "EMPTY"]) == {"stable", "simple"}
    assert names(["Nonsense"]) == set()
    assert names([], ["Classic"]) == {"stable", "forming", "simple"}
    assert names([], ["consumer"]) == set()
    assert names(["Stable"], ["classic", "consumer"]) == {"stable"}


def test_describing_shows_assignments_of_stable_groups_only():
    harness = CoordinatorHarness().loaded()
    member = harness.member(group_instance_id="i")
    (group,) = harness.coordinator.describe_groups(["g"])
    assert (group.state, group.protocol_type, group.protocol_name, group.error) == ("Stable", "consumer", "range", E.NONE)
    (row,) = group.members
    assert (row.member_id, row.group_instance_id, row.client_id, row.client_host) == (member, "i", "c", "/host")
    assert (row.metadata, row.assignment) == (SUBSCRIBED_TO_A, b"all")
    harness.join(member_id_required=False)
    (group,) = harness.coordinator.describe_groups(["g"])
    assert (group.state, group.protocol_name) == ("PreparingRebalance", "")
    assert {(m.metadata, m.assignment) for m in group.members} == {(b"", b"")}


def test_groups_with_members_are_not_deleted():
    harness = CoordinatorHarness().loaded()
    member = harness.member()
    now(harness.commit({A0: 1}, "g", member, 1))
    now(harness.commit({A0: 1}, "h"))
    assert now(harness.coordinator.delete_groups(["g", "h", "unknown", "h"])) == {
        "g": E.NON_EMPTY_GROUP, "h": E.NONE, "unknown": E.GROUP_ID_NOT_FOUND,
    }
    harness.coordinator.leave_group("g", [MemberIdentity(member_id=member)])
    assert now(harness.coordinator.delete_groups(["g"])) == {"g": E.NONE}
    assert harness.written()[-2:] == [OffsetEntry("g", A0, None), GroupEntry("g", None)]
    assert harness.coordinator.list_groups()[1] == []


def test_a_group_that_is_used_again_while_it_is_deleted_lives_on():
    harness = CoordinatorHarness().loaded()
    now(harness.commit({A0: 1}))
    harness.store.hold = True
    deleting = harness.coordinator.delete_groups(["g"])
    given = now(harness.join()).member_id
    committing = harness.commit({A1: 2})
    harness.store.complete()
    assert now(deleting) == {"g": E.NONE}
    harness.store.complete()
    assert now(committing) == {A1: E.NONE}
    assert harness.offsets() == {A1: 2}
    joining = harness.join(member_id=given)
    harness.turns()
    assert now(joining).error == E.NONE


def test_a_group_is_deleted_also_if_the_client_disconnects_meanwhile():
    harness = CoordinatorHarness().loaded()
    now(harness.commit({A0: 1}))
    harness.store.hold = True
    with no_unhandled_errors():
        deleting = harness.coordinator.delete_groups(["g"])
        deleting.addErrback(lambda failure: failure.trap(FirstError))
        deleting.cancel()
        del deleting
    harness.store.complete()
    assert harness.offsets() == {}


def test_writes_that_end_after_the_partition_is_gone():
    harness = CoordinatorHarness().loaded()
    member = harness.member()
    harness.store.hold = True
    committing = harness.commit({A0: 1}, "g", member, 1)
    harness.join(member_id=member)
    syncing = harness.sync("g", member, 2, {})
    deleting = harness.coordinator.delete_offsets("g", [B0])
    harness.coordinator.unload(0)
    assert now(syncing).error == E.NOT_COORDINATOR
    for _ in range(3):
        harness.store.complete()
    assert now(committing) == {A0: E.NONE}
    assert now(deleting) == (E.NONE, {B0: E.NONE})
    harness.loaded()
    assert harness.offsets() == {A0: 1}
