"""Truncating a log, with the state that follows from its batches: producers, their snapshots, and leader epochs.

A truncation may take several files, and what is written next must not meet a segment that a loss of power brings back: dropped segments
are dropped durably first. This waits for the disk, in the thread of the logs, because nothing may be written meanwhile; only a follower
that has segments above the truncation point does it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from txbroker.errors import BrokerError, StorageError
from txbroker.log.disk import Disk
from txbroker.log.leader_epochs import LeaderEpochs
from txbroker.log.local_log import LocalLog
from txbroker.log.log_config import LogConfig
from txbroker.log.log_results import Later
from txbroker.log.producer_replay import replay_range
from txbroker.log.producer_snapshots import Snapshots
from txbroker.log.producers import ProducerStates
from txbroker.log.recovery import Loaded
from txbroker.log.segment import Segment
from txbroker.names import TopicPartition


class TruncatableLog(LocalLog):
    """The segments of a log with their producers and leader epochs."""

    __slots__ = ("_snapshots", "leader_epochs", "producers")

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
        self.leader_epochs: LeaderEpochs = loaded.leader_epochs
        self.producers: ProducerStates = loaded.producers
        self._snapshots: Snapshots = loaded.snapshots

    def truncate_to(self, offset: int) -> bool:
        """Truncate the log so that it ends at `offset`, or before the batch that holds it; False when it ends there or below already.

        A leader epoch without records at the log's end is removed in any case, as in Kafka: the leader may have another one there.
        """
        if offset >= self.log_end_offset:
            self.leader_epochs.truncate_from_end(offset)
            return False
        if offset < self._bases[0]:
            self.truncate_fully_at(offset, now_ms=self.segments[-1].created_ms)
            return True
        at = bisect_right(self._bases, offset) - 1
        self.generation += 1
        dropped = self.segments[at + 1 :]
        if dropped:
            self._drop_before_writing(dropped, has_records=True)  # had them, if there are none now
        with self._whole_or_offline(begun=bool(dropped)):
            found = self.segments[at].find(offset)
            end = min(offset, found.base_offset) if found is not None else offset
            if found is not None:
                self.segments[at].cut_file(found.position)
        with self._whole_or_offline():
            if found is not None:
                self.segments[at].cut_indexes(end)
            self._end_at(end)
            self._snapshots.keep_only(lambda snapshot: snapshot <= end)
            known = self._snapshots.load(self.producers, self.log_start_offset, end, None)
            replay_range(self.producers, self.segments, known, end)
        return True

    @contextmanager
    def _whole_or_offline(self, *, begun: bool = True) -> Iterator[None]:
        """A truncation that has begun and does not end leaves files that differ from what is known of them: the directory goes offline.

        Without this it would stay online after a lack of space or descriptors.
        """
        try:
            yield
        except BrokerError as error:
            if not begun:
                raise
            raise StorageError(f"{self.topic_partition} could not be truncated: {error}") from error

    def _drop_before_writing(self, segments: Sequence[Segment], *, has_records: bool) -> None:
        """Drop segments, durably: after a loss of power they must not follow on what is cut or written next. Few truncations have any.

        After OutOfResources nothing has changed.
        """
        self._drop(segments[::-1])  # the last one first: if this is interrupted, the others follow on each other
        with self._whole_or_offline():
            if has_records:
                self._disk.sync(self.directory)

    def _end_at(self, end: int) -> None:
        self.log_end_offset = end
        self.log_start_offset = min(self.log_start_offset, end)
        self.recovery_point = min(self.recovery_point, end)
        self.leader_epochs.truncate_from_end(end)

    def truncate_fully_at(self, offset: int, *, now_ms: int) -> None:
        """Remove everything; the empty log starts and ends at `offset`."""
        self.generation += 1
        self._drop_before_writing(self.segments, has_records=self.size > 0)
        with self._whole_or_offline():
            self._new_segment(offset, now_ms)
            self._unsynced = {self.directory}
            self.leader_epochs.clear()
            self.producers.clear()
            self._snapshots.keep_only(lambda _: False)
            self._end_at(offset)
            self.log_start_offset = offset
