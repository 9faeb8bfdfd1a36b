"""The documentation builds without a warning: every link between its pages, the generated ones among them, leads somewhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cache import CHECKOUT
from tests.support.waiting import PATIENCE_S


@pytest.mark.process
def test_it_builds_without_warnings(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sphinx", "-q", "-E", "-W", "--keep-going", "-d", tmp_path / "doctrees", "docs", tmp_path / "html"]
    ended = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "log.retention.ms" in (tmp_path / "html" / "reference" / "broker-configuration.html").read_text()
    assert "Produce" in (tmp_path / "html" / "project" / "architecture.html").read_text()
