"""What there is to clean in the compacted logs of this broker, and which log is cleaned next (Kafka's LogCleanerManager)."""

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
from txbroker.maintenance.failed_partitions import FailedPartitions
from txbroker.names import TopicPartition

log = logging.getLogger("txbroker.cleaner")


class Chosen(NamedTuple):
    """A log to be cleaned. `plan`: the generational schedule's; None: all segments are rewritten, from the first dirty offset on."""

    log: Log
    cleanable: Cleanable
    plan: Plan | None


class Candidates:
    """The logs of this broker. `dirtiest_ratio`: the largest dirty ratio that the last `next` found. For the reactor's thread only."""

    def __init__(
        self,
        directories: LogDirectories,
        schedule: Schedule,
        failed: FailedPartitions,
        high_watermark: Callable[[TopicPartition], int],
        now_ms: Callable[[], int],
    ) -> None:
        self.dirtiest_ratio = 0.0
        self._directories = directories
        self._schedule = schedule
        self._failed = failed
        self._high_watermark = high_watermark
        self._now_ms = now_ms

    def assess(self, candidate: Log, *, whole: bool = False) -> Cleanable:
        """What there is to clean in a log. `whole`: also segments that the generational schedule left as they are. BrokerError."""
        checkpoint = self._directories.cleaning.offset(candidate.topic_partition)
        return assess(
            candidate.segments,
            candidate.config,
            checkpoint=checkpoint if whole else self._schedule.clean_end(candidate, checkpoint),
            log_start_offset=candidate.log_start_offset,
            log_end_offset=candidate.log_end_offset,
            last_stable_offset=self._stable_end(candidate),
            now_ms=self._now_ms(),
        )

    def _stable_end(self, candidate: Log) -> int:
        """Records from this offset on may be truncated or aborted: the cleaner leaves them, and does not count them as the latest."""
        return candidate.last_stable_offset(self._high_watermark(candidate.topic_partition))

    def assess_and_act(self, candidate: Log, *, whole: bool = False) -> Cleanable:
        """As `assess`, for a log that is about to be cleaned. BrokerError.

        An impossible checkpoint is corrected, a log that cannot be read is marked uncleanable, and a directory that fails goes offline.
        """
        topic_partition = candidate.topic_partition
        try:
            found = self.assess(candidate, whole=whole)
        except StorageError as error:
            self._directories.fail(candidate, error)
            raise
        except BrokerError as error:
            self._failed.mark_uncleanable(candidate, str(error))
            raise
        except Exception as error:
            log.exception("%s: internal error while the cleaner assessed the log", topic_partition)
            reason = f"internal error while the cleaner assessed the log: {error!r}"
            self._failed.mark_uncleanable(candidate, reason)
            raise BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, reason) from error
        if found.correction:
            log.warning("%s: %s", topic_partition, found.correction)
            self._directories.cleaning.set_offset(topic_partition, found.first_dirty_offset)
        return found

    def next(self, may_clean: Callable[[Log], bool], is_requested: Callable[[TopicPartition], bool]) -> Chosen | None:
        """The next log to clean: a requested one with something to clean, else the dirtiest of those that are due."""
        dirtiest: Chosen | None = None
        self.dirtiest_ratio = 0.0
        for topic_partition, candidate in self._directories.logs().items():
            # There may be thousands of logs, most of them without a closed segment: this is the cheapest test.
            if not candidate.config.compact or len(candidate.segments) == 1 or not may_clean(candidate):
                continue
            try:
                if is_requested(topic_partition):
                    found = self.assess_and_act(candidate, whole=True)
                    if found.cleanable_bytes:
                        return Chosen(candidate, found, None)
                found = self.assess_and_act(candidate)
                plan = self._plan(candidate, found)
            except BrokerError:
                continue
            covered = self._schedule.covers(candidate)
            due = plan is not None if covered else found.is_due(candidate.config.min_cleanable_dirty_ratio)
            self.dirtiest_ratio = max(self.dirtiest_ratio, found.dirty_ratio)
            if due and (dirtiest is None or found.dirty_ratio > dirtiest.cleanable.dirty_ratio):
                dirtiest = Chosen(candidate, found, plan)
        return dirtiest

    def _plan(self, candidate: Log, found: Cleanable) -> Plan | None:
        """The next pass over a log that the generational schedule covers; None when none is due, and for other logs."""
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
            sentence = "rewriting it would not yet free enough for its I/O (log.cleaner.schedule=generational)"
            return WhyNot(Why.RATIO, f"{found.dirty_ratio:.2f} of it is dirty: {sentence}")
        return why_not(found, candidate.config, candidate.log_end_offset)
