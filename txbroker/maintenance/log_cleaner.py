"""The log cleaner of a broker: decides which partition is cleaned when (Kafka's LogCleaner).

A round looks at all compacted logs every log.cleaner.backoff.ms, and whenever a worker is free, and gives the dirtiest log that is due to a
worker process. This process reads, maps and writes nothing of a pass: it swaps in the segments that the worker has written, and writes
the checkpoint after the last of them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from twisted.internet.defer import Deferred, fail

from txbroker.clock import Clock, DelayedCall
from txbroker.config.resolve import BrokerConfig
from txbroker.errors import BrokerError, ErrorCode, StorageError
from txbroker.log.cleaner.cleanable import Why, WhyNot
from txbroker.log.cleaner.cleaning_status import CleaningCounts, CleaningStatus, Totals
from txbroker.log.directories import LogDirectories
from txbroker.log.log import Log
from txbroker.maintenance.cleaning_candidates import Candidates
from txbroker.maintenance.cleaning_pass import Workers
from txbroker.maintenance.cleaning_passes import Passes
from txbroker.maintenance.cleaning_requests import CleaningRequests
from txbroker.maintenance.cleaning_schedule import Schedule
from txbroker.maintenance.cleaning_status_view import StatusView
from txbroker.maintenance.failed_partitions import FailedPartitions
from txbroker.names import TopicPartition

log = logging.getLogger("txbroker.cleaner")

BACKOFF_MS_MIN = 10  # log.cleaner.backoff.ms may be 0, which would be a busy loop


class LogCleaner:
    """For the reactor's thread only."""

    def __init__(
        self,
        clock: Clock,
        config: BrokerConfig,
        directories: LogDirectories,
        high_watermark: Callable[[TopicPartition], int],
        now_ms: Callable[[], int],
        seed: Callable[[], int],
        workers: Workers | None,
        expire: Callable[[TopicPartition], None] = lambda _: None,
    ) -> None:
        """`seed`: 64 random bits, new ones at each call. Without `workers` nothing is cleaned.

        `expire` is called after each pass: retention of a log waits during a pass (Kafka's cleaner threads delete its old segments).
        """
        self._clock = clock
        self._config = config
        self._directories = directories
        self._workers = workers if config.boolean("log.cleaner.enable") else None
        self._now_ms = now_ms
        self._schedule = Schedule(config, directories)
        self._failed = FailedPartitions()
        self._candidates = Candidates(directories, self._schedule, self._failed, high_watermark, now_ms)
        self._requests = CleaningRequests(self._candidates)
        self._passes = Passes(
            config, directories, self._schedule, self._failed, self._requests, self._workers, now_ms, seed, expire, self._worker_free
        )
        self._timer: DelayedCall | None = None
        self._next_round_s = 0.0  # monotonic, as the next one
        self._looked_s: float | None = None
        self._stopped = False
        self._view = StatusView(directories, self._candidates, self._failed, self._passes, self._why_excluded, self._why_no_worker)

    def start(self) -> None:
        """Begin the first round once log.cleaner.backoff.ms have passed."""
        self._schedule.start()
        if self._workers is not None:
            self._wait()

    def stop(self) -> None:
        """End all passes and fail all requests."""
        self._stopped = True
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._passes.stop()
        for topic_partition in self._requests.partitions():
            self._requests.fail(topic_partition, BrokerError(ErrorCode.BROKER_NOT_AVAILABLE, "the broker stops"))

    # Rounds

    def _wait(self) -> None:
        backoff_ms = max(self._config.int("log.cleaner.backoff.ms"), BACKOFF_MS_MIN)
        self._next_round_s = self._clock.seconds() + backoff_ms / 1000
        self._timer = self._clock.callLater(backoff_ms / 1000, self._round)

    def _round(self) -> None:
        try:
            self._failed.begin_round(lambda topic_partition: self._directories.get(topic_partition) is not None)
            self._passes.begin_round()
            self._begin_passes()
        except Exception:
            log.exception("internal error at the begin of a round of the log cleaner; the next round tries again")
        self._wait()

    def _worker_free(self) -> None:
        self._clock.callLater(0, self._begin_passes)

    def _begin_passes(self) -> None:
        """Give jobs to free workers. An internal error must not end the rounds."""
        if self._stopped or self._workers is None:
            return
        self._looked_s = self._clock.seconds()
        try:
            for topic_partition in self._requests.partitions():
                self._complete_requests(topic_partition)
            while len(self._passes.running) < self.threads:
                chosen = self._candidates.next(lambda candidate: self._why_excluded(candidate) is None, self._requests.__contains__)
                if chosen is None:
                    break
                self._passes.begin(chosen)
        except Exception:
            log.exception("internal error while the cleaner looked for logs to clean; the next round tries again")

    def _complete_requests(self, topic_partition: TopicPartition) -> None:
        if topic_partition not in self._passes.running:
            self._requests.complete(topic_partition, self._directories.get(topic_partition))

    def _why_excluded(self, candidate: Log) -> WhyNot | None:
        """Why a compacted log is not even assessed now; None when it is."""
        topic_partition = candidate.topic_partition
        if self._passes.holds(candidate):
            return WhyNot(Why.CLEANING, "it is being cleaned")
        uncleanable = self._failed.why_uncleanable(candidate)
        if uncleanable is not None:
            return WhyNot(Why.UNCLEANABLE, f"it is uncleanable: {uncleanable}")
        if self._failed.backs_off(topic_partition):
            return WhyNot(Why.BACKOFF, "its last pass was aborted: the next round tries again")
        if self._directories.moves.is_moving(topic_partition):
            return WhyNot(Why.MOVING, "it is being moved to another log directory")
        return None

    def _why_no_worker(self) -> WhyNot | None:
        """Why no pass at all can begin now; None when one can."""
        disabled = self._why_disabled()
        if disabled is None and len(self._passes.running) >= self.threads:
            busy = ", ".join(map(str, self._passes.running))
            return WhyNot(Why.NO_FREE_THREAD, f"all of log.cleaner.threads are in use, for {busy}")
        return disabled

    def _why_disabled(self) -> WhyNot | None:
        if self._workers is None:
            return WhyNot(Why.DISABLED, "log.cleaner.enable is false")
        return None if self.threads else WhyNot(Why.DISABLED, "log.cleaner.threads is 0")

    # Requests

    def clean_now(self, topic_partition: TopicPartition, *, roll: bool) -> Deferred[Totals]:
        """Clean all of a partition that can be cleaned now, at any dirty ratio; fires with the totals of all passes that it took.

        `roll`: close its active segment first. min.compaction.lag.ms still holds. A running pass counts if it goes far enough.
        Fails with BrokerError: UNKNOWN_TOPIC_OR_PARTITION, POLICY_VIOLATION (it is not compacted, or the cleaner is off),
        KAFKA_STORAGE_ERROR (also without disk space or memory for a pass), CORRUPT_MESSAGE, UNKNOWN_SERVER_ERROR (a worker was lost),
        BROKER_NOT_AVAILABLE (the broker stops).
        """
        try:
            requested = self.check_can_clean(topic_partition)
            self._failed.clear(topic_partition)
            if roll:
                self._roll(requested)
            done = self._requests.add(requested)
        except BrokerError as error:
            return fail(error)
        if len(self._passes.running) < self.threads:
            self._begin_passes()
        else:
            self._complete_requests(topic_partition)  # a thousand requests at once must not each look at all logs
        return done

    def check_can_clean(self, topic_partition: TopicPartition) -> Log:
        """The log that `clean_now` would clean; the BrokerErrors with which it fails at once."""
        requested = self._directories.get(topic_partition)
        if self._stopped:
            raise BrokerError(ErrorCode.BROKER_NOT_AVAILABLE, "the broker stops")
        if requested is None:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic_partition} has no log on this broker")
        if not requested.config.compact:
            raise BrokerError(ErrorCode.POLICY_VIOLATION, f"cleanup.policy of {topic_partition.topic} has no compact")
        disabled = self._why_disabled()
        if disabled is not None:
            raise BrokerError(ErrorCode.POLICY_VIOLATION, f"the log cleaner is off: {disabled.sentence}")
        return requested

    def _roll(self, requested: Log) -> None:
        try:
            requested.roll(self._now_ms())
        except StorageError as error:
            self._directories.fail(requested, error)
            raise

    def until_pass_ended(self, topic_partition: TopicPartition) -> Deferred[None]:
        """Fires once no pass runs over the partition, which may be at once."""
        return self._passes.until_ended(topic_partition)

    # State

    def status(self, topic_partition: TopicPartition) -> CleaningStatus | None:
        """The status of a partition; None when it has no log here, or its log cannot be read."""
        seconds_left = max(self._next_round_s - self._clock.seconds(), 0)
        return self._view.status(topic_partition, next_round_ms=self._now_ms() + round(seconds_left * 1000))

    @property
    def counts(self) -> CleaningCounts:
        """Numbers since the start of the broker."""
        return self._passes.counts

    @property
    def uncleanable(self) -> list[TopicPartition]:
        """The partitions that were marked uncleanable, including those whose logs have changed since."""
        return self._failed.uncleanable()

    @property
    def dirtiest_ratio(self) -> float:
        """The largest dirty ratio of the logs that were assessed in the last round."""
        return self._candidates.dirtiest_ratio

    @property
    def threads(self) -> int:
        """log.cleaner.threads, as it is now."""
        return self._config.int("log.cleaner.threads")

    @property
    def stuck_workers(self) -> int:
        """Workers that hang and cannot be killed."""
        return 0 if self._workers is None else self._workers.stuck

    @property
    def since_round_ms(self) -> int:
        """Milliseconds since the cleaner last looked for logs to clean; 0 before the first time."""
        return 0 if self._looked_s is None else round((self._clock.seconds() - self._looked_s) * 1000)

    @property
    def running(self) -> list[TopicPartition]:
        """The partitions that are being cleaned."""
        return list(self._passes.running)
