"""Jobs and events in the format of the pipe between the broker and its worker."""

from __future__ import annotations

import pytest

from txbroker.log.cleaner.cleaning_job import (
    CleaningJob,
    CleaningSettings,
    Done,
    Event,
    Failed,
    FailureKind,
    GroupCleaned,
    LastRecord,
    Mapped,
    Progress,
    Removable,
    SegmentSpan,
    SegmentYield,
    Strategy,
    event_from_json,
    job_from_json,
    to_json,
)

SETTINGS = CleaningSettings(
    strategy=Strategy.HEADER, header="version", segment_bytes=1 << 30, segment_index_bytes=10 << 20, index_interval_bytes=4096,
    delete_retention_ms=5, max_message_bytes=1 << 20, map_bytes=1 << 20, load_factor=0.9, io_buffer_bytes=1 << 19,
    io_bytes_per_second=1e300)
YIELD = SegmentYield(
    base_offset=0, records_before=9, records_after=5, bytes_before=900, bytes_after=500, obsolete=1, deleted=1, aborted=1, invalid=1)


@pytest.mark.parametrize("rewrite", [None, (0, 5)])
def test_a_job_is_the_same_after_the_pipe(rewrite: tuple[int, ...] | None) -> None:
    job = CleaningJob(
        directory="/data/t-0", topic="t", partition=0, segments=(SegmentSpan(0, 9, 900, 3), SegmentSpan(9, 2**40, 1, 4)),
        log_start_offset=0,
        log_end_offset=2**40, first_dirty_offset=4, first_uncleanable_offset=2**40, producers=(LastRecord(7, 1, -1),), now_ms=5,
        seed=2**64 - 1, settings=SETTINGS, rewrite=rewrite, dry=True)
    line = to_json(job)
    assert "\n" not in line
    assert job_from_json(line) == job


@pytest.mark.parametrize("event", [
    Mapped(end_offset=9, keys=3, missed_keys=1, records=9, bytes_read=900, invalid_headers=0),
    Progress(bytes_done=1, bytes_total=2),
    GroupCleaned(old_base_offsets=(0, 9), new_base_offset=0, size=500, max_timestamp=3, max_timestamp_offset=4, yields=(YIELD,)),
    Removable(offset=3, timestamp=4, key=b"\0\xffkey", size=9, reason="obsolete", kept_offset=8),
    Removable(offset=3, timestamp=4, key=None, size=9, reason="invalid", kept_offset=-1),
    Done(end_offset=9, bytes_read=900, bytes_written=500, seconds=0.5),
    Failed(kind=FailureKind.CORRUPT, reason="a batch at position 3 of \"x\"\nis damaged"),
], ids=lambda event: type(event).__name__)
def test_an_event_is_the_same_after_the_pipe(event: Event) -> None:
    line = to_json(event)
    assert "\n" not in line
    assert event_from_json(line) == event
