"""`make coverage`: its table, and that processes count which a measured process starts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cache import CHECKOUT
from tests.support.line_coverage import table


def test_packages_are_added_up() -> None:
    files = {"txbroker/log/log.py": (8, 10), "txbroker/log/cleaner/worker.py": (0, 10),
             "txbroker/tap.py": (5, 5), "txbroker/api/fetch.py": (4, 8)}  # fmt: skip
    report = {"files": {file: {"summary": {"covered_lines": lines, "num_statements": of}} for file, (lines, of) in files.items()}}
    assert table(report).splitlines()[2:] == [
        "| `txbroker/log/` | 20 | 40.0 % |",
        "| `txbroker/api/` | 8 | 50.0 % |",
        "| `txbroker/*.py` | 5 | 100.0 % |",
        "| all | 33 | 51.5 % |",
    ]


@pytest.mark.extended
def test_a_child_process_counts(tmp_path: Path) -> None:
    coverage = (sys.executable, "-m", "coverage")
    measured = {**os.environ, "COVERAGE_FILE": str(tmp_path / "lines")}
    script = tmp_path / "starts.py"
    script.write_text("import subprocess, sys\nsubprocess.run([sys.executable, '-m', 'txbroker', '--version'], check=True)")
    for line in (("run", str(script)), ("combine", "-q"), ("json", "-q", "-o", str(tmp_path / "report"))):
        subprocess.run([*coverage, *line], cwd=CHECKOUT, env=measured, capture_output=True, check=True)
    files = json.loads((tmp_path / "report").read_text())["files"]
    assert files["txbroker/cli/main.py"]["summary"]["covered_lines"] > 10
