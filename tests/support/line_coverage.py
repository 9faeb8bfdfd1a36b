"""`python -m tests.support.line_coverage REPORT`: which lines of each package tests executed, a table in Markdown (`make coverage`).

REPORT is what `coverage json` has written.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path, PurePath
from typing import Any


def package(file: str) -> str:
    """The package below `txbroker/` that a file belongs to; "" for the modules beside the packages."""
    parts = PurePath(file).parts
    return parts[1] if len(parts) > 2 else ""


def table(report: Any) -> str:
    """A row for each package, the one with the most lines that were not executed first, and one for all."""
    lines: Counter[str] = Counter()
    executed: Counter[str] = Counter()
    for file, found in report["files"].items():
        lines[package(file)] += found["summary"]["num_statements"]
        executed[package(file)] += found["summary"]["covered_lines"]
    rows = ["| package | statements | executed |", "|---|---|---|"]
    for name in sorted(lines, key=lambda name: executed[name] - lines[name]):
        rows.append(_row(f"`txbroker/{name}{'/' if name else '*.py'}`", lines[name], executed[name]))
    return "\n".join([*rows, _row("all", lines.total(), executed.total())])


def _row(name: str, lines: int, executed: int) -> str:
    return f"| {name} | {lines:,} | {100 * executed / lines if lines else 100:.1f} % |"


if __name__ == "__main__":
    print(table(json.loads(Path(sys.argv[1]).read_text())))
