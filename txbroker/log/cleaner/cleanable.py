"""Which part of a log can be cleaned, whether a pass is due, and why not (Kafka's LogCleanerManager). Pure functions.

Dirty records are those that no pass has read yet, from the checkpoint of the last pass on. Those of them are cleanable that are in closed
segments, below the last stable offset, and older than min.compaction.lag.ms. A pass is due when the cleanable part is above
min.cleanable.dirty.ratio, or its oldest record is older than max.compaction.lag.ms (KIP-58, KIP-354).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

from txbroker.lazy_dataclass import lazy_dataclass
from txbroker.log.cleaner.cleaning_job import Strategy
from txbroker.log.log_config import FOREVER_MS, LogConfig


class ClosedOrActive(Protocol):
    """A segment. Its timestamps, in ms, are read from the disk when they are first used."""

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
    """What ends the cleanable part of a log."""

    ACTIVE = "active"  # the active segment, which is never cleaned
    UNSTABLE = "unstable"  # an open transaction, or records that are not replicated yet
    LAG = "lag"  # min.compaction.lag.ms


@lazy_dataclass(frozen=True, slots=True, kw_only=True)
class Cleanable:
    """The range [first_dirty_offset, first_uncleanable_offset) that a pass would clean now; the latter is the base of a segment.

    `limit`: what begins there. `clean_bytes`: the size of the clean segments, which the pass rewrites too. `overdue_ms`: by how much the
    oldest dirty record exceeds max.compaction.lag.ms. `correction`: why the checkpoint was not used; "" when it was.
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
        """The cleanable part of all that a pass would rewrite, 0 to 1."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    def is_due(self, min_ratio: float) -> bool:
        """Whether a pass is due. `min_ratio`: min.cleanable.dirty.ratio."""
        return self.cleanable_bytes > 0 and (self.overdue_ms > 0 or self.dirty_ratio > min_ratio)


def first_dirty(checkpoint: int | None, log_start_offset: int, log_end_offset: int, config: LogConfig) -> tuple[int, str]:
    """The first dirty offset, and why it is not the checkpoint ("" when it is, or when there is none)."""
    if checkpoint is None:
        return log_start_offset, ""
    if checkpoint < log_start_offset:
        # With compact,delete this is the normal effect of retention.
        problem = "" if config.delete else f"its cleaner checkpoint {checkpoint} is below the log start offset {log_start_offset}"
        return log_start_offset, problem
    if checkpoint > log_end_offset:
        problem = f"its cleaner checkpoint {checkpoint} is above the log end offset {log_end_offset}: the whole log is dirty"
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
    """What can be cleaned. `checkpoint`: the end of the last pass, None without one. `segments`: ascending, the last one is active.

    StorageError or CorruptRecords when a lag is configured and a segment's timestamps cannot be read.
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
    if _only_end_is_dirty(dirty, config, log_end_offset):
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


def _only_end_is_dirty(dirty: int, config: LogConfig, log_end_offset: int) -> bool:
    """Whether the only dirty record is the last one of the log, which passes of the strategies timestamp and header never remove."""
    return config.compaction_strategy is not Strategy.OFFSET and dirty >= log_end_offset - 1


def _segment_of(segments: Sequence[ClosedOrActive], offset: int) -> int:
    """The index of the segment that holds `offset`; 0 when the offset is below all of them."""
    return max(0, bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1)


def _overdue_ms(dirty: Iterable[ClosedOrActive], config: LogConfig, now_ms: int) -> int:
    if config.max_compaction_lag_ms >= FOREVER_MS:
        return 0
    oldest = min((segment.first_timestamp for segment in dirty if segment.first_timestamp > 0), default=now_ms)
    return max(0, now_ms - config.max_compaction_lag_ms - oldest)


class Why(Enum):
    """Why a partition is not being cleaned."""

    NOT_COMPACTED = "not-compacted"
    DISABLED = "disabled"
    UNCLEANABLE = "uncleanable"
    CLEANING = "cleaning"
    BACKOFF = "backoff"
    MOVING = "moving"
    NOTHING_DIRTY = "nothing-dirty"
    ACTIVE_SEGMENT = "active-segment"
    UNSTABLE = "unstable"
    LAG = "min-compaction-lag"
    RATIO = "dirty-ratio"
    NO_FREE_THREAD = "no-free-thread"


class WhyNot(NamedTuple):
    """The reason, and a sentence that says what must change."""

    why: Why
    sentence: str


def why_not(cleanable: Cleanable, config: LogConfig, log_end_offset: int) -> WhyNot | None:
    """Why no pass is due; None when one is."""
    if cleanable.is_due(config.min_cleanable_dirty_ratio):
        return None
    if cleanable.cleanable_bytes == 0:
        return _nothing_cleanable(cleanable, config, log_end_offset)
    ratio, min_ratio = cleanable.dirty_ratio, config.min_cleanable_dirty_ratio
    return WhyNot(Why.RATIO, f"{ratio:.2f} of it is dirty, not more than min.cleanable.dirty.ratio={min_ratio:g}")


def _nothing_cleanable(cleanable: Cleanable, config: LogConfig, log_end_offset: int) -> WhyNot:
    dirty, end = cleanable.first_dirty_offset, cleanable.first_uncleanable_offset
    if dirty >= log_end_offset or _only_end_is_dirty(dirty, config, log_end_offset):
        return WhyNot(Why.NOTHING_DIRTY, f"it is clean up to its end at offset {log_end_offset}")
    if cleanable.limit is Limit.LAG:
        return WhyNot(Why.LAG, f"records from offset {end} on are younger than min.compaction.lag.ms={config.min_compaction_lag_ms}")
    if cleanable.limit is Limit.UNSTABLE:
        return WhyNot(Why.UNSTABLE, f"a transaction is open, or records are not replicated yet, in the segment of offset {end}")
    return WhyNot(Why.ACTIVE_SEGMENT, f"all dirty records, from offset {dirty} on, are in the active segment, which must be closed first")
