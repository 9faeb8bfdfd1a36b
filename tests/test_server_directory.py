"""Fixtures of a file that start more than once, as in a process of pytest-xdist that takes tests of other files between."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.cache import CHECKOUT

STARTED = """
import pytest

@pytest.fixture(scope="module")
def started(server_directory):
    (server_directory / "data").mkdir()

def test_one(started): ...
def test_two(started): ...
"""


def test_a_fixture_that_starts_again_has_an_empty_directory(tmp_path: Path) -> None:
    (tmp_path / "test_first.py").write_text(STARTED)
    (tmp_path / "test_second.py").write_text("def test_between(): ...")
    tests = ("test_first.py::test_one", "test_second.py::test_between", "test_first.py::test_two")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "-p", "no:cacheprovider", f"--rootdir={tmp_path}",
               *(str(tmp_path / test) for test in tests)]  # fmt: skip
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "3 passed" in done.stdout, done.stdout + done.stderr
