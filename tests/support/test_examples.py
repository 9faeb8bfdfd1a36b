"""The number of random examples in each profile of Hypothesis."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.support.examples import examples, quarter


@pytest.fixture(autouse=True)
def profile() -> Iterator[None]:
    before = settings.get_current_profile_name()
    yield
    settings.load_profile(before)


@pytest.mark.parametrize(("name", "whole", "count"), [("whole", 400, 400), ("whole", 5, 5), ("short", 400, 100), ("short", 5, 1)])
def test_a_profile_bounds_the_examples(name: str, whole: int, count: int) -> None:
    settings.load_profile(name)
    assert examples(whole) == count
    assert settings().deadline is None


def test_the_first_quarter_is_in_the_short_tier() -> None:
    assert [isinstance(value, int) for value in quarter(range(8))] == [True, True, *[False] * 6]
    first, second = quarter([1, 2])
    assert first == 1 and second.values == (2,) and [mark.name for mark in second.marks] == ["extended"]
