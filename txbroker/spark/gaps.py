"""Why a topic has no record at an offset. Spark's source skips such offsets silently, whatever the reason is.

The classes, and the evidence for each, from the batches that the broker has now:

- expired: the offset is below the log's start.
- control: a control batch has the offset (a transaction marker).
- aborted: a batch of an aborted transaction has it (read_committed).
- compacted: no batch has it, or its batch has fewer records than offsets; the topic is compacted (`cleanup.policy`), and where the broker
  shows how far its cleaner has come, the offset is below that.
- unexplained: none of these. The broker lost the record, or has it and Spark did not deliver it.

Nothing here imports PySpark: executors run it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import groupby
from typing import Any, NamedTuple

from txbroker.client.offset_requests import EARLIEST
from txbroker.client.topic_reader import READ_COMMITTED, TopicReader
from txbroker.console.failures import CommandFailed
from txbroker.errors import BrokerError, ErrorCode
from txbroker.log.aborted_transactions import AbortedBatches, aborted_in
from txbroker.spark.brokers import Brokers
from txbroker.spark.offset_ranges import OffsetRange
from txbroker.spark.snapshot import ISOLATION_LEVELS
from txbroker.wire.batch import BatchHeader
from txbroker.wire.entries import EntryHeader, Scan, read_records
from txbroker.wire.records import INT64_MAX

FETCH_BYTES = 1024 * 1024
BATCH_BYTES_MAX = 256 * 1024 * 1024  # decompressed; the broker's own limit
CLEANER = "txbroker.cleaner"  # and a dot and a partition's number: txbroker shows the state of its compaction as JSON


class Reason(StrEnum):
    """Why there is no record."""

    COMPACTED = "compacted"
    ABORTED = "aborted"
    CONTROL = "control"
    EXPIRED = "expired"
    UNEXPLAINED = "unexplained"


class GapCounts(NamedTuple):
    """How many offsets of a partition have no record, by reason, and the first unexplained one."""

    compacted: int = 0
    aborted: int = 0
    control: int = 0
    expired: int = 0
    unexplained: int = 0
    first_unexplained: int | None = None

    def plus(self, reason: Reason, start: int, end: int) -> GapCounts:
        """With the offsets [start, end) counted."""
        more = self._replace(**{reason.value: getattr(self, reason.value) + end - start})
        if reason is Reason.UNEXPLAINED and more.first_unexplained is None:
            more = more._replace(first_unexplained=start)
        return more

    @property
    def total(self) -> int:
        """All of them."""
        return self.compacted + self.aborted + self.control + self.expired + self.unexplained


def classify(brokers: Brokers, isolation_level: str, gaps: Iterable[OffsetRange]) -> Iterator[tuple[str, int, GapCounts]]:
    """The counts of each partition. Gaps come in the order of topic, partition and offset. CommandFailed, ClientError."""
    found = reasons(brokers, isolation_level, gaps)
    for (topic, partition), parts in groupby(found, lambda part: (part[1].topic, part[1].partition)):
        counts = GapCounts()
        for reason, part in parts:
            counts = counts.plus(reason, part.start, part.end)
        yield topic, partition, counts


def reasons(brokers: Brokers, isolation_level: str, gaps: Iterable[OffsetRange]) -> Iterator[tuple[Reason, OffsetRange]]:
    """The parts of gaps, each with its reason. Gaps come in the order of topic, partition and offset. CommandFailed, ClientError."""
    for topic, of_topic in groupby(gaps, lambda gap: gap.topic):
        reader = brokers.reader(topic, ISOLATION_LEVELS[isolation_level])
        try:
            for partition, of_partition in groupby(of_topic, lambda gap: gap.partition):
                log = _PartitionLog(reader, partition, ISOLATION_LEVELS[isolation_level])
                for gap in of_partition:
                    for reason, start, end in log.reasons(gap.start, gap.end):
                        yield reason, OffsetRange(topic, partition, start, end)
        finally:
            reader.close()


class _Batch(NamedTuple):
    """One batch of a chunk. `reason`: why none of its records is delivered, None if they are."""

    position: int
    header: EntryHeader
    reason: Reason | None


class _PartitionLog:
    """The batches of a partition; gaps are looked up in ascending order."""

    def __init__(self, reader: TopicReader, partition: int, isolation: int) -> None:
        self._reader = reader
        self._partition = partition
        self._isolation = isolation
        self._data: bytes = b""
        self._batches: Sequence[_Batch] = ()
        self._index = 0  # of the batch of the last look-up
        self._covered = (0, 0)  # the offsets whose batches are in `_batches`
        self._compacted_end: int | None = None

    def reasons(self, start: int, end: int) -> Iterator[tuple[Reason, int, int]]:
        """The parts of a gap."""
        position = start
        while position < end:
            if not self._covered[0] <= position < self._covered[1]:
                log_start = self._fetch(position)
                if position < log_start:
                    yield Reason.EXPIRED, position, min(end, log_start)
                    position = log_start
                    continue
            while self._index < len(self._batches) and self._batches[self._index].header.last_offset < position:
                self._index += 1
            if self._index == len(self._batches):
                yield from self._without_record(position, end)  # the log has no batch after it
                return
            batch = self._batches[self._index]
            # Messages of formats 0 and 1 do not show their first offset.
            base = batch.header.base_offset if isinstance(batch.header, BatchHeader) else position
            if position < base:
                stop = min(end, base)
                yield from self._without_record(position, stop)
            else:
                stop = min(end, batch.header.last_offset + 1)
                yield from [(batch.reason, position, stop)] if batch.reason else self._inside(batch, position, stop)
            position = stop

    def _inside(self, batch: _Batch, start: int, end: int) -> Iterator[tuple[Reason, int, int]]:
        """A part of a gap in a batch whose records a consumer gets: those that it has are unexplained."""
        try:
            records = read_records(self._data, batch.position, batch.header, BATCH_BYTES_MAX)
            there = {record.offset for record in records if start <= record.offset < end}
        except BrokerError as error:
            raise self._unreadable(error) from None
        for offset in sorted(there):
            yield from self._without_record(start, offset)
            yield Reason.UNEXPLAINED, offset, offset + 1
            start = offset + 1
        yield from self._without_record(start, end)

    def _without_record(self, start: int, end: int) -> Iterator[tuple[Reason, int, int]]:
        """Offsets without any record in the log: compacted as far as the cleaner can have come."""
        if start >= end:
            return
        if self._compacted_end is None or self._compacted_end < end:
            self._compacted_end = self._ask_compacted_end()
        limit = max(start, min(end, self._compacted_end))
        if start < limit:
            yield Reason.COMPACTED, start, limit
        if limit < end:
            yield Reason.UNEXPLAINED, limit, end

    def _ask_compacted_end(self) -> int:
        """The offset below which the cleaner may have removed records: 0 in a topic that is not compacted."""
        key = f"{CLEANER}.{self._partition}"
        found = self._reader.configs(["cleanup.policy", key], self._partition)
        if "compact" not in (found.get("cleanup.policy") or "").split(","):
            return 0
        shown = found.get(key)
        if shown is None:
            return INT64_MAX  # Apache Kafka does not show it
        return clean_end(json.loads(shown))

    def _fetch(self, offset: int) -> int:
        """Read the batches from an offset on; the log's start."""
        found = self._reader.fetch(self._partition, offset, FETCH_BYTES)
        if found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            log_start = self._reader.offset(self._partition, EARLIEST)
            if offset >= log_start:
                raise CommandFailed(f"{self._reader.name}-{self._partition} has no offset {offset} any more, the log became shorter; "
                                    "look at the brokers' logs")
            return log_start
        assert isinstance(found.records, memoryview | None)
        self._data = bytes(found.records or b"")
        aborted = AbortedBatches(aborted_in(found) if self._isolation == READ_COMMITTED else ())
        scan = Scan(self._data, check_crc=True)
        try:
            self._batches = [_Batch(at, header, _reason(aborted.hides(self._data, at, header), header)) for at, header in scan]
            scan.raise_if_corrupt()
        except BrokerError as error:
            raise self._unreadable(error) from None
        self._index = 0
        # Without a batch the log has none from here on.
        self._covered = (offset, self._batches[-1].header.last_offset + 1 if self._batches else INT64_MAX)
        return 0

    def _unreadable(self, error: BrokerError) -> CommandFailed:
        what = f"the records of {self._reader.name}-{self._partition} from offset {self._covered[0]} on cannot be read: {error}"
        return CommandFailed(f"{what}; look at the broker's log and at the files with `txbroker dump-log`")


def clean_end(state: Mapping[str, Any]) -> int:
    """The offset below which the cleaner may have removed records, by its state of a partition (`CLEANER`)."""
    # A running pass may have replaced segments already; it ends before the first uncleanable offset.
    return int(state["first_dirty_offset"] if state["state"] == "idle" else state["first_uncleanable_offset"])


def _reason(hidden: bool, header: EntryHeader) -> Reason | None:
    if header.control:
        return Reason.CONTROL
    return Reason.ABORTED if hidden else None
