"""Which compacted logs there are to clean, which is the dirtiest, and which are put aside (Kafka's LogCleanerManager).

A partition whose records cannot be read, or over which two workers in a row have died, is put aside with its reason until its log is
truncated, loses segments at its start or moves, until somebody asks for it, or until the broker starts anew. Kafka knows the last of
these only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

from txbroker.errors import BrokerError, ErrorCode, StorageError
from txbroker.log.cleaner.cleanable import Cleanable, Why, WhyNot, assess, why_not
from txbroker.log.cleaner.generational_schedule import Plan
from txbroker.log.directories import LogDirectories
from txbroker.log.log import Log
from txbroker.maintenance.cleaning_schedule import Schedule
from txbroker.names import TopicPartition

log = logging.getLogger("txbroker.cleaner")

CRASHES_MAX = 2


class _Aside(NamedTuple):
    """Why a partition is cleaned no more, and what its log was then."""

    reason: str
    log: Log
    generation: int
    first_offset: int

    def holds_for(self, candidate: Log) -> bool:
        first = candidate.segments[0].base_offset
        return candidate is self.log and (candidate.generation, first) == (self.generation, self.first_offset)


class Chosen(NamedTuple):
    """A log to be cleaned. `plan`: which of its segments a schedule wants rewritten; None: all, from its first dirty offset on."""

    log: Log
    cleanable: Cleanable
    plan: Plan | None


class Candidates:
    """The logs of this broker, judged. For the reactor's thread only."""

    def __init__(
        self,
        directories: LogDirectories,
        schedule: Schedule,
        high_watermark: Callable[[TopicPartition], int],
        now_ms: Callable[[], int],
    ) -> None:
        self._directories = directories
        self._schedule = schedule
        self._high_watermark = high_watermark
        self._now_ms = now_ms
        self._aside: dict[TopicPartition, _Aside] = {}
        self._crashes: dict[TopicPartition, int] = {}
        self.dirtiest_ratio = 0.0  # of all that `next` has judged

    def cleanable(self, candidate: Log, *, whole: bool = False) -> Cleanable:
        """What there is to clean of a log; BrokerError. `whole`: what was left alone by a schedule that may do so counts too."""
        checkpoint = self._directories.cleaner_checkpoint(candidate.topic_partition)
        return assess(
            candidate.segments,
            candidate.config,
            checkpoint=checkpoint if whole else self._schedule.clean_end(candidate, checkpoint),
            log_start_offset=candidate.log_start_offset,
            log_end_offset=candidate.log_end_offset,
            last_stable_offset=candidate.last_stable_offset(self._high_watermark(candidate.topic_partition)),
            now_ms=self._now_ms(),
        )

    def judge(self, candidate: Log, *, whole: bool = False) -> Cleanable:
        """The same, with what follows: a checkpoint that cannot be is corrected, a bad log put aside, a bad disk taken offline."""
        topic_partition = candidate.topic_partition
        try:
            found = self.cleanable(candidate, whole=whole)
        except StorageError as error:
            self._directories.fail(candidate, error)
            raise
        except BrokerError as error:
            self.put_aside(candidate, str(error))
            raise
        except Exception as error:
            log.exception("%s: what there is to clean could not be found out", topic_partition)
            reason = f"what there is to clean of it could not be found out: {error!r}"
            self.put_aside(candidate, reason)
            raise BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, reason) from error
        if found.correction:
            log.warning("%s: %s", topic_partition, found.correction)
            self._directories.checkpoint_cleaned(topic_partition, found.first_dirty_offset)
        return found

    def next(
        self, usable: Callable[[Log], bool], asked: Callable[[TopicPartition], bool]
    ) -> Chosen | None:
        """The next log to clean: one that somebody `asked` for, else the dirtiest that is due."""
        dirtiest: Chosen | None = None
        self.dirtiest_ratio = 0.0
        for topic_partition, candidate in self._directories.logs().items():
            # Thousands of logs may be looked at, and most have nothing closed.
            if not candidate.config.compact or len(candidate.segments) == 1 or not usable(candidate):
                continue
            try:
                if asked(topic_partition):
                    found = self.judge(candidate, whole=True)
                    if found.cleanable_bytes:
                        return Chosen(candidate, found, None)
                found = self.judge(candidate)
                plan = self._plan(candidate, found)
                due = found.wanted(candidate.config.min_cleanable_dirty_ratio) if not self._schedule.covers(candidate) else plan is not None
            except BrokerError:
                continue
            self.dirtiest_ratio = max(self.dirtiest_ratio, found.dirty_ratio)
            if due and (dirtiest is None or found.dirty_ratio > dirtiest.cleanable.dirty_ratio):
                dirtiest = Chosen(candidate, found, plan)
        return dirtiest

    def _plan(self, candidate: Log, found: Cleanable) -> Plan | None:
        """What the schedule makes of a log that it covers, if anything."""
        if not self._schedule.covers(candidate):
            return None
        try:
            return self._schedule.plan(candidate, found)
        except StorageError as error:
            self._directories.fail(candidate, error)
            raise

    def why_not(self, candidate: Log, found: Cleanable) -> WhyNot | None:
        """Why no pass over a log is due; None when one is."""
        if found.cleanable_bytes and self._schedule.covers(candidate):
            if self._plan(candidate, found) is not None:
                return None
            sentence = "what a pass would win is not worth its I/O yet (log.cleaner.schedule=generational)"
            return WhyNot(Why.RATIO, f"{found.dirty_ratio:.2f} of it is dirty: {sentence}")
        return why_not(found, candidate.config, candidate.log_end_offset)

    # --- put aside ---

    def put_aside(self, bad: Log, reason: str) -> None:
        """Clean it no more."""
        log.error("%s is put aside and not cleaned until its log changes or somebody asks for it: %s", bad.topic_partition, reason)
        self._aside[bad.topic_partition] = _Aside(reason, bad, bad.generation, bad.segments[0].base_offset)

    def why_aside(self, candidate: Log) -> str | None:
        """Why a log is put aside, if it is."""
        aside = self._aside.get(candidate.topic_partition)
        if aside is None:
            return None
        if not aside.holds_for(candidate):
            del self._aside[candidate.topic_partition]
            return None
        return aside.reason

    def crashed(self, over: Log, reason: str) -> None:
        """A worker died over a log: the second time in a row that is no chance."""
        crashes = self._crashes[over.topic_partition] = self._crashes.get(over.topic_partition, 0) + 1
        if crashes >= CRASHES_MAX:
            self.put_aside(over, f"{crashes} workers in a row died over it, the last one so: {reason}")

    def forgive(self, topic_partition: TopicPartition) -> None:
        """A pass succeeded, or somebody wants another try."""
        self._crashes.pop(topic_partition, None)
        self._aside.pop(topic_partition, None)

    def forget_gone(self) -> None:
        """Keep nothing of partitions that have no log here any more."""
        for topic_partition in self._aside.keys() | self._crashes.keys():
            if self._directories.get(topic_partition) is None:
                self.forgive(topic_partition)

    def aside(self) -> list[TopicPartition]:
        """Those that are put aside, and some whose logs have changed since."""
        return list(self._aside)
