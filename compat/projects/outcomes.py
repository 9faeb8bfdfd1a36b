"""The outcomes of a run of pytest, by its report in JUnit's format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

_KINDS = {"failure": "failed", "error": "failed", "skipped": "skipped"}


class Outcomes(NamedTuple):
    """`by_name`: passed, failed or skipped of each test, by its name with its class, if it has one."""

    by_name: Mapping[str, str]

    def summary(self) -> str:
        """Such as `38 passed, 1 skipped`."""
        counts = Counter(self.by_name.values())
        return ", ".join(f"{counts[kind]} {kind}" for kind in ("passed", "failed", "skipped") if counts[kind]) or "no tests"

    def unlike(self, failures: Mapping[str, str]) -> list[str]:
        """What differs from the failures that are known, one sentence each. A run without a test that passes is an error, too."""
        return list(self._unlike(failures))

    def _unlike(self, failures: Mapping[str, str]) -> Iterator[str]:
        if "passed" not in self.by_name.values():
            yield "no test passed"
        for name, outcome in self.by_name.items():
            if outcome == "failed" and name not in failures:
                yield f"{name} failed"
            elif outcome == "passed" and name in failures:
                yield f"{name} passed, but is listed as a failure: {failures[name]}"


def read_outcomes(report: Path) -> Outcomes:
    """Read a report; one that is missing has no tests."""
    if not report.exists():
        return Outcomes({})
    found: dict[str, str] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        place = case.get("classname", "").rpartition(".")[2]
        name = f"{place}::{case.get('name')}" if place else str(case.get("name"))
        found[name] = next((_KINDS[child.tag] for child in case if child.tag in _KINDS), "passed")
    return Outcomes(found)
