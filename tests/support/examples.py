"""How many random examples and seeds tests try: all that they state, or a quarter of them in the short tier.

For Hypothesis `make test` has the profile `short`, everything else `whole`; `make test-all EXCEPT=test` runs the tests with examples once
more. Seeds that the short tier leaves out have the marker `extended`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

WHOLE = 100  # examples of a test that states no number


def register_profiles() -> None:
    """For `--hypothesis-profile`. Nothing has a time limit: a loaded machine is slow, which is no failure of what is tested."""
    checks = (HealthCheck.too_slow, HealthCheck.function_scoped_fixture)
    settings.register_profile("whole", max_examples=WHOLE, deadline=None, suppress_health_check=checks)
    settings.register_profile("short", max_examples=WHOLE // 4, deadline=None, suppress_health_check=checks)
    settings.load_profile("whole")


def examples(count: int) -> int:
    """The number of examples for a test that has `count` of them in the extended tier."""
    return max(1, count * settings().max_examples // WHOLE)


def quarter(cases: Iterable[Any]) -> list[Any]:
    """Values for `pytest.mark.parametrize`: the first quarter is in the short tier, at least one; the others are in the extended tier."""
    values = list(cases)
    short = max(1, len(values) // 4)
    return [*values[:short], *(pytest.param(value, marks=pytest.mark.extended) for value in values[short:])]
