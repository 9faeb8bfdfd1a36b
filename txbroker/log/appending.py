"""Appending to a log: batches of clients, coordinators, the mirror and leaders, and the segments that they begin."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from txbroker.errors import BrokerError, CorruptRecords, ErrorCode
from txbroker.log.disk import Disk
from txbroker.log.leader_epochs import NOT_WRITTEN
from txbroker.log.log_config import LogConfig
from txbroker.log.log_results import Appended, Later, Origin
from txbroker.log.markers import read_marker
from txbroker.log.offset_index import RELATIVE_OFFSET_MAX
from txbroker.log.produced_batch import prepare
from txbroker.log.producer_recovery import find_batches
from txbroker.log.producer_replay import replay_batch
from txbroker.log.producer_snapshots import SLICE
from txbroker.log.recovery import Loaded, first_offset_of, is_after_gap, may_have_gaps
from txbroker.log.segment import Segment
from txbroker.log.truncation import TruncatableLog
from txbroker.log.validate import Validated, validate, validate_copied
from txbroker.names import TopicPartition
from txbroker.wire.batch import CONTROL, BatchHeader, stamp
from txbroker.wire.entries import EntryHeader, Scan

_new_appended: Callable[[type[Appended], tuple[int, int, int, int, bool]], Appended] = tuple.__new__  # half the time of a call


class AppendableLog(TruncatableLog):
    """A log to which batches are appended.

    `_in_use`: in the logs' thread; otherwise names of files are synced in place. `_has_gaps`: there may be offsets without records.
    """

    __slots__ = ("_has_gaps", "_in_use")

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
        self._in_use = False
        self._has_gaps = loaded.has_gaps

    def reconfigure(self, config: LogConfig) -> None:
        """Apply new settings; the active segment keeps its jitter."""
        super().reconfigure(config)
        self._has_gaps |= may_have_gaps(config)  # also when a later configuration ends it

    def append(self, records: memoryview, leader_epoch: int, now_ms: int, origin: Origin = Origin.CLIENT) -> Appended:
        """Validate and append a leader's records. `records` must be writable: offsets and epoch are stamped in place.

        BrokerError: CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, INVALID_RECORD, INVALID_TIMESTAMP,
        OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, TRANSACTION_COORDINATOR_FENCED; StorageError.
        After any of them the log is as it was. Nothing is synced: the caller flushes when `flush_due`.
        """
        limits = self.config.limits
        producers = self.producers
        if limits is None or origin is not Origin.CLIENT or (producers.verifications and producers.waits_for_verification(records)):
            return self._append_validated(records, leader_epoch, now_ms, origin)
        first_offset = self.log_end_offset
        prepared = prepare(records, limits, producers.by_id, now_ms, first_offset, leader_epoch)
        if prepared is None:
            return self._append_validated(records, leader_epoch, now_ms, origin)
        delta, max_timestamp, producer_id, producer_epoch, sequence, transactional = prepared
        last_offset = first_offset + delta
        self._write(records, last_offset, max_timestamp, leader_epoch, now_ms)
        if producer_id >= 0:
            producers.add(producer_id, producer_epoch, sequence, delta, first_offset, max_timestamp, transactional)
        return _new_appended(Appended, (first_offset, last_offset, -1, self.log_start_offset, False))

    def _append_validated(self, records: memoryview, leader_epoch: int, now_ms: int, origin: Origin) -> Appended:
        """As `append`, for any batch: it may be refused, a duplicate, of another format, a marker, or has to be changed."""
        if origin is Origin.MIRROR:
            return self._append_copied(records, leader_epoch, now_ms)
        validated = validate(records, self.config, now_ms, origin)
        batch, header, append_time_ms = validated
        if header.attributes & CONTROL:
            return self._append_marker(validated, leader_epoch, now_ms)
        has_producer = header.producer_id >= 0
        if has_producer:
            try:
                original = self.producers.check(header, origin)
            except BrokerError:
                if not self._find_batches(header.producer_id):
                    raise
                original = self.producers.check(header, origin)
            if original is not None:
                append_time_ms = original.timestamp if append_time_ms >= 0 else -1
                return Appended(original.first_offset, original.last_offset, append_time_ms, self.log_start_offset, True)
        first_offset = self.log_end_offset
        last_offset = first_offset + header.last_offset_delta
        self._stamp_and_write(batch, header, leader_epoch, now_ms)
        if has_producer:
            self.producers.update(header, first_offset)
        return Appended(first_offset, last_offset, append_time_ms, self.log_start_offset)

    def _find_batches(self, producer_id: int) -> bool:
        """Whether more batches of a producer were found in the log."""
        state = self.producers.get(producer_id)
        return state is not None and find_batches(state, self.segments)

    def _stamp_and_write(self, batch: memoryview, header: BatchHeader, leader_epoch: int, now_ms: int) -> None:
        """Stamp a leader's batch with the next offset and its epoch, and write it."""
        stamp(batch, 0, self.log_end_offset, leader_epoch)
        self._write(batch, self.log_end_offset + header.last_offset_delta, header.max_timestamp, leader_epoch, now_ms)

    def _write(self, batch: memoryview, last_offset: int, max_timestamp: int, leader_epoch: int, now_ms: int) -> None:
        """Write a stamped batch into the active segment, or a new one."""
        first_offset = self.log_end_offset
        active = self.segments[-1]
        if active.should_roll(len(batch), max_timestamp, last_offset, now_ms, self.config):
            self._sync_name()
            active = self._roll(first_offset, now_ms)
        if leader_epoch != self.leader_epochs.written:
            self.leader_epochs.assign(leader_epoch, first_offset)
            self._prepare_roll()
        active.append(batch, last_offset, max_timestamp, first_offset)
        self.log_end_offset = last_offset + 1

    def _append_copied(self, batch: memoryview, leader_epoch: int, now_ms: int) -> Appended:
        """Append one batch at its own base offset; OUT_OF_ORDER_SEQUENCE_NUMBER if the log ends elsewhere than the mirror says.

        There may be a gap before it, of as many offsets as the batch has in the place of its leader epoch (-1: any number). So a batch is
        refused if the one before it was. An empty log begins at the batch.
        """
        header = validate_copied(batch, self.config)
        end, first_offset = self.log_end_offset, header.base_offset
        if first_offset < end or 0 <= header.leader_epoch != first_offset - end:
            after = f", after {header.leader_epoch} offsets without a record" if header.leader_epoch >= 0 else ""
            problem = f"{self.topic_partition} ends at {end}, a mirror sent a batch at {first_offset}{after}"
            raise BrokerError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, problem)
        if end == self.log_start_offset:
            self.skip_to(first_offset, now_ms)
            self.advance_start(first_offset)
            end = first_offset
        if self.segments[-1].should_roll(header.size, header.max_timestamp, header.last_offset, now_ms, self.config):
            self._sync_name()
            self._roll(self._base_for(first_offset, header.last_offset), now_ms)
        self.log_end_offset = first_offset
        try:
            self._stamp_and_write(batch, header, leader_epoch, now_ms)
        except BaseException:
            self.log_end_offset = end
            raise
        return Appended(first_offset, header.last_offset, -1, self.log_start_offset)

    def _append_marker(self, validated: Validated, leader_epoch: int, now_ms: int) -> Appended:
        """Append a control batch of a coordinator, which ends a transaction if it is a marker."""
        batch, header, _ = validated
        marker = read_marker(batch, 0, header)
        if marker is not None:
            self.producers.check_marker(marker)
        offset = self.log_end_offset
        self._stamp_and_write(batch, header, leader_epoch, now_ms)
        aborted = self.producers.end_transaction(marker, offset) if marker is not None else None
        if aborted is not None:
            self.segments[-1].txn_index.append(aborted)
        return Appended(offset, self.log_end_offset - 1, -1, self.log_start_offset)

    def append_replicated(self, records: memoryview, *, now_ms: int) -> Appended:
        """Append batches from a leader, with its offsets and epochs. A torn last batch is left out.

        CORRUPT_MESSAGE for a wrong CRC, and unless offsets ascend from the log's end (gaps are allowed: the leader's log may be
        compacted). Nothing is synced, as in `append`.
        """
        batches: list[tuple[int, EntryHeader]] = []
        scan = Scan(records, check_crc=True)
        expected = self.log_end_offset
        has_gaps = False
        for at, header in scan:
            has_gaps = has_gaps or is_after_gap(header, expected)
            first_offset = first_offset_of(header)
            if first_offset < expected:
                raise CorruptRecords(f"offset {first_offset} was sent for {self.topic_partition}, which ends at {expected}")
            expected = header.last_offset + 1
            batches.append((at, header))
        scan.raise_if_corrupt()
        self._has_gaps |= has_gaps
        before = self.log_end_offset
        run: list[tuple[int, EntryHeader]] = []
        for at, header in batches:
            pending = at - run[0][0] if run else 0
            active = self.segments[-1]
            if active.should_roll(header.size, header.max_timestamp, header.last_offset, now_ms, self.config, pending):
                self._write_run(records, run)
                run = []
                self._sync_name()
                self._roll(self._base_for(first_offset_of(header), header.last_offset), now_ms)
            run.append((at, header))
        self._write_run(records, run)
        return Appended(before, self.log_end_offset - 1, -1, self.log_start_offset)

    def _write_run(self, records: memoryview, run: Sequence[tuple[int, EntryHeader]]) -> None:
        """Write consecutive batches of a leader into the active segment, all or none."""
        if not run:
            return
        start, end = run[0][0], run[-1][0] + run[-1][1].size
        active = self.segments[-1]
        if self.leader_epochs.written == NOT_WRITTEN:
            self.leader_epochs.write()
        for _, header in run:
            if header.leader_epoch > self.leader_epochs.latest:
                self.leader_epochs.assign(header.leader_epoch, first_offset_of(header))
                self._prepare_roll()
        active.append_all(
            records[start:end],
            [first_offset_of(header) for _, header in run],
            [header.last_offset for _, header in run],
            [active.size + at - start << 32 | header.size for at, header in run],
            [header.max_timestamp for _, header in run],
        )
        self.log_end_offset = run[-1][1].last_offset + 1
        for at, header in run:
            aborted = replay_batch(self.producers, records, at, header)
            if aborted is not None:
                active.txn_index.append(aborted)

    def roll(self, now_ms: int) -> None:
        """Close the active segment and begin a new one; does nothing when the active one is empty.

        If the name of the active one is not durable yet it is synced in place.
        """
        if self.segments[-1].size:
            self._sync_names()
            self._roll(self.log_end_offset, now_ms)

    def skip_to(self, offset: int, now_ms: int) -> None:
        """Leave a gap before the next record, which gets `offset`; does nothing when the log ends there. Names as in `roll`."""
        if offset > self.log_end_offset:
            self._sync_names()
            self._roll(offset, now_ms)
            self.log_end_offset = offset

    def _base_for(self, first_offset: int, last_offset: int) -> int:
        """The base offset of a segment that begins with a batch: the log's end, so that a gap before the batch lies within the segment.

        Recovery takes a gap between two segments for the trace of a loss of power, unless no segment can span it.
        """
        return first_offset if last_offset - self.log_end_offset > RELATIVE_OFFSET_MAX else self.log_end_offset

    def _sync_name(self) -> None:
        """Before the next segment: a loss of power must not take the active one from between two others, with records that were synced.

        Recovery ends a log at the gap that such a loss leaves (`recovery.py`). A log that may have other gaps
        shows nothing: the name of its active segment is synced in place, unless a worker has done so since the segment began.
        """
        if self._has_gaps or not self._in_use:
            self._sync_names()

    def _prepare_roll(self) -> None:
        """Have a worker sync the name of the active segment, long before the next one."""
        if self._in_use:
            self._sync_last_name()

    def _roll(self, base_offset: int, now_ms: int) -> Segment:
        """Begin a segment at `base_offset`; the closed one is synced in a worker."""
        closed = self.segments[-1]
        closed.seal()
        if len(self.producers) <= SLICE or not self._in_use:
            self._snapshots.take(self.producers, base_offset)
            self._snapshot_written(base_offset)
        else:
            self._snapshots.take_in_slices(self.producers, base_offset, self._later, partial(self._snapshot_written, base_offset))
        # An empty segment has a base offset that is too far below the next offset.
        segment = self._new_segment(base_offset, now_ms) if closed.size else self._list.move_empty(base_offset)
        self._unsynced.add(self.directory)
        self._prepare_roll()  # before the sync of the closed segment, which takes longer
        if closed.size:
            self._unsynced.update(closed.index_paths())
            plan = self.flush_plan()
            if plan is not None:
                self._later(0, plan.sync, lambda: self.flushed(plan))
        return segment

    def _snapshot_written(self, offset: int) -> None:
        self._unsynced.update((self._snapshots.path(offset), self.directory))

    def advance_start(self, offset: int) -> bool:
        """Move the log's start up to `offset` (DeleteRecords, a leader's start); False when it is there or above already.

        The caller checks the high watermark. Segments below the start are deleted by the next `delete_expired`.
        """
        if offset > self.log_end_offset:
            raise BrokerError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{self.topic_partition} ends at {self.log_end_offset}, below {offset}")
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        self.leader_epochs.truncate_from_start(offset)
        self.producers.forget_ended_below(offset)
        if self.missing:
            self.set_missing([missing for missing in self.missing if missing.end > offset])
        return True
