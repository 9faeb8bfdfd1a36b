"""What the broker says of its cleaning, partition by partition: what a pass has won, and how things stand. Plain values.

Sizes are bytes, offsets are records', times are milliseconds of wall clock.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import NamedTuple

from txbroker.log.cleaner.cleanable import WhyNot
from txbroker.names import TopicPartition

RECENT_MAX = 64  # more than there are workers


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """What one pass did, or some of them together. Everything below `end_offset` is clean now.

    `records_before` and `bytes_before` are of the segments that were rewritten. `obsolete`, `deleted`, `aborted`, `invalid`: records
    that went, by reason (see `job.SegmentYield`). `missed_keys` found no place in the map, `invalid_headers` held no version.
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
    """What happens to a partition."""

    IDLE = "idle"
    CLEANING = "cleaning"
    PUT_ASIDE = "put-aside"


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningStatus:
    """One partition.

    `dirty_ratio`: the cleanable part of what a pass would read. `progress`: bytes that the pass under way has read, and all that it
    will, (0, 0) before it knows; None when there is no pass. `last_ms`, `last`: when the last pass since the start of the broker ended,
    and what it won. `next_run_ms`: when it is looked at again; None when that would find nothing to do.
    `why_not_now`: None when a pass is under way or about to begin.
    `expected_s`: how long a pass would take, judged by the last ones; None before any. `put_aside`: why it is cleaned no more.
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
    put_aside: str | None


class PassFacts(NamedTuple):
    """What metrics tell of one of the last passes. `map_used`: the used part of the map's bytes; `overdue_ms`: when it began."""

    totals: Totals
    map_used: float
    overdue_ms: int


@dataclass(slots=True)
class CleaningCounts:
    """Since the start of the broker. `failures` by kind: corrupt, storage, resources, stale, stopped, crashed.

    `recent`: the last passes, the latest last. `of`: all passes of each partition that is still here, together.
    """

    totals: Totals = field(default_factory=Totals)
    failures: dict[str, int] = field(default_factory=dict)
    recent: deque[PassFacts] = field(default_factory=lambda: deque(maxlen=RECENT_MAX))
    of: dict[TopicPartition, Totals] = field(default_factory=dict)

    def add(self, topic_partition: TopicPartition, facts: PassFacts, failure: str) -> None:
        """One more pass has ended; `failure` is "" for one that reached its end."""
        self.totals += facts.totals
        self.of[topic_partition] = self.of.get(topic_partition, Totals()) + facts.totals
        self.recent.append(facts)
        if failure:
            self.failures[failure] = self.failures.get(failure, 0) + 1

    @property
    def bytes_per_second(self) -> float:
        """How fast passes read, on the average; 0.0 before any."""
        return self.totals.bytes_read / self.totals.seconds if self.totals.seconds > 0 else 0.0
