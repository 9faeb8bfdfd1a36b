"""A replica of one partition on this broker: its log and its high watermark, and what it does as a follower.

`partition.py` adds what a leader does. All access to the log's files goes through these classes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import IntEnum
from functools import wraps
from typing import Concatenate, NamedTuple, ParamSpec, Protocol, TypeVar

from txbroker.cluster.node_data import NO_LEADER
from txbroker.errors import BrokerError, ErrorCode, StorageError
from txbroker.log.log import Log
from txbroker.log.log_results import AbortedTransaction, EpochEnd, Read
from txbroker.names import TopicPartition

logger = logging.getLogger("txbroker.cluster.replicas")

CONSUMER = -1  # the replica id of readers that are not replicas


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


class Flush(Protocol):
    """Syncs a log up to its current end in a worker, then calls `done`. A disk failure is reported separately and `done` is not called."""

    def __call__(self, log: Log, done: Callable[[], None], /) -> None: ...


P = ParamSpec("P")
R = TypeVar("R", bound="LocalReplica")
T = TypeVar("T")


def reporting(method: Callable[Concatenate[R, P], T]) -> Callable[Concatenate[R, P], T]:
    """Report a StorageError of this method to the observer before it reaches the caller."""

    @wraps(method)
    def reported(self: R, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(self, *args, **kwargs)
        except StorageError as error:
            self.storage_failed(error)
            raise

    return reported


class LocalReplica:
    """A replica, whose log and role `Partition` changes."""

    __slots__ = ("_flush", "_flushing", "broker_id", "high_watermark", "is_leader", "log", "state", "topic_partition")

    def __init__(self, broker_id: int, log: Log, flush: Flush, high_watermark: int) -> None:
        self.broker_id = broker_id
        self.topic_partition: TopicPartition = log.topic_partition
        self.log = log
        self.state = NO_LEADERSHIP
        self.is_leader = False
        # The checkpoint may be older or newer than the log.
        self.high_watermark = min(max(high_watermark, log.log_start_offset), log.log_end_offset)
        self._flush = flush
        self._flushing = False

    # What `Partition` does for both roles

    def storage_failed(self, error: StorageError) -> None:
        """Report that the log could not be read or written; its directory goes offline."""
        raise NotImplementedError

    def _moved(self) -> None:
        """Report that the end offset, the start offset, the high watermark or the role has changed."""
        raise NotImplementedError

    def _records_removed(self) -> None:
        """Report that the log ends before records that it had."""
        raise NotImplementedError

    def _advance(self) -> bool:
        """As leader, advance the high watermark as far as possible. Returns whether it moved."""
        raise NotImplementedError

    # Both roles

    @reporting
    def assign_topic_id(self, topic_id: bytes) -> None:
        """Set the log's topic id; INCONSISTENT_TOPIC_ID when it has another one."""
        self.log.assign_topic_id(topic_id)

    @property
    def leader_epoch(self) -> int:
        """The leader epoch of the last LeaderAndIsr request that was applied."""
        return self.state.leader_epoch

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

    def check_replica(self, replica: int) -> None:
        """NOT_LEADER_OR_FOLLOWER unless `replica` is in the partition's assignment."""
        if replica not in self.state.replicas:
            raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {replica} is not a replica of {self.topic_partition}")

    def _have_flushed(self) -> None:
        """Sync the log for flush.messages; one sync at a time, the next one covers the records appended in between."""
        if not self._flushing:
            self._flushing = True
            self._flush(self.log, self._flushed)

    def _flushed(self) -> None:
        self._flushing = False
        if self.state.leader == NO_LEADER:
            return  # it may be stopped or offline
        if self.log.must_flush:
            self._have_flushed()
        if self.is_leader:
            self._advance()
        self._moved()

    def take_log(self, log: Log) -> None:
        """Replace the log by a copy with the same records in another directory."""
        self.log = log
        self._flushed()  # a flush of the old copy may never complete

    # As a follower

    @reporting
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
            self._moved()

    @reporting
    def truncate_to(self, offset: int) -> None:
        """Remove the records from `offset` on, which the leader does not have (KIP-101).

        Perhaps not all at once: then the log is synced (`Log.names_due`), and the caller finds out again what is to be removed.
        """
        if offset < self.high_watermark:
            logger.warning("%s is truncated to offset %d, below its high watermark %d: after an unclean leader election, or a loss of data "
                           "on the leader", self.topic_partition, offset, self.high_watermark)  # fmt: skip
        if self.log.truncate_towards(offset):
            self._truncated()

    @reporting
    def restart_at(self, offset: int, now_ms: int) -> None:
        """Remove all records: the leader's log begins at `offset`, above this log's end. Perhaps not all at once, as `truncate_to`."""
        if self.log.restart_towards(offset, now_ms=now_ms):
            logger.info("%s ended before offset %d, where the leader's log begins: all of its records were removed",
                        self.topic_partition, offset)  # fmt: skip
            self.high_watermark = max(self.high_watermark, offset)
        self._truncated()

    def _truncated(self) -> None:
        if self.log.truncation_waits:
            self._have_flushed()
        self.high_watermark = min(self.high_watermark, self.log.log_end_offset)
        self._records_removed()
        self._moved()

    # Reading

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

    @reporting
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
