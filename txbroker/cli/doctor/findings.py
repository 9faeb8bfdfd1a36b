"""The findings of the doctor: one for each check, printed at once."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from txbroker.cli.results import Results
from txbroker.cli.tables import paragraph
from txbroker.names import amount

OK, WARNING, FAILED = "ok", "warning", "failed"
# Of many partitions or brokers with the same problem, so many are named.
NAMED_MAX = 5


class Finding(NamedTuple):
    """The outcome of one check: its subject, what was found, and what to do about it ("" for nothing)."""

    outcome: str
    check: str
    found: str
    advice: str = ""


class Findings:
    """Prints findings, and counts them."""

    def __init__(self, out: Results) -> None:
        self.counts = {OK: 0, WARNING: 0, FAILED: 0}
        self._out = out

    def add(self, finding: Finding) -> None:
        """Count and print a finding."""
        self.counts[finding.outcome] += 1
        self._out.either(finding._asdict(), lambda: _lines(finding, None), lambda width: _lines(finding, width))
        sys.stdout.flush()

    def ok(self, check: str, found: str) -> None:
        """There is no problem."""
        self.add(Finding(OK, check, found))

    def warning(self, check: str, found: str, advice: str) -> None:
        """It works, but perhaps not as expected."""
        self.add(Finding(WARNING, check, found, advice))

    def failed(self, check: str, found: str, advice: str) -> None:
        """It does not work."""
        self.add(Finding(FAILED, check, found, advice))

    def finish(self) -> bool:
        """Print the totals, except as JSON; whether no check failed."""
        ok, warnings, failures = self.counts.values()
        if not self._out.as_json:
            what = "no problems found" if not warnings and not failures else f"{failures} failed, {amount(warnings, 'warning')}"
            self._out.line(f"{amount(ok + warnings + failures, 'check')}: {what}")
        return not failures


def _lines(finding: Finding, width: int | None) -> Iterator[str]:
    texts = [f"{finding.outcome:<8} {finding.check}: {finding.found}"]
    if finding.advice:
        texts.append(f"         do: {finding.advice}")
    for text in texts:
        if width is None:
            yield text
        else:
            indent = " " * (len(text) - len(text.lstrip()))
            yield from (f"{indent}{line}" for line in paragraph(text.strip(), width - len(indent)))


def named(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = len(names) - NAMED_MAX
    return ", ".join(names[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
