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
        data = sorted(last.data_offset for last in job.producers if last.data_offset >= 0)
        markers = sorted((last.producer_id, last.producer_epoch) for last in job.producers if last.data_offset < 0)
        self._data_offsets = np.array(data, dtype=np.int64)
        self._marker_ids = np.array([producer_id for producer_id, _ in markers], dtype=np.int64)
        self._marker_epochs = np.array([epoch for _, epoch in markers], dtype=np.int64)

    def is_known_of_producer(self, batches: Batches) -> Flags:
        """Which batches an active producer may send again, or are its last: without them its sequences or its epoch would be lost."""
        flags = np.zeros(len(batches), dtype=np.bool_)
        if len(self._data_offsets):
            where = np.minimum(np.searchsorted(self._data_offsets, batches.last_offset), len(self._data_offsets) - 1)
            flags |= (self._data_offsets[where] == batches.last_offset) & (batches.producer_id >= 0)
        if len(self._marker_ids):
            where = np.minimum(np.searchsorted(self._marker_ids, batches.producer_id), len(self._marker_ids) - 1)
            known = (self._marker_ids[where] == batches.producer_id) & (batches.producer_epoch == self._marker_epochs[where])
            flags |= known & (batches.attributes & CONTROL != 0)
        return flags
