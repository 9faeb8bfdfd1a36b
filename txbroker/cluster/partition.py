"""One partition on this broker: its log, its role, its in-sync replicas and its high watermark (Kafka's `Partition`).

The only place that changes the high watermark. A partition reports to one observer that it moved, or that its log cannot be read or
written; it does not know the requests that wait for it. All access to the log's files goes through this class.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import wraps
from typing import Concatenate, NamedTuple, ParamSpec, Protocol, TypeVar

from txbroker.cluster.followers import FollowerFetch, Followers, FollowerState, IsrProposal
from txbroker.cluster.node_data import NO_LEADER
from txbroker.cluster.refused_sequences import PASSING, PREVIOUS_LEADER_S, RefusedSequences, check_first_batch
from txbroker.cluster.topic_counts import TopicCounts
from txbroker.errors import BrokerError, ErrorCode, StorageError
from txbroker.log.log import Log
from txbroker.log.log_results import AbortedTransaction, Appended, EpochEnd, Origin, Read
from txbroker.names import TopicPartition, amount

logger = logging.getLogger("txbroker.cluster.replicas")

CONSUMER = -1  # the replica id of readers that are not replicas

HIGH_WATERMARK_REQUEST = -1  # in DeleteRecords: the high watermark


class Isolation(IntEnum):
    """How far a consumer may read."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class Leadership(NamedTuple):
    """A partition's state as received from the controller."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    partition_epoch: int


NO_LEADERSHIP = Leadership(NO_LEADER, -1, (), (), -1)


class Observer(Protocol):
    """Receives the events of a partition."""

    def moved(self, partition: Partition) -> None:
        """Its end offset, its start offset or its leadership has changed, perhaps with the high watermark."""

    def committed(self, partition: Partition) -> None:
        """Its high watermark or its low watermark has advanced, because of other replicas; nothing else has changed."""

    def storage_failed(self, partition: Partition, error: StorageError) -> None:
        """Its log cannot be read or written."""

    def truncated(self, partition: Partition) -> None:
        """Its log now ends before records that it had: what others remember of these is wrong."""

    def isr_proposed(self, partition: Partition, proposal: IsrProposal) -> None:
        """The controller is to be sent a new ISR. `Partition.isr_confirmed` or `isr_refused` takes the answer."""


@dataclass(frozen=True)
class Replication:
    """What leaders need to judge their followers.

    `lag_max_s`: replica.lag.time.max.ms. `is_eligible(replica, broker epoch)`: whether that incarnation of a broker is alive.
    """

    monotonic_s: Callable[[], float]
    lag_max_s: Callable[[], float]
    is_eligible: Callable[[int, int], bool]


class Flush(Protocol):
    """Syncs a log up to its current end in a worker, then calls `done`. A disk failure is reported separately and `done` is not called."""

    def __call__(self, log: Log, done: Callable[[], None], /) -> None: ...


P = ParamSpec("P")
T = TypeVar("T")


def _reporting(method: Callable[Concatenate[Partition, P], T]) -> Callable[Concatenate[Partition, P], T]:
    """Report a StorageError of this method to the observer before it reaches the caller."""

    @wraps(method)
    def reporting(self: Partition, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(self, *args, **kwargs)
        except StorageError as error:
            self.storage_failed(error)
            raise

    return reporting


class Partition:
    """A replica of one partition, leader or follower, with its log."""

    __slots__ = (
        "_counted_end",
        "_flush",
        "_flushing",
        "_followers",
        "_refused",
        "_replication",
        "_single",
        "_successor_since_s",
        "broker_id",
        "counts",
        "epoch_start",
        "high_watermark",
        "is_leader",
        "leadership",
        "log",
        "observer",
        "state",
        "topic_partition",
    )

    def __init__(
        self,
        broker_id: int,
        log: Log,
        observer: Observer,
        flush: Flush,
        replication: Replication,
        *,
        high_watermark: int = 0,
        counts: TopicCounts | None = None,
        refused: RefusedSequences | None = None,
    ) -> None:
        """`counts`: the topic's counters; `refused`: the broker's refused batches. None creates new ones."""
        self.broker_id = broker_id
        self.counts = counts or TopicCounts()
        self._counted_end = log.log_end_offset
        self.topic_partition: TopicPartition = log.topic_partition
        self.log = log
        self.observer = observer
        self.state = NO_LEADERSHIP
        self.is_leader = False
        self.leadership = 0  # how often it has become the leader; it truncates its log only in between
        self.epoch_start = -1  # the first offset of the leader epoch in which this broker leads
        # The checkpoint may be older or newer than the log.
        self.high_watermark = min(max(high_watermark, log.log_start_offset), log.log_end_offset)
        self._replication = replication
        self._followers: Followers | None = None  # while this broker leads and there are other replicas
        self._single = False  # it leads, and no other replica counts
        self._flush = flush
        self._flushing = False
        self._refused = refused or RefusedSequences(replication.monotonic_s)
        self._successor_since_s: float | None = None  # the start of this leader epoch, as long as the previous leader may have requests

    @property
    def leader_epoch(self) -> int:
        """The leader epoch of the last LeaderAndIsr request that was applied."""
        return self.state.leader_epoch

    def storage_failed(self, error: StorageError) -> None:
        """Report that the log could not be read or written; its directory goes offline."""
        self.observer.storage_failed(self, error)

    @_reporting
    def assign_topic_id(self, topic_id: bytes) -> None:
        """Set the log's topic id; INCONSISTENT_TOPIC_ID when it has another one."""
        self.log.assign_topic_id(topic_id)

    @_reporting
    def lead(self, state: Leadership) -> bool:
        """Become leader, or apply a new ISR as leader. Returns whether the leader epoch is new. A failure changes nothing."""
        new_epoch = not self.is_leader or state.leader_epoch != self.state.leader_epoch
        if not self.is_leader:
            self._counted_end = self.log.log_end_offset
            self.leadership += 1
        if new_epoch:
            # The first batch of the epoch writes it: a broker may become the leader of thousands of partitions at once.
            self.log.leader_epochs.note(state.leader_epoch, self.log.log_end_offset)
            self.epoch_start = self.log.log_end_offset
            was_led_elsewhere = not self.is_leader or state.leader_epoch > self.state.leader_epoch + 1
            if was_led_elsewhere and state.leader_epoch > 0 and len(state.replicas) > 1:
                self._successor_since_s = self._replication.monotonic_s()
        self.state = state
        self.is_leader = True
        self._single = not {*state.isr, *state.replicas} - {self.broker_id}
        if self._single:
            self._followers = None
        elif new_epoch or self._followers is None:
            self._followers = Followers(
                self.broker_id,
                lag_max_s=self._replication.lag_max_s,
                is_eligible=self._replication.is_eligible,
                epoch_start=self.epoch_start,
            )
        if self._followers is not None:
            self._followers.apply(
                leader_epoch=state.leader_epoch,
                partition_epoch=state.partition_epoch,
                isr=state.isr,
                replicas=state.replicas,
                now_s=self._replication.monotonic_s(),
            )
        if self.log.flush_due:
            self._have_flushed()
        self._advance()
        self.observer.moved(self)
        return new_epoch

    def follow(self, state: Leadership) -> bool:
        """Become a follower of another broker. Returns whether anything changed."""
        changed = self.is_leader or state.leader_epoch != self.state.leader_epoch or state.leader != self.state.leader
        self.count_messages()
        self.state = state
        self.is_leader = False
        self.epoch_start = -1
        self._single = False
        self._followers = None
        if changed:
            if state.leader != NO_LEADER and self.log.flush_due:
                self._have_flushed()  # after a start its log may not be synced
            self.observer.moved(self)
        return changed

    def count_messages(self) -> None:
        """Add the records appended since the last call to the counters. Call it before reading the counters."""
        if self.is_leader:
            self.counts.messages_in += self.log.log_end_offset - self._counted_end
            self._counted_end = self.log.log_end_offset

    def offsets_skipped(self, count: int) -> None:
        """So many offsets of the last append have no record."""
        self._counted_end += count

    def check_leader(self, current_leader_epoch: int = -1) -> None:
        """NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH (KIP-320) unless this broker leads in that epoch."""
        self.check_epoch(current_leader_epoch)
        if not self.is_leader:
            raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {self.broker_id} does not lead {self.topic_partition}")

    def check_epoch(self, current_leader_epoch: int) -> None:
        """FENCED_LEADER_EPOCH for an older epoch, UNKNOWN_LEADER_EPOCH for a newer one; -1 is not checked."""
        if current_leader_epoch == -1 or current_leader_epoch == self.state.leader_epoch:
            return
        if current_leader_epoch < self.state.leader_epoch:
            raise BrokerError(ErrorCode.FENCED_LEADER_EPOCH)
        raise BrokerError(ErrorCode.UNKNOWN_LEADER_EPOCH)

    def append(self, records: memoryview, now_ms: int, *, all_in_sync: bool = False, origin: Origin = Origin.CLIENT) -> Appended:
        """Append as leader; `acknowledged` decides when the request may be answered. `all_in_sync`: for acks=all. BrokerError."""
        self.counts.produce_requests += 1
        log = self.log
        try:  # no `_reporting` here and in `read`, which are called for each request
            self._check_append(all_in_sync)
            if self._successor_since_s is not None:
                self._check_first_batch(records, self._successor_since_s)
            if self._refused.batches:
                self._refused.check(self.topic_partition, log.topic_id, log.producers, records)
            appended = log.append(records, leader_epoch=self.state.leader_epoch, now_ms=now_ms, origin=origin)
        except BrokerError as error:
            if isinstance(error, StorageError):
                self.storage_failed(error)
            if error.code in PASSING:
                self._refused.refuse(*self.topic_partition, records, error.code, log.producers)
            raise
        self._appended(0 if appended.duplicate else len(records))
        return appended

    def _check_append(self, all_in_sync: bool) -> None:
        """NOT_LEADER_OR_FOLLOWER or NOT_ENOUGH_REPLICAS if nothing may be appended."""
        if not self.is_leader:
            raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {self.broker_id} does not lead {self.topic_partition}")
        wanted = self.log.config.min_insync_replicas
        if all_in_sync and len(self.state.isr) < wanted and len(self.state.isr) < self.min_in_sync:
            message = f"{self.topic_partition} has {amount(len(self.state.isr), 'in-sync replica')}, min.insync.replicas is {wanted}"
            raise BrokerError(ErrorCode.NOT_ENOUGH_REPLICAS, message)

    def _check_first_batch(self, records: memoryview, successor_since_s: float) -> None:
        if self._replication.monotonic_s() - successor_since_s < PREVIOUS_LEADER_S:
            check_first_batch(self.log.producers, records)
        else:
            self._successor_since_s = None

    def _appended(self, size: int) -> None:
        """So many bytes were appended as leader; 0: duplicates only."""
        if self.log.flush_due:
            self._have_flushed()
        if not size:
            return
        self.counts.bytes_in += size
        if self._single and not self._flushing:
            self.high_watermark = self.log.log_end_offset
        else:
            if self._followers is not None:
                self._followers.appended()
            self._advance()
        self.observer.moved(self)

    def _have_flushed(self) -> None:
        """Sync the log for flush.messages; one sync at a time, the next one covers the records appended in between."""
        if not self._flushing:
            self._flushing = True
            self._flush(self.log, self._flushed)

    def _flushed(self) -> None:
        self._flushing = False
        if self.state.leader == NO_LEADER:
            return  # it may be stopped or offline
        if self.log.flush_due or self.log.names_unsynced:
            self._have_flushed()
        if self.is_leader:
            self._advance()
        self.observer.moved(self)

    def take_log(self, log: Log) -> None:
        """Replace the log by a copy with the same records in another directory."""
        self.log = log
        self._flushed()  # a flush of the old copy may never complete

    def check_replica(self, replica: int) -> None:
        """NOT_LEADER_OR_FOLLOWER unless `replica` is in the partition's assignment."""
        if replica not in self.state.replicas:
            raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {replica} is not a replica of {self.topic_partition}")

    def follower_fetched(self, fetch: FollowerFetch) -> None:
        """A replica fetched: the high watermark may advance, and the replica may join the ISR."""
        followers = self._followers
        if followers is None:
            return
        state = followers.state(fetch.replica)
        start = None if state is None else state.log_start_offset
        if not followers.fetched(fetch):
            return
        if self._advance() or (state is not None and state.log_start_offset != start):
            self.observer.committed(self)
        proposal = followers.propose_join(fetch.replica, self.high_watermark)
        if proposal is not None:
            self.observer.isr_proposed(self, proposal)

    def check_followers(self) -> None:
        """Propose an ISR without the followers that lag, and let the high watermark pass replicas that no longer count.

        To be called every half of replica.lag.time.max.ms.
        """
        followers = self._followers
        if followers is None:
            return
        proposal = followers.propose_leave(self.log.log_end_offset, self._replication.monotonic_s())
        if proposal is not None:
            self.observer.isr_proposed(self, proposal)
        self.brokers_changed()

    def brokers_changed(self) -> None:
        """The live brokers have changed: the high watermark need not wait any more for a replica that was about to join."""
        if self._followers is not None and self._advance():
            self.observer.committed(self)

    def readable_followers(self, offset: int) -> Sequence[tuple[int, FollowerState]]:
        """The other in-sync replicas, as far as this leader knows, that have the record at `offset` or end there (KIP-392)."""
        return () if self._followers is None else self._followers.readable(offset)

    def has_proposed(self, proposal: IsrProposal) -> bool:
        """Whether a proposal still waits for the controller's answer."""
        return self._followers is not None and self._followers.proposed is proposal

    def isr_confirmed(self, proposal: IsrProposal, isr: tuple[int, ...], partition_epoch: int) -> None:
        """The controller has written this ISR. It is ignored if a later request of the controller has voided the proposal."""
        if self.has_proposed(proposal) and partition_epoch >= self.state.partition_epoch:
            self.lead(self.state._replace(isr=isr, partition_epoch=partition_epoch))

    def isr_refused(self, proposal: IsrProposal) -> None:
        """The controller has not written this ISR, and the one before holds.

        Not for FENCED_LEADER_EPOCH and INVALID_UPDATE_VERSION: then a newer state exists. Both ISRs count until a request brings it.
        """
        if self._followers is not None and self._followers.withdraw(proposal) and self._advance():
            self.observer.committed(self)

    def _advance(self) -> bool:
        """Advance the high watermark to the slowest replica that counts and this replica's flushed end. Returns whether it moved."""
        wanted = self.log.settled_end
        if self._followers is not None:
            wanted = self._followers.high_watermark(self.log.log_end_offset, wanted, self._replication.monotonic_s())
        if wanted <= self.high_watermark or not self.is_leader:
            return False
        self.high_watermark = wanted
        return True

    # As a follower

    @_reporting
    def replicate(self, records: memoryview, *, high_watermark: int, log_start_offset: int, now_ms: int) -> None:
        """Append what the leader sent for an offset that is this log's end, and take over the leader's high watermark and log start.

        With flush.messages the log is synced, and the next fetch waits for it (`log.flush_due`): to the leader, a fetch says that this
        replica has the records.

        The caller compares the leader epoch of its request with `state`. CORRUPT_MESSAGE: nothing is appended.
        """
        log = self.log
        end, start, watermark = log.log_end_offset, log.log_start_offset, self.high_watermark
        if len(records):
            log.append_replicated(records, now_ms=now_ms)
            if log.flush_due:
                self._have_flushed()
        # Both never go back; neither is beyond what this replica has.
        self.high_watermark = max(watermark, min(high_watermark, log.log_end_offset))
        log.advance_start(min(log_start_offset, self.high_watermark))
        if (end, start, watermark) != (log.log_end_offset, log.log_start_offset, self.high_watermark):
            self.observer.moved(self)

    @_reporting
    def truncate_to(self, offset: int) -> None:
        """Remove the records from `offset` on, which the leader does not have (KIP-101).

        Perhaps not all at once: then the log is synced (`Log.names_due`), and the caller finds out again what is to be removed.
        """
        if offset < self.high_watermark:
            logger.warning("%s is truncated to offset %d, below its high watermark %d: after an unclean leader election, or a loss of data "
                           "on the leader", self.topic_partition, offset, self.high_watermark)  # fmt: skip
        if self.log.truncate_towards(offset):
            self._truncated()

    @_reporting
    def restart_at(self, offset: int, now_ms: int) -> None:
        """Remove all records: the leader's log begins at `offset`, above this log's end. Perhaps not all at once, as `truncate_to`."""
        if self.log.restart_towards(offset, now_ms=now_ms):
            logger.info("%s ended before offset %d, where the leader's log begins: all of its records were removed",
                        self.topic_partition, offset)  # fmt: skip
            self.high_watermark = max(self.high_watermark, offset)
        self._truncated()

    def _truncated(self) -> None:
        if self.log.names_unsynced:
            self._have_flushed()
        self.high_watermark = min(self.high_watermark, self.log.log_end_offset)
        self.observer.truncated(self)
        self.observer.moved(self)

    # Waiting appends

    def acknowledged(self, last_offset: int, *, all_in_sync: bool = True) -> bool:
        """Whether every in-sync replica (else only this one) has the record at `last_offset`, synced where flush.messages requires it."""
        return self.high_watermark > last_offset or (not all_in_sync and self.log.settled_end > last_offset)

    @property
    def min_in_sync(self) -> int:
        """The smallest ISR for acks=all: min.insync.replicas, at most the number of replicas (Kafka's Partition.effectiveMinIsr)."""
        return min(self.log.config.min_insync_replicas, len(self.state.replicas))

    @property
    def enough_in_sync(self) -> bool:
        """Whether the ISR has `min_in_sync` replicas; if not, an acknowledged `acks=all` fails with NOT_ENOUGH_REPLICAS_AFTER_APPEND."""
        in_sync = self.state.isr if self._followers is None else self._followers.maximal
        return len(in_sync) >= self.min_in_sync

    @property
    def last_stable_offset(self) -> int:
        """The end (exclusive) of a read_committed read."""
        return self.log.last_stable_offset(self.high_watermark)

    def end_for(self, isolation: int, replica: int = CONSUMER) -> int:
        """The offset (exclusive) up to which this reader may read."""
        if replica != CONSUMER:
            return self.log.log_end_offset
        return self.last_stable_offset if isolation == Isolation.READ_COMMITTED else self.high_watermark

    def read(self, offset: int, bytes_max: int, offset_end: int, whole_first_batch: bool) -> Read:
        """The batches from the one that contains `offset`; OFFSET_OUT_OF_RANGE outside of the log. The caller checks role and epoch."""
        try:
            return self.log.read(offset, bytes_max, offset_end=offset_end, whole_first_batch=whole_first_batch)
        except StorageError as error:
            self.storage_failed(error)
            raise

    @_reporting
    def aborted_transactions(self, start: int, end: int) -> list[AbortedTransaction]:
        """Aborted transactions with records in [start, end)."""
        return self.log.aborted_transactions(start, end)

    def diverging_epoch(self, last_fetched_epoch: int, fetch_offset: int) -> EpochEnd | None:
        """The truncation point of a reader whose log ends with this epoch and offset; None if it does not diverge (KIP-595)."""
        if last_fetched_epoch < 0 or fetch_offset < self.log.log_start_offset:
            return None  # the read fails with OFFSET_OUT_OF_RANGE for an offset below the log's start
        end = self.log.end_offset_for_epoch(last_fetched_epoch)
        if end.epoch < 0:
            raise BrokerError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{self.topic_partition} has no leader epoch up to {last_fetched_epoch}")
        if end.epoch < last_fetched_epoch or end.end_offset < fetch_offset:
            return end
        return None

    def start_moved(self) -> None:
        """Report that retention has advanced the log start offset."""
        self.observer.moved(self)

    @property
    def low_watermark(self) -> int:
        """The offset below which no replica has records, as far as this leader knows: the smallest log start offset of live replicas."""
        start = self.log.log_start_offset
        return start if self._followers is None else self._followers.low_watermark(start)

    @_reporting
    def delete_records(self, offset: int) -> int:
        """Advance the log start offset to `offset` (-1: the high watermark), and return it: the low watermark that is to be reached.

        POLICY_VIOLATION on a topic without cleanup.policy=delete, OFFSET_OUT_OF_RANGE above the high watermark. A start offset
        that is already higher stays.
        """
        if not self.log.config.delete:
            raise BrokerError(ErrorCode.POLICY_VIOLATION, f"cleanup.policy of {self.topic_partition.topic} does not include delete")
        wanted = self.high_watermark if offset == HIGH_WATERMARK_REQUEST else offset
        if wanted < 0 or wanted > self.high_watermark:
            raise BrokerError(ErrorCode.OFFSET_OUT_OF_RANGE, f"the high watermark of {self.topic_partition} is {self.high_watermark}")
        if self.log.advance_start(wanted):
            self.observer.moved(self)
        return wanted
