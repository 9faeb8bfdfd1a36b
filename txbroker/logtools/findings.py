"""The findings of `log verify`, and how `log repair` repairs them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

# A directory may have a fault in every batch. Further findings are counted and not kept.
FINDINGS_MAX = 10_000


class Severity(Enum):
    """FAULT: something that no broker leaves behind. NOTE: information."""

    FAULT = "fault"
    NOTE = "note"


class Remedy(Enum):
    """How a repair treats a fault. The value is the text for the user."""

    CUT = "truncate the file there, with a backup of what follows"
    TAKE_OUT = "remove these bytes from the file, with a backup; what follows stays"
    REBUILD_INDEXES = "rebuild the offset and time index from the log"
    REBUILD_TXN_INDEX = "rebuild the transaction index from the log"
    REMAKE_SNAPSHOT = "rebuild the snapshot from the log, with a backup of the old one"
    SET_ASIDE = "rename the file"
    REWRITE_EPOCHS = "rebuild the leader epochs from the log, with a backup of the old ones"
    REWRITE_CHECKPOINT = "correct the checkpoint by the ends of the logs, with a backup of the old one"


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault or note. `start`, `end`: bytes of the file, None for all of it. `remedy` None: `log repair` cannot repair it."""

    severity: Severity
    path: str
    problem: str
    remedy: Remedy | None = None
    start: int | None = None
    end: int | None = None


class Findings:
    """All findings of a verification, in order. `faults` also counts those that are not kept; `left_out`: how many are not kept."""

    def __init__(self) -> None:
        self.kept: list[Finding] = []
        self.faults = 0
        self.left_out = 0

    def fault(self, path: str, problem: str, remedy: Remedy | None = None, *, start: int | None = None, end: int | None = None) -> None:
        """Add a fault."""
        self.add(Finding(Severity.FAULT, path, problem, remedy, start, end))

    def note(self, path: str, problem: str) -> None:
        """Add a note."""
        self.add(Finding(Severity.NOTE, path, problem))

    def add(self, finding: Finding) -> None:
        """Add a finding."""
        self.faults += finding.severity is Severity.FAULT
        if len(self.kept) < FINDINGS_MAX:
            self.kept.append(finding)
        else:
            self.left_out += 1

    def extend(self, findings: Iterable[Finding]) -> None:
        """Add several findings."""
        for finding in findings:
            self.add(finding)
