"""How many random examples Hypothesis tries: all that a test states, or a quarter of them in the short tier.

`make test` has the profile `short`, everything else `whole`; `make test-all EXCEPT=test` runs the tests with examples once more.
"""

from __future__ import annotations

from hypothesis import settings

WHOLE = 100  # examples of a test that states no number


def register_profiles() -> None:
    """For `--hypothesis-profile`. There is no deadline: a loaded machine is slow, which is no failure of what is tested."""
    settings.register_profile("whole", max_examples=WHOLE, deadline=None)
    settings.register_profile("short", max_examples=WHOLE // 4, deadline=None)
    settings.load_profile("whole")


def examples(count: int) -> int:
    """The number of examples for a test that has `count` of them in the extended tier."""
    return max(1, count * settings().max_examples // WHOLE)
