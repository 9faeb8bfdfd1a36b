"""The passes that are running: how they begin, and what follows from the way each of them ends."""

from __future__ import annotations

import logging
from collections.abc import Callable

from twisted.internet.defer import Deferred

from txbroker.config.resolve import BrokerConfig
from txbroker.errors import BrokerError, ErrorCode, StorageError
from txbroker.log.cleaner.cleaning_job import FailureKind
from txbroker.log.cleaner.cleaning_status import CleaningCounts, Totals
from txbroker.log.directories import LogDirectories
from txbroker.log.log import Log
from txbroker.maintenance.cleaning_candidates import Chosen
from txbroker.maintenance.cleaning_jobs import make_job
from txbroker.maintenance.cleaning_pass import CRASHED, HUNG, Pass, Workers
from txbroker.maintenance.cleaning_requests import CleaningRequests
from txbroker.maintenance.cleaning_schedule import Schedule
from txbroker.maintenance.failed_partitions import FailedPartitions
from txbroker.names import TopicPartition, amount

log = logging.getLogger("txbroker.cleaner")


class Passes:
    """For the reactor's thread only.

    `running`: by partition. `last`: when the last successful pass over each partition ended (ms), and its totals. `counts`: since the
    start of the broker.
    """

    def __init__(
        self,
        config: BrokerConfig,
        directories: LogDirectories,
        schedule: Schedule,
        failed: FailedPartitions,
        requests: CleaningRequests,
        workers: Workers | None,
        now_ms: Callable[[], int],
        seed: Callable[[], int],
        expire: Callable[[TopicPartition], None],
        worker_free: Callable[[], None],
    ) -> None:
        """`expire`: retention of one log, which does not run during a pass. `worker_free`: called when another pass may begin.

        `seed`: 64 random bits, new ones at each call.
        """
        self.running: dict[TopicPartition, Pass] = {}
        self.last: dict[TopicPartition, tuple[int, Totals]] = {}
        self.counts = CleaningCounts()
        self._config = config
        self._directories = directories
        self._schedule = schedule
        self._failed = failed
        self._requests = requests
        self._workers = workers
        self._now_ms = now_ms
        self._seed = seed
        self._expire = expire
        self._worker_free = worker_free
        self._removing: set[Log] = set()  # files of a failed pass are being removed
        self._waiting_for_end: dict[TopicPartition, list[Deferred[None]]] = {}
        self._stopped = False

    def holds(self, candidate: Log) -> bool:
        """Whether a pass over a log is running, or its files are being removed."""
        return candidate.topic_partition in self.running or candidate in self._removing

    def begin(self, chosen: Chosen) -> None:
        """Begin a pass over a log that none holds. When its files cannot be read it backs off."""
        assert self._workers is not None
        cleanable, topic_partition = chosen.cleanable, chosen.log.topic_partition
        try:
            job = make_job(chosen.log, cleanable, self._config, now_ms=self._now_ms(), seed=self._seed())
            if chosen.plan is not None:
                job = self._schedule.applied(job, chosen.log, chosen.plan)
        except StorageError as error:
            self._failed.back_off(topic_partition)  # without descriptors or memory, the directory stays online
            self._directories.fail(chosen.log, error)
            return
        begun = Pass(self._directories, chosen.log, job, self._now_ms, self._on_end, cleanable.overdue_ms)
        self.running[topic_partition] = begun
        begun.begin(self._workers, self._config.int("txbroker.log.cleaner.worker.timeout.ms") / 1000)
        log.info(
            "cleaning %s: offsets %d to %d are dirty, %.0f %% of %d bytes",
            topic_partition,
            cleanable.first_dirty_offset,
            job.first_uncleanable_offset,
            100 * cleanable.dirty_ratio,
            cleanable.clean_bytes + cleanable.cleanable_bytes,
        )

    def begin_round(self) -> None:
        """End passes whose logs are gone before their workers began, and forget partitions that have no log here any more."""
        for running in list(self.running.values()):
            running.end_if_lost()
        for topic_partition in [known for known in self.counts.of if self._directories.get(known) is None]:
            del self.counts.of[topic_partition]
            self.last.pop(topic_partition, None)

    def until_ended(self, topic_partition: TopicPartition) -> Deferred[None]:
        """Fires once no pass runs over the partition, which may be at once."""
        done: Deferred[None] = Deferred()
        if topic_partition in self.running:
            self._waiting_for_end.setdefault(topic_partition, []).append(done)
        else:
            done.callback(None)
        return done

    def _fire_ended(self, topic_partition: TopicPartition) -> None:
        for waiting in self._waiting_for_end.pop(topic_partition, ()):
            waiting.callback(None)

    def stop(self) -> None:
        """Kill the workers and end all passes."""
        self._stopped = True
        if self._workers is not None:
            self._workers.close()
        for running in list(self.running.values()):
            running.stop(FailureKind.STOPPED.value, "the broker stops")
            running.log.being_cleaned = False
        self.running.clear()
        for topic_partition in list(self._waiting_for_end):
            self._fire_ended(topic_partition)

    # How passes end

    def _on_end(self, ended: Pass) -> None:
        """A failed pass may leave files: they are removed before another pass over the log begins."""
        if self._stopped:
            return
        del self.running[ended.topic_partition]
        self.counts.add(ended.topic_partition, ended.facts(), ended.failure)
        in_use = self._directories.get(ended.topic_partition) is ended.log
        if not ended.failure and in_use:
            self._succeeded(ended)
        elif ended.failure:
            self._end_failed(ended)
            if self._directories.get(ended.topic_partition) is ended.log:
                self._removing.add(ended.log)
                self._directories.cleaning.remove_unfinished(ended.job.directory, lambda: self._removed(ended.log))
        self._expire(ended.topic_partition)
        self._fire_ended(ended.topic_partition)
        self._worker_free()

    def _removed(self, cleaned: Log) -> None:
        self._removing.discard(cleaned)
        self._worker_free()

    def _succeeded(self, ended: Pass) -> None:
        topic_partition, totals = ended.topic_partition, ended.totals
        self._failed.clear(topic_partition)
        self.last[topic_partition] = (self._now_ms(), totals)
        clean_end = self._schedule.pass_succeeded(ended.log, ended.job, ended.mapped, ended.groups, totals.end_offset)
        self._directories.cleaning.set_offset(topic_partition, clean_end)
        self._requests.pass_succeeded(topic_partition, totals)
        if totals.end_offset <= ended.job.first_dirty_offset:
            self._failed.back_off(topic_partition)
            reason = "a pass cleaned nothing: the map of keys is too small; raise log.cleaner.dedupe.buffer.size"
            log.warning("%s: %s", topic_partition, reason)
            self._requests.fail(topic_partition, BrokerError(ErrorCode.POLICY_VIOLATION, reason))
        log.info(
            "%s is clean up to offset %d: %d of %s and %d of %d bytes remain, in %s (before: %d), after %.1f s",
            topic_partition,
            totals.end_offset,
            totals.records_after,
            amount(totals.records_before, "record"),
            totals.bytes_after,
            totals.bytes_before,
            amount(totals.segments_after, "segment"),
            totals.segments_before,
            totals.seconds,
        )

    def _end_failed(self, ended: Pass) -> None:
        topic_partition = ended.topic_partition
        self._failed.back_off(topic_partition)
        log.warning("cleaning of %s aborted (%s): %s", topic_partition, ended.failure, ended.reason)
        code, reason = ErrorCode.UNKNOWN_SERVER_ERROR, ended.reason
        match ended.failure:
            case FailureKind.STALE.value | FailureKind.STOPPED.value:
                return  # requests wait for the next pass
            case FailureKind.CORRUPT.value:
                code = ErrorCode.CORRUPT_MESSAGE
                reason = f"{reason}; the partition is uncleanable, and `txbroker log verify` shows what is damaged"
                self._failed.mark_uncleanable(ended.log, ended.reason)
            case FailureKind.STORAGE.value:
                code = ErrorCode.KAFKA_STORAGE_ERROR
                self._directories.fail(ended.log, StorageError(ended.reason))
            case FailureKind.RESOURCES.value:  # in most cases the disk is full: the directory stays online, and the next round tries again
                code = ErrorCode.KAFKA_STORAGE_ERROR
            case _ if ended.failure in (CRASHED, HUNG):
                self._failed.worker_lost(ended.log, ended.reason)
        self._requests.fail(topic_partition, BrokerError(code, f"cleaning aborted: {reason}"))
