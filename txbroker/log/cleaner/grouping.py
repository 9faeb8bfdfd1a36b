"""Which segments a pass rewrites, and which of them become one segment (Kafka's Cleaner.groupSegmentsBySize)."""

from __future__ import annotations

from collections.abc import Sequence

from txbroker.log.cleaner.cleaning_job import CleaningJob, SegmentSpan
from txbroker.log.disk import Disk
from txbroker.log.file_names import OFFSET_INDEX, TIME_INDEX, file_path

_INT32_MAX = 2**31 - 1


def rewritten_spans(job: CleaningJob, end_offset: int) -> list[SegmentSpan]:
    """The segments that a pass rewrites when its map ends at `end_offset`: all before it, or of the clean ones only those in the job."""
    named = None if job.rewrite is None else set(job.rewrite)
    return [
        span
        for span in job.segments
        if span.base_offset < end_offset and (named is None or span.base_offset in named or span.clean_end < span.next_offset)
    ]


def groups(job: CleaningJob, spans: Sequence[SegmentSpan], disk: Disk) -> list[list[SegmentSpan]]:
    """Neighbours that fit into one segment with its indexes and its range of offsets, even if nothing is removed from them."""
    settings = job.settings
    neighbours = {span.base_offset: following.base_offset for span, following in zip(job.segments, job.segments[1:], strict=False)}
    made: list[list[SegmentSpan]] = []
    size = index = time_index = 0
    for span in spans:
        span_index = disk.size(file_path(job.directory, span.base_offset, OFFSET_INDEX)) or 0
        span_time_index = disk.size(file_path(job.directory, span.base_offset, TIME_INDEX)) or 0
        fits = (
            made
            and neighbours.get(made[-1][-1].base_offset) == span.base_offset
            and size + span.size <= settings.segment_bytes
            and index + span_index <= settings.segment_index_bytes
            and time_index + span_time_index <= settings.segment_index_bytes
            and (span.size == 0 or span.next_offset - 1 - made[-1][0].base_offset <= _INT32_MAX)
        )
        if fits:
            made[-1].append(span)
            size, index, time_index = size + span.size, index + span_index, time_index + span_time_index
        else:
            made.append([span])
            size, index, time_index = span.size, span_index, span_time_index
    return made


def gaps_of(job: CleaningJob, rewritten: Sequence[SegmentSpan]) -> list[tuple[int, int]]:
    """The ranges of offsets [low, high) of the segments that a pass does not rewrite."""
    chosen = {span.base_offset for span in rewritten}
    return [(span.base_offset, span.next_offset) for span in job.segments if span.base_offset not in chosen]
