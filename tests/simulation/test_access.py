"""Clients with principals of their own, whose ACLs change: what is deliberately wrong is found, and the plans can be stored."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulation.access_ledger import Version
from simulation.bugs import access_bugs
from simulation.bugs.first_seeds import FIRST_SEEDS
from simulation.plan_file import StoredPlan, from_text, to_text
from simulation.plan_values import BadPlan
from simulation.run import run_plan, run_seed
from simulation.workloads import draw
from txbroker.security.acl_index import AclIndex
from txbroker.security.acl_model import AclEntry, AclOperation, AclPermission, AclResource, PatternType, ResourcePattern

SEED = FIRST_SEEDS["acls_not_read_after_a_session"]
SEEDS = 400
ALICE = "User:alice"


def test_answers_are_checked_while_change_nodes_are_lost_and_sessions_end() -> None:
    result, cluster = run_plan(draw(SEED))
    assert result.violation is None
    assert cluster.clients.access is not None and cluster.clients.access.answers > 100
    assert result.counts["lost_change"] and result.counts["expire"]


@pytest.mark.parametrize("bug", access_bugs.BUGS)
def test_a_deliberate_bug_is_found(bug: str) -> None:
    """By its first seed, or by another one when the broker goes another way."""
    seeds = [FIRST_SEEDS[bug], *(seed for seed in range(1, SEEDS) if draw(seed).access is not None)]
    found = next((failed for failed in (run_seed(seed, bug).failed for seed in seeds) if failed), None)
    assert found is not None, f"no seed below {SEEDS} finds {bug}: python -m simulation --bugs --table"
    assert found.startswith("I14 ")


@pytest.mark.parametrize("operation", [AclOperation.READ, AclOperation.DESCRIBE])
def test_the_checker_decides_as_the_broker(operation: AclOperation) -> None:
    pattern = ResourcePattern(AclResource.TOPIC, PatternType.LITERAL, "t0")
    all_entries = [AclEntry(user, "*", on, permission) for user in (ALICE, "User:bob")
                   for on in (AclOperation.READ, AclOperation.DESCRIBE) for permission in AclPermission]  # fmt: skip
    decisions = set()
    for chosen in range(1 << len(all_entries)):
        entries = frozenset(entry for at, entry in enumerate(all_entries) if chosen >> at & 1)
        decided = AclIndex({pattern: entries}).decide(ALICE, "a", operation, AclResource.TOPIC, "t0").allowed
        assert Version(0.0, entries).allows(ALICE, operation) == decided, entries
        decisions.add(decided)
    assert decisions == {True, False}


def test_a_plan_with_access_can_be_stored() -> None:
    plan = draw(SEED)
    assert plan.access is not None and from_text(to_text(StoredPlan(plan, "about"))).plan == plan


@pytest.mark.parametrize(
    ("changed", "key"),
    [({"topics": ("missing",)}, "access.topics"), ({"principals": ("b1",)}, "access.principals"), ({"lost": 1.5}, "access.lost"),
     ({"principals": ()}, "access"), ({"pause_s": 0.0}, "access.pause_s")],
)  # fmt: skip
def test_a_wrong_plan_is_refused(changed: dict[str, object], key: str) -> None:
    plan = draw(SEED)
    assert plan.access is not None
    bad = replace(plan, access=replace(plan.access, **changed))  # type: ignore[arg-type]
    with pytest.raises(BadPlan, match=f"^{key}: "):
        from_text(to_text(StoredPlan(bad, "about")))
