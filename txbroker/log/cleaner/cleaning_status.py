"""The status of the log cleaner: of each partition, and the totals of passes. Plain values.

Sizes are bytes; times are milliseconds of wall clock.
"""

from __future__ import annotations

from collections import deque
from dataclasses import field, fields
from enum import Enum
from typing import NamedTuple

from txbroker.lazy_dataclass import lazy_dataclass
from txbroker.log.cleaner.cleanable import WhyNot
from txbroker.names import TopicPartition

RECENT_MAX = 64  # more than log.cleaner.threads is in practice


@lazy_dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """What one or several passes did. Everything below `end_offset` is clean.

    `records_before` and `bytes_before` are those of the rewritten segments. `obsolete`, `deleted`, `aborted`, `invalid`: removed records by
    reason (see `cleaning_job.SegmentYield`). `missed_keys`: keys that found no place in the map. `invalid_headers`: records whose version
    header is not of 8 bytes.
    """

    end_offset: int = 0
    passes: int = 0
    segments_before: int = 0
    segments_after: int = 0
    records_before: int = 0
    records_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    obsolete: int = 0
    deleted: int = 0
    aborted: int = 0
    invalid: int = 0
    missed_keys: int = 0
    invalid_headers: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    seconds: float = 0.0

    def __add__(self, other: Totals) -> Totals:
        summed = {one.name: getattr(self, one.name) + getattr(other, one.name) for one in fields(self)}
        return Totals(**{**summed, "end_offset": max(self.end_offset, other.end_offset)})


class State(Enum):
    """What the cleaner does with a partition."""

    IDLE = "idle"
    CLEANING = "cleaning"
    UNCLEANABLE = "uncleanable"


@lazy_dataclass(frozen=True, slots=True, kw_only=True)
class CleaningStatus:
    """One partition.

    `dirty_ratio`: the cleanable part of all that a pass would rewrite. `progress`: the bytes that the running pass has read and those that
    it will read in all, (0, 0) while these are not known; None when no pass is running. `last_ms`, `last`: end and totals of the last
    successful pass since the start of the broker. `next_run_ms`: when the cleaner assesses the partition again; None when that cannot
    change anything. `why_not_now`: None when a pass is running or due. `expected_s`: how long a pass would take at the speed of the last
    ones; None before the first. `uncleanable_reason`: None unless the state is UNCLEANABLE.
    """

    state: State
    dirty_ratio: float
    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    cleanable_bytes: int
    overdue_ms: int
    progress: tuple[int, int] | None
    last_ms: int | None
    last: Totals | None
    next_run_ms: int | None
    why_not_now: WhyNot | None
    expected_s: float | None
    uncleanable_reason: str | None


class PassFacts(NamedTuple):
    """One of the last passes as metrics show it. `map_used`: the used part of the map, 0 to 1; `overdue_ms`: as it was at the begin."""

    totals: Totals
    map_used: float
    overdue_ms: int


@lazy_dataclass(slots=True)
class CleaningCounts:
    """Since the start of the broker. `failures` by kind: corrupt, storage, resources, stale, stopped, crashed, hung.

    `recent`: the last passes, the latest one last. `of`: the totals of each partition that has a log here.
    """

    totals: Totals = field(default_factory=Totals)
    failures: dict[str, int] = field(default_factory=dict)
    recent: deque[PassFacts] = field(default_factory=lambda: deque(maxlen=RECENT_MAX))
    of: dict[TopicPartition, Totals] = field(default_factory=dict)

    def add(self, topic_partition: TopicPartition, facts: PassFacts, failure: str) -> None:
        """Count a pass that has ended; `failure` is "" when it succeeded."""
        self.totals += facts.totals
        self.of[topic_partition] = self.of.get(topic_partition, Totals()) + facts.totals
        self.recent.append(facts)
        if failure:
            self.failures[failure] = self.failures.get(failure, 0) + 1

    @property
    def bytes_per_second(self) -> float:
        """The mean speed at which passes read; 0.0 before the first one."""
        return self.totals.bytes_read / self.totals.seconds if self.totals.seconds > 0 else 0.0
