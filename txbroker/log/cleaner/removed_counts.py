"""What a cleaning of one segment took away, counted."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from txbroker.log.cleaner.cleaning_job import SegmentYield


class Why(IntEnum):
    """What becomes of a record: it stays, or the reason why it goes, by its name in a `Removable`."""

    STAYS = 0
    OBSOLETE = 1
    DELETED = 2
    ABORTED = 3
    INVALID = 4


@dataclass(slots=True)
class Tally:
    """One segment's counts, as they grow."""

    base_offset: int
    records_before: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    obsolete: int = 0
    deleted: int = 0
    aborted: int = 0
    invalid: int = 0

    def lost(self, why: Why, count: int) -> None:
        """So many records go for this reason."""
        match why:
            case Why.OBSOLETE:
                self.obsolete += count
            case Why.DELETED:
                self.deleted += count
            case Why.ABORTED:
                self.aborted += count
            case Why.INVALID:
                self.invalid += count
            case Why.STAYS:
                pass

    def result(self) -> SegmentYield:
        """As it is reported."""
        lost = self.obsolete + self.deleted + self.aborted + self.invalid
        return SegmentYield(
            base_offset=self.base_offset,
            records_before=self.records_before,
            records_after=self.records_before - lost,
            bytes_before=self.bytes_before,
            bytes_after=self.bytes_after,
            obsolete=self.obsolete,
            deleted=self.deleted,
            aborted=self.aborted,
            invalid=self.invalid,
        )
