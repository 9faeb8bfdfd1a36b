"""The first half of a pass: maps each key of the dirty part to the record that stays."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from txbroker.errors import CorruptRecords
from txbroker.log.cleaner.batch_columns import Batches, Section, sections
from txbroker.log.cleaner.cleaning_job import CleaningJob, Mapped, SegmentSpan
from txbroker.log.cleaner.compaction_strategy import Versions
from txbroker.log.cleaner.file_chunks import Chunk, SegmentReader, unpacked_bytes_max
from txbroker.log.cleaner.key_hash import KeyHash
from txbroker.log.cleaner.offset_map import OffsetMap
from txbroker.log.cleaner.old_messages import Message, read_messages
from txbroker.log.cleaner.record_columns import Records, read_records
from txbroker.log.cleaner.transaction_filter import Transactions
from txbroker.log.cleaner.unaligned_reads import Flags, Ints, Words
from txbroker.log.disk import Disk
from txbroker.log.log_results import AbortedTransaction
from txbroker.log.markers import read_marker
from txbroker.wire import batch as wire_batch
from txbroker.wire.batch import CONTROL, TRANSACTIONAL

CountRead = Callable[[int], None]
MapMaker = Callable[..., OffsetMap]

# Up to this many offsets of the dirty part, one byte for each offset marks the records that stay, once the map is complete.
LIVE_OFFSETS_MAX = 32 << 20


class KeyMap:
    """The map of a job. It covers the offsets [first_dirty_offset, end_offset)."""

    def __init__(self, job: CleaningJob, disk: Disk, count_read: CountRead, make_map: MapMaker = OffsetMap) -> None:
        self._job = job
        self._disk = disk
        self._count_read = count_read
        self._hash = KeyHash(job.seed)
        self.versions = Versions(job.settings)
        # The last record of the log always stays, also with strategies where it may be obsolete: followers must have the same end offset.
        self.end_offset = (
            min(job.first_uncleanable_offset, max(job.log_end_offset - 1, job.first_dirty_offset))
            if self.versions.compared
            else job.first_uncleanable_offset
        )
        self._map = make_map(
            job.settings.map_bytes,
            job.settings.load_factor,
            versioned=self.versions.compared,
            records_max=max(self.end_offset - job.first_dirty_offset, 1),
        )
        self._live: np.ndarray[tuple[int], np.dtype[np.bool_]] | None = None
        self._records = 0
        self._bytes = 0
        self._full = False

    # Building the map

    def build(self, aborted: Sequence[AbortedTransaction]) -> Mapped:
        """Read the dirty part; with the strategies timestamp and header also the clean part, which may have newer versions."""
        job, transactions = self._job, Transactions(aborted)
        for span in job.segments:
            if span.next_offset > job.first_dirty_offset and span.base_offset < self.end_offset and not self._full:
                self._read(span, transactions)
        if self.versions.compared:
            transactions = Transactions(aborted)
            for span in job.segments:
                if span.base_offset < job.first_dirty_offset:
                    self._read_clean(span, transactions)
        self._make_live()
        return Mapped(
            end_offset=self.end_offset,
            keys=self._map.count - self._map.missed,
            missed_keys=self._map.missed,
            records=self._records,
            bytes_read=self._bytes,
            invalid_headers=self.versions.invalid,
        )

    def _read(self, span: SegmentSpan, transactions: Transactions) -> None:
        reader = SegmentReader(self._job, span, self._disk, self._count_read)
        for chunk in reader.chunks():
            self._bytes += chunk.bytes
            if chunk.batches is None:
                self._put_messages(reader, chunk)
            else:
                self._put_batches(reader, chunk, chunk.batches, transactions)
            if self._full:
                return

    def _put_batches(self, reader: SegmentReader, chunk: Chunk, batches: Batches, transactions: Transactions) -> None:
        dirty = (batches.last_offset >= self._job.first_dirty_offset) & (batches.base_offset < self.end_offset)
        if not dirty.any():
            return
        reader.check_crcs(chunk, np.flatnonzero(dirty).tolist())
        selected = dirty & (batches.attributes & CONTROL == 0)
        self._deselect_aborted(chunk, batches, selected, transactions)
        # Records of transactions that are still open make no others obsolete.
        selected &= (batches.attributes & TRANSACTIONAL == 0) | (batches.last_offset < self._job.first_uncleanable_offset)
        self._records += int(batches.count[dirty & ~selected].sum())
        try:
            for section in sections(chunk.buffer, chunk.words, batches, selected, unpacked_bytes_max(self._job)):
                records = read_records(section, batches, selected)
                self._records += len(records)
                self._put(section, batches, records)
                if self._full:
                    return
        except CorruptRecords as error:
            raise reader.corrupt_in(chunk, str(error)) from None

    def _deselect_aborted(self, chunk: Chunk, batches: Batches, selected: Flags, transactions: Transactions) -> None:
        for number in np.flatnonzero(batches.attributes & (CONTROL | TRANSACTIONAL)).tolist():
            if may_remove_batch(chunk, batches, number, transactions, self._job.first_uncleanable_offset):
                selected[number] = False

    def _put(self, section: Section, batches: Batches, records: Records) -> None:
        usable: Flags = records.key_size >= 0
        usable &= (records.offset >= self._job.first_dirty_offset) & (records.offset < self.end_offset)
        chosen = None if usable.all() else np.flatnonzero(usable)
        key_at, key_size, offset = (
            (records.key_at, records.key_size, records.offset)
            if chosen is None
            else (records.key_at[chosen], records.key_size[chosen], records.offset[chosen])
        )
        if not len(offset):
            return
        first, second = self._hash(section.words, section.data, key_at, key_size)
        if self.versions.compared:
            versions, has = self.versions.of(section, batches, records)
            if chosen is not None:
                versions, has = versions[chosen], has[chosen]
            taken = self._map.put(first, second, offset, versions, has)
        else:
            taken = self._map.put(first, second, offset)
        self._end_if_full(taken, offset)

    def _end_if_full(self, taken: int, offset: Ints) -> None:
        if taken < len(offset):
            self._full = True
            self.end_offset = int(offset[taken])

    def _put_messages(self, reader: SegmentReader, chunk: Chunk) -> None:
        job = self._job
        messages = [
            message
            for entry in read_messages(reader, chunk, unpacked_bytes_max(job))
            for message in entry.messages
            if message.offset >= job.first_dirty_offset and message.offset < self.end_offset
        ]
        self._records += len(messages)
        keyed = [message for message in messages if message.key is not None]
        if keyed:
            offset = np.array([message.offset for message in keyed], dtype=np.int64)
            versions, has = self._message_versions(keyed)
            self._end_if_full(self._map.put(*self._hash_messages(keyed), offset, versions, has), offset)

    def _message_versions(self, messages: list[Message]) -> tuple[Ints, Flags]:
        return self.versions.of_messages([message.timestamp for message in messages])

    def _hash_messages(self, messages: list[Message]) -> tuple[Words, Words]:
        return self._hash.of_keys([message.key or b"" for message in messages])

    def _read_clean(self, span: SegmentSpan, transactions: Transactions) -> None:
        """Let newer versions in the clean part win. Records below the log start offset do not count: they cannot be read any more."""
        if span.next_offset <= self._job.log_start_offset:
            return
        reader = SegmentReader(self._job, span, self._disk, self._count_read)
        for chunk in reader.chunks():
            self._bytes += chunk.bytes
            batches = chunk.batches
            if batches is None:
                keyed = [
                    message
                    for entry in read_messages(reader, chunk, unpacked_bytes_max(self._job))
                    for message in entry.messages
                    if message.key is not None and self._job.log_start_offset <= message.offset < self._job.first_dirty_offset
                ]
                if keyed:
                    offset = np.array([message.offset for message in keyed], dtype=np.int64)
                    self._map.improve(*self._hash_messages(keyed), offset, *self._message_versions(keyed))
                continue
            selected = (batches.base_offset < self._job.first_dirty_offset) & (batches.attributes & CONTROL == 0)
            reader.check_crcs(chunk, np.flatnonzero(selected).tolist())
            self._deselect_aborted(chunk, batches, selected, transactions)
            try:
                for section in sections(chunk.buffer, chunk.words, batches, selected, unpacked_bytes_max(self._job)):
                    records = read_records(section, batches, selected)
                    readable = (records.offset >= self._job.log_start_offset) & (records.offset < self._job.first_dirty_offset)
                    chosen = np.flatnonzero((records.key_size >= 0) & readable)
                    first, second = self._hash(section.words, section.data, records.key_at[chosen], records.key_size[chosen])
                    versions, has = self.versions.of(section, batches, records)
                    self._map.improve(first, second, records.offset[chosen], versions[chosen], has[chosen])
            except CorruptRecords as error:
                raise reader.corrupt_in(chunk, str(error)) from None

    def _make_live(self) -> None:
        start = self._job.first_dirty_offset
        if not self._job.dry and 0 < self.end_offset - start <= LIVE_OFFSETS_MAX:
            self._live = np.zeros(self.end_offset - start, dtype=np.bool_)
            offsets = self._map.all_offsets()
            self._live[offsets[(offsets >= start) & (offsets < self.end_offset)] - start] = True

    # Looking keys up

    def obsolete(self, section: Section, records: Records, which: Ints) -> Flags:
        """Whether another record of the same key stays instead, for some records with keys below `end_offset`."""
        offset = records.offset[which]
        if self._live is not None and len(offset) and offset[0] >= self._job.first_dirty_offset:
            return ~self._live[offset - self._job.first_dirty_offset]
        kept = self.kept_offsets(section, records, which)
        return self._is_obsolete(offset, kept)

    def _is_obsolete(self, offset: Ints, kept: Ints) -> Flags:
        # A record after the mapped one, of a key that later found no place in the map, is not obsolete.
        if self.versions.compared:
            obsolete: Flags = (kept >= 0) & (kept != offset)
        else:
            obsolete = kept > offset
        return obsolete

    def kept_offsets(self, section: Section, records: Records, which: Ints) -> Ints:
        """The offset of the record that stays for the key of each record; -1 when the map does not have the key."""
        return self._map.get(*self._hash(section.words, section.data, records.key_at[which], records.key_size[which]))

    def messages_obsolete(self, messages: list[Message]) -> tuple[Flags, Ints]:
        """As `obsolete`, for old messages with keys; also the offsets that stay."""
        kept = self._map.get(*self._hash_messages(messages))
        return self._is_obsolete(np.array([message.offset for message in messages], dtype=np.int64), kept), kept

    def any_live(self, base_offset: int, last_offset: int) -> bool:
        """Whether a record in this range of offsets may stay, by the map."""
        start = self._job.first_dirty_offset
        if self._live is None or base_offset < start or last_offset >= self.end_offset:
            return True
        return bool(self._live[base_offset - start : last_offset - start + 1].any())


def may_remove_batch(chunk: Chunk, batches: Batches, number: int, transactions: Transactions, first_uncleanable_offset: int) -> bool:
    """Whether a transactional or control batch may be removed because of its transaction's outcome."""
    last_offset, producer_id = int(batches.last_offset[number]), int(batches.producer_id[number])
    if last_offset >= first_uncleanable_offset:
        return False
    if not batches.attributes[number] & CONTROL:
        return transactions.may_remove_data(producer_id, int(batches.base_offset[number]), last_offset)
    header = wire_batch.read_header(chunk.buffer, int(batches.at[number]))
    if not header.count:
        return True
    marker = read_marker(chunk.buffer, int(batches.at[number]), header)
    committed = None if marker is None else marker.committed
    return transactions.may_remove_marker(producer_id, last_offset, committed, has_horizon=header.delete_horizon is not None)


