"""The cleaner in the broker: which partition is cleaned when, and what becomes of those that cannot be (Kafka's LogCleaner).

A round looks at all compacted logs once log.cleaner.backoff.ms have passed, or as soon as a worker is free, and hands the dirtiest one that
is due to a worker. Nothing of a pass is read, mapped or written in this process: what a worker has made is swapped in here, and the
checkpoint follows after the last swap.

A partition whose records cannot be read, or over which two workers in a row have died, is put aside with its reason, until its log is
truncated, loses segments at its start or moves, until somebody asks for it (`clean_now`), or until the broker starts anew. Kafka
knows the last of these only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime

from txbroker.broker.cleaning_pass import Pass, Workers
from txbroker.config.resolve import BrokerConfig
from txbroker.errors import BrokerError, ErrorCode, StorageError
from txbroker.log.cleaner.choosing import Cleanable, Why, WhyNot, assess, why_not
from txbroker.log.cleaner.job import CleaningJob, CleaningSettings, FailureKind
from txbroker.log.cleaner.status import CleaningCounts, CleaningStatus, State, Totals
from txbroker.log.directories import LogDirectories
from txbroker.log.log import Log
from txbroker.names import TopicPartition

log = logging.getLogger("txbroker.cleaner")

BACKOFF_MS_MIN = 10  # log.cleaner.backoff.ms may be 0, which would be a loop without end
CRASHES_MAX = 2
MAP_BYTES_MAX = 2**31 - 1


class _Aside(NamedTuple):
    """Why a partition is cleaned no more, and what its log was then."""

    reason: str
    log: Log
    generation: int
    first_offset: int

    def holds(self) -> bool:
        return (self.log.generation, self.log.segments[0].base_offset) == (self.generation, self.first_offset)


@dataclass(slots=True)
class _Asked:
    """Somebody waits until a partition is clean up to `target`; `totals` of the passes since the first of them asked."""

    target: int
    totals: Totals = field(default_factory=Totals)
    waiting: list[Deferred[Totals]] = field(default_factory=list)


class Cleaning:
    """The loop, and what is known of each partition. For the reactor's thread only."""

    def __init__(
        self,
        clock: IReactorTime,
        config: BrokerConfig,
        directories: LogDirectories,
        high_watermark: Callable[[TopicPartition], int],
        now_ms: Callable[[], int],
        seed: Callable[[], int],
        workers: Workers | None,
    ) -> None:
        """`seed`: 64 random bits, others at each call. Without `workers` nothing is cleaned."""
        self._clock = clock
        self._config = config
        self._directories = directories
        self._high_watermark = high_watermark
        self._now_ms = now_ms
        self._seed = seed
        self._workers = workers if config.boolean("log.cleaner.enable") else None
        self._running: dict[TopicPartition, Pass] = {}
        self._sweeping: set[Log] = set()
        self._resting: set[TopicPartition] = set()  # failed for a reason that may pass: not again before the next round
        self._crashes: dict[TopicPartition, int] = {}
        self._aside: dict[TopicPartition, _Aside] = {}
        self._asked: dict[TopicPartition, _Asked] = {}
        self._last: dict[TopicPartition, tuple[int, Totals]] = {}
        self._timer: IDelayedCall | None = None
        self._timer_ms = 0
        self._stopped = False
        self.counts = CleaningCounts()

    # --- the life of it ---

    def start(self) -> None:
        """Look for the first time once the backoff is over."""
        if self._workers is not None:
            self._wait()

    def stop(self) -> None:
        """End it with all passes; those who wait are told."""
        self._stopped = True
        if self._timer is not None and self._timer.active():  # type: ignore[misc]
            self._timer.cancel()  # type: ignore[misc]
        if self._workers is not None:
            self._workers.close()
        for cleaned in self._running.values():
            cleaned.log.being_cleaned = False
        self._running.clear()
        for topic_partition in list(self._asked):
            self._refuse(topic_partition, BrokerError(ErrorCode.BROKER_NOT_AVAILABLE, "the broker stops"))

    def _wait(self) -> None:
        backoff_ms = max(self._config.int("log.cleaner.backoff.ms"), BACKOFF_MS_MIN)
        self._timer_ms = self._now_ms() + backoff_ms
        self._timer = self._clock.callLater(backoff_ms / 1000, self._round)  # type: ignore[arg-type]

    def _round(self) -> None:
        self._resting.clear()
        for topic_partition, asked in list(self._asked.items()):
            self._check_asked(topic_partition, asked)
        self._look()
        self._wait()

    def _look(self) -> None:
        """Give free workers something to do; whatever goes wrong, the next round comes."""
        if self._stopped or self._workers is None:
            return
        try:
            while len(self._running) < self._config.int("log.cleaner.threads"):
                chosen = self._choose()
                if chosen is None:
                    break
                self._begin(self._workers, *chosen)
        except Exception:
            log.exception("looking for logs to clean failed this time; it is tried again")

    # --- choosing ---

    def _choose(self) -> tuple[Log, Cleanable] | None:
        """The next log: one that somebody waits for, else the dirtiest that is due."""
        dirtiest: tuple[Log, Cleanable] | None = None
        for topic_partition, candidate in self._directories.logs().items():
            asked = self._asked.get(topic_partition)
            if not candidate.config.compact or self._why_left_out(candidate) is not None or topic_partition in self._resting:
                continue
            if asked is None and len(candidate.segments) == 1:
                continue  # thousands of logs may be looked at: most have nothing closed
            cleanable = self._assess(candidate)
            if cleanable is None:
                continue
            if asked is not None and cleanable.cleanable_bytes:
                return candidate, cleanable
            if cleanable.wanted(candidate.config.min_cleanable_dirty_ratio) and (
                dirtiest is None or cleanable.dirty_ratio > dirtiest[1].dirty_ratio
            ):
                dirtiest = candidate, cleanable
        return dirtiest

    def _why_left_out(self, candidate: Log) -> WhyNot | None:
        """What keeps a compacted log from being considered at all."""
        topic_partition = candidate.topic_partition
        if self._workers is None:
            return WhyNot(Why.DISABLED, "log.cleaner.enable is false")
        if not self._config.int("log.cleaner.threads"):
            return WhyNot(Why.DISABLED, "log.cleaner.threads is 0")
        if topic_partition in self._running or candidate in self._sweeping:
            return WhyNot(Why.CLEANING, "it is being cleaned")
        aside = self._put_aside(candidate)
        if aside is not None:
            return WhyNot(Why.PUT_ASIDE, f"it was put aside: {aside}")
        if self._directories.is_moving(topic_partition):
            return WhyNot(Why.MOVING, "it is on its way to another log directory")
        return None

    def _put_aside(self, candidate: Log) -> str | None:
        aside = self._aside.get(candidate.topic_partition)
        if aside is not None and (aside.log is not candidate or not aside.holds()):
            del self._aside[candidate.topic_partition]
            return None
        return None if aside is None else aside.reason

    def _assess(self, candidate: Log) -> Cleanable | None:
        """What there is to clean; None when its disk fails, or it must be put aside."""
        topic_partition = candidate.topic_partition
        try:
            cleanable = self._cleanable(candidate)
        except StorageError as error:
            self._directories.fail(candidate, error)
            return None
        except BrokerError as error:
            self._set_aside(candidate, str(error))
            return None
        except Exception as error:
            log.exception("%s: what there is to clean could not be found out", topic_partition)
            self._set_aside(candidate, f"what there is to clean could not be found out: {error!r}")
            return None
        if cleanable.correction:
            log.warning("%s: %s", topic_partition, cleanable.correction)
            self._directories.checkpoint_cleaned(topic_partition, cleanable.first_dirty_offset)
        return cleanable

    def _cleanable(self, candidate: Log) -> Cleanable:
        return assess(
            candidate.segments,
            candidate.config,
            checkpoint=self._directories.cleaner_checkpoint(candidate.topic_partition),
            log_start_offset=candidate.log_start_offset,
            log_end_offset=candidate.log_end_offset,
            last_stable_offset=candidate.last_stable_offset(self._high_watermark(candidate.topic_partition)),
            now_ms=self._now_ms(),
        )

    # --- passes ---

    def _begin(self, workers: Workers, chosen: Log, cleanable: Cleanable) -> None:
        try:
            job = self._job(chosen, cleanable)
        except StorageError as error:
            self._directories.fail(chosen, error)
            return
        made = Pass(self._directories, chosen, job, self._now_ms, self._ended)
        self._running[chosen.topic_partition] = made
        made.begin(workers)
        log.info(
            "cleaning %s: offsets %d to %d are dirty, %.0f %% of %d bytes",
            chosen.topic_partition,
            job.first_dirty_offset,
            job.first_uncleanable_offset,
            100 * cleanable.dirty_ratio,
            cleanable.clean_bytes + cleanable.cleanable_bytes,
        )

    def _job(self, chosen: Log, cleanable: Cleanable) -> CleaningJob:
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
            now_ms=self._now_ms(),
            seed=self._seed(),
            settings=self._settings(chosen),
        )

    def _settings(self, chosen: Log) -> CleaningSettings:
        """The topic's settings, and one worker's share of the broker's."""
        config, topic = self._config, chosen.config
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

    def _ended(self, ended: Pass) -> None:
        """A pass is over. What it may have left goes before the next one begins in the same directory."""
        topic_partition = ended.topic_partition
        del self._running[topic_partition]
        self.counts.add(ended.totals, ended.failure)
        if ended.failure:
            self._failed(ended)
        else:
            self._succeeded(ended)
        if self._directories.get(topic_partition) is ended.log and ended.failure:
            self._sweeping.add(ended.log)
            self._directories.remove_unfinished(ended.job.directory, lambda: self._swept(ended.log))
        self._clock.callLater(0, self._look)  # type: ignore[arg-type]

    def _swept(self, swept: Log) -> None:
        self._sweeping.discard(swept)
        self._look()

    def _succeeded(self, ended: Pass) -> None:
        topic_partition, totals = ended.topic_partition, ended.totals
        self._crashes.pop(topic_partition, None)
        self._last[topic_partition] = (self._now_ms(), totals)
        self._directories.checkpoint_cleaned(topic_partition, totals.end_offset)
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
        asked = self._asked.get(topic_partition)
        if asked is not None:
            asked.totals += totals
            self._check_asked(topic_partition, asked)

    def _failed(self, ended: Pass) -> None:
        topic_partition = ended.topic_partition
        self._resting.add(topic_partition)
        log.warning("cleaning %s was given up (%s): %s", topic_partition, ended.failure, ended.reason)
        code = ErrorCode.UNKNOWN_SERVER_ERROR
        match ended.failure:
            case FailureKind.STALE.value | FailureKind.STOPPED.value:
                return  # whoever waits waits for the next pass
            case FailureKind.CORRUPT.value:
                code = ErrorCode.CORRUPT_MESSAGE
                self._set_aside(ended.log, ended.reason)
            case FailureKind.STORAGE.value:
                code = ErrorCode.KAFKA_STORAGE_ERROR
                self._directories.fail(ended.log, StorageError(ended.reason))
            case "crashed":
                self._crashed(ended)
        self._refuse(topic_partition, BrokerError(code, f"cleaning {topic_partition} was given up: {ended.reason}"))

    def _crashed(self, ended: Pass) -> None:
        crashes = self._crashes[ended.topic_partition] = self._crashes.get(ended.topic_partition, 0) + 1
        if crashes >= CRASHES_MAX:
            self._set_aside(ended.log, f"{crashes} workers in a row died over it, the last one so: {ended.reason}")

    def _set_aside(self, bad: Log, reason: str) -> None:
        log.error("%s is put aside and not cleaned until its log changes or somebody asks for it: %s", bad.topic_partition, reason)
        self._aside[bad.topic_partition] = _Aside(reason, bad, bad.generation, bad.segments[0].base_offset)

    # --- what others ask ---

    def clean_now(self, topic_partition: TopicPartition, *, roll: bool) -> Deferred[Totals]:
        """Clean a partition up to what can be cleaned now, whatever its dirty ratio; fires with what that has won once it is done.

        `roll`: its active segment is closed first. min.compaction.lag.ms holds. A pass that is under way counts, if it goes far enough.
        Fails with BrokerError: UNKNOWN_TOPIC_OR_PARTITION, POLICY_VIOLATION (it is not compacted, or the cleaner is off),
        KAFKA_STORAGE_ERROR, CORRUPT_MESSAGE, UNKNOWN_SERVER_ERROR (a worker died), BROKER_NOT_AVAILABLE (the broker stops).
        """
        done: Deferred[Totals] = Deferred()
        try:
            wanted = self._askable(topic_partition)
            if roll:
                self._roll(wanted)
            cleanable = self._assess(wanted)
            if cleanable is None:
                raise self._why_not_assessed(topic_partition)
        except BrokerError as error:
            done.errback(error)
            return done
        asked = self._asked.setdefault(topic_partition, _Asked(cleanable.first_uncleanable_offset))
        asked.target = max(asked.target, cleanable.first_uncleanable_offset)
        asked.waiting.append(done)
        self._resting.discard(topic_partition)
        self._check_asked(topic_partition, asked)
        self._look()
        return done

    def _askable(self, topic_partition: TopicPartition) -> Log:
        wanted = self._directories.get(topic_partition)
        if wanted is None:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic_partition} has no log here")
        if not wanted.config.compact:
            raise BrokerError(ErrorCode.POLICY_VIOLATION, f"cleanup.policy of {topic_partition.topic} has no compact")
        self._aside.pop(topic_partition, None)
        self._crashes.pop(topic_partition, None)
        left_out = self._why_left_out(wanted)
        if left_out is not None and left_out.why is Why.DISABLED:
            raise BrokerError(ErrorCode.POLICY_VIOLATION, f"{left_out.sentence}: nothing is cleaned")
        return wanted

    def _roll(self, wanted: Log) -> None:
        try:
            wanted.roll(self._now_ms())
        except StorageError as error:
            self._directories.fail(wanted, error)
            raise

    def _why_not_assessed(self, topic_partition: TopicPartition) -> BrokerError:
        aside = self._aside.get(topic_partition)
        if aside is not None:
            return BrokerError(ErrorCode.CORRUPT_MESSAGE, aside.reason)
        return StorageError(f"the log directory of {topic_partition} is offline")

    def _check_asked(self, topic_partition: TopicPartition, asked: _Asked) -> None:
        """Tell those who wait for a partition if there is nothing more to wait for."""
        if topic_partition in self._running:
            return
        wanted = self._directories.get(topic_partition)
        if wanted is None or not wanted.config.compact:
            gone = "its log is no longer here" if wanted is None else "its cleanup.policy has no compact any more"
            self._refuse(topic_partition, BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic_partition}: {gone}"))
            return
        cleanable = self._assess(wanted)
        if cleanable is None:
            self._refuse(topic_partition, self._why_not_assessed(topic_partition))
        elif cleanable.cleanable_bytes == 0 or cleanable.first_dirty_offset >= asked.target:
            totals = asked.totals + Totals(end_offset=cleanable.first_dirty_offset)
            for waiting in self._asked.pop(topic_partition).waiting:
                waiting.callback(totals)

    def _refuse(self, topic_partition: TopicPartition, error: BrokerError) -> None:
        asked = self._asked.pop(topic_partition, None)
        for waiting in asked.waiting if asked is not None else ():
            waiting.errback(error)

    def status(self, topic_partition: TopicPartition) -> CleaningStatus | None:
        """How things stand with a partition that has a log here; None for others, and when its disk fails."""
        shown = self._directories.get(topic_partition)
        if shown is None:
            return None
        try:
            cleanable = self._cleanable(shown)
        except StorageError as error:
            self._directories.fail(shown, error)
            return None
        except BrokerError as error:
            self._set_aside(shown, str(error))
            return None
        running = self._running.get(topic_partition)
        aside = self._put_aside(shown)
        last_ms, last = self._last.get(topic_partition, (None, None))
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
            next_run_ms=None if self._workers is None or running else self._timer_ms,
            why_not_now=None if running else self._why_not_now(shown, cleanable),
            expected_s=to_read / rate if rate else None,
            put_aside=aside,
        )

    def _why_not_now(self, shown: Log, cleanable: Cleanable) -> WhyNot | None:
        if not shown.config.compact:
            return WhyNot(Why.NOT_COMPACTED, "its cleanup.policy has no compact")
        left_out = self._why_left_out(shown)
        if left_out is not None:
            return left_out
        not_due = why_not(cleanable, shown.config, shown.log_end_offset)
        if not_due is None and len(self._running) >= self._config.int("log.cleaner.threads"):
            busy = ", ".join(map(str, self._running))
            return WhyNot(Why.OTHERS_FIRST, f"all of log.cleaner.threads are busy: with {busy}")
        return not_due

    @property
    def put_aside_count(self) -> int:
        """How many partitions are cleaned no more."""
        return len(self._aside)

    @property
    def running(self) -> list[TopicPartition]:
        """The partitions that are being cleaned."""
        return list(self._running)
