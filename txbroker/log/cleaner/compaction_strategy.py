"""What a topic's `compaction.strategy` (KIP-280) compares, for columns of records; `compaction_order` has the rule."""

from __future__ import annotations

import numpy as np

from txbroker.log.cleaner.batch_columns import Batches, Section
from txbroker.log.cleaner.cleaning_job import CleaningSettings, Strategy
from txbroker.log.cleaner.compaction_order import NO_VERSION, VERSION_BYTES, CompactionOrder
from txbroker.log.cleaner.record_columns import Records, headers_at
from txbroker.log.cleaner.unaligned_reads import Flags, Ints
from txbroker.wire.batch import LOG_APPEND_TIME
from txbroker.wire.record_loops import find_header


def sort_keys(order: CompactionOrder, offset: Ints, timestamp: Ints, version: Ints, has_version: Flags) -> tuple[Ints | Flags, ...]:
    """`CompactionOrder.rank` for columns: keys for `numpy.lexsort`, which puts the latest record last.

    `version` counts where `has_version` is set.
    """
    if order.strategy is Strategy.TIMESTAMP:
        return offset, timestamp
    if order.strategy is Strategy.HEADER:
        return offset, has_version, np.where(has_version, version, NO_VERSION)
    return (offset,)


def record_times(section: Section, batches: Batches, records: Records) -> Ints:
    """The timestamp of each record, ms."""
    of = records.batch + section.low
    times: Ints = batches.base_timestamp[of] + records.time_delta
    append_time = batches.attributes[of] & LOG_APPEND_TIME != 0
    times[append_time] = batches.max_timestamp[of][append_time]
    return times


class HeaderVersions:
    """Reads versions from the headers with one name. `invalid`: how many records had the header with a value that is not of 8 bytes."""

    def __init__(self, header: str) -> None:
        self._name = header.encode()
        self.invalid = 0

    def of(self, section: Section, batches: Batches, records: Records) -> tuple[Ints, Flags]:
        """The version of each record, and whether it has one. CorruptRecords."""
        versions = np.full(len(records), NO_VERSION, dtype=np.int64)
        has = np.zeros(len(records), dtype=np.bool_)
        positions = headers_at(section, records)
        with_headers = np.flatnonzero(section.data[positions] != 0)
        for number, at, end in zip(
            with_headers.tolist(), positions[with_headers].tolist(), records.end[with_headers].tolist(), strict=True
        ):
            version = self._in_headers(section.buffer, at, end)
            if version is not None:
                versions[number], has[number] = version, True
        return versions, has

    def _in_headers(self, buffer: bytes, at: int, end: int) -> int | None:
        """The version in the last header with the name; None without one."""
        value_at, size = find_header(buffer, at, end, self._name)
        if value_at < 0:
            return None
        if size != VERSION_BYTES:
            self.invalid += 1
            return None
        return int.from_bytes(buffer[value_at : value_at + VERSION_BYTES], "big", signed=True)


class Versions(HeaderVersions):
    """Reads the versions that a topic's strategy compares: timestamps, or headers."""

    def __init__(self, settings: CleaningSettings) -> None:
        super().__init__(settings.header)
        self._strategy = settings.strategy

    @property
    def compared(self) -> bool:
        """Whether versions are compared, and not offsets alone."""
        return self._strategy is not Strategy.OFFSET

    def of(self, section: Section, batches: Batches, records: Records) -> tuple[Ints, Flags]:
        """The version of each record, and whether it has one; a record with a version wins over one without."""
        if self._strategy is Strategy.TIMESTAMP:
            return record_times(section, batches, records), np.zeros(len(records), dtype=np.bool_)
        return super().of(section, batches, records)

    def of_messages(self, timestamps: list[int]) -> tuple[Ints, Flags]:
        """The same for old messages, which have no headers."""
        has = np.zeros(len(timestamps), dtype=np.bool_)
        if self._strategy is Strategy.TIMESTAMP:
            return np.array(timestamps, dtype=np.int64), has
        return np.full(len(timestamps), NO_VERSION, dtype=np.int64), has
