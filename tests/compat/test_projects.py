"""Tests of other projects pass on the fixture `txbroker`, and their outcomes are compared with those that are known."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from compat.projects.__main__ import CANNOT_RUN
from compat.projects.outcomes import Outcomes, read_outcomes
from compat.projects.project import PROJECTS
from tests.support.cache import CHECKOUT

REPORT = """<testsuites><testsuite>
<testcase classname="t.test_a.TestA" name="test_x"/>
<testcase classname="t.test_b" name="test_y"><failure>no</failure></testcase>
<testcase classname="t.test_b" name="test_z"><skipped/></testcase>
</testsuite></testsuites>"""


@pytest.mark.process
@pytest.mark.extended
@pytest.mark.parametrize("name", [project.name for project in PROJECTS])
def test_chosen_tests_of_a_project_pass(name: str) -> None:
    command = [sys.executable, "-m", "compat.projects", "--chosen", name]
    ended = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    if ended.returncode == CANNOT_RUN:
        pytest.skip(ended.stderr)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.startswith(f"{name} ") and " passed in " in ended.stdout.splitlines()[-1]


def test_an_unknown_project_is_an_error() -> None:
    command = [sys.executable, "-m", "compat.projects", "nothing"]
    ended = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "unknown: nothing; the projects are kombu, " in ended.stderr


def test_outcomes_are_compared_with_known_failures(tmp_path: Path) -> None:
    (tmp_path / "report.xml").write_text(REPORT)
    outcomes = read_outcomes(tmp_path / "report.xml")
    assert outcomes.by_name == {"TestA::test_x": "passed", "test_b::test_y": "failed", "test_b::test_z": "skipped"}
    assert outcomes.summary() == "1 passed, 1 failed, 1 skipped"
    assert outcomes.unlike({"test_b::test_y": "a reason"}) == []
    assert outcomes.unlike({}) == ["test_b::test_y failed"]
    known = {"test_b::test_y": "a reason", "TestA::test_x": "another reason"}
    assert outcomes.unlike(known) == ["TestA::test_x passed, but is listed as a failure: another reason"]


@pytest.mark.parametrize("outcomes", [Outcomes({}), Outcomes({"test_x": "skipped"})])
def test_a_run_without_a_test_that_passes_is_an_error(outcomes: Outcomes) -> None:
    assert outcomes.unlike({}) == ["no test passed"]


def test_a_missing_report_has_no_tests(tmp_path: Path) -> None:
    assert read_outcomes(tmp_path / "report.xml").summary() == "no tests"
