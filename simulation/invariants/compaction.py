"""A compacted topic keeps the latest value of each key (I13): what is committed, record by record, and what a replica may lack of it."""

from __future__ import annotations

from simulation.invariants.batches import batches_with_records
from txbroker.log.log import Log
from txbroker.wire.batch import BatchHeader
from txbroker.wire.control import read_marker
from txbroker.wire.records import Record

NEVER_MS = 12 * 3_600_000  # tombstones with a longer retention stay for a whole run, whatever the wall clocks do


class CompactedTruth:
    """Of one partition. `latest`: by key, the offset of its last record that is not part of an open or aborted transaction."""

    def __init__(self) -> None:
        self.latest: dict[bytes, int] = {}
        self._records: dict[int, tuple[bytes | None, bytes | None]] = {}  # key and value, by offset
        self._open: dict[int, list[tuple[int, bytes]]] = {}  # of each producer: offsets and keys of its open transaction

    def committed(self, header: BatchHeader, records: list[Record]) -> None:
        """A batch was committed; in the order of the log."""
        if header.control:
            marker = read_marker(records[0])
            ended = self._open.pop(header.producer_id, [])
            if marker is not None and marker.committed:
                for offset, key in ended:
                    self.latest[key] = max(offset, self.latest.get(key, -1))
            return
        for record in records:
            self._records[record.offset] = record.key, record.value
            if record.key is not None and header.transactional:
                self._open.setdefault(header.producer_id, []).append((record.offset, record.key))
            elif record.key is not None:
                self.latest[record.key] = record.offset

    def difference(self, records: list[Record]) -> str | None:
        """Which record of a batch below the high watermark was not committed like this; None if all were."""
        for record in records:
            known = self._records.get(record.offset)
            if known != (record.key, record.value):
                return f"the record at {record.offset} is {record.key!r}: {record.value!r}, and was committed as {known}"
        return None

    def missing(self, log: Log, high_watermark: int) -> str | None:
        """Which latest record below the high watermark a replica does not have; None if it has all.

        A tombstone may be gone after delete.retention.ms, and then all older records of its key are. Nothing else moves the start.
        """
        if log.log_start_offset:
            return f"the log starts at {log.log_start_offset}, and the cleaner keeps the first offset"
        present: set[int] = set()
        first: dict[bytes, int] = {}
        for header, records in batches_with_records(log):
            if not header.control:
                present.update(record.offset for record in records)
                for record in records:
                    if record.key is not None:
                        first.setdefault(record.key, record.offset)
        may_expire = log.config.delete_retention_ms < NEVER_MS
        for key, offset in self.latest.items():
            if offset in present or offset >= high_watermark:
                continue
            is_tombstone = self._records[offset][1] is None
            if not (is_tombstone and may_expire and first.get(key, offset) >= offset):
                seen = f"the first one in the log is at {first[key]}" if key in first else "it has no record of this key"
                what = "tombstone" if is_tombstone else "record"
                return f"the latest {what} of key {key!r}, at {offset}, is missing: {seen}"
        return None
