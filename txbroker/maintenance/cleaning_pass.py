"""One pass of the cleaner over one partition: carries out what a worker reports, until the pass has ended in one way or another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from txbroker.errors import OutOfResources, StorageError
from txbroker.lazy_dataclass import lazy_dataclass
from txbroker.log.cleaner.cleaning_job import (
    CleaningJob,
    Done,
    Event,
    Failed,
    FailureKind,
    GroupCleaned,
    LastRecord,
    Mapped,
    Progress,
    Strategy,
)
from txbroker.log.cleaner.cleaning_status import PassFacts, Totals
from txbroker.log.directories import LogDirectories
from txbroker.log.log import Log
from txbroker.names import TopicPartition

# The bytes of an entry in the map of keys: hash and offset, and a version with the other strategies.
MAP_ENTRY_BYTES = 16 + 8
MAP_ENTRY_BYTES_WITH_VERSION = 16 + 16


@lazy_dataclass(frozen=True, slots=True)
class WorkerLost:
    """The worker ended during a job: it crashed, or it hung and was killed. `reason`: its exit status or signal, and its last output."""

    kind: str
    reason: str


CRASHED, HUNG = "crashed", "hung"  # kinds of failures beside those of `FailureKind`


class Run(Protocol):
    """A job in a worker."""

    def stop(self) -> None:
        """Ask the worker to end the job soon; it reports Failed(STOPPED), or its usual end."""


class Workers(Protocol):
    """Carry out jobs, each in a worker of its own, outside of the reactor's thread."""

    @property
    def stuck(self) -> int:
        """Workers that hung and that the kernel has not ended after SIGKILL, as they wait for a device or a network file system."""

    def run(
        self, job: CleaningJob, producers: Iterator[LastRecord], on_event: Callable[[Event | WorkerLost], None], *, timeout_s: float
    ) -> Run:
        """Begin a job. `producers` are read some at a time, each time in another turn of the reactor.

        A worker that reports nothing for `timeout_s` (monotonic) hangs and is killed.

        `on_event` is called in the reactor's thread, never before this returns; the last event is Done, Failed or WorkerLost.
        """

    def close(self) -> None:
        """Kill all workers; no more events are reported."""


class Pass:
    """A pass over `log`. `failure` and `reason`: why it failed, once `on_end` is called; "" when it succeeded."""

    def __init__(
        self,
        directories: LogDirectories,
        log: Log,
        job: CleaningJob,
        now_ms: Callable[[], int],
        on_end: Callable[[Pass], None],
        overdue_ms: int = 0,
    ) -> None:
        """`overdue_ms`: by how much the oldest dirty record has exceeded max.compaction.lag.ms."""
        self.log = log
        self.job = job
        self.topic_partition: TopicPartition = log.topic_partition
        self.progress = (0, 0)
        self.totals = Totals(passes=1)
        self.mapped: Mapped | None = None
        self.groups: list[GroupCleaned] = []
        self.failure = ""
        self.reason = ""
        self._overdue_ms = overdue_ms
        self._directories = directories
        self._generation = log.generation
        self._now_ms = now_ms
        self._on_end = on_end
        self._run: Run | None = None
        self._swapping: GroupCleaned | None = None  # a worker syncs what the swap of this group needs
        self._waiting: list[Event | WorkerLost] = []  # until it has ended
        self._ended = False
        log.being_cleaned = True

    def begin(self, workers: Workers, timeout_s: float) -> None:
        """Flush the log, then give the job to a worker: no record may be removed because of one that a power failure can still take."""
        if self.log.recovery_point >= self.job.first_uncleanable_offset:
            self._start(workers, timeout_s)
        else:
            self._directories.flush(self.log, lambda: self._start(workers, timeout_s))

    def _start(self, workers: Workers, timeout_s: float) -> None:
        stale = self.why_stale()
        if stale or self.failure:
            self._end(FailureKind.STALE.value, stale)
        else:
            self._run = workers.run(self.job, self.log.last_records(self._now_ms()), self._on_event, timeout_s=timeout_s)

    def end_if_lost(self) -> None:
        """End a pass whose log is no longer in use while the log is synced: for such a log that never completes."""
        stale = self.why_stale()
        if (self._run is None or self._swapping is not None) and stale:
            self._end(FailureKind.STALE.value, stale)

    def stop(self, failure: str, reason: str) -> None:
        """Abort the pass: no further group is swapped in. It ends once the worker has reported its end."""
        if not self.failure:
            self.failure, self.reason = failure, reason
            if self._run is not None:
                self._run.stop()

    def facts(self) -> PassFacts:
        """The pass as metrics show it."""
        settings = self.job.settings
        mapped_keys = 0 if self.mapped is None else self.mapped.keys
        entry = MAP_ENTRY_BYTES if settings.strategy is Strategy.OFFSET else MAP_ENTRY_BYTES_WITH_VERSION
        return PassFacts(self.totals, mapped_keys * entry / max(settings.map_bytes, 1), self._overdue_ms)

    def why_stale(self) -> str:
        """How the log has changed since the job was made, so that further results must not be used; "" if it has not."""
        if self._directories.get(self.topic_partition) is not self.log:
            return "its log is no longer in use"
        if self.log.generation != self._generation:
            return "it was truncated"
        if self._directories.moves.is_moving(self.topic_partition):
            return "it is being moved to another log directory"
        config, settings = self.log.config, self.job.settings
        if (config.compaction_strategy, config.compaction_strategy_header) != (settings.strategy, settings.header):
            return "its compaction.strategy was altered"
        return "" if config.compact else "its cleanup.policy no longer has compact"

    def _on_event(self, event: Event | WorkerLost) -> None:
        if self._swapping is not None:
            self._waiting.append(event)
            return
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
                self.totals += Totals(
                    end_offset=event.end_offset, bytes_read=event.bytes_read, bytes_written=event.bytes_written, seconds=event.seconds
                )
                self._end("", "")
            case Failed():
                self._end(event.kind.value, event.reason)
            case WorkerLost():
                self._end(event.kind, event.reason)

    def _swap(self, group: GroupCleaned) -> None:
        if self.failure:
            return
        try:
            self._swapping = group
            begun = self.log.replace_segments(
                group.old_base_offsets, size=group.size, generation=self._generation, now_ms=self._now_ms(), done=self._swapped
            )
        except StorageError as error:
            self._swapping = None
            self._storage_failed(error)
            return
        if not begun:
            self._swapping = None
            self.stop(FailureKind.STALE.value, f"segments from offset {group.new_base_offset} on were deleted")

    def _swapped(self, error: StorageError | None) -> None:
        group, self._swapping = self._swapping, None
        if error is not None:
            self._storage_failed(error)
        elif group is not None:
            self.groups.append(group)
            self.totals += _totals_of(group)
        while self._waiting and self._swapping is None:
            self._on_event(self._waiting.pop(0))

    def _storage_failed(self, error: StorageError) -> None:
        self._directories.fail(self.log, error)
        kind = FailureKind.RESOURCES if isinstance(error, OutOfResources) else FailureKind.STORAGE
        self.stop(kind.value, str(error))

    def _end(self, failure: str, reason: str) -> None:
        if self._ended:
            return
        self._ended = True
        if not self.failure:  # else it was aborted, for a reason that says more
            self.failure, self.reason = failure, reason
        self.log.being_cleaned = False
        self._on_end(self)


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
