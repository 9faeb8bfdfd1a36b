"""The examples of tests in other languages, compat/testing: each starts `txbroker test-server`, and sets a rule over HTTP."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cache import CHECKOUT
from tests.testing.leftovers import brokers_in

EXAMPLES = CHECKOUT / "compat" / "testing"
PASSED = {
    "java": r"\[ +1 tests successful +\]",
    "go": r"^--- PASS: TestAnOrderIsStoredOnceAlthoughTheFirstRequestIsRefused",
    "node": r"^# pass 1$",
    "rust": r"test result: ok\. 1 passed",
}
BUILD_S = 500  # what an example may take to download and build its client


def test_each_is_run() -> None:
    assert {path.parent.name for path in EXAMPLES.glob("*/run")} == set(PASSED)


@pytest.mark.process
@pytest.mark.extended
@pytest.mark.parametrize("language", PASSED)
def test_an_example(language: str, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHON": sys.executable, "TMPDIR": str(tmp_path)}
    environment.pop("TXBROKER", None)
    ended = subprocess.run([EXAMPLES / language / "run"], capture_output=True, text=True, timeout=BUILD_S, check=False, env=environment)
    assert ended.returncode == 0 and re.search(PASSED[language], ended.stdout, re.M), ended.stdout + ended.stderr
    assert not brokers_in(tmp_path)
