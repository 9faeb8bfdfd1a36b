"""One pass of the cleaner over one partition: what a worker reports is carried out here, until the pass has ended in one way or another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from txbroker.config.resolve import BrokerConfig
from txbroker.errors import OutOfResources, StorageError
from txbroker.log.cleaner.cleanable import Cleanable
from txbroker.log.cleaner.cleaning_job import (
    CleaningJob,
    CleaningSettings,
    Done,
    Event,
    Failed,
    FailureKind,
    GroupCleaned,
    Mapped,
    Progress,
    Strategy,
)
from txbroker.log.cleaner.cleaning_status import PassFacts, Totals
from txbroker.log.directories import LogDirectories
from txbroker.log.log import Log
from txbroker.log.log_config import LogConfig
from txbroker.names import TopicPartition

MAP_BYTES_MAX = 2**31 - 1
# A key's hash and its value in the map: an offset, and for the other strategies a version.
MAP_ENTRY_BYTES = 16 + 8
MAP_ENTRY_BYTES_WITH_VERSION = 16 + 16
CRASHED = "crashed"  # beside the kinds of `Failed`


@dataclass(frozen=True, slots=True)
class Crashed:
    """The worker ended in the middle of a job. `reason`: its exit status or signal, and its last words."""

    reason: str


class Run(Protocol):
    """A job in a worker."""

    def stop(self) -> None:
        """Have it end soon, with Failed(STOPPED), or as it would have ended anyway."""


class Workers(Protocol):
    """Who carries out jobs, each in a worker of its own, beside the reactor."""

    def run(self, job: CleaningJob, on_event: Callable[[Event | Crashed], None]) -> Run:
        """Begin. `on_event` is called in the reactor's thread, never before this returns; Done, Failed or Crashed is the last event."""

    def close(self) -> None:
        """End all workers at once, wherever they are; nothing is reported any more."""


class Pass:
    """A pass over `log`. `failure` and `reason` say why it failed, once `ended` was called with it: "" when it did not."""

    def __init__(
        self,
        directories: LogDirectories,
        log: Log,
        job: CleaningJob,
        now_ms: Callable[[], int],
        ended: Callable[[Pass], None],
        overdue_ms: int = 0,
    ) -> None:
        """`overdue_ms`: by how much a record has outlived max.compaction.lag.ms."""
        self.log = log
        self.job = job
        self.topic_partition: TopicPartition = log.topic_partition
        self.progress = (0, 0)
        self._overdue_ms = overdue_ms
        self.totals = Totals(passes=1)
        self.mapped: Mapped | None = None
        self.groups: list[GroupCleaned] = []
        self.failure = ""
        self.reason = ""
        self._directories = directories
        self._generation = log.generation
        self._now_ms = now_ms
        self._ended = ended
        self._run: Run | None = None
        self._over = False
        log.being_cleaned = True

    def begin(self, workers: Workers) -> None:
        """Hand the job over, once all that it goes by is synced: a record must not go for the sake of one that a power cut may take."""
        if self.log.recovery_point >= self.job.first_uncleanable_offset:
            self._start(workers)
        else:
            self._directories.flush(self.log, lambda: self._start(workers))

    def _start(self, workers: Workers) -> None:
        stale = self.why_stale()
        if stale or self.failure:
            self._end(FailureKind.STALE.value, stale)
        else:
            self._run = workers.run(self.job, self._on_event)

    def end_if_lost(self) -> None:
        """End it if it has not begun and its log is gone: who syncs a log that goes offline tells nobody."""
        stale = self.why_stale()
        if self._run is None and stale:
            self._end(FailureKind.STALE.value, stale)

    def stop(self, failure: str, reason: str) -> None:
        """Give it up: nothing more is swapped. It ends when the worker says so."""
        if not self.failure:
            self.failure, self.reason = failure, reason
            if self._run is not None:
                self._run.stop()

    def facts(self) -> PassFacts:
        """What metrics tell of it."""
        settings = self.job.settings
        mapped_keys = 0 if self.mapped is None else self.mapped.keys
        entry = MAP_ENTRY_BYTES if settings.strategy is Strategy.OFFSET else MAP_ENTRY_BYTES_WITH_VERSION
        return PassFacts(self.totals, mapped_keys * entry / max(settings.map_bytes, 1), self._overdue_ms)

    def why_stale(self) -> str:
        """What has become of the log meanwhile, so that the rest of the job's results must not be used; "" if nothing."""
        if self._directories.get(self.topic_partition) is not self.log:
            return "its log is no longer in use"
        if self.log.generation != self._generation:
            return "it was truncated"
        if self._directories.is_moving(self.topic_partition):
            return "it is being moved"
        config, settings = self.log.config, self.job.settings
        if (config.compaction_strategy, config.compaction_strategy_header) != (settings.strategy, settings.header):
            return "its compaction.strategy was altered"
        return "" if config.compact else "its cleanup.policy has no compact any more"

    def _on_event(self, event: Event | Crashed) -> None:
        stale = self.why_stale()
        if stale:
            self.stop(FailureKind.STALE.value, stale)
        match event:
            case Mapped():
                self.mapped = event
                self.totals += Totals(missed_keys=event.missed_keys, invalid_headers=event.invalid_headers)
            case Progress():
                self.progress = (event.bytes_done, event.bytes_total)
            case GroupCleaned():
                self._swap(event)
            case Done():
                self._done(event)
            case Failed():
                self._end(event.kind.value, event.reason)
            case Crashed():
                self._end(CRASHED, event.reason)

    def _swap(self, group: GroupCleaned) -> None:
        if self.failure:
            return
        try:
            swapped = self.log.replace_segments(
                group.old_base_offsets, size=group.size, generation=self._generation, now_ms=self._now_ms()
            )
        except StorageError as error:
            self._directories.fail(self.log, error)
            kind = FailureKind.RESOURCES if isinstance(error, OutOfResources) else FailureKind.STORAGE
            self.stop(kind.value, str(error))
            return
        if swapped:
            self.groups.append(group)
            self.totals += _totals_of(group)
        else:
            self.stop(FailureKind.STALE.value, f"the segments from offset {group.new_base_offset} on are no longer there")

    def _done(self, done: Done) -> None:
        self.totals += Totals(
            end_offset=done.end_offset, bytes_read=done.bytes_read, bytes_written=done.bytes_written, seconds=done.seconds
        )
        self._end("", "")

    def _end(self, failure: str, reason: str) -> None:
        if self._over:
            return
        self._over = True
        if not self.failure:  # else it was given up, and the reason for that is the better one
            self.failure, self.reason = failure, reason
        self.log.being_cleaned = False
        self._ended(self)


