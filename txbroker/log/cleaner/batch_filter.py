"""Filters the batches of one chunk: decides which records stay, and writes what is left of each batch."""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from txbroker.log.cleaner.batch_columns import Batches, Section, sections
from txbroker.log.cleaner.cleaning_job import Removable
from txbroker.log.cleaner.compaction_strategy import record_times
from txbroker.log.cleaner.file_chunks import Chunk, unpacked_bytes_max
from txbroker.log.cleaner.filter_rules import FilterRules, SegmentTarget
from txbroker.log.cleaner.key_mapping import may_remove_batch
from txbroker.log.cleaner.record_columns import Records, read_records
from txbroker.log.cleaner.removed_counts import Outcome
from txbroker.log.cleaner.rewriting import Rewriter, emptied
from txbroker.log.cleaner.unaligned_reads import Flags, Ints
from txbroker.log.disk import Buffer
from txbroker.wire.batch import CODEC_MASK, CONTROL, DELETE_HORIZON, TRANSACTIONAL


class _Action(IntEnum):
    """What is written of a batch."""

    REMOVED = 0
    COPIED = 1
    REWRITTEN = 2
    EMPTIED = 3  # its header alone


class BatchFilter:
    """The batches of one chunk."""

    def __init__(self, rules: FilterRules, chunk: Chunk, batches: Batches, target: SegmentTarget) -> None:
        self._rules = rules
        self._job = rules.job
        self._chunk = chunk
        self._batches = batches
        self._target = target
        self._tally = target.tally
        self._control: Flags = batches.attributes & CONTROL != 0
        self._has_horizon: Flags = batches.attributes & DELETE_HORIZON != 0
        self._horizon_past: Flags = self._has_horizon & (batches.base_timestamp <= self._job.now_ms)
        self._unchanged: Flags = batches.last_offset >= self._job.first_uncleanable_offset
        is_end = batches.last_offset + 1 == self._job.first_uncleanable_offset
        self._stays_empty: Flags = rules.is_known_of_producer(batches) | is_end
        # Batches that are removed as a whole; the others are filtered by record.
        self._removed: Flags = np.zeros(len(batches), dtype=np.bool_)
        self._may_remove = self._judge_transactions()
        self._needs_horizon: Flags = self._control & self._may_remove & ~self._has_horizon & (batches.count > 0)
        self._removed |= np.where(self._control, self._may_remove & self._horizon_past, self._may_remove)

    def _judge_transactions(self) -> Flags:
        may_remove = np.zeros(len(self._batches), dtype=np.bool_)
        for number in np.flatnonzero(self._batches.attributes & (CONTROL | TRANSACTIONAL)).tolist():
            may_remove[number] = may_remove_batch(
                self._chunk, self._batches, number, self._rules.transactions, self._job.first_uncleanable_offset
            )
        return may_remove

    def run(self) -> None:
        """Decide about all batches, and write what stays."""
        batches, rules = self._batches, self._rules
        self._tally.records_before += int(batches.count.sum())
        selected = ~self._unchanged & (~self._control | self._needs_horizon) & ~self._removed
        selected &= (batches.base_offset < rules.map_end) | self._control
        selected &= batches.count > 0
        actions = np.full(len(batches), _Action.COPIED, dtype=np.int64)
        empty = self._removed | ((batches.count == 0) & ~self._unchanged)
        stays = np.where(batches.count[empty] == 0, _Action.COPIED, _Action.EMPTIED)
        actions[empty] = np.where(self._stays_empty[empty], stays, _Action.REMOVED)
        self._tally.count(Outcome.ABORTED, int(batches.count[self._removed & ~self._control].sum()))
        self._tally.count(Outcome.DELETED, int(batches.count[self._removed & self._control].sum()))
        self._skip_dead_batches(selected, actions)
        self._check_crcs(actions)
        if self._job.dry:
            selected |= self._removed & (batches.count > 0)
        if not selected.any():
            self._write(slice(0, len(batches)), actions, None)
            return
        for section in sections(self._chunk.buffer, self._chunk.words, batches, selected, unpacked_bytes_max(self._job)):
            rewriter = self._judge_records(section, selected, actions)
            self._write(slice(section.low, section.high), actions[section.low : section.high], rewriter)

    def _skip_dead_batches(self, selected: Flags, actions: Ints) -> None:
        """Compressed batches without a record that stays are not decompressed."""
        batches = self._batches
        if self._job.dry:
            return
        for number in np.flatnonzero(selected & ~self._control & (batches.attributes & CODEC_MASK != 0)).tolist():
            if not self._rules.keys.any_live(int(batches.base_offset[number]), int(batches.last_offset[number])):
                selected[number] = False
                actions[number] = _Action.EMPTIED if self._stays_empty[number] else _Action.REMOVED
                self._tally.count(Outcome.OBSOLETE, int(batches.count[number]))

    def _check_crcs(self, actions: Ints) -> None:
        """Check the CRCs of batches that stay. Those of the dirty part were checked while the map was built."""
        job, batches = self._job, self._batches
        checked = (batches.last_offset >= job.first_dirty_offset) & (batches.base_offset < self._rules.map_end)
        self._target.reader.check_crcs(self._chunk, np.flatnonzero((actions != _Action.REMOVED) & ~checked).tolist())

    def _judge_records(self, section: Section, selected: Flags, actions: Ints) -> Rewriter:
        """Decide about the records of the selected batches, and set the `actions` of these."""
        batches, rules = self._batches, self._rules
        of = slice(section.low, section.high)
        records = read_records(section, batches, selected)
        outcomes = self._outcomes(section, records)
        keep = outcomes == Outcome.KEPT
        width = section.high - section.low
        kept = np.bincount(records.batch[keep], minlength=width)
        tombstones = np.bincount(records.batch[keep & records.null & (records.offset < rules.map_end)], minlength=width) > 0
        # Where the map ends within the batch, the tombstones after its end have deleted nothing yet: the next pass sets the horizon.
        horizons = ~self._has_horizon[of] & ((tombstones & (batches.last_offset[of] < rules.map_end)) | self._needs_horizon[of])
        horizons &= kept > 0
        judged = selected[of] & ~self._removed[of]
        changed = (kept < batches.count[of]) | horizons
        without_records = np.where(self._stays_empty[of], _Action.EMPTIED, _Action.REMOVED)
        decided = np.where(kept == 0, without_records, np.where(changed, _Action.REWRITTEN, _Action.COPIED))
        actions[of] = np.where(judged, decided, actions[of])
        removed = np.bincount(outcomes[judged[records.batch]], minlength=len(Outcome))
        for reason in Outcome:
            self._tally.count(reason, int(removed[reason]))
        if self._job.dry:
            self._report_removed(section, records, outcomes)
        return Rewriter(
            self._chunk.buffer, batches, section, records, keep, actions[of] == _Action.REWRITTEN, horizons, rules.horizon
        )

    def _outcomes(self, section: Section, records: Records) -> Ints:
        """The `Outcome` of each record."""
        keys, end = self._rules.keys, self._rules.map_end
        of = records.batch + section.low
        control = self._control[of]
        outcomes = np.full(len(records), Outcome.KEPT, dtype=np.int64)
        keyed = np.flatnonzero(~control & (records.offset < end))
        without_key = records.key_size[keyed] < 0
        if without_key.any():
            outcomes[keyed[without_key]] = Outcome.INVALID
            keyed = keyed[~without_key]
        outcomes[keyed[keys.obsolete(section, records, keyed)]] = Outcome.OBSOLETE
        if records.null.any():
            past = self._horizon_past[of] & records.null & (records.offset < min(end, self._target.tombstones_end)) & ~control
            outcomes[past & (outcomes == Outcome.KEPT)] = Outcome.DELETED
        removed = self._removed[of]
        if removed.any():
            outcomes[removed] = np.where(control[removed], Outcome.DELETED, Outcome.ABORTED)
        return outcomes

    def _report_removed(self, section: Section, records: Records, outcomes: Ints) -> None:
        """Report each record that would be removed."""
        removed = np.flatnonzero(outcomes != Outcome.KEPT)
        keyed = removed[records.key_size[removed] >= 0]
        kept = np.full(len(records), -1, dtype=np.int64)
        if len(keyed):
            kept[keyed] = self._rules.keys.kept_offsets(section, records, keyed)
        kept[outcomes != Outcome.OBSOLETE] = -1
        times = record_times(section, self._batches, records)
        for number in removed.tolist():
            at, size = int(records.key_at[number]), int(records.key_size[number])
            self._rules.report(
                Removable(
                    offset=int(records.offset[number]),
                    timestamp=int(times[number]),
                    key=section.data[at : at + size].tobytes() if size >= 0 else None,
                    size=int(records.end[number] - records.start[number]),
                    reason=Outcome(int(outcomes[number])).name.lower(),
                    kept_offset=int(kept[number]),
                )
            )

    def _write(self, of: slice, actions: Ints, rewriter: Rewriter | None) -> None:
        """Write what stays of some batches. Neighbours that are copied are one part."""
        batches = self._batches
        staying = np.flatnonzero(actions != _Action.REMOVED)
        if not len(staying):
            return
        sizes = batches.size[of].copy()
        timestamps = batches.max_timestamp[of].copy()
        parts: list[Buffer] = []
        view = memoryview(self._chunk.buffer)
        action = actions[staying]
        # A run is a row of neighbours that are copied, or one batch that is emptied or rewritten.
        copied = action == _Action.COPIED
        starts = np.flatnonzero(np.concatenate(([True], ~(copied[1:] & copied[:-1] & (staying[1:] == staying[:-1] + 1)))))
        ends = np.append(starts[1:], len(staying))
        first, last = staying[starts], staying[ends - 1]
        begin, end = batches.at[of][first], batches.at[of][last] + sizes[last]
        for number, what, start, stop in zip(first.tolist(), action[starts].tolist(), begin.tolist(), end.tolist(), strict=True):
            if what == _Action.COPIED:
                parts.append(view[start:stop])
                continue
            if what == _Action.EMPTIED:
                header, payload = emptied(self._chunk.buffer, start), b""
            else:
                assert rewriter is not None
                header, payload = rewriter.make(number)
            parts += (header, payload)
            sizes[number] = len(header) + len(payload)
        rewritten = np.flatnonzero(actions == _Action.REWRITTEN)
        if rewriter is not None and len(rewritten):
            timestamps[rewritten] = rewriter.max_timestamp[rewritten]
        self._tally.bytes_after += int(sizes[staying].sum())
        if self._target.out is not None:
            self._target.out.add(parts, sizes[staying], batches.last_offset[of][staying], timestamps[staying])
