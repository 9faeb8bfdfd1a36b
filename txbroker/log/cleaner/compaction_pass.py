"""One pass of the log cleaner over one partition: map the keys of the dirty part, then write every segment without what is obsolete.

It reads segments and writes `.cleaned` files beside them; whoever owns the log puts them in their place, group by group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from txbroker.errors import BrokerError, OutOfResources, StorageError
from txbroker.log.cleaner.cleaned_segment import CleanedSegment
from txbroker.log.cleaner.cleaning_job import CleaningJob, Done, Event, Failed, FailureKind, GroupCleaned, SegmentSpan
from txbroker.log.cleaner.file_chunks import SegmentReader, StaleSegment
from txbroker.log.cleaner.filtering import Filter, gaps_of
from txbroker.log.cleaner.grouping import groups, rewritten_spans
from txbroker.log.cleaner.key_mapping import KeyMap, MapMaker
from txbroker.log.cleaner.offset_map import OffsetMap
from txbroker.log.cleaner.removed_counts import Tally
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
    """Run a job to its end, which `report` is told: Done or Failed. `stopped` is asked between pieces of work, some milliseconds apart."""
    throttle = Throttle(job, report, stopped, monotonic, sleep)
    try:
        _Pass(job, disk, report, throttle, make_map).run()
    except Stopped:
        report(Failed(kind=FailureKind.STOPPED, reason="the pass was stopped"))
    except StaleSegment as error:
        report(Failed(kind=FailureKind.STALE, reason=str(error)))
    except (OutOfResources, MemoryError) as error:
        report(Failed(kind=FailureKind.RESOURCES, reason=str(error) or "there is not enough memory"))
    except StorageError as error:
        report(Failed(kind=FailureKind.STORAGE, reason=str(error)))
    except BrokerError as error:  # CorruptRecords, or records that are larger than any may be
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
        cleaning = Filter(job, keys, transactions, self._report)
        for group in groups(job, spans, self._disk):
            self._clean_group(group, cleaning, transactions, aborted)
        self._report(Done(end_offset=keys.end_offset, bytes_read=throttle.read, bytes_written=throttle.written, seconds=throttle.seconds))

    def _clean_group(
        self, group: Sequence[SegmentSpan], cleaning: Filter, transactions: Transactions, aborted: Sequence[AbortedTransaction]
    ) -> None:
        job = self._job
        out = None if job.dry else CleanedSegment(self._disk, job.directory, group[0].base_offset, job.settings.index_interval_bytes)
        try:
            tallies = [self._clean_segment(span, cleaning, out) for span in group]
            kept = transactions.take_kept()
            # Nothing that is not decided yet is touched, its transactions neither.
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

    def _clean_segment(self, span: SegmentSpan, cleaning: Filter, out: CleanedSegment | None) -> Tally:
        tally = Tally(span.base_offset)
        reader = SegmentReader(self._job, span, self._disk, self._took_and_wrote(out))
        cleaning.clean(reader, span, out, tally, self._deletes_end(span))
        return tally

    def _took_and_wrote(self, out: CleanedSegment | None) -> Callable[[int], None]:
        def took(count: int) -> None:
            self._throttle.count_read(count)
            if out is not None:
                self._throttle.count_written(out.take_written())

        return took

    def _deletes_end(self, span: SegmentSpan) -> int:
        """Below which offset a segment's tombstones may go: nothing older of their keys is left in segments that stay as they are."""
        job = self._job
        if job.rewrite is None:
            return FOREVER
        chosen = {one.base_offset for one in rewritten_spans(job, FOREVER)}
        return min(
            (other.clean_end for other in job.segments if other.base_offset < span.base_offset and other.base_offset not in chosen),
            default=FOREVER,
        )
