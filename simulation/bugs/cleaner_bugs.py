"""Mistakes of the log cleaner: what it may clean, which record stays, tombstones, and the swap of cleaned segments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from simulation.bugs.patching import Patch
from txbroker.log.cleaner import compaction_pass
from txbroker.log.cleaner.cleaning_job import CleaningJob
from txbroker.log.cleaner.offset_map import OffsetMap
from txbroker.log.file_names import CLEANED, DELETED
from txbroker.log.log import Log
from txbroker.log.segment import Segment
from txbroker.log.segment_swap import SegmentSwap
from txbroker.log.segments import Replaced, Segments, mark_deleted
from txbroker.maintenance import cleaning_jobs, cleaning_passes
from txbroker.maintenance.cleaning_candidates import Candidates


def cleaner_passes_the_high_watermark() -> list[Patch]:
    """The cleaner removes a committed record because of a later one that is not committed, and may be truncated."""
    return [Patch(Candidates, "_stable_end", lambda self, candidate: candidate.log_end_offset)]


def cleaner_passes_the_last_stable_offset() -> list[Patch]:
    """The cleaner removes a record because of a later one of an open transaction, which may be aborted."""
    return [Patch(Candidates, "_stable_end", lambda self, candidate: self._high_watermark(candidate.topic_partition))]


def first_record_stays() -> list[Patch]:
    """Of several records of a key in one chunk the first one stays, and not the last."""
    put = OffsetMap.put

    def broken(self: OffsetMap, first: Any, second: Any, offsets: Any, *versions: Any) -> int:
        return put(self, first[::-1], second[::-1], offsets[::-1], *versions)

    return [Patch(OffsetMap, "put", broken)]


def aborted_records_replace_others() -> list[Patch]:
    """The cleaner takes records of aborted transactions for the latest of their keys: what they seem to replace is removed."""
    return [Patch(compaction_pass, "read_aborted", lambda disk, directory, first_offset: [])]


def tombstones_removed_at_once() -> list[Patch]:
    """A tombstone is removed without waiting for delete.retention.ms: a follower that is behind keeps what it deletes."""

    def broken(*arguments: Any, **named: Any) -> CleaningJob:
        job = cleaning_jobs.make_job(*arguments, **named)
        return replace(job, settings=replace(job.settings, delete_retention_ms=0))

    return [Patch(cleaning_passes, "make_job", broken)]


def swap_is_not_atomic() -> list[Patch]:
    """Old segments are removed before the cleaned one has their place: a process that is killed in between loses all of them."""

    def broken(self: Segments, base_offsets: Sequence[int], size: int, config: Any, now_ms: int, done: Replaced) -> bool:
        at = self.bases.index(base_offsets[0]) if base_offsets[0] in self.bases else len(self.bases)
        end = at + len(base_offsets)
        if self.bases[at:end] != list(base_offsets) or end >= len(self.bases):
            return False
        old = self.all[at:end]
        new = Segment(self._disk, old[0].directory, base_offsets[0], size=size, created_ms=now_ms,
                      index_interval_bytes=config.index_interval_bytes)  # fmt: skip
        removed: list[str] = []
        mark_deleted(self._disk, [path for segment in old for path in segment.paths()] + self._lost_snapshots(old, [new]), removed)
        SegmentSwap(self._disk, new.directory, base_offsets[0], self.bases[end])._rename(CLEANED, "")
        self._put([*self.all[:at], new, *self.all[end:]])
        self._snapshots.forget(base for base in base_offsets if base not in self.bases)
        self._remove_later([path + DELETED for path in removed], config.file_delete_delay_ms)
        done(None)
        return True

    return [Patch(Segments, "replace", broken)]


def last_batches_of_producers_removed() -> list[Patch]:
    """The cleaner does not keep the last batches of each producer: a replica that copies the log does not know its sequence numbers."""
    return [Patch(Log, "last_records", lambda self, now_ms: iter(()))]


BUGS: dict[str, Callable[[], list[Patch]]] = {
    bug.__name__: bug
    for bug in (
        cleaner_passes_the_high_watermark,
        cleaner_passes_the_last_stable_offset,
        first_record_stays,
        aborted_records_replace_others,
        tombstones_removed_at_once,
        swap_is_not_atomic,
        last_batches_of_producers_removed,
    )
}
