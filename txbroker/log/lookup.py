"""Offsets by timestamp (ListOffsets; KIP-79, KIP-734)."""

from __future__ import annotations

from collections.abc import Sequence

from txbroker.log.scan import Entry
from txbroker.log.segment import Segment
from txbroker.log.values import TimestampOffset
from txbroker.wire.entries import read_records


def offset_for_timestamp(segments: Sequence[Segment], timestamp: int, log_start_offset: int, bytes_max: int) -> TimestampOffset | None:
    """The first record from `log_start_offset` on whose timestamp is `timestamp` or later. `bytes_max`: for one batch decompressed."""
    for segment in segments:
        if segment.max_timestamp[0] < timestamp:
            continue
        for entry in segment.batches_from(max(segment.time_index.lookup(timestamp), log_start_offset)):
            if entry.header.max_timestamp >= timestamp:
                found = _first_record(entry, timestamp, log_start_offset, bytes_max)
                if found is not None:
                    return found
    return None


def offset_of_max_timestamp(segments: Sequence[Segment], bytes_max: int) -> TimestampOffset | None:
    """The first record that has the largest timestamp of all; None when none has a timestamp."""
    segment = max(segments, key=lambda candidate: candidate.max_timestamp[0])  # the first of equals
    timestamp, last_offset = segment.max_timestamp
    if timestamp < 0:
        return None
    for entry in segment.batches_from(last_offset):
        if entry.header.max_timestamp == timestamp:
            return _first_record(entry, timestamp, segment.base_offset, bytes_max)
    return None


def _first_record(entry: Entry, timestamp: int, offset_min: int, bytes_max: int) -> TimestampOffset | None:
    for record in read_records(entry.buffer, entry.at, entry.header, bytes_max):
        if record.timestamp >= timestamp and record.offset >= offset_min:
            return TimestampOffset(record.timestamp, record.offset, entry.header.leader_epoch)
    return None
