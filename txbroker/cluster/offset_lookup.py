"""Offsets of a partition by timestamp, for ListOffsets."""

from __future__ import annotations

from txbroker.cluster.partition import Partition
from txbroker.errors import BrokerError, ErrorCode, StorageError
from txbroker.log.log_results import TimestampOffset

# Special timestamps of ListOffsets (KIP-79, KIP-734, KIP-405, KIP-1005).
LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL_TIMESTAMP = -4
LATEST_TIERED_TIMESTAMP = -5
EARLIEST_PENDING_UPLOAD_TIMESTAMP = -6


def list_offset(partition: Partition, timestamp: int, isolation: int | None) -> TimestampOffset | None:
    """A special timestamp, or the first record at `timestamp` or later. None when there is no such record.

    `isolation` None: a replica or a tool, which reads up to the log end offset. OFFSET_NOT_AVAILABLE for a consumer that asks for more than
    a new leader knows to be committed (KIP-207): an offset that the leader before has returned would be followed by a smaller one.
    """
    try:
        return _find(partition, timestamp, isolation)
    except StorageError as error:
        partition.storage_failed(error)
        raise


def _find(partition: Partition, timestamp: int, isolation: int | None) -> TimestampOffset | None:
    log = partition.log
    end = log.log_end_offset if isolation is None else partition.end_for(isolation)
    if timestamp in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
        return TimestampOffset(-1, log.log_start_offset, log.leader_epochs.epoch_of(log.log_start_offset))
    if timestamp in (LATEST_TIERED_TIMESTAMP, EARLIEST_PENDING_UPLOAD_TIMESTAMP):
        return None  # no tiered storage
    found: TimestampOffset | None
    if timestamp == LATEST_TIMESTAMP:
        found = TimestampOffset(-1, end, partition.leader_epoch)
        is_known = False
    else:
        found = log.offset_of_max_timestamp() if timestamp == MAX_TIMESTAMP else log.offset_for_timestamp(timestamp)
        found = found if found is not None and found.offset < end else None
        is_known = found is not None
    if not is_known and isolation is not None and partition.high_watermark < partition.epoch_start:
        problem = f"the high watermark of {partition.topic_partition} is below {partition.epoch_start}, where its leader epoch begins"
        raise BrokerError(ErrorCode.OFFSET_NOT_AVAILABLE, problem)
    return found


def segment_offsets(partition: Partition, timestamp: int, isolation: int | None) -> list[int]:
    """Serve ListOffsets v0: base offsets of segments from `timestamp` backwards, newest first; the log end offset comes first."""
    log = partition.log
    end = log.log_end_offset if isolation is None else partition.high_watermark
    starts = [max(segment.base_offset, log.log_start_offset) for segment in log.segments]
    if timestamp == EARLIEST_TIMESTAMP:
        offsets = starts[:1]
    elif timestamp == LATEST_TIMESTAMP:
        offsets = [*starts, end] if end > starts[-1] else starts
    else:
        offsets = [start for start, segment in zip(starts, log.segments, strict=True) if segment.max_timestamp[0] <= timestamp]
    return sorted({offset for offset in offsets if offset <= end}, reverse=True)
