"""The recipes for faults in the documentation: each is a file of tests, which pytest runs as a reader would."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import blocks, read
from tests.support.cache import CHECKOUT
from tests.support.waiting import PATIENCE_S
from tests.testing.leftovers import brokers_in

PAGE = CHECKOUT / "docs" / "test-recipes.md"
_SECTION = re.compile(r"^## (\d+)\. (.+)$", re.M)


def recipes() -> dict[str, str]:
    """The text of each section, by its number."""
    parts = _SECTION.split(read(PAGE))[1:]
    return dict(zip(parts[::3], parts[2::3], strict=True))


def test_there_are_fifteen() -> None:
    assert list(recipes()) == [str(number) for number in range(1, 16)]


@pytest.mark.process
@pytest.mark.parametrize("number", [number for number, text in recipes().items() if blocks(text, "python")])
def test_a_recipe(number: str, tmp_path: Path) -> None:
    (program,) = blocks(recipes()[number], "python")
    (tmp_path / f"test_recipe_{number}.py").write_text(program)
    (tmp_path / "temporary").mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment = {**kept, "PYTHONPATH": str(CHECKOUT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "TMPDIR": str(tmp_path / "temporary")}
    command = [sys.executable, "-m", "pytest", "-q", "-W", "ignore", "-p", "no:cacheprovider", "-p", "txbroker.testing.pytest_plugin"]
    command += ["-o", f"faulthandler_timeout={PATIENCE_S:.0f}", "-o", "faulthandler_exit_on_timeout=true"]  # shows where a loop waits
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=4 * PATIENCE_S, check=False, env=environment)
    assert ended.returncode == 0 and re.search(r"^\d+ passed in", ended.stdout, re.M), ended.stdout + ended.stderr
    assert not brokers_in(tmp_path / "temporary")
