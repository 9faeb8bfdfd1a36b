"""One partition's log (Kafka's UnifiedLog): open, look up, delete. Appends are in `appending.py`, truncation is in `truncation.py`.

All methods belong to one thread (the reactor's), except `FlushPlan.sync` and the work that is given to `later`, which only use files.
The high watermark belongs to `cluster/partition.py` and is an argument here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import suppress

from txbroker.errors import BrokerError, ErrorCode, StorageError
from txbroker.log.appending import AppendableLog
from txbroker.log.cleaner.cleaning_job import LastRecord
from txbroker.log.disk import Disk
from txbroker.log.file_names import PARTITION_METADATA, parent_of
from txbroker.log.flush import FlushPlan
from txbroker.log.log_config import LogConfig
from txbroker.log.log_results import AbortedTransaction, EpochEnd, Later, at_once, no_jitter
from txbroker.log.open_segments import OpenSegments
from txbroker.log.partition_metadata import format_metadata, parse_metadata
from txbroker.log.producer_recovery import find_batches
from txbroker.log.recovery import Loaded, Loader, never
from txbroker.log.retention import expired_segments
from txbroker.names import NULL_TOPIC_ID, TopicPartition, id_to_text

logger = logging.getLogger("txbroker.log")

SEARCHES_MAX = 20  # for batches of producers before a cleaning; each reads up to 10 MiB
PRODUCER_ID_EXPIRATION_MS = 86_400_000  # Kafka's default of producer.id.expiration.ms


class Log(AppendableLog):
    """A log with its producers, leader epochs and topic id.

    Until it is in use (`use`) a worker may append to it, if nothing else does meanwhile: that is how copies are made.

    `topic_id` is NULL_TOPIC_ID until assigned. While `being_cleaned` is True retention deletes nothing; the cleaning loop sets it.
    `first_known`: generation, offset and timestamp of the first record at some time, for expiry (`log_expiry.py`).
    """

    __slots__ = ("being_cleaned", "first_known", "topic_id")

    def __init__(
        self,
        directory: str,
        topic_partition: TopicPartition,
        loaded: Loaded,
        *,
        disk: Disk,
        config: LogConfig,
        later: Later,
        random_below: Callable[[int], int],
    ) -> None:
        super().__init__(directory, topic_partition, loaded, disk=disk, config=config, later=later, random_below=random_below)
        self.being_cleaned = False
        self.first_known = (-1, -1, -1)
        content = disk.read(self._metadata_path)
        self.topic_id = NULL_TOPIC_ID if content is None else parse_metadata(content, self._metadata_path)

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
        high_watermark: int = 0,
        later: Later = at_once,
        random_below: Callable[[int], int] = no_jitter,
        producer_id_expiration_ms: int = PRODUCER_ID_EXPIRATION_MS,
        interrupted: Callable[[], bool] = never,
    ) -> Log:
        """Load a log, or create an empty one with its directory. May run in a worker; uses this directory only.

        `clean`: the last shutdown was clean; otherwise segments from `recovery_point` on are read in full, their indexes are rebuilt,
        and a torn tail is cut off. `log_start_offset`, `recovery_point` and `high_watermark` come from the directory's checkpoints; the
        last one only shows whether records are missing. `random_below(n)`
        returns a number in [0, n) for segment.jitter.ms. StartInterrupted if `interrupted` returns True before the last segment is
        recovered.
        """
        loaded = Loader(
            directory,
            topic_partition,
            disk=disk,
            config=config,
            now_ms=now_ms,
            clean=clean,
            log_start_offset=log_start_offset,
            recovery_point=recovery_point,
            high_watermark=high_watermark,
            producer_id_expiration_ms=producer_id_expiration_ms,
            interrupted=interrupted,
        ).load()
        return cls(directory, topic_partition, loaded, disk=disk, config=config, later=later, random_below=random_below)

    def use(self, open_segments: OpenSegments) -> None:
        """The log is in use from now on, in the logs' thread only. `open_segments` is shared with the other logs in use."""
        self._in_use = True
        self._list.share(open_segments)

    def end_offset_for_epoch(self, epoch: int) -> EpochEnd:
        """The end of the largest epoch that is not above `epoch` (OffsetForLeaderEpoch)."""
        return self.leader_epochs.end_offset_for(epoch, self.log_end_offset)

    def last_stable_offset(self, high_watermark: int) -> int:
        """The first offset of the earliest transaction that is open, or whose end is not below the high watermark.

        At least the log start offset: a deletion of records may pass the start of an open transaction.
        """
        unstable = self.producers.first_unstable_offset(high_watermark)
        return high_watermark if unstable is None else min(max(unstable, self.log_start_offset), high_watermark)

    def aborted_transactions(self, start: int, end: int) -> list[AbortedTransaction]:
        """Aborted transactions with records in [start, end)."""
        return self._list.aborted_transactions(start, end)

    # Start offset and retention

    def delete_expired(self, now_ms: int, high_watermark: int) -> int:
        """All steps of `expire` at once, syncing in place: for a log that is not in use. Returns how many segments were deleted."""
        deleted = 0
        while (step := self.expire(now_ms, high_watermark)) is not None:
            deleted += step
            self._sync_names()
        return deleted

    def expire(self, now_ms: int, high_watermark: int) -> int | None:
        """Delete the oldest segment by retention (cleanup.policy delete), or if it is below the start (always): one step of several.

        Returns how many segments were deleted, 0 for a step that prepares it; None if nothing is to be done, or not now. After a step
        `names_plan` must be synced before the next one: a loss of power would leave a gap in the log, or no segment at all.
        """
        if self.being_cleaned or self.names_due:
            return None  # as in Kafka; the next pass of retention deletes them
        expired = expired_segments(
            self.segments,
            self.config,
            log_start_offset=self.log_start_offset,
            log_end_offset=self.log_end_offset,
            high_watermark=high_watermark,
            now_ms=now_ms,
        )
        if not expired:
            return None
        if self._creations != self._synced_creations:
            return 0  # the names of those that stay are synced first
        segment, reason = expired[0]
        if segment is self.segments[-1]:
            self._roll(self.log_end_offset, now_ms)
            self._names_changed()
            return 0
        logger.info("%s: deleting the segment at offset %d: %s", self.topic_partition, segment.base_offset, reason)
        self._list.drop_first(self.config.file_delete_delay_ms)
        self._names_changed()
        self.advance_start(self._bases[0])
        return 1

    # Cleaning

    def last_records(self, now_ms: int) -> Iterator[LastRecord]:
        """The last records of each known producer: cleaning keeps their batches, for the sequence numbers.

        Producers may change between two of them; one that does has its last records at that moment.
        """
        searches = 0
        for state in list(self.producers):
            if state.from_snapshot and state.is_repeatable(now_ms) and searches < SEARCHES_MAX:
                searches += 1
                with suppress(StorageError):  # the pass finds out, too
                    find_batches(state, self.segments)
            for last_offset in state.repeatable_ends(now_ms):
                yield LastRecord(state.producer_id, state.epoch, last_offset)

    # Durability

    def flush_plan(self) -> FlushPlan | None:
        """As `LocalLog.flush_plan`, with the leader epochs."""
        if self.leader_epochs.unsynced:
            self._unsynced.update((self.leader_epochs.path, self.directory))
            self.leader_epochs.unsynced = False
        return super().flush_plan()

    def close(self) -> None:
        """Write indexes and the snapshot of producers, and sync all. The log must not be used afterwards."""
        for segment in self.segments:
            segment.open_segments = None  # this may run in a worker
            if segment.seal() or segment.txn_index.has_new:
                self._unsynced.update((*segment.index_paths(), self.directory))
        self.producers.capture = None
        has_state = self.log_end_offset > self.log_start_offset or len(self.producers)
        if has_state and self._snapshots.take(self.producers, self.log_end_offset):
            self._unsynced.update((self._snapshots.path(self.log_end_offset), self.directory))
        self.flush()
        for segment in self.segments:
            segment.release()

    # Settings and names

    def expire_producers(self, now_ms: int) -> int:
        """Forget producers that were silent for producer.id.expiration.ms; returns how many."""
        return self.producers.expire(now_ms)

    @property
    def _metadata_path(self) -> str:
        return f"{self.directory}/{PARTITION_METADATA}"

    def assign_topic_id(self, topic_id: bytes) -> None:
        """Write partition.metadata; INCONSISTENT_TOPIC_ID when the log has another id."""
        if topic_id == self.topic_id:
            return
        if self.topic_id != NULL_TOPIC_ID:
            raise BrokerError(
                ErrorCode.INCONSISTENT_TOPIC_ID,
                f"{self.topic_partition} has the topic id {id_to_text(self.topic_id)}, not {id_to_text(topic_id)}",
            )
        self._disk.replace(self._metadata_path, format_metadata(topic_id), sync=False)
        self._unsynced.update((self._metadata_path, self.directory))
        self.topic_id = topic_id

    def rename_directory(self, directory: str) -> None:
        """Rename the log's directory, for example to `….<uuid>-delete`."""
        self._disk.rename(self.directory, directory)
        moved = [path.replace(self.directory, directory, 1) for path in self._take_paths()]
        for plan in self._syncing:
            plan.renamed()
        self._unsynced = {directory, parent_of(directory), *moved}
        self.directory = directory
        self._snapshots.directory = directory
        self.leader_epochs.move(directory)
        for segment in self.segments:
            segment.move(directory)
