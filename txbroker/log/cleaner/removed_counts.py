"""Counts of what the cleaning of one segment removes."""

from __future__ import annotations

from enum import IntEnum

from txbroker.lazy_dataclass import lazy_dataclass
from txbroker.log.cleaner.cleaning_job import SegmentYield


class Outcome(IntEnum):
    """What happens to a record: it is kept, or removed for this reason. `Removable.reason` has the name in lower case."""

    KEPT = 0
    OBSOLETE = 1
    DELETED = 2
    ABORTED = 3
    INVALID = 4


@lazy_dataclass(slots=True)
class Tally:
    """The counts of one segment while it is being cleaned."""

    base_offset: int
    records_before: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    obsolete: int = 0
    deleted: int = 0
    aborted: int = 0
    invalid: int = 0

    def count(self, outcome: Outcome, records: int) -> None:
        """Add records that have this outcome."""
        match outcome:
            case Outcome.OBSOLETE:
                self.obsolete += records
            case Outcome.DELETED:
                self.deleted += records
            case Outcome.ABORTED:
                self.aborted += records
            case Outcome.INVALID:
                self.invalid += records
            case Outcome.KEPT:
                pass

    def result(self) -> SegmentYield:
        """The counts as they are reported."""
        removed = self.obsolete + self.deleted + self.aborted + self.invalid
        return SegmentYield(
            base_offset=self.base_offset,
            records_before=self.records_before,
            records_after=self.records_before - removed,
            bytes_before=self.bytes_before,
            bytes_after=self.bytes_after,
            obsolete=self.obsolete,
            deleted=self.deleted,
            aborted=self.aborted,
            invalid=self.invalid,
        )
