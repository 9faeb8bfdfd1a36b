"""The cleaner in the broker: which partition is cleaned when, and what becomes of those that cannot be (Kafka's LogCleaner).

A round looks at all compacted logs once log.cleaner.backoff.ms have passed, or as soon as a worker is free, and hands the dirtiest one that
is due to a worker. Nothing of a pass is read, mapped or written in this process: what a worker has made is swapped in here, and the
checkpoint follows after the last swap.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from twisted.internet.defer import Deferred, fail

from txbroker.clock import Clock, DelayedCall
from txbroker.config.resolve import BrokerConfig
from txbroker.errors import BrokerError, ErrorCode, StorageError
from txbroker.log.cleaner.cleanable import Cleanable, Why, WhyNot
from txbroker.log.cleaner.cleaning_job import FailureKind
from txbroker.log.cleaner.cleaning_status import CleaningCounts, CleaningStatus, State, Totals
from txbroker.log.directories import LogDirectories
from txbroker.log.log import Log
from txbroker.maintenance.cleaning_candidates import Candidates, Chosen
from txbroker.maintenance.cleaning_pass import CRASHED, Pass, Workers, make_job
from txbroker.maintenance.cleaning_requests import Requests
from txbroker.maintenance.cleaning_schedule import Schedule
from txbroker.names import TopicPartition

log = logging.getLogger("txbroker.cleaner")

# Time alone changes nothing about these: somebody must write, or alter something.
NO_RUN_COMES = frozenset({Why.NOT_COMPACTED, Why.DISABLED, Why.PUT_ASIDE, Why.NOTHING_DIRTY})

BACKOFF_MS_MIN = 10  # log.cleaner.backoff.ms may be 0, which would be a loop without end


class Cleaning:
    """The loop, and what is known of each partition. For the reactor's thread only."""

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
        """`seed`: 64 random bits, others at each call. Without `workers` nothing is cleaned.

        `expire` is called after each pass, as retention waits meanwhile (Kafka's cleaner threads delete old segments themselves).
        """
        self._clock = clock
        self._config = config
        self._directories = directories
        self._now_ms = now_ms
        self._seed = seed
        self._workers = workers if config.boolean("log.cleaner.enable") else None
        self._schedule = Schedule(config, directories)
        self._candidates = Candidates(directories, self._schedule, high_watermark, now_ms)
        self._requests = Requests()
        self._running: dict[TopicPartition, Pass] = {}
        self._sweeping: set[Log] = set()
        self._resting: set[TopicPartition] = set()  # failed for a reason that may pass: not again before the next round
        self._last: dict[TopicPartition, tuple[int, Totals]] = {}
        self._timer: DelayedCall | None = None
        self._next_round_s = 0.0  # monotonic, as the next one
        self._looked_s: float | None = None
        self._stopped = False
        self._expire = expire
        self._until_over: dict[TopicPartition, list[Deferred[None]]] = {}
        self.counts = CleaningCounts()

    # --- the life of it ---

    def start(self) -> None:
        """Look for the first time once the backoff is over."""
        self._schedule.start()
        if self._workers is not None:
            self._wait()

    def stop(self) -> None:
        """End it with all passes; those who wait are told."""
        self._stopped = True
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        if self._workers is not None:
            self._workers.close()
        for running in self._running.values():
            running.stop(FailureKind.STOPPED.value, "the broker stops")
            running.log.being_cleaned = False
        self._running.clear()
        for topic_partition in self._requests.partitions():
            self._requests.refuse(topic_partition, BrokerError(ErrorCode.BROKER_NOT_AVAILABLE, "the broker stops"))
        for topic_partition in list(self._until_over):
            self._tell_over(topic_partition)

    def over(self, topic_partition: TopicPartition) -> Deferred[None]:
        """Done once no pass goes over the partition, which may be at once."""
        done: Deferred[None] = Deferred()
        if topic_partition in self._running:
            self._until_over.setdefault(topic_partition, []).append(done)
        else:
            done.callback(None)
        return done

    def _tell_over(self, topic_partition: TopicPartition) -> None:
        for waiting in self._until_over.pop(topic_partition, ()):
            waiting.callback(None)

    def _wait(self) -> None:
        backoff_ms = max(self._config.int("log.cleaner.backoff.ms"), BACKOFF_MS_MIN)
        self._next_round_s = self._clock.seconds() + backoff_ms / 1000
        self._timer = self._clock.callLater(backoff_ms / 1000, self._round)

    def _round(self) -> None:
        self._resting.clear()
        for running in list(self._running.values()):
            running.end_if_lost()
        self._look()
        self._candidates.forget_gone()
        for topic_partition in [known for known in self.counts.of if self._directories.get(known) is None]:
            del self.counts.of[topic_partition]
            self._last.pop(topic_partition, None)
        self._wait()

    def _look(self) -> None:
        """Give free workers something to do; whatever goes wrong, the next round comes."""
        if self._stopped or self._workers is None:
            return
        self._looked_s = self._clock.seconds()
        try:
            for topic_partition in self._requests.partitions():
                self._settle(topic_partition)
            while len(self._running) < self._config.int("log.cleaner.threads"):
                chosen = self._candidates.next(lambda candidate: self._why_left_out(candidate) is None, self._requests.__contains__)
                if chosen is None:
                    break
                self._begin(self._workers, chosen)
        except Exception:
            log.exception("looking for logs to clean failed this time; it is tried again")

    def _why_left_out(self, candidate: Log) -> WhyNot | None:
        """What keeps a compacted log from being considered at all."""
        topic_partition = candidate.topic_partition
        if topic_partition in self._running or candidate in self._sweeping:
            return WhyNot(Why.CLEANING, "it is being cleaned")
        aside = self._candidates.why_aside(candidate)
        if aside is not None:
            return WhyNot(Why.PUT_ASIDE, f"it was put aside: {aside}")
        if topic_partition in self._resting:
            return WhyNot(Why.RESTING, "its last pass was given up: it is tried again in the next round")
        if self._directories.is_moving(topic_partition):
            return WhyNot(Why.MOVING, "it is on its way to another log directory")
        return None

    # --- passes ---

    def _begin(self, workers: Workers, chosen: Chosen) -> None:
        cleanable, topic_partition = chosen.cleanable, chosen.log.topic_partition
        try:
            job = make_job(chosen.log, cleanable, self._config, now_ms=self._now_ms(), seed=self._seed())
            if chosen.plan is not None:
                job = self._schedule.applied(job, chosen.log, chosen.plan)
        except StorageError as error:
            self._resting.add(topic_partition)  # where only descriptors or memory are lacking it stays online
            self._directories.fail(chosen.log, error)
            return
        made = Pass(self._directories, chosen.log, job, self._now_ms, self._ended, cleanable.overdue_ms)
        self._running[topic_partition] = made
        made.begin(workers)
        log.info(
            "cleaning %s: offsets %d to %d are dirty, %.0f %% of %d bytes",
            topic_partition,
            cleanable.first_dirty_offset,
            job.first_uncleanable_offset,
            100 * cleanable.dirty_ratio,
            cleanable.clean_bytes + cleanable.cleanable_bytes,
        )

    def _ended(self, ended: Pass) -> None:
        """A pass is over. What it may have left goes before the next one begins in the same directory."""
        if self._stopped:
            return
        del self._running[ended.topic_partition]
        self.counts.add(ended.topic_partition, ended.facts(), ended.failure)
        in_use = self._directories.get(ended.topic_partition) is ended.log
        if not ended.failure and in_use:
            self._succeeded(ended)
        elif ended.failure:
            self._failed(ended)
            if self._directories.get(ended.topic_partition) is ended.log:
                self._sweeping.add(ended.log)
                self._directories.remove_unfinished(ended.job.directory, lambda: self._swept(ended.log))
        self._expire(ended.topic_partition)
        self._tell_over(ended.topic_partition)
        self._clock.callLater(0, self._look)

    def _swept(self, swept: Log) -> None:
        self._sweeping.discard(swept)
        self._look()

    def _succeeded(self, ended: Pass) -> None:
        topic_partition, totals = ended.topic_partition, ended.totals
        self._candidates.forgive(topic_partition)
        self._last[topic_partition] = (self._now_ms(), totals)
        clean_end = self._schedule.ended(ended.log, ended.job, ended.mapped, ended.groups, totals.end_offset)
        self._directories.checkpoint_cleaned(topic_partition, clean_end)
        self._requests.won(topic_partition, totals)
        if totals.end_offset <= ended.job.first_dirty_offset:
            self._resting.add(topic_partition)
            reason = "a pass came no further than where it began: log.cleaner.dedupe.buffer.size holds too few keys"
            log.warning("%s: %s", topic_partition, reason)
            self._requests.refuse(topic_partition, BrokerError(ErrorCode.POLICY_VIOLATION, reason))
        log.info(
            "%s is clean up to offset %d: %d of %d records and %d of %d bytes are left, in %d segments of %d, after %.1f s",
            topic_partition,
            totals.end_offset,
            totals.records_after,
            totals.records_before,
            totals.bytes_after,
            totals.bytes_before,
            totals.segments_after,
            totals.segments_before,
            totals.seconds,
        )

    def _failed(self, ended: Pass) -> None:
        topic_partition = ended.topic_partition
        self._resting.add(topic_partition)
        log.warning("cleaning %s was given up (%s): %s", topic_partition, ended.failure, ended.reason)
        code, reason = ErrorCode.UNKNOWN_SERVER_ERROR, ended.reason
        match ended.failure:
            case FailureKind.STALE.value | FailureKind.STOPPED.value:
                return  # whoever waits waits for the next pass
            case FailureKind.CORRUPT.value:
                code = ErrorCode.CORRUPT_MESSAGE
                reason = f"{reason}; it is put aside, and `txbroker log verify` shows what is damaged"
                self._candidates.put_aside(ended.log, ended.reason)
            case FailureKind.STORAGE.value:
                code = ErrorCode.KAFKA_STORAGE_ERROR
                self._directories.fail(ended.log, StorageError(ended.reason))
            case FailureKind.RESOURCES.value:  # a full disk, above all: the directory stays online, and the next round tries again
                code = ErrorCode.KAFKA_STORAGE_ERROR
            case _ if ended.failure == CRASHED:
                self._candidates.crashed(ended.log, ended.reason)
        self._requests.refuse(topic_partition, BrokerError(code, f"cleaning it was given up: {reason}"))

    # --- what others ask ---

    def clean_now(self, topic_partition: TopicPartition, *, roll: bool) -> Deferred[Totals]:
        """Clean a partition up to what can be cleaned now, whatever its dirty ratio; fires with what that has won once it is done.

        `roll`: its active segment is closed first. min.compaction.lag.ms holds. A pass that is under way counts, if it goes far enough.
        Fails with BrokerError: UNKNOWN_TOPIC_OR_PARTITION, POLICY_VIOLATION (it is not
        compacted, or the cleaner is off), KAFKA_STORAGE_ERROR (also when there is no room or memory for a pass), CORRUPT_MESSAGE,
        UNKNOWN_SERVER_ERROR (a worker died), BROKER_NOT_AVAILABLE (the broker stops).
        """
        try:
            wanted = self.check_askable(topic_partition)
            self._candidates.forgive(topic_partition)
            if roll:
                self._roll(wanted)
            done = self._requests.add(topic_partition, self._candidates.judge(wanted, whole=True).first_uncleanable_offset)
        except BrokerError as error:
            return fail(error)
        self._resting.discard(topic_partition)
        if len(self._running) < self._config.int("log.cleaner.threads"):
            self._look()
        else:
            self._settle(topic_partition)  # of a thousand that are asked for at once, not each looks at all the others
        return done

    def check_askable(self, topic_partition: TopicPartition) -> Log:
        """The log that `clean_now` would clean; the BrokerErrors with which it fails at once."""
        wanted = self._directories.get(topic_partition)
        if self._stopped:
            raise BrokerError(ErrorCode.BROKER_NOT_AVAILABLE, "the broker stops")
        if wanted is None:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic_partition} has no log here")
        if not wanted.config.compact:
            raise BrokerError(ErrorCode.POLICY_VIOLATION, f"cleanup.policy of {topic_partition.topic} has no compact")
        disabled = self._why_disabled()
        if disabled is not None:
            raise BrokerError(ErrorCode.POLICY_VIOLATION, f"nothing is cleaned: {disabled.sentence}")
        return wanted

    def _why_disabled(self) -> WhyNot | None:
        if self._workers is None:
            return WhyNot(Why.DISABLED, "log.cleaner.enable is false")
        return None if self._config.int("log.cleaner.threads") else WhyNot(Why.DISABLED, "log.cleaner.threads is 0")

    def _roll(self, wanted: Log) -> None:
        try:
            wanted.roll(self._now_ms())
        except StorageError as error:
            self._directories.fail(wanted, error)
            raise

    def _settle(self, topic_partition: TopicPartition) -> None:
        """Tell those who wait for a partition if there is nothing more to wait for."""
        if topic_partition in self._running or topic_partition not in self._requests:
            return
        wanted = self._directories.get(topic_partition)
        if wanted is None or not wanted.config.compact:
            gone = "its log is no longer here" if wanted is None else "its cleanup.policy has no compact any more"
            self._requests.refuse(topic_partition, BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, gone))
            return
        try:
            cleanable = self._candidates.judge(wanted, whole=True)
        except BrokerError as error:
            self._requests.refuse(topic_partition, error)
        else:
            self._requests.reached(topic_partition, cleanable.first_dirty_offset, more=cleanable.cleanable_bytes > 0)

    def status(self, topic_partition: TopicPartition) -> CleaningStatus | None:
        """How things stand with a partition that has a log here; None for others, and when that cannot be read."""
        shown = self._directories.get(topic_partition)
        if shown is None:
            return None
        try:
            cleanable = self._candidates.cleanable(shown)
        except StorageError as error:
            self._directories.fail(shown, error)
            return None
        except BrokerError:
            return None
        running = self._running.get(topic_partition)
        aside = self._candidates.why_aside(shown)
        last_ms, last = self._last.get(topic_partition, (None, None))
        why_not_now = None if running else self._why_not_now(shown, cleanable)
        rate = self.counts.bytes_per_second
        to_read = cleanable.clean_bytes + 2 * cleanable.cleanable_bytes  # what is dirty is read for the map, and again to be rewritten
        return CleaningStatus(
            state=State.CLEANING if running else State.PUT_ASIDE if aside is not None else State.IDLE,
            dirty_ratio=cleanable.dirty_ratio,
            first_dirty_offset=cleanable.first_dirty_offset,
            first_uncleanable_offset=cleanable.first_uncleanable_offset,
            clean_bytes=cleanable.clean_bytes,
            cleanable_bytes=cleanable.cleanable_bytes,
            overdue_ms=cleanable.overdue_ms,
            progress=running.progress if running else None,
            last_ms=last_ms,
            last=last,
            next_run_ms=None if running or (why_not_now is not None and why_not_now.why in NO_RUN_COMES) else self._next_round_ms,
            why_not_now=why_not_now,
            expected_s=to_read / rate if rate else None,
            put_aside=aside,
        )

    def _why_not_now(self, shown: Log, cleanable: Cleanable) -> WhyNot | None:
        if not shown.config.compact:
            return WhyNot(Why.NOT_COMPACTED, "its cleanup.policy has no compact")
        reason = self._why_disabled() or self._why_left_out(shown) or self._candidates.why_not(shown, cleanable)
        if reason is None and len(self._running) >= self._config.int("log.cleaner.threads"):
            busy = ", ".join(map(str, self._running))
            return WhyNot(Why.OTHERS_FIRST, f"all of log.cleaner.threads are busy: with {busy}")
        return reason

    @property
    def put_aside(self) -> list[TopicPartition]:
        """The partitions that are cleaned no more, and some that will be again, since their logs have changed."""
        return self._candidates.aside()

    @property
    def dirtiest_ratio(self) -> float:
        """The largest dirty ratio of those that might have been cleaned when logs were last looked at."""
        return self._candidates.dirtiest_ratio

    @property
    def threads(self) -> int:
        """log.cleaner.threads, as it is now."""
        return self._config.int("log.cleaner.threads")

    @property
    def since_round_ms(self) -> int:
        """Since when logs were last looked at; 0 before the first time."""
        return 0 if self._looked_s is None else round((self._clock.seconds() - self._looked_s) * 1000)

    @property
    def _next_round_ms(self) -> int:
        """The date of the next round."""
        return self._now_ms() + max(round((self._next_round_s - self._clock.seconds()) * 1000), 0)

    @property
    def running(self) -> list[TopicPartition]:
        """The partitions that are being cleaned."""
        return list(self._running)
