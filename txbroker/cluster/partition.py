"""One partition on this broker: its role, and what a leader does (Kafka's `Partition`).

This module and `local_replica.py` alone change the high watermark. A partition reports to one observer that it moved, or that its log
cannot be read or written; it does not know the requests that wait for it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from txbroker.cluster.followers import FollowerFetch, Followers, FollowerState, IsrProposal
from txbroker.cluster.local_replica import Flush, Leadership, LocalReplica, reporting
from txbroker.cluster.node_data import NO_LEADER
from txbroker.cluster.refused_sequences import PASSING, PREVIOUS_LEADER_S, RefusedSequences, check_first_batch
from txbroker.cluster.topic_counts import TopicCounts
from txbroker.errors import BrokerError, ErrorCode, StorageError
from txbroker.lazy_dataclass import lazy_dataclass
from txbroker.log.log import Log
from txbroker.log.log_results import Appended, Origin
from txbroker.names import amount

HIGH_WATERMARK_REQUEST = -1  # in DeleteRecords: the high watermark


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


@lazy_dataclass(frozen=True, slots=True)
class Replication:
    """What leaders need to judge their followers.

    `lag_max_s`: replica.lag.time.max.ms. `is_eligible(replica, broker epoch)`: whether that incarnation of a broker is alive.
    """

    monotonic_s: Callable[[], float]
    lag_max_s: Callable[[], float]
    is_eligible: Callable[[int, int], bool]


class Partition(LocalReplica):
    """A replica of one partition, leader or follower, with its log."""

    __slots__ = (
        "_counted_end",
        "_followers",
        "_refused",
        "_replication",
        "_single",
        "_successor_since_s",
        "counts",
        "epoch_start",
        "leadership",
        "observer",
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
        super().__init__(broker_id, log, flush, high_watermark)
        self.counts = counts or TopicCounts()
        self._counted_end = log.log_end_offset
        self.observer = observer
        self.leadership = 0  # how often it has become the leader; it truncates its log only in between
        self.epoch_start = -1  # the first offset of the leader epoch in which this broker leads
        self._replication = replication
        self._followers: Followers | None = None  # while this broker leads and there are other replicas
        self._single = False  # it leads, and no other replica counts
        self._refused = refused or RefusedSequences(replication.monotonic_s)
        self._successor_since_s: float | None = None  # the start of this leader epoch, as long as the previous leader may have requests

    def storage_failed(self, error: StorageError) -> None:
        self.observer.storage_failed(self, error)

    def _moved(self) -> None:
        self.observer.moved(self)

    def _records_removed(self) -> None:
        self.observer.truncated(self)

    @reporting
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
        if self.log.must_flush:
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
            if state.leader != NO_LEADER and self.log.must_flush:
                self._have_flushed()  # after a start, or after a truncation without a leader
            self.observer.moved(self)
        return changed

    def resign(self) -> None:
        """Its log cannot be used any more: no broker leads it here."""
        self.count_messages()
        self.is_leader = False
        self._single = False
        self._followers = None
        self.state = self.state._replace(leader=NO_LEADER)

    def count_messages(self) -> None:
        """Add the records appended since the last call to the counters. Call it before reading the counters."""
        if self.is_leader:
            self.counts.messages_in += self.log.log_end_offset - self._counted_end
            self._counted_end = self.log.log_end_offset

    def offsets_skipped(self, count: int) -> None:
        """So many offsets of the last append have no record."""
        self._counted_end += count

    def append(self, records: memoryview, now_ms: int, all_in_sync: bool = False, origin: Origin = Origin.CLIENT) -> Appended:
        """Append as leader; `acknowledged` decides when the request may be answered. `all_in_sync`: for acks=all. BrokerError."""
        counts = self.counts
        counts.produce_requests += 1
        log = self.log
        try:  # no `reporting` here and in `read`, which are called for each request
            if not self._single:
                self._check_append(all_in_sync)
            if self._successor_since_s is not None:
                self._check_first_batch(records, self._successor_since_s)
            if self._refused.batches:
                self._refused.check(self.topic_partition, log.topic_id, log.producers, records)
            appended = log.append(records, self.state.leader_epoch, now_ms, origin)
        except BrokerError as error:
            if isinstance(error, StorageError):
                self.storage_failed(error)
            if error.code in PASSING:
                self._refused.refuse(*self.topic_partition, records, error.code, log.producers)
            raise
        end = log.log_end_offset
        if end - log.recovery_point >= log.config.flush_messages:
            self._have_flushed()
        if appended.duplicate:
            return appended
        counts.bytes_in += len(records)
        if self._single and not self._flushing:
            self.high_watermark = end
        else:
            if self._followers is not None:
                self._followers.appended()
            self._advance()
        self.observer.moved(self)
        return appended

    def _check_append(self, all_in_sync: bool) -> None:
        """NOT_LEADER_OR_FOLLOWER or NOT_ENOUGH_REPLICAS if nothing may be appended. Needless for a leader without other replicas."""
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

    def narrow_isr(self, allowed: Collection[int]) -> None:
        """Propose an ISR without the followers that are not allowed: for tests of applications (`testing/isr_bars.py`)."""
        proposal = None if self._followers is None else self._followers.propose_only(allowed)
        if proposal is not None:
            self.observer.isr_proposed(self, proposal)

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

    # Waiting appends

    def acknowledged(self, last_offset: int, all_in_sync: bool = True) -> bool:
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

    def start_moved(self) -> None:
        """Report that retention has advanced the log start offset."""
        self.observer.moved(self)

    @property
    def low_watermark(self) -> int:
        """The offset below which no replica has records, as far as this leader knows: the smallest log start offset of live replicas."""
        start = self.log.log_start_offset
        return start if self._followers is None else self._followers.low_watermark(start)

    @reporting
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
