"""Which segments may be deleted (Kafka's UnifiedLog.deleteOldSegments)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from txbroker.log.log_config import LogConfig
from txbroker.log.segment import Segment


class Expired(NamedTuple):
    """A segment that may be deleted, and the reason as text for the log."""

    segment: Segment
    reason: str


def expired_segments(
    segments: Sequence[Segment], config: LogConfig, *, log_start_offset: int, log_end_offset: int, high_watermark: int, now_ms: int
) -> list[Expired]:
    """The oldest segments that may be deleted, in their order.

    A segment is deleted, whatever the cleanup policy, when it is wholly below the log's start; with cleanup.policy=delete also when
    the log without it still has retention.bytes, or when its largest timestamp is older than retention.ms. Never one that reaches
    above the high watermark, never one after a segment that stays, and never an empty active segment.
    """
    expired: list[Expired] = []
    excess = sum(segment.size for segment in segments) - config.retention_bytes if config.retention_bytes >= 0 else -1
    for at, segment in enumerate(segments):
        active = at + 1 == len(segments)
        end_offset = log_end_offset if active else segments[at + 1].base_offset
        if end_offset > high_watermark or (active and segment.size == 0):
            break
        reason = None
        if not active and end_offset <= log_start_offset:
            reason = f"it ends below the log's start offset {log_start_offset}"
        elif config.delete and excess - segment.size >= 0:
            reason = f"the log has retention.bytes {config.retention_bytes} without it"
        elif config.delete and config.retention_ms >= 0 and now_ms - segment.largest_timestamp_ms > config.retention_ms:
            reason = f"its largest timestamp {segment.largest_timestamp_ms} is older than retention.ms {config.retention_ms}"
        if reason is None:
            break
        expired.append(Expired(segment, reason))
        excess -= segment.size
    return expired
