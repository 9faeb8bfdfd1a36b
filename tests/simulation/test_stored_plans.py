"""Plans that have shown a bug are run again: with the bug they violate the invariant of their file, and without it none.

A file keeps the faults and the work that show the bug, whatever becomes of seeds. When the broker changes, the same plan goes another way,
as with another seed of the rest: so the test tries some, and one of them must show the bug.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from simulation.plan_file import from_text, to_text
from simulation.run import run_plan

SEEDS = 25
PLANS = sorted((Path(__file__).parent / "plans").glob("*.json"))


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
def test_a_stored_plan(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    stored = from_text(text)
    assert to_text(stored) == text, "as the command writes it"
    assert stored.about
    clean = run_plan(replace(stored.plan, bug=""))[0]
    assert clean.violation is None
    if stored.plan.bug:
        seeds = range(stored.plan.seed, stored.plan.seed + SEEDS)
        found = (run_plan(replace(stored.plan, seed=seed))[0].violation for seed in seeds)
        assert any(violation is not None and violation.invariant == stored.violates for violation in found)
