"""The names of the jar sets that the Makefile and the drivers of clients ask for."""

from __future__ import annotations

import re

import pytest

from tests.support.cache import CHECKOUT, SPARK

CALL = re.compile(r"-m tests\.support\.prepare ([\w.-]+)")
PLACES = [CHECKOUT / "Makefile", *sorted((CHECKOUT / "compat").rglob("run"))]
NAMES = [(place, name) for place in PLACES for name in CALL.findall(place.read_text(encoding="utf-8"))]


def test_names_are_asked_for() -> None:
    assert SPARK in [name for _, name in NAMES]


@pytest.mark.parametrize(("place", "name"), NAMES, ids=lambda value: str(getattr(value, "parent", value)).rpartition("/")[2])
def test_each_name_is_one_of_a_set(place: object, name: str) -> None:
    assert name == SPARK or (CHECKOUT / "tests" / "support" / "jars" / name / "pom.xml").exists(), f"{place} asks for it"
