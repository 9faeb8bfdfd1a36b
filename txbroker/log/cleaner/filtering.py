"""The second half of a pass: what of each batch stays, by Kafka's rules (its Cleaner.cleanInto and MemoryRecords.filterTo).

A record stays when it is behind the map's end, or when it is its key's latest and either has a value or is a tombstone whose time
has not come. An emptied batch stays for an active producer's sequence and at the end of the cleaned range. A batch that still has
tombstones, or the marker of a transaction without data, gets a delete horizon once. What does not change is copied as it is.

Two things are stricter than Kafka's: nothing at `first_uncleanable_offset` or above is touched, and a tombstone behind the map's end
starts no horizon, as what it deletes is still there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum

import numpy as np

from txbroker.errors import CorruptRecords
from txbroker.log.cleaner.cleaned_segment import CleanedSegment
from txbroker.log.cleaner.cleaning_job import CleaningJob, Event, Removable, SegmentSpan
from txbroker.log.cleaner.columns import Batches, Records, Section, read_records, sections
from txbroker.log.cleaner.compaction_strategy import record_times
from txbroker.log.cleaner.file_chunks import Chunk, SegmentReader, unpacked_bytes_max
from txbroker.log.cleaner.key_mapping import KeyMap, judge_transaction
from txbroker.log.cleaner.old_messages import Entry, Message, read_messages, with_messages
from txbroker.log.cleaner.removed_counts import Tally, Why
from txbroker.log.cleaner.rewriting import Rewriter, emptied
from txbroker.log.cleaner.transaction_filter import Transactions
from txbroker.log.cleaner.unaligned_reads import Flags, Ints
from txbroker.log.disk import Buffer
from txbroker.wire.batch import CODEC_MASK, CONTROL, DELETE_HORIZON, TRANSACTIONAL


class _Fate(IntEnum):
    GOES = 0
    COPIED = 1
    MADE_ANEW = 2
    EMPTIED = 3


class Filter:
    """Goes through the segments of a job in order. `out` None: a dry run, which reports what would go."""

    def __init__(self, job: CleaningJob, keys: KeyMap, transactions: Transactions, report: Callable[[Event], None]) -> None:
        self.job = job
        self.keys = keys
        self.transactions = transactions
        self.report = report
        self.end = keys.end_offset
        self.horizon = job.now_ms + job.settings.delete_retention_ms
        ordered = sorted(job.producers)
        self._producer_ids = np.array([last.producer_id for last in ordered], dtype=np.int64)
        self._producer_epochs = np.array([last.producer_epoch for last in ordered], dtype=np.int64)
        self._producer_offsets = np.array([last.data_offset for last in ordered], dtype=np.int64)
        clean = [span for span in job.segments if span.base_offset < job.first_dirty_offset]
        self._old_deletes_before_ms = clean[-1].modified_ms - job.settings.delete_retention_ms if clean else 0

    def clean(self, reader: SegmentReader, span: SegmentSpan, out: CleanedSegment | None, tally: Tally, deletes_end: int) -> None:
        """One segment. Tombstones at `deletes_end` and above stay in any case."""
        for chunk in reader.chunks():
            tally.bytes_before += chunk.bytes
            if chunk.batches is None:
                self._clean_messages(reader, chunk, span, out, tally, deletes_end)
                continue
            try:
                _BatchFilter(self, reader, chunk, chunk.batches, out, tally, deletes_end).run()
            except CorruptRecords as error:
                if reader.path in str(error):
                    raise
                raise reader.corrupt_in(chunk, str(error)) from None

    # Old messages

    def _clean_messages(
        self, reader: SegmentReader, chunk: Chunk, span: SegmentSpan, out: CleanedSegment | None, tally: Tally, deletes_end: int
    ) -> None:
        deletes_stay = span.modified_ms > self._old_deletes_before_ms
        parts: list[Buffer] = []
        rows: list[tuple[int, int, int]] = []
        entries = list(read_messages(reader, chunk, unpacked_bytes_max(self.job)))
        whys = iter(self._judge_messages([message for entry in entries for message in entry.messages], deletes_stay, deletes_end))
        for entry in entries:
            tally.records_before += len(entry.messages)
            judged = [(message, next(whys)) for message in entry.messages]
            made = self._cleaned_entry(chunk, entry, judged, tally)
            if made is not None:
                parts.append(made[0])
                rows.append((len(made[0]), made[1], made[2]))
        tally.bytes_after += sum(size for size, _, _ in rows)
        if out is not None and rows:
            size, last, timestamp = np.array(rows, dtype=np.int64).T
            out.add(parts, size, last, timestamp)

    def _judge_messages(self, messages: list[Message], deletes_stay: bool, deletes_end: int) -> list[tuple[Why, int]]:
        found = [(Why.STAYS, -1)] * len(messages)
        keyed: list[int] = []
        for number, message in enumerate(messages):
            if message.offset < self.end:
                if message.key is None:
                    found[number] = (Why.INVALID, -1)
                else:
                    keyed.append(number)
        if keyed:
            beaten, kept = self.keys.messages_beaten([messages[number] for number in keyed])
            for number, loses, offset in zip(keyed, beaten.tolist(), kept.tolist(), strict=True):
                message = messages[number]
                if loses:
                    found[number] = (Why.OBSOLETE, offset)
                elif message.value is None and not deletes_stay and message.offset < deletes_end:
                    found[number] = (Why.DELETED, -1)
        return found

    def _cleaned_entry(
        self, chunk: Chunk, entry: Entry, judged: list[tuple[Message, tuple[Why, int]]], tally: Tally
    ) -> tuple[Buffer, int, int] | None:
        """What is left of an entry: its bytes, last offset and largest timestamp."""
        kept = [message for message, (why, _) in judged if why is Why.STAYS]
        header, size = entry.header, entry.header.size
        untouched = header.last_offset >= self.job.first_uncleanable_offset
        # The old formats have no empty batches: the last entry of the range stays whole instead.
        last_of_range = header.last_offset + 1 == self.job.first_uncleanable_offset
        if untouched or len(kept) == len(judged) or (not kept and last_of_range):
            return memoryview(chunk.buffer)[entry.at : entry.at + size], header.last_offset, header.max_timestamp
        for message, (why, kept_offset) in judged:
            tally.lost(why, 1)
            if self.job.dry and why is not Why.STAYS:
                bytes_of = len(message.key or b"") + len(message.value or b"")
                self.report(Removable(offset=message.offset, timestamp=message.timestamp, key=message.key, size=bytes_of,
                                       reason=why.name.lower(), kept_offset=kept_offset))  # fmt: skip
        if not kept:
            return None
        timestamp = header.max_timestamp if header.log_append_time else max(message.timestamp for message in kept)
        return with_messages(entry, kept), kept[-1].offset, timestamp

    # What a chunk's batches ask

    def is_last_of_producer(self, batches: Batches) -> Flags:
        """Which batches are the last of a producer that is still active, whose sequence or epoch would be forgotten without them."""
        if not len(self._producer_ids):
            return np.zeros(len(batches), dtype=np.bool_)
        where = np.minimum(np.searchsorted(self._producer_ids, batches.producer_id), len(self._producer_ids) - 1)
        known = (self._producer_ids[where] == batches.producer_id) & (batches.producer_id >= 0)
        offset = self._producer_offsets[where]
        marker = (batches.attributes & CONTROL != 0) & (batches.producer_epoch == self._producer_epochs[where])
        flags: Flags = known & np.where(offset >= 0, batches.last_offset == offset, marker)
        return flags


class _BatchFilter:
    """One chunk's batches on their way through a Filter."""

    def __init__(
        self,
        owner: Filter,
        reader: SegmentReader,
        chunk: Chunk,
        batches: Batches,
        out: CleanedSegment | None,
        tally: Tally,
        deletes_end: int,
    ) -> None:
        self._owner = owner
        self._job = owner.job
        self._reader = reader
        self._chunk = chunk
        self._batches = batches
        self._out = out
        self._tally = tally
        self._deletes_end = deletes_end
        self._control: Flags = batches.attributes & CONTROL != 0
        self._has_horizon: Flags = batches.attributes & DELETE_HORIZON != 0
        self._horizon_past: Flags = self._has_horizon & (batches.base_timestamp <= self._job.now_ms)
        self._untouched: Flags = batches.last_offset >= self._job.first_uncleanable_offset
        self._stays_empty: Flags = owner.is_last_of_producer(batches) | (batches.last_offset + 1 == self._job.first_uncleanable_offset)
        # Whole batches that go, and why; what is left of the others is judged by record.
        self._goes: Flags = np.zeros(len(batches), dtype=np.bool_)
        self._may_go = self._judge_transactions()
        self._wants_horizon: Flags = self._control & self._may_go & ~self._has_horizon & (batches.count > 0)
        self._goes |= np.where(self._control, self._may_go & self._horizon_past, self._may_go)

    def _judge_transactions(self) -> Flags:
        may_go = np.zeros(len(self._batches), dtype=np.bool_)
        for number in np.flatnonzero(self._batches.attributes & (CONTROL | TRANSACTIONAL)).tolist():
            may_go[number] = judge_transaction(
                self._chunk, self._batches, number, self._owner.transactions, self._job.first_uncleanable_offset
            )
        return may_go

    def run(self) -> None:
        """Judge, and put what stays out."""
        batches, owner = self._batches, self._owner
        self._tally.records_before += int(batches.count.sum())
        looked_at = ~self._untouched & (~self._control | self._wants_horizon) & ~self._goes
        looked_at &= (batches.base_offset < owner.end) | self._control
        looked_at &= batches.count > 0
        fates = np.full(len(batches), _Fate.COPIED, dtype=np.int64)
        empty = self._goes | ((batches.count == 0) & ~self._untouched)
        fates[empty] = np.where(self._stays_empty[empty], np.where(batches.count[empty] == 0, _Fate.COPIED, _Fate.EMPTIED), _Fate.GOES)
        self._tally.lost(Why.ABORTED, int(batches.count[self._goes & ~self._control].sum()))
        self._tally.lost(Why.DELETED, int(batches.count[self._goes & self._control].sum()))
        self._pass_over(looked_at, fates)
        self._check(fates)
        if self._job.dry:
            looked_at |= self._goes & (batches.count > 0)
        if not looked_at.any():
            self._put(slice(0, len(batches)), fates, None)
            return
        for section in sections(self._chunk.buffer, self._chunk.words, batches, looked_at, unpacked_bytes_max(self._job)):
            rewriter = self._judge_records(section, looked_at, fates)
            self._put(slice(section.low, section.high), fates[section.low : section.high], rewriter)

    def _pass_over(self, looked_at: Flags, fates: Ints) -> None:
        """Packed batches without a record that stays need not be unpacked."""
        batches = self._batches
        if self._job.dry:
            return
        for number in np.flatnonzero(looked_at & ~self._control & (batches.attributes & CODEC_MASK != 0)).tolist():
            if not self._owner.keys.any_live(int(batches.base_offset[number]), int(batches.last_offset[number])):
                looked_at[number] = False
                fates[number] = _Fate.EMPTIED if self._stays_empty[number] else _Fate.GOES
                self._tally.lost(Why.OBSOLETE, int(batches.count[number]))

    def _check(self, fates: Ints) -> None:
        """The CRCs of what stays: those of the dirty part were looked at when the map was made."""
        job, batches = self._job, self._batches
        known = (batches.last_offset >= job.first_dirty_offset) & (batches.base_offset < self._owner.end)
        self._reader.check_crcs(self._chunk, np.flatnonzero((fates != _Fate.GOES) & ~known).tolist())

    def _judge_records(self, section: Section, looked_at: Flags, fates: Ints) -> Rewriter:
        """Decide about the records of the batches that are looked at; `fates` of these is set."""
        batches, owner = self._batches, self._owner
        of = slice(section.low, section.high)
        wanted = looked_at[of]
        records = read_records(section, batches, looked_at)
        why = self._reasons(section, records)
        keep = why == Why.STAYS
        width = section.high - section.low
        kept = np.bincount(records.batch[keep], minlength=width)
        tombstones = np.bincount(records.batch[keep & records.null & (records.offset < owner.end)], minlength=width) > 0
        # Where the map ends within the batch, the tombstones behind it have deleted nothing yet: the next pass sets the horizon.
        horizons = ~self._has_horizon[of] & ((tombstones & (batches.last_offset[of] < owner.end)) | self._wants_horizon[of])
        horizons &= kept > 0
        judged = wanted & ~self._goes[of]
        changed = (kept < batches.count[of]) | horizons
        decided = np.where(
            kept == 0, np.where(self._stays_empty[of], _Fate.EMPTIED, _Fate.GOES), np.where(changed, _Fate.MADE_ANEW, _Fate.COPIED)
        )
        fates[of] = np.where(judged, decided, fates[of])
        lost = np.bincount(why[judged[records.batch]], minlength=len(Why))
        for reason in Why:
            self._tally.lost(reason, int(lost[reason]))
        if self._job.dry:
            self._explain(section, records, why)
        return Rewriter(
            self._chunk.buffer, batches, section, records, keep, fates[of] == _Fate.MADE_ANEW, horizons, owner.horizon
        )

    def _reasons(self, section: Section, records: Records) -> Ints:
        """For each record whether it stays, or why it goes (`Why`)."""
        batches, keys, end = self._batches, self._owner.keys, self._owner.end
        of = records.batch + section.low
        control = self._control[of]
        why = np.full(len(records), Why.STAYS, dtype=np.int64)
        asked = np.flatnonzero(~control & (records.offset < end))
        without_key = records.key_size[asked] < 0
        if without_key.any():
            why[asked[without_key]] = Why.INVALID
            asked = asked[~without_key]
        why[asked[keys.beaten(section, records, asked)]] = Why.OBSOLETE
        if records.null.any():
            past = self._horizon_past[of] & records.null & (records.offset < min(end, self._deletes_end)) & ~control
            why[past & (why == Why.STAYS)] = Why.DELETED
        gone = self._goes[of]
        if gone.any():
            why[gone] = np.where(control[gone], Why.DELETED, Why.ABORTED)
        assert len(batches) >= section.high
        return why

    def _explain(self, section: Section, records: Records, why: Ints) -> None:
        """Report each record that would go."""
        going = np.flatnonzero(why != Why.STAYS)
        keyed = going[records.key_size[going] >= 0]
        kept = np.full(len(records), -1, dtype=np.int64)
        if len(keyed):
            kept[keyed] = self._owner.keys.kept_offsets(section, records, keyed)
        kept[why != Why.OBSOLETE] = -1
        times = record_times(section, self._batches, records)
        for number in going.tolist():
            at, size = int(records.key_at[number]), int(records.key_size[number])
            self._owner.report(
                Removable(
                    offset=int(records.offset[number]),
                    timestamp=int(times[number]),
                    key=section.data[at : at + size].tobytes() if size >= 0 else None,
                    size=int(records.end[number] - records.start[number]),
                    reason=Why(int(why[number])).name.lower(),
                    kept_offset=int(kept[number]),
                )
            )

    def _put(self, of: slice, fates: Ints, rewriter: Rewriter | None) -> None:
        """Write what stays of some batches: neighbours that are copied in one piece."""
        batches = self._batches
        staying = np.flatnonzero(fates != _Fate.GOES)
        if not len(staying):
            return
        sizes = batches.size[of].copy()
        timestamps = batches.max_timestamp[of].copy()
        parts: list[Buffer] = []
        view = memoryview(self._chunk.buffer)
        fate = fates[staying]
        # A run is a row of neighbours that are copied, or one batch that is made anew.
        copied = fate == _Fate.COPIED
        starts = np.flatnonzero(np.concatenate(([True], ~(copied[1:] & copied[:-1] & (staying[1:] == staying[:-1] + 1)))))
        ends = np.append(starts[1:], len(staying))
        first, last = staying[starts], staying[ends - 1]
        begin, end = batches.at[of][first], batches.at[of][last] + sizes[last]
        for number, what, start, stop in zip(first.tolist(), fate[starts].tolist(), begin.tolist(), end.tolist(), strict=True):
            if what == _Fate.COPIED:
                parts.append(view[start:stop])
                continue
            if what == _Fate.EMPTIED:
                header, payload = emptied(self._chunk.buffer, start), b""
            else:
                assert rewriter is not None
                header, payload = rewriter.make(number)
            parts += (header, payload)
            sizes[number] = len(header) + len(payload)
        anew = np.flatnonzero(fates == _Fate.MADE_ANEW)
        if rewriter is not None and len(anew):
            timestamps[anew] = rewriter.max_timestamp[anew]
        self._tally.bytes_after += int(sizes[staying].sum())
        if self._out is not None:
            self._out.add(parts, sizes[staying], batches.last_offset[of][staying], timestamps[staying])


def gaps_of(job: CleaningJob, rewritten: Sequence[SegmentSpan]) -> list[tuple[int, int]]:
    """The ranges of offsets of segments that a pass leaves as they are."""
    chosen = {span.base_offset for span in rewritten}
    return [(span.base_offset, span.next_offset) for span in job.segments if span.base_offset not in chosen]


