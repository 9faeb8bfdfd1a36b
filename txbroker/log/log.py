"""One partition's log: append, read, look up, truncate, flush (Kafka's UnifiedLog and LocalLog).

All methods belong to one thread (the reactor's) but `FlushPlan.sync` and what is given to `later`, which only touch files.
The high watermark belongs to `cluster/partition.py` and comes in as an argument.
"""

from __future__ import annotations

from txbroker.log.config import LogConfig
from txbroker.log.disk import Disk
from txbroker.log.flush import FlushPlan
from txbroker.log.leader_epochs import LeaderEpochs
from txbroker.log.producers import ProducerStates
from txbroker.log.segment import Segment
from txbroker.log.values import AbortedTransaction, Appended, EpochEnd, Later, Origin, Read, TimestampOffset, at_once
from txbroker.names import TopicPartition

PRODUCER_ID_EXPIRATION_MS = 86_400_000


class Log:
    """The log of `topic_partition` in `directory`. Offsets: [log_start_offset, log_end_offset)."""

    directory: str
    topic_partition: TopicPartition
    topic_id: bytes  # names.NULL_TOPIC_ID until assigned
    config: LogConfig
    log_start_offset: int
    log_end_offset: int
    recovery_point: int  # everything below is synced
    last_flush_ms: int  # for flush.ms
    segments: list[Segment]
    leader_epochs: LeaderEpochs
    producers: ProducerStates

    @classmethod
    def open(
        cls,
        directory: str,
        topic_partition: TopicPartition,
        *,
        disk: Disk,
        config: LogConfig,
        now_ms: int,
        clean: bool = True,
        log_start_offset: int = 0,
        recovery_point: int = 0,
        later: Later = at_once,
        producer_id_expiration_ms: int = PRODUCER_ID_EXPIRATION_MS,
    ) -> Log:
        """Load a log, or make an empty one (the directory is made too). May run in a worker; touches this directory only.

        `clean`: the last shutdown was clean; otherwise segments from `recovery_point` on are scanned, indexes made anew,
        and a torn tail is cut. `log_start_offset` and `recovery_point` come from the directory's checkpoints.
        """

    @property
    def size(self) -> int:
        """Bytes of all segments."""

    def append(self, records: memoryview, *, leader_epoch: int, now_ms: int, origin: Origin = Origin.CLIENT) -> Appended:
        """Validate and append a leader's records. `records` must be writable: offsets and epoch are stamped in place.

        BrokerError: CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, INVALID_RECORD, INVALID_TIMESTAMP,
        UNSUPPORTED_COMPRESSION_TYPE, OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE,
        TRANSACTION_COORDINATOR_FENCED; StorageError. After any of them the log is as it was.
        """

    def append_replicated(self, records: memoryview, *, now_ms: int) -> Appended:
        """Append what a leader sent, offsets and epochs as they are; they must go up from the log's end (gaps allowed)."""

    def read(self, offset: int, bytes_max: int, *, offset_end: int, whole_first_batch: bool = False) -> Read:
        """A region from the batch that holds `offset` on, within one segment, never past `offset_end` (exclusive).

        Empty at `offset_end` and above it up to the log's end; OFFSET_OUT_OF_RANGE outside of the log.
        """

    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """The first record (by offset) whose timestamp is `timestamp` or later."""

    def offset_of_max_timestamp(self) -> TimestampOffset | None:
        """The record with the largest timestamp, the first of equals."""

    def end_offset_for_epoch(self, epoch: int) -> EpochEnd: ...

    def last_stable_offset(self, high_watermark: int) -> int:
        """The first offset of the earliest transaction that is open, or whose end is not below the high watermark."""

    def aborted_transactions(self, start: int, end: int) -> list[AbortedTransaction]:
        """Aborted transactions with records in [start, end)."""

    def advance_start(self, offset: int) -> bool:
        """Move the log's start up (DeleteRecords, a leader's start); False when it is there already.

        The caller checks the high watermark. Whole segments below it go with the next `delete_expired`.
        """

    def delete_expired(self, now_ms: int, high_watermark: int) -> int:
        """Delete old segments by retention (cleanup.policy delete) and below the start (always); how many."""

    def roll(self, now_ms: int) -> None:
        """Close the active segment and begin a new one; nothing when the active one is empty."""

    def truncate_to(self, offset: int) -> bool:
        """Cut the log so that it ends at `offset` or at the border of the batch that holds it; False when nothing was cut."""

    def truncate_fully_at(self, offset: int, *, now_ms: int) -> None:
        """Drop everything; the log is empty and starts and ends at `offset`."""

    def flush_plan(self) -> FlushPlan | None:
        """What must be synced for the log to be durable up to its end now; None when it is. Run `plan.sync()` in a worker."""

    def flushed(self, plan: FlushPlan, now_ms: int) -> None:
        """`plan` was synced: moves the recovery point."""

    def flush(self, now_ms: int) -> None:
        """Sync in place."""

    def expire_producers(self, now_ms: int) -> int:
        """Forget producers that were silent for producer.id.expiration.ms; how many."""

    def assign_topic_id(self, topic_id: bytes) -> None:
        """Write partition.metadata; INCONSISTENT_TOPIC_ID when it holds another id."""

    def reconfigure(self, config: LogConfig) -> None: ...

    def rename_directory(self, directory: str) -> None:
        """Move the log's directory (to `….<uuid>-delete`, for instance)."""

    def close(self, now_ms: int) -> None:
        """Write indexes and the producers' snapshot, sync all. The log must not be used afterwards."""

    def delete(self) -> None:
        """Remove the directory with all files. May run in a worker once nobody uses the log."""