def make_job(chosen: Log, cleanable: Cleanable, config: BrokerConfig, *, now_ms: int, seed: int) -> CleaningJob:
    """What a worker is told; StorageError."""
    return CleaningJob(
        directory=chosen.directory,
        topic=chosen.topic_partition.topic,
        partition=chosen.topic_partition.partition,
        segments=tuple(chosen.closed_below(cleanable.first_uncleanable_offset)),
        log_start_offset=chosen.log_start_offset,
        log_end_offset=chosen.log_end_offset,
        first_dirty_offset=cleanable.first_dirty_offset,
        first_uncleanable_offset=cleanable.first_uncleanable_offset,
        producers=tuple(chosen.last_records()),
        now_ms=now_ms,
        seed=seed,
        settings=_settings(chosen.config, config),
    )


def _settings(topic: LogConfig, config: BrokerConfig) -> CleaningSettings:
    """The topic's settings, and one worker's share of the broker's."""
    threads = max(config.int("log.cleaner.threads"), 1)
    return CleaningSettings(
        strategy=topic.compaction_strategy,
        header=topic.compaction_strategy_header,
        segment_bytes=topic.segment_bytes,
        segment_index_bytes=topic.segment_index_bytes,
        index_interval_bytes=topic.index_interval_bytes,
        delete_retention_ms=topic.delete_retention_ms,
        max_message_bytes=max(topic.max_message_bytes, config.int("message.max.bytes")),
        map_bytes=min(config.int("log.cleaner.dedupe.buffer.size") // threads, MAP_BYTES_MAX),
        load_factor=config.double("log.cleaner.io.buffer.load.factor"),
        io_buffer_bytes=config.int("log.cleaner.io.buffer.size") // threads // 2,
        io_bytes_per_second=config.double("log.cleaner.io.max.bytes.per.second") / threads,
    )


def _totals_of(group: GroupCleaned) -> Totals:
    yields = group.yields
    return Totals(
        segments_before=len(group.old_base_offsets),
        segments_after=1,
        records_before=sum(one.records_before for one in yields),
        records_after=sum(one.records_after for one in yields),
        bytes_before=sum(one.bytes_before for one in yields),
        bytes_after=sum(one.bytes_after for one in yields),
        obsolete=sum(one.obsolete for one in yields),
        deleted=sum(one.deleted for one in yields),
        aborted=sum(one.aborted for one in yields),
        invalid=sum(one.invalid for one in yields),
    )
