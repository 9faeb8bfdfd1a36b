"""Turns fetched batches into batches that a client may produce.

A batch whose records have consecutive offsets passes through: its records section is not read. `renumber` then writes its base offset,
leader epoch, producer and CRC. Other batches are changed because a broker would refuse them from a client, or change them (Kafka's
LogValidator):

- a batch from which the log cleaner has removed records, or of which the first records were copied before, is re-encoded;
- a batch with LogAppendTime is re-encoded with that time as the timestamp of each record, because a CreateTime topic clears the flag and
  would show the producer's timestamps again;
- messages of formats 0 and 1 become batches of format 2;
- transaction markers and other control batches, batches of aborted transactions, and batches that the log cleaner has emptied are dropped.

The transactional flag and the delete horizon (KIP-534) are cleared; the timestamps of records do not change by that.

With `keep_offsets` the target keeps base offsets and accepts gaps, so that only batches of which the first records were copied before are
re-encoded, and messages of the old formats.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

from txbroker.log.aborted_transactions import AbortedBatches
from txbroker.log.log_results import AbortedTransaction
from txbroker.wire import entries, records
from txbroker.wire.batch import DELETE_HORIZON, LOG_APPEND_TIME, TRANSACTIONAL, BatchHeader, Buffer, stamp, stamp_producer
from txbroker.wire.compression import Codec
from txbroker.wire.entries import EntryHeader, Scan
from txbroker.wire.records import Record

UNPACKED_BYTES_MAX = 256 << 20  # of one batch that has to be re-encoded
# Old messages without compression are entries of their own: so many become one batch.
OLD_RECORDS_MAX = 1000
OLD_BYTES_MAX = 256 * 1024
NO_PRODUCER = -1
GAP_MAX = 2**31 - 1


class Run(NamedTuple):
    """Records with consecutive offsets in the source."""

    source: int
    length: int


@dataclass(slots=True)
class Ready:
    """A batch for the target, its records in `runs` of the source, and the source's next offset after it."""

    records: bytearray
    count: int
    runs: Sequence[Run]
    position: int


@dataclass(slots=True)
class Tally:
    """How batches of the source were handled, and how many records were copied and dropped."""

    passed: int = 0
    re_encoded: int = 0
    converted: int = 0
    control: int = 0
    aborted: int = 0
    empty: int = 0
    records: int = 0
    aborted_records: int = 0

    def add(self, other: Tally) -> None:
        """Add the counts of another one."""
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))


class Rules(NamedTuple):
    """What the target requires. `append_time`: the target stamps LogAppendTime itself, so that timestamps need not be kept."""

    keep_offsets: bool = False
    append_time: bool = False


def prepare(
    buffer: Buffer, aborted: Iterable[AbortedTransaction], position: int, rules: Rules, tally: Tally
) -> tuple[list[Ready], int]:
    """The batches for the target, and the source's next offset after all entries of a fetch from `position`.

    `aborted`: the aborted transactions of the Fetch response (read_committed). A torn last batch is left out. CorruptRecords if the first
    entry is malformed or has a wrong CRC, and for a malformed marker of an aborted transaction; entries before a corrupt one are prepared.
    MESSAGE_TOO_LARGE for a batch that would have to be re-encoded and has too many records.
    """
    return _Preparation(buffer, aborted, position, rules, tally).run()


