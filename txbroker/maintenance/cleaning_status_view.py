"""The status of each partition's cleaning, and why a partition is not being cleaned, as admin clients and metrics read it."""

from __future__ import annotations

from collections.abc import Callable

from txbroker.errors import BrokerError, StorageError
from txbroker.log.cleaner.cleanable import Cleanable, Why, WhyNot
from txbroker.log.cleaner.cleaning_status import CleaningStatus, State
from txbroker.log.directories import LogDirectories
from txbroker.log.log import Log
from txbroker.maintenance.cleaning_candidates import Candidates
from txbroker.maintenance.cleaning_passes import Passes
from txbroker.maintenance.failed_partitions import FailedPartitions
from txbroker.names import TopicPartition

# The next round changes nothing about these: records must be written, or a configuration altered.
NO_NEXT_RUN = frozenset({Why.NOT_COMPACTED, Why.DISABLED, Why.UNCLEANABLE, Why.NOTHING_DIRTY})


class StatusView:
    """`why_excluded`: why a log is not assessed. `why_no_worker`: why no pass at all can begin."""

    def __init__(
        self,
        directories: LogDirectories,
        candidates: Candidates,
        failed: FailedPartitions,
        passes: Passes,
        why_excluded: Callable[[Log], WhyNot | None],
        why_no_worker: Callable[[], WhyNot | None],
    ) -> None:
        self._directories = directories
        self._candidates = candidates
        self._failed = failed
        self._passes = passes
        self._why_excluded = why_excluded
        self._why_no_worker = why_no_worker

    def status(self, topic_partition: TopicPartition, *, next_round_ms: int) -> CleaningStatus | None:
        """`next_round_ms`: the date of the next round. None when the partition has no log here, or its log cannot be read."""
        shown = self._directories.get(topic_partition)
        if shown is None:
            return None
        try:
            cleanable = self._candidates.assess(shown)
        except StorageError as error:
            self._directories.fail(shown, error)
            return None
        except BrokerError:
            return None
        running = self._passes.running.get(topic_partition)
        uncleanable = self._failed.why_uncleanable(shown)
        last_ms, last = self._passes.last.get(topic_partition, (None, None))
        why_not_now = None if running else self._why_not_now(shown, cleanable)
        rate = self._passes.counts.bytes_per_second
        to_read = cleanable.clean_bytes + 2 * cleanable.cleanable_bytes  # the dirty part is read for the map, and again to be rewritten
        return CleaningStatus(
            state=State.CLEANING if running else State.UNCLEANABLE if uncleanable is not None else State.IDLE,
            dirty_ratio=cleanable.dirty_ratio,
            first_dirty_offset=cleanable.first_dirty_offset,
            first_uncleanable_offset=cleanable.first_uncleanable_offset,
            clean_bytes=cleanable.clean_bytes,
            cleanable_bytes=cleanable.cleanable_bytes,
            overdue_ms=cleanable.overdue_ms,
            progress=running.progress if running else None,
            last_ms=last_ms,
            last=last,
            next_run_ms=None if running or (why_not_now is not None and why_not_now.why in NO_NEXT_RUN) else next_round_ms,
            why_not_now=why_not_now,
            expected_s=to_read / rate if rate else None,
            uncleanable_reason=uncleanable,
        )

    def _why_not_now(self, shown: Log, cleanable: Cleanable) -> WhyNot | None:
        if not shown.config.compact:
            return WhyNot(Why.NOT_COMPACTED, "its cleanup.policy has no compact")
        no_worker = self._why_no_worker()
        if no_worker is not None and no_worker.why is Why.DISABLED:
            return no_worker
        return self._why_excluded(shown) or self._candidates.why_not(shown, cleanable) or no_worker
