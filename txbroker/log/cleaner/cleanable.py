"""What of a log is to be cleaned, which log is next, and why one is not cleaned now (Kafka's LogCleanerManager). Pure functions.

Dirty is what no pass has read yet: from the checkpoint of the last pass on. Cleanable of that is what lies in closed segments, below
the last stable offset, and is older than min.compaction.lag.ms. The log with the largest cleanable part is cleaned next, once that part is
above min.cleanable.dirty.ratio, or once its oldest record is older than max.compaction.lag.ms (KIP-58, KIP-354).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol

from txbroker.log.cleaner.cleaning_job import Strategy
from txbroker.log.log_config import FOREVER_MS, LogConfig


class ClosedOrActive(Protocol):
    """What is asked of a segment; its timestamps, in ms, are read from the disk at their first use."""

    @property
    def base_offset(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def largest_timestamp_ms(self) -> int: ...

    @property
    def first_timestamp(self) -> int:
        """-1 when there is none."""


class Limit(Enum):
    """What keeps the end of a log from being cleaned."""

    ACTIVE = "active"  # the active segment, which is never cleaned
    UNSTABLE = "unstable"  # an open transaction, or records that are not replicated yet
    LAG = "lag"  # min.compaction.lag.ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleanable:
    """What a pass would find now: [first_dirty_offset, first_uncleanable_offset), of which the latter is the base of a segment.

    `limit`: what begins there. `clean_bytes`: of the segments below the dirty ones, which are rewritten with them. `overdue_ms`: by how
    much a record has outlived max.compaction.lag.ms. `correction`: why the checkpoint was not taken; "" when it was.
    """

    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    cleanable_bytes: int
    limit: Limit
    overdue_ms: int
    correction: str

    @property
    def dirty_ratio(self) -> float:
        """The cleanable part of what a pass would read, 0 to 1."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    def wanted(self, min_ratio: float) -> bool:
        """Whether a pass is due."""
        return self.cleanable_bytes > 0 and (self.overdue_ms > 0 or self.dirty_ratio > min_ratio)


def first_dirty(checkpoint: int | None, log_start_offset: int, log_end_offset: int, config: LogConfig) -> tuple[int, str]:
    """Where the dirty part begins, and why that is not at the checkpoint ("" when it is, or when there is none)."""
    if checkpoint is None:
        return log_start_offset, ""
    if checkpoint < log_start_offset:
        # With compact,delete that is what retention does.
        problem = "" if config.delete else f"its cleaner checkpoint {checkpoint} is below the log's start offset {log_start_offset}"
        return log_start_offset, problem
    if checkpoint > log_end_offset:
        problem = f"its cleaner checkpoint {checkpoint} is above the log's end offset {log_end_offset}: all of it counts as dirty"
        return log_start_offset, problem
    return checkpoint, ""


def assess(
    segments: Sequence[ClosedOrActive],
    config: LogConfig,
    *,
    checkpoint: int | None,
    log_start_offset: int,
    log_end_offset: int,
    last_stable_offset: int,
    now_ms: int,
) -> Cleanable:
    """What there is to clean. `checkpoint`: where the last pass ended; None: there was none. `segments`: ascending, the last is active.

    StorageError or CorruptRecords when a lag must be judged and a segment's timestamps cannot be read.
    """
    dirty, correction = first_dirty(checkpoint, log_start_offset, log_end_offset, config)
    closed, active = segments[:-1], segments[-1]
    first = _segment_of(closed, dirty) if dirty < active.base_offset else len(closed)
    stop, limit = len(closed), Limit.ACTIVE
    if last_stable_offset < active.base_offset:
        stop, limit = _segment_of(closed, last_stable_offset), Limit.UNSTABLE
    if config.min_compaction_lag_ms > 0:
        latest = now_ms - config.min_compaction_lag_ms
        young = next((at for at in range(first, stop) if closed[at].largest_timestamp_ms > latest), None)
        if young is not None:
            stop, limit = young, Limit.LAG
    if _only_end_is_left(dirty, config, log_end_offset):
        first = stop
    return Cleanable(
        first_dirty_offset=dirty,
        first_uncleanable_offset=max(dirty, segments[stop].base_offset) if first < stop else dirty,
        clean_bytes=sum(segment.size for segment in closed if segment.base_offset < dirty),
        cleanable_bytes=sum(segment.size for segment in closed[first:stop]),
        limit=limit,
        overdue_ms=_overdue_ms(closed[first:], config, now_ms),
        correction=correction,
    )


def _only_end_is_left(dirty: int, config: LogConfig, log_end_offset: int) -> bool:
    """Whether no record is dirty but the one at the log's end: it always stays, and passes of KIP-280's other strategies end before it."""
    return config.compaction_strategy is not Strategy.OFFSET and dirty >= log_end_offset - 1


def _segment_of(segments: Sequence[ClosedOrActive], offset: int) -> int:
    """The index of the segment that `offset` belongs to; of the first one when it is below them."""
    return max(0, bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1)


def _overdue_ms(dirty: Iterable[ClosedOrActive], config: LogConfig, now_ms: int) -> int:
    if config.max_compaction_lag_ms >= FOREVER_MS:
        return 0
    oldest = min((segment.first_timestamp for segment in dirty if segment.first_timestamp > 0), default=now_ms)
    return max(0, now_ms - config.max_compaction_lag_ms - oldest)


class Why(Enum):
    """Why a partition is not cleaned now."""

    NOT_COMPACTED = "not-compacted"
    DISABLED = "disabled"
    PUT_ASIDE = "put-aside"
    CLEANING = "cleaning"
    RESTING = "resting"
    MOVING = "moving"
    NOTHING_DIRTY = "nothing-dirty"
    ACTIVE_SEGMENT = "active-segment"
    UNSTABLE = "unstable"
    LAG = "min-compaction-lag"
    RATIO = "dirty-ratio"
    OTHERS_FIRST = "others-first"


class WhyNot(NamedTuple):
    """The reason, and a sentence that says what must happen."""

    why: Why
    sentence: str


def why_not(cleanable: Cleanable, config: LogConfig, log_end_offset: int) -> WhyNot | None:
    """Why no pass is due; None when one is."""
    if cleanable.wanted(config.min_cleanable_dirty_ratio):
        return None
    if cleanable.cleanable_bytes == 0:
        return _nothing_cleanable(cleanable, config, log_end_offset)
    ratio, wanted = cleanable.dirty_ratio, config.min_cleanable_dirty_ratio
    return WhyNot(Why.RATIO, f"{ratio:.2f} of it is dirty, and min.cleanable.dirty.ratio is {wanted:g}: more must be written first")


def _nothing_cleanable(cleanable: Cleanable, config: LogConfig, log_end_offset: int) -> WhyNot:
    dirty, end = cleanable.first_dirty_offset, cleanable.first_uncleanable_offset
    if dirty >= log_end_offset or _only_end_is_left(dirty, config, log_end_offset):
        return WhyNot(Why.NOTHING_DIRTY, f"everything up to its end at offset {log_end_offset} has been cleaned")
    if cleanable.limit is Limit.LAG:
        lag = f"min.compaction.lag.ms ({config.min_compaction_lag_ms})"
        return WhyNot(Why.LAG, f"what follows offset {end} is younger than {lag}: that must pass first")
    if cleanable.limit is Limit.UNSTABLE:
        return WhyNot(Why.UNSTABLE, f"a transaction is open, or records are not replicated yet, in the segment of offset {end}")
    return WhyNot(Why.ACTIVE_SEGMENT, f"all that is dirty, from offset {dirty} on, is in the active segment, which must be rolled first")
