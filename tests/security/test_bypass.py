"""No answer contains what its principal may not see, whatever requests of several principals share; deliberate bugs are found."""

from __future__ import annotations

import pytest

from simulation.bugs.patching import patched
from tests.security.bypass import Bypass, Hunt
from tests.security.cache_bugs import BUGS

STEPS = 200
SEEDS, SEEDS_UNTIL_FOUND = 10, 40


def run(seed: int) -> Hunt:
    hunt = Hunt(seed)
    try:
        hunt.run(STEPS)
    finally:
        hunt.close()
    return hunt


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_answer_contains_what_its_principal_may_not_see(seed: int) -> None:
    assert run(seed).answered > STEPS / 4


@pytest.mark.parametrize("bug", BUGS)
def test_a_deliberate_bug_is_found(bug: str) -> None:
    for seed in range(SEEDS_UNTIL_FOUND):
        with patched(BUGS[bug]()):
            try:
                run(seed)
            except Bypass:
                return
    raise AssertionError(f"{SEEDS_UNTIL_FOUND} seeds do not find it: {BUGS[bug].__doc__}")
