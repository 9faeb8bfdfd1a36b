"""What is wrong with the files of a log directory, and what a repair would do about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

# A directory can have a fault in every batch: what is beyond this is counted and not kept.
FINDINGS_MAX = 10_000


class Severity(Enum):
    """A fault is something that no broker leaves behind; a note is worth knowing and no reason to worry."""

    FAULT = "fault"
    NOTE = "note"


class Remedy(Enum):
    """What a repair does about a fault; the value says it in words."""

    CUT = "cut the file there; what is cut is kept beside it"
    TAKE_OUT = "take these bytes out of the file, and keep them beside it; what follows stays"
    REBUILD_INDEXES = "make the offset and time index anew from the log"
    REBUILD_TXN_INDEX = "make the transaction index anew from the log"
    REMAKE_SNAPSHOT = "make the snapshot anew from the log; the old file is kept beside it"
    SET_ASIDE = "set the file aside under another name"
    REWRITE_EPOCHS = "write the leader epochs anew from the log; the old file is kept beside it"
    REWRITE_CHECKPOINT = "write the checkpoint with the offsets of the logs; the old file is kept beside it"


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault or note. `start`, `end`: bytes of the file that it is about, where it is about some; `remedy` None: a repair leaves it."""

    severity: Severity
    path: str
    problem: str
    remedy: Remedy | None = None
    start: int | None = None
    end: int | None = None


class Findings:
    """All findings of one look, in the order in which they were made. `faults` counts those that are not kept, too."""

    def __init__(self) -> None:
        self.kept: list[Finding] = []
        self.faults = 0
        self.left_out = 0

    def fault(self, path: str, problem: str, remedy: Remedy | None = None, *, start: int | None = None, end: int | None = None) -> None:
        """Something is wrong."""
        self.add(Finding(Severity.FAULT, path, problem, remedy, start, end))

    def note(self, path: str, problem: str) -> None:
        """Something is worth knowing."""
        self.add(Finding(Severity.NOTE, path, problem))

    def add(self, finding: Finding) -> None:
        """Keep a finding, unless there are too many."""
        self.faults += finding.severity is Severity.FAULT
        if len(self.kept) < FINDINGS_MAX:
            self.kept.append(finding)
        else:
            self.left_out += 1

    def extend(self, findings: Iterable[Finding]) -> None:
        """Keep several."""
        for finding in findings:
            self.add(finding)
