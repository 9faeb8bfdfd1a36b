"""Which of several records of a key is the latest, by a topic's `compaction.strategy` (KIP-280).

The log cleaner keeps the latest record of each key, and `txbroker audit` reports it. `compaction_strategy` has the same for columns.
"""

from __future__ import annotations

from typing import NamedTuple

from txbroker.log.cleaner.cleaning_job import Strategy
from txbroker.wire.records import Record

NO_VERSION = -(2**63)
VERSION_BYTES = 8  # a signed big-endian number; a value of any other length is no version


class CompactionOrder(NamedTuple):
    """The rule of one topic. The record with the largest rank is the latest one of its key.

    - OFFSET: the record with the largest offset.
    - TIMESTAMP: the record with the largest timestamp, of equal ones the one with the largest offset.
    - HEADER: the record with the largest version in the header of this name, of equal ones the one with the largest offset. Records
      with a version come after all records without one, which are compared by offset. Of several headers of the name the last counts.
    """

    strategy: Strategy = Strategy.OFFSET
    header: str = ""

    @classmethod
    def of_topic(cls, strategy: str, header: str) -> CompactionOrder:
        """By the topic's `compaction.strategy` and `compaction.strategy.header`.

        Without a header's name no record has a version: then the offset decides, which needs less memory.
        """
        if strategy == Strategy.HEADER.value and not header:
            return cls()
        return cls(Strategy(strategy or Strategy.OFFSET.value), header)

    def rank(self, record: Record) -> tuple[int, bool, int]:
        """For comparison with ranks of other records of the same key."""
        if self.strategy is Strategy.TIMESTAMP:
            return record.timestamp, False, record.offset
        version = self._version(record) if self.strategy is Strategy.HEADER else None
        return (NO_VERSION, False, record.offset) if version is None else (version, True, record.offset)

    def _version(self, record: Record) -> int | None:
        found = [value for name, value in record.headers if name == self.header]
        if not found or found[-1] is None or len(found[-1]) != VERSION_BYTES:
            return None
        return int.from_bytes(found[-1], "big", signed=True)
