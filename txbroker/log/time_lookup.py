"""Offsets by timestamp (ListOffsets; KIP-79, KIP-734).

A look-up decompresses one batch, or two if the log starts within a batch, because it runs in the logs' thread and batches may decompress to
a thousand times their size. A batch that holds anything unusual is read a second time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence

from txbroker.log.log_results import TimestampOffset
from txbroker.log.scan import Entry
from txbroker.log.segment import NO_TIMESTAMP, Segment
from txbroker.wire.batch import BatchHeader
from txbroker.wire.entries import read_records
from txbroker.wire.record_loops import find_time_in_batch
from txbroker.wire.records import Record, first_of_time

_new: Callable[[type[TimestampOffset], tuple[int, int, int]], TimestampOffset] = tuple.__new__  # half the time of TimestampOffset(...)


def offset_for_timestamp(segments: Sequence[Segment], timestamp: int, log_start_offset: int, bytes_max: int) -> TimestampOffset | None:
    """The first record from `log_start_offset` on whose timestamp is `timestamp` or later. `bytes_max`: of one batch decompressed."""
    for segment in segments:
        if segment.max_timestamp[0] < timestamp:
            continue
        start = segment.time_index.first_candidate(timestamp)
        if start < log_start_offset:
            start = log_start_offset
        found = find_time_in_batch(segment.batch_at(start), timestamp, log_start_offset, bytes_max)
        if found is not None:
            return _new(TimestampOffset, found)
        for entry in segment.batches_from(start):
            if entry.header.max_timestamp >= timestamp:
                first = first_record(entry, timestamp, log_start_offset, bytes_max)
                if first is not None:
                    return first
    return None


def offset_of_max_timestamp(segments: Sequence[Segment], log_start_offset: int, bytes_max: int) -> TimestampOffset | None:
    """The first record from `log_start_offset` on that has the largest timestamp of all those; None when none has a timestamp."""
    first = max(0, bisect_right(segments, log_start_offset, key=lambda segment: segment.base_offset) - 1)
    largest, holder = (NO_TIMESTAMP, log_start_offset), segments[-1]
    for segment in segments[first:]:
        of_segment = _max_timestamp(segment, log_start_offset, bytes_max)
        if of_segment[0] > largest[0]:
            largest, holder = of_segment, segment
    timestamp, last_offset = largest
    if timestamp < 0:
        return None
    for entry in holder.batches_from(last_offset):
        if entry.header.max_timestamp >= timestamp:
            return first_record(entry, timestamp, log_start_offset, bytes_max)
    return None


def _max_timestamp(segment: Segment, log_start_offset: int, bytes_max: int) -> tuple[int, int]:
    """The largest timestamp of records from `log_start_offset` on, and the last offset of its batch."""
    known = segment.max_timestamp
    if log_start_offset <= segment.base_offset or known[0] < 0:
        return known
    holder = next(segment.batches_from(known[1]), None)
    if holder is not None and _begins_at(holder) >= log_start_offset:
        return known
    largest = NO_TIMESTAMP, log_start_offset
    for number, entry in enumerate(segment.batches_from(log_start_offset)):
        timestamp, last_offset = entry.header.max_timestamp, entry.header.last_offset
        if number == 0 and _begins_at(entry) < log_start_offset:
            timestamp = max((record.timestamp for record in _records(entry, log_start_offset, bytes_max)), default=NO_TIMESTAMP)
        if timestamp > largest[0]:
            largest = timestamp, last_offset
    return largest


def first_record(entry: Entry, timestamp: int, offset_min: int, bytes_max: int) -> TimestampOffset | None:
    """The first record of a batch at `offset_min` or above that is of `timestamp` or later.

    The header's largest timestamp shows that there is one. If that is wrong and the batch begins at `offset_min` or above, the result is
    the header's timestamp with the batch's first offset: earlier records do not qualify, and later headers may be wrong too.
    """
    header = entry.header
    if isinstance(header, BatchHeader):
        found = first_of_time(entry.buffer, entry.at, header, timestamp, offset_min, bytes_max)
        if found is not None:
            return TimestampOffset(*found, header.leader_epoch)
        if header.count and header.base_offset >= offset_min:
            return TimestampOffset(header.max_timestamp, header.base_offset, header.leader_epoch)
        return None
    for record in _records(entry, offset_min, bytes_max):
        if record.timestamp >= timestamp:
            return TimestampOffset(record.timestamp, record.offset, header.leader_epoch)
    return None


def _records(entry: Entry, offset_min: int, bytes_max: int) -> Iterator[Record]:
    found = read_records(entry.buffer, entry.at, entry.header, bytes_max)
    return (record for record in found if record.offset >= offset_min)


def _begins_at(entry: Entry) -> int:
    """A batch's base offset; of an old message or wrapper the lowest possible one."""
    header = entry.header
    return header.base_offset if isinstance(header, BatchHeader) else 0
