"""What the filters of batches and of old messages share: the job, its map of keys, and the batches that must stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from txbroker.log.cleaner.batch_columns import Batches
from txbroker.log.cleaner.cleaned_segment import CleanedSegment
from txbroker.log.cleaner.cleaning_job import CleaningJob, Event
from txbroker.log.cleaner.file_chunks import SegmentReader
from txbroker.log.cleaner.key_mapping import KeyMap
from txbroker.log.cleaner.removed_counts import Tally
from txbroker.log.cleaner.transaction_filter import Transactions
from txbroker.log.cleaner.unaligned_reads import Flags
from txbroker.wire.batch import CONTROL


class SegmentTarget(NamedTuple):
    """One segment that is being cleaned, and where its records go. `out` None: a dry run, which reports what would be removed.

    Tombstones at `tombstones_end` and above stay in any case: older records of their keys may be in segments that are not rewritten.
    """

    reader: SegmentReader
    out: CleanedSegment | None
    tally: Tally
    tombstones_end: int


class FilterRules:
    """The rules of one pass. `map_end`: the end of the offsets that the map covers; `horizon`: the delete horizon to set, ms."""

    def __init__(self, job: CleaningJob, keys: KeyMap, transactions: Transactions, report: Callable[[Event], None]) -> None:
        self.job = job
        self.keys = keys
        self.transactions = transactions
        self.report = report
        self.map_end = keys.end_offset
        self.horizon = job.now_ms + job.settings.delete_retention_ms
        ordered = sorted(job.producers)
        self._producer_ids = np.array([last.producer_id for last in ordered], dtype=np.int64)
        self._producer_epochs = np.array([last.producer_epoch for last in ordered], dtype=np.int64)
        self._producer_offsets = np.array([last.data_offset for last in ordered], dtype=np.int64)

    def is_last_of_producer(self, batches: Batches) -> Flags:
        """Which batches are the last of an active producer: without them its sequence or epoch would be lost."""
        if not len(self._producer_ids):
            return np.zeros(len(batches), dtype=np.bool_)
        where = np.minimum(np.searchsorted(self._producer_ids, batches.producer_id), len(self._producer_ids) - 1)
        known = (self._producer_ids[where] == batches.producer_id) & (batches.producer_id >= 0)
        offset = self._producer_offsets[where]
        marker = (batches.attributes & CONTROL != 0) & (batches.producer_epoch == self._producer_epochs[where])
        flags: Flags = known & np.where(offset >= 0, batches.last_offset == offset, marker)
        return flags
