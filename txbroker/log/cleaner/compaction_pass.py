"""One pass of the log cleaner over one partition: maps the keys of the dirty part, then writes every segment without obsolete records.

It reads segments and writes `.cleaned` files beside them. The owner of the log swaps these in, group by group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from txbroker.errors import BrokerError, OutOfResources, StorageError
from txbroker.log.cleaner.cleaned_segment import CleanedSegment
from txbroker.log.cleaner.cleaning_job import CleaningJob, Done, Event, Failed, FailureKind, GroupCleaned, SegmentSpan
from txbroker.log.cleaner.file_chunks import SegmentReader, StaleSegment
from txbroker.log.cleaner.filter_rules import FilterRules, SegmentTarget
from txbroker.log.cleaner.grouping import gaps_of, groups, rewritten_spans
from txbroker.log.cleaner.key_mapping import KeyMap, MapMaker
from txbroker.log.cleaner.offset_map import OffsetMap
from txbroker.log.cleaner.removed_counts import Tally
from txbroker.log.cleaner.segment_filter import SegmentFilter
from txbroker.log.cleaner.throttle import Stopped, Throttle
from txbroker.log.cleaner.transaction_filter import Transactions, read_aborted
from txbroker.log.disk import Disk
from txbroker.log.log_results import AbortedTransaction

Report = Callable[[Event], None]

FOREVER = 2**63 - 1


def run_job(
    job: CleaningJob,
    disk: Disk,
    report: Report,
    stopped: Callable[[], bool],
    *,
    monotonic: Callable[[], float],
    sleep: Callable[[float], None],
    make_map: MapMaker = OffsetMap,
) -> None:
    """Run a job. The last event that is reported is Done or Failed. `stopped` is called often, between steps of some milliseconds."""
    throttle = Throttle(job, report, stopped, monotonic, sleep)
    try:
        _Pass(job, disk, report, throttle, make_map).run()
    except Stopped:
        report(Failed(kind=FailureKind.STOPPED, reason="stopped"))
    except StaleSegment as error:
        report(Failed(kind=FailureKind.STALE, reason=str(error)))
    except (OutOfResources, MemoryError) as error:
        report(Failed(kind=FailureKind.RESOURCES, reason=str(error) or "not enough memory"))
    except StorageError as error:
        report(Failed(kind=FailureKind.STORAGE, reason=str(error)))
    except BrokerError as error:  # CorruptRecords, or a batch that is too large
        report(Failed(kind=FailureKind.CORRUPT, reason=str(error)))


class _Pass:
    def __init__(self, job: CleaningJob, disk: Disk, report: Report, throttle: Throttle, make_map: MapMaker) -> None:
        self._job = job
        self._disk = disk
        self._report = report
        self._throttle = throttle
        self._make_map = make_map

    def run(self) -> None:
        job, throttle = self._job, self._throttle
        aborted = read_aborted(self._disk, job.directory, job.segments[0].base_offset if job.segments else 0)
        keys = KeyMap(job, self._disk, throttle.count_read, self._make_map)
        throttle.total = sum(span.size for span in job.segments if span.next_offset > job.first_dirty_offset) + sum(
            span.size for span in rewritten_spans(job, keys.end_offset)
        )
        self._report(keys.build(aborted))
        spans = rewritten_spans(job, keys.end_offset)
        throttle.total = throttle.read + sum(span.size for span in spans)
        transactions = Transactions(aborted, gaps_of(job, spans))
        segment_filter = SegmentFilter(FilterRules(job, keys, transactions, self._report))
        for group in groups(job, spans, self._disk):
            self._clean_group(group, segment_filter, transactions, aborted)
        self._report(Done(end_offset=keys.end_offset, bytes_read=throttle.read, bytes_written=throttle.written, seconds=throttle.seconds))

    def _clean_group(
        self,
        group: Sequence[SegmentSpan],
        segment_filter: SegmentFilter,
        transactions: Transactions,
        aborted: Sequence[AbortedTransaction],
    ) -> None:
        job = self._job
        out = None if job.dry else CleanedSegment(self._disk, job.directory, group[0].base_offset, job.settings.index_interval_bytes)
        try:
            tallies = [self._clean_segment(span, segment_filter, out) for span in group]
            kept = transactions.take_kept()
            # Batches from `first_uncleanable_offset` on are not filtered: their transactions stay in the index.
            last_offsets = {entry.last_offset for entry in kept}
            kept += [
                entry
                for entry in sorted(aborted, key=lambda entry: entry.last_offset)
                if max(job.first_uncleanable_offset, group[0].base_offset) <= entry.last_offset < group[-1].next_offset
                and entry.last_offset not in last_offsets
            ]
            if out is not None:
                out.finish(kept, group[-1].modified_ms)
                self._throttle.count_written(out.take_written())
        except BaseException:
            if out is not None:
                out.remove()
            raise
        if out is not None:
            self._report(
                GroupCleaned(
                    old_base_offsets=tuple(span.base_offset for span in group),
                    new_base_offset=out.base_offset,
                    size=out.size,
                    max_timestamp=out.max_timestamp,
                    max_timestamp_offset=out.max_timestamp_offset,
                    yields=tuple(tally.result() for tally in tallies),
                )
            )

    def _clean_segment(self, span: SegmentSpan, segment_filter: SegmentFilter, out: CleanedSegment | None) -> Tally:
        tally = Tally(span.base_offset)
        reader = SegmentReader(self._job, span, self._disk, self._counting(out))
        segment_filter.clean(span, SegmentTarget(reader, out, tally, self._tombstones_end(span)))
        return tally

    def _counting(self, out: CleanedSegment | None) -> Callable[[int], None]:
        def count_read(count: int) -> None:
            self._throttle.count_read(count)
            if out is not None:
                self._throttle.count_written(out.take_written())

        return count_read

    def _tombstones_end(self, span: SegmentSpan) -> int:
        """Below this offset tombstones may be removed: no older records of their keys are in segments that are not rewritten."""
        job = self._job
        if job.rewrite is None:
            return FOREVER
        chosen = {one.base_offset for one in rewritten_spans(job, FOREVER)}
        return min(
            (other.clean_end for other in job.segments if other.base_offset < span.base_offset and other.base_offset not in chosen),
            default=FOREVER,
        )
