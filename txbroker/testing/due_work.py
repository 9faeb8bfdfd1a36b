"""Moves the clock of a broker for tests, and has all that falls due on the way done, in the order of its dates, before it returns.

A broker does this work at intervals of its monotonic clock, which nothing moves: retention, the log cleaner, the expiry of committed
offsets, producer ids and transactional ids. Here the same methods are called at once. Two things happen only here:

- A transaction that is open for longer than its timeout by the wall clock is aborted. In operation its deadline is monotonic.
- A segment is closed when its first record is older than segment.ms (with compaction: or max.compaction.lag.ms). In operation the next
  append does that, by the dates of its records, which clients of a test do not move.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from txbroker.broker.components import Components
from txbroker.errors import BrokerError, StorageError
from txbroker.log.cleaner.cleanable import Why
from txbroker.log.log import Log
from txbroker.log.log_config import FOREVER_MS
from txbroker.log.segment import Segment
from txbroker.names import INTERNAL_TOPICS, TopicPartition
from txbroker.testing.moved_clock import MovedClock
from txbroker.transactions.coordinator import HostedTransaction
from txbroker.transactions.transaction_states import TransactionState

log = logging.getLogger("txbroker.testing")

STEPS = 200  # at most, where there are very many dates
LOOK_S = 0.001
REPLICATED_S = 2.0
PATIENCE_S = 20.0  # for markers, which a partition without a leader holds back


class DueWork:
    """Of one broker. For the reactor's thread only, one call at a time."""

    def __init__(self, reactor: Any, clock: MovedClock, components: Components) -> None:
        self._reactor = reactor
        self._clock = clock
        self._components = components
        self._directories = components.logs.directories
        self._problems: list[str] = []
        self._passed_ms: dict[TopicPartition, int] = {}  # the date of the last pass that removed tombstones

    def went_back(self) -> None:
        """A scope has ended."""
        self._passed_ms.clear()

    async def show(self) -> list[str]:
        """Let the broker see the offset that is set, step by step; what could not be done, a line each."""
        self._problems = []
        target_ms = self._clock.offset.ms
        step_ms = max((target_ms - self._clock.shown_ms) // STEPS, 0)
        await self._until_replicated()
        await self._do_due()
        while self._clock.shown_ms < target_ms:
            next_ms = min((date - self._clock.now_ms() for date in self._dates()), default=FOREVER_MS)
            self._clock.shown_ms = min(self._clock.shown_ms + next_ms + step_ms, target_ms)
            await self._do_due()
        return self._problems

    async def _until_replicated(self) -> None:
        """Retention and compaction end at the high watermark, which a new leader has to learn. A paused follower may hold it back."""
        led = [(partition, partition.log.log_end_offset) for partition in self._components.replicas if partition.is_leader]
        late_s = self._reactor.seconds() + REPLICATED_S
        while any(partition.is_leader and partition.high_watermark < end for partition, end in led) and self._reactor.seconds() < late_s:
            await deferLater(self._reactor, LOOK_S)

    async def _do_due(self) -> None:
        await self._end_transactions()
        for topic_partition in list(self._directories.logs()):
            await self._guarded(topic_partition, "retention", self._components.logs.on_demand.expire_now(topic_partition))
        for each in list(self._directories.logs().values()):
            self._roll_if_due(each)
        await self._clean()
        coordinators = self._components.coordinators
        error = await coordinators.groups.expire_offsets()
        if error:
            self._problems.append(f"expired offsets are not removed: {error.name}")
        self._directories.expire_producers(self._clock.now_ms())  # with the present setting; of very many producers it leaves some
        for each in list(self._directories.logs().values()):
            each.expire_producers(self._clock.now_ms())
        coordinators.transactions.remove_expired()
        await self._until_settled()

    # Dates that are in the future, at which something happens on which later work depends

    def _dates(self) -> Iterator[int]:
        """After now, in milliseconds since 1970."""
        after = self._clock.now_ms()
        for date in self._all_dates():
            if date > after:
                yield date

    def _all_dates(self) -> Iterator[int]:
        for hosted in self._open_transactions():
            yield _end_of(hosted)
        for topic_partition, each in self._directories.logs().items():
            if each.config.compact and topic_partition.topic not in INTERNAL_TOPICS:
                try:
                    yield from _cleaning_dates(each)
                except (StorageError, BrokerError):
                    continue  # the work itself reports it

    # Transactions

    def _open_transactions(self) -> list[HostedTransaction]:
        hosted = self._components.coordinators.transactions
        return [each for each in hosted if each.transaction.record.state is TransactionState.ONGOING]

    async def _end_transactions(self) -> None:
        await self._until_settled()
        for hosted in self._open_transactions():
            if _end_of(hosted) <= self._clock.now_ms():
                self._components.coordinators.transactions.abort(hosted)
        await self._until_settled()

    async def _until_settled(self) -> None:
        unsettled = await until_settled(self._reactor, self._components)
        if unsettled:
            self._problems.append(f"transactions have not ended after {PATIENCE_S:g} s: {', '.join(unsettled)}")

    # Logs

    def _roll_if_due(self, each: Log) -> None:
        active = each.segments[-1]
        if not active.size:
            return
        try:
            if _roll_date(each, active) <= self._clock.now_ms():
                each.roll(self._clock.now_ms())
        except StorageError as error:
            self._directories.fail(each, error)
            self._problems.append(f"{each.topic_partition} was not rolled: {error}")
        except BrokerError as error:
            self._problems.append(f"{each.topic_partition} was not rolled: {error}")

    async def _clean(self) -> None:
        cleaner = self._components.cleaner
        requests = []
        for topic_partition, each in list(self._directories.logs().items()):
            if not each.config.compact:
                continue
            await cleaner.until_pass_ended(topic_partition)
            status = cleaner.status(topic_partition)
            why = None if status is None or status.why_not_now is None else status.why_not_now.why
            if status is None or why in (Why.NOT_COMPACTED, Why.DISABLED, Why.UNCLEANABLE):
                continue
            if self._has_old_tombstones(each):
                # The pass rewrites the clean part too only if it is dirty again.
                self._passed_ms[topic_partition] = self._clock.now_ms()
                self._directories.cleaning.set_offset(topic_partition, each.log_start_offset)
            elif why not in (None, Why.CLEANING, Why.NO_FREE_THREAD):
                continue
            requests.append((topic_partition, cleaner.clean_now(topic_partition, roll=False)))
        for topic_partition, request in requests:
            await self._guarded(topic_partition, "compaction", request)

    def _has_old_tombstones(self, each: Log) -> bool:
        """Whether delete.retention.ms of records that a pass has kept has passed, since the last pass that has removed such records.

        A batch keeps its horizon when they are gone.
        """
        after = self._passed_ms.get(each.topic_partition, 0)
        try:
            return any(after < horizon <= self._clock.now_ms() for horizon in _horizons(each))
        except (StorageError, BrokerError):
            return False  # the next pass reports it

    async def _guarded(self, topic_partition: TopicPartition, what: str, work: Deferred[Any]) -> None:
        try:
            await work
        except BrokerError as error:
            if self._directories.get(topic_partition) is not None:  # it was not deleted meanwhile
                self._problems.append(f"{what} of {topic_partition} failed: {error}")


async def until_settled(reactor: Any, components: Components) -> list[str]:
    """Return when no transaction is between its decision and its end; after PATIENCE_S the transactional ids of those that are."""
    late_s = reactor.seconds() + PATIENCE_S
    while True:
        hosted = [each.transaction for each in components.coordinators.transactions]
        waiting = [each.transactional_id for each in hosted if each.pending is not None or each.record.state.is_prepared]
        if not waiting or reactor.seconds() > late_s:
            return waiting
        await deferLater(reactor, LOOK_S)


def _end_of(hosted: HostedTransaction) -> int:
    record = hosted.transaction.record
    return record.start_ms + record.timeout_ms


def _roll_date(each: Log, active: Segment) -> int:
    first = active.first_timestamp
    return (first if first >= 0 else active.created_ms) + each.config.roll_ms + 1


def _cleaning_dates(each: Log) -> Iterator[int]:
    """When segments of a compacted log are closed, when they may or must be cleaned, and when tombstones may go."""
    config, active = each.config, each.segments[-1]
    if active.size:
        yield _roll_date(each, active)
    for segment in each.segments[:-1]:
        if config.min_compaction_lag_ms:
            yield segment.largest_timestamp_ms + config.min_compaction_lag_ms + 1
        if config.max_compaction_lag_ms < FOREVER_MS:
            yield segment.first_timestamp + config.max_compaction_lag_ms + 1
    yield from _horizons(each)


def _horizons(each: Log) -> Iterator[int]:
    """The dates from which the cleaner may remove tombstones and markers that it has kept."""
    for segment in each.segments[:-1]:
        for entry in segment.walk(0):
            horizon = entry.header.delete_horizon
            if horizon is not None:
                yield horizon