class _Preparation:
    def __init__(self, buffer: Buffer, aborted: Iterable[AbortedTransaction], position: int, rules: Rules, tally: Tally) -> None:
        self._buffer = buffer
        self._aborted = AbortedBatches(aborted)
        self._position = position
        self._rules = rules
        self._tally = tally
        self._ready: list[Ready] = []
        self._old: list[Record] = []
        self._old_bytes = 0

    def run(self) -> tuple[list[Ready], int]:
        scan = Scan(self._buffer, check_crc=True)
        start = self._position
        for at, header in scan:
            if header.last_offset >= self._position:
                if isinstance(header, BatchHeader):
                    self._finish_old()
                    self._batch(at, header)
                else:
                    self._message(at, header)
                self._position = header.last_offset + 1
        self._finish_old()
        if self._position == start:
            scan.raise_if_corrupt()
        return self._ready, self._position

    def _batch(self, at: int, header: BatchHeader) -> None:
        tally = self._tally
        hidden = self._aborted.hides(self._buffer, at, header)  # of control batches too: a marker ends a transaction
        if header.control:
            tally.control += 1
        elif hidden:
            tally.aborted += 1
            tally.aborted_records += header.count
        elif not header.count:
            tally.empty += 1
        elif self._passes(header):
            tally.passed += 1
            copied = bytearray(memoryview(self._buffer)[at : at + header.size])
            runs = (Run(header.base_offset, header.count),)
            self._add(Ready(copied, header.count, runs, header.last_offset + 1))
        else:
            tally.re_encoded += 1
            self._encode(self._kept(at, header), header.codec, header.last_offset + 1, header)

    def _passes(self, header: BatchHeader) -> bool:
        if header.base_offset < self._position:
            return False
        if self._rules.keep_offsets:
            return True
        return header.count == header.last_offset_delta + 1 and (self._rules.append_time or not header.log_append_time)

    def _kept(self, at: int, header: EntryHeader) -> list[Record]:
        """The records that were not copied before."""
        found = entries.read_records(self._buffer, at, header, UNPACKED_BYTES_MAX)
        return [record for record in found if record.offset >= self._position]

    def _message(self, at: int, header: EntryHeader) -> None:
        self._tally.converted += 1
        kept = self._kept(at, header)
        if header.codec is not Codec.NONE:
            self._finish_old()
            self._encode(kept, header.codec, header.last_offset + 1)
            return
        self._old += kept
        self._old_bytes += header.size
        if len(self._old) >= OLD_RECORDS_MAX or self._old_bytes >= OLD_BYTES_MAX:
            self._finish_old()

    def _finish_old(self) -> None:
        if self._old:
            old, self._old, self._old_bytes = self._old, [], 0
            self._encode(old, Codec.NONE, old[-1].offset + 1)

    def _encode(self, kept: Sequence[Record], codec: Codec, position: int, header: BatchHeader | None = None) -> None:
        if not kept:
            return
        runs = _runs(kept)
        if self._rules.keep_offsets:
            append_time = header.max_timestamp if header is not None and header.log_append_time else None
            built = records.build(kept, codec=codec, log_append_time=append_time)
        else:
            built = records.build([record._replace(offset=index) for index, record in enumerate(kept)], codec=codec)
        self._add(Ready(bytearray(built), len(kept), runs, position))

    def _add(self, ready: Ready) -> None:
        self._tally.records += ready.count
        self._ready.append(ready)


def _runs(kept: Sequence[Record]) -> list[Run]:
    runs: list[Run] = []
    first, following = kept[0].offset, kept[0].offset
    for record in kept:
        if record.offset != following:
            runs.append(Run(first, following - first))
            first = record.offset
        following = record.offset + 1
    runs.append(Run(first, following - first))
    return runs


def renumber(batch: bytearray, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
    """Make it a batch of this producer, as a client sends it: base offset 0, no leader epoch."""
    stamp(batch, 0, 0, -1)
    stamp_producer(batch, 0, producer_id, producer_epoch, base_sequence, cleared=TRANSACTIONAL | DELETE_HORIZON | LOG_APPEND_TIME)


def without_producer(batch: bytearray, gap: int) -> None:
    """Remove the producer; the base offset and the timestamp type stay.

    `gap`: how many offsets before the batch have no record, which the broker checks. It is in the place of the leader epoch, which the CRC
    leaves out.
    """
    header = records_header(batch)
    stamp(batch, 0, header.base_offset, gap if gap <= GAP_MAX else -1)
    if header.producer_id != NO_PRODUCER or header.attributes & (TRANSACTIONAL | DELETE_HORIZON):
        stamp_producer(batch, 0, NO_PRODUCER, -1, -1, cleared=TRANSACTIONAL | DELETE_HORIZON)


def records_header(batch: Buffer) -> BatchHeader:
    """The header of a prepared batch."""
    header = entries.read_header(batch)
    assert isinstance(header, BatchHeader)
    return header


def records_of(ready: Ready) -> Iterator[tuple[int, Record]]:
    """The records of a prepared batch, each with its offset in the source."""
    found = records.read_records(ready.records, 0, records_header(ready.records), UNPACKED_BYTES_MAX)
    offsets = (offset for run in ready.runs for offset in range(run.source, run.source + run.length))
    return zip(offsets, found, strict=True)
