"""Applies the generational schedule (`log.cleaner.schedule`): keeps each log's cleaning history, and plans its next pass.

It covers logs with `compaction.strategy=offset`; passes of the other strategies read the whole log in any case. The cleaner checkpoint is
the offset up to which every segment is clean. So Kafka, this broker with the other schedule, and this broker after the history file was
lost also clean the segments that this schedule has left as they are.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from txbroker.config.resolve import BrokerConfig
from txbroker.log.cleaner.cleanable import Cleanable
from txbroker.log.cleaner.cleaning_history import History, after_pass, begun, raised
from txbroker.log.cleaner.cleaning_job import CleaningJob, GroupCleaned, Mapped, Strategy
from txbroker.log.cleaner.generational_schedule import Plan, plan
from txbroker.log.directories import LogDirectories
from txbroker.log.log import Log
from txbroker.names import amount

log = logging.getLogger("txbroker.cleaner")


class Schedule:
    """For the reactor's thread only."""

    def __init__(self, config: BrokerConfig, directories: LogDirectories) -> None:
        self._config = config
        self._directories = directories

    def start(self) -> None:
        """Drop histories that go beyond the end of their log: a crash may have cost the log its last records."""
        for topic_partition, candidate in self._directories.logs().items():
            known = self._directories.cleaning.history(topic_partition)
            if known is not None and known.clean_end > candidate.log_end_offset:
                self._directories.cleaning.set_history(topic_partition, None)

    def covers(self, candidate: Log) -> bool:
        """Whether a pass may leave clean segments of a log as they are."""
        generational = self._config.text("log.cleaner.schedule") == "generational"
        return generational and candidate.config.compaction_strategy is Strategy.OFFSET

    def clean_end(self, candidate: Log, checkpoint: int | None) -> int | None:
        """The offset up to which a log has been cleaned at least once; None: it never was."""
        if checkpoint is None or not self.covers(candidate):
            return checkpoint
        return self._history(candidate, checkpoint).clean_end

    def plan(self, candidate: Log, cleanable: Cleanable) -> Plan | None:
        """The next pass over a covered log; None when none is due. StorageError."""
        checkpoint = self._directories.cleaning.offset(candidate.topic_partition)
        if not cleanable.cleanable_bytes:
            return None
        if checkpoint is None or cleanable.overdue_ms > 0:
            # max.compaction.lag.ms guarantees that no older record is left uncompacted: everything is rewritten.
            first = cleanable.first_dirty_offset
            return Plan(first if checkpoint is None else max(min(first, checkpoint), candidate.log_start_offset), None)
        spans = candidate.closed_below(cleanable.first_uncleanable_offset)
        config = candidate.config
        found = plan(
            self._history(candidate, checkpoint),
            spans,
            cleanable.first_uncleanable_offset,
            config.min_cleanable_dirty_ratio,
            config.segment_bytes,
        )
        return found and replace(found, first_dirty_offset=max(found.first_dirty_offset, candidate.log_start_offset))

    def applied(self, job: CleaningJob, candidate: Log, chosen: Plan) -> CleaningJob:
        """The job, limited to what the plan rewrites."""
        known = self._known(candidate)
        each = zip(job.segments, known.of_all(job.segments), strict=True)
        spans = tuple(span._replace(clean_end=one.clean_end) for span, one in each)
        return replace(job, segments=spans, first_dirty_offset=chosen.first_dirty_offset, rewrite=chosen.rewrite)

    def pass_succeeded(self, cleaned: Log, job: CleaningJob, mapped: Mapped | None, groups: Sequence[GroupCleaned], end_offset: int) -> int:
        """Update the history after a successful pass; the new cleaner checkpoint."""
        topic_partition = cleaned.topic_partition
        covered = self.covers(cleaned)
        if mapped is None or not (covered or job.rewrite is not None):
            self._directories.cleaning.set_history(topic_partition, None)
            return end_offset
        known = self._known(cleaned)
        after = after_pass(
            known, job.segments, groups, end_offset=end_offset, keys=mapped.keys, missed_keys=mapped.missed_keys
        )
        # The checkpoint must cover the segments that were not rewritten, even if the topic's configuration has changed meanwhile.
        self._directories.cleaning.set_history(topic_partition, after if covered else None)
        log.debug(
            "%s: %d of %s rewritten; the others have at most %s",
            topic_partition,
            sum(len(group.old_base_offsets) for group in groups),
            amount(len(job.segments), "closed segment"),
            amount(after.hidden, "obsolete record"),
        )
        return after.lowest_end

    def _known(self, candidate: Log) -> History:
        checkpoint = self._directories.cleaning.offset(candidate.topic_partition)
        return self._history(candidate, candidate.log_start_offset if checkpoint is None else checkpoint)

    def _history(self, candidate: Log, checkpoint: int) -> History:
        """The history of a log if it is still valid; else one that begins with the checkpoint."""
        known = self._directories.cleaning.history(candidate.topic_partition)
        lost = known is None or known.clean_end > candidate.log_end_offset or checkpoint < known.lowest_end or candidate.generation
        if known is None or lost:
            return begun(checkpoint, candidate.closed_below(checkpoint))
        return raised(known, checkpoint)
