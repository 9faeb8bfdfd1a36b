"""Makes a failing plan smaller: the same violation with fewer faults and clients, in less time (delta debugging: Zeller, Hildebrandt)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from simulation.plan import Plan

T = TypeVar("T")

Fails = Callable[[Plan], bool]


def shrink(plan: Plan, fails: Fails, *, runs_max: int = 200) -> Plan:
    """The smallest plan found that still fails. `fails` runs a plan; at most `runs_max` times, and three more."""
    left = [runs_max]

    def still_fails(candidate: Plan) -> bool:
        if not left[0]:
            return False
        left[0] -= 1
        return fails(candidate)

    while True:
        before = plan
        for part in ("faults", "transactional", "administrators", "groups", "producers", "consumers", "committers"):
            plan = _with_fewer(plan, part, still_fails)
        for duration_s in (plan.duration_s / 2, plan.duration_s * 0.75):
            shorter = replace(plan, duration_s=duration_s, faults=tuple(fault for fault in plan.faults if fault.at_s < duration_s))
            if still_fails(shorter):
                plan = shorter
                break
        if plan.left_out is not None and still_fails(replace(plan, left_out=None)):
            plan = replace(plan, left_out=None)
        if plan == before or not left[0]:
            break
    return next(filter(fails, (_rounded(plan, digits) for digits in (1, 2, 3))), plan)


def _rounded(plan: Plan, digits: int) -> Plan:
    """For people."""
    faults = (fault._replace(at_s=round(fault.at_s, digits), length_s=round(fault.length_s, digits)) for fault in plan.faults)
    return replace(plan, faults=tuple(fault._replace(detail=round(fault.detail, digits + 1)) for fault in faults))


def _with_fewer(plan: Plan, part: str, fails: Fails) -> Plan:
    def with_some(some: Sequence[Any]) -> Plan:
        changed: Any = {part: tuple(some)}
        return replace(plan, **changed)

    return with_some(_fewer(getattr(plan, part), lambda some: fails(with_some(some))))


def _fewer(items: Sequence[T], fails: Callable[[Sequence[T]], bool]) -> Sequence[T]:
    """A part of the items with which it still fails: without halves, then quarters, then single ones."""
    size = max(len(items) // 2, 1)
    while items:
        at, removed = 0, False
        while at < len(items):
            some = [*items[:at], *items[at + size :]]
            if fails(some):
                items, removed = some, True
            else:
                at += size
        if size == 1 and not removed:
            break
        size = max(size // 2, 1)
    return items
