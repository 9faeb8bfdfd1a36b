"""Truncating a log, with the state that follows from its batches: producers, their snapshots, and leader epochs.

What is written next must not meet a segment that a loss of power brings back. So a truncation has steps: each removes one segment, and the
directory is synced before the next one, and before anything is cut or appended. A follower has a worker sync it, and goes on then.

The first step of a truncation below the recovery point removes nothing: the checkpoint gets a lower recovery point. Else recovery would
miss what was truncated.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from txbroker.errors import BrokerError, StorageError
from txbroker.log.disk import Disk
from txbroker.log.file_names import LOG
from txbroker.log.leader_epochs import LeaderEpochs
from txbroker.log.local_log import LocalLog
from txbroker.log.log_config import LogConfig
from txbroker.log.log_results import Later
from txbroker.log.producer_replay import replay_range
from txbroker.log.producer_snapshots import Snapshots
from txbroker.log.producers import ProducerStates
from txbroker.log.recovery import Loaded
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
        """All steps of `truncate_towards` at once, syncing in place: for a log that is not in use. Whether anything was removed."""
        truncated = False
        while self.truncate_towards(offset):
            truncated = True
            self._sync_names()
        return truncated

    def truncate_towards(self, offset: int) -> bool:
        """Truncate the log so that it ends at `offset`, or before the batch that holds it: one step of several. Whether one was made.

        A step lowers the recovery point (`lowering`), removes the last segment, or cuts it. While `names_due` the log must be flushed
        before the next step and before anything is appended: else a loss of power would bring segments back, after what was cut or
        appended. False also while it is not yet possible.
        A leader epoch without records at the log's end is removed in any case, as in Kafka: the leader may have another one there.
        """
        if self.names_due:
            return False
        if offset >= self.log_end_offset:
            self.leader_epochs.truncate_from_end(offset)
            return False
        if self._lower(offset):
            return True
        segment = self.segments[-1]
        if offset >= segment.base_offset:
            self._cut(offset)
        elif len(self.segments) > 1:
            self._remove_last()
        else:
            self.restart_towards(offset, now_ms=segment.created_ms)
        if self.log_end_offset <= offset:
            self._lower_bound = None
        return True

    def _lower(self, offset: int) -> bool:
        """Whether the checkpoint must have a lower recovery point first: at or below `offset`, and at the beginning of a segment."""
        if offset >= self.kept_recovery_point:
            return False
        self.lowering = self._lower_bound = min(offset, self._bases[max(0, bisect_right(self._bases, offset) - 1)])
        return True

    def _remove_last(self) -> None:
        self.generation += 1
        end = self._bases[-1]
        self._list.drop_last(self.config.file_delete_delay_ms)
        self._names_changed()
        with self._whole_or_offline():
            self._truncated_at(end)

    def _cut(self, offset: int) -> None:
        """Remove the batches of the last segment from `offset` on. After OutOfResources in the first part nothing has changed."""
        self.generation += 1
        segment = self.segments[-1]
        found = segment.find(offset)
        end = min(offset, found.base_offset) if found is not None else offset
        if found is not None:
            segment.cut_file(found.position)
        with self._whole_or_offline():
            if found is not None:
                segment.cut_indexes(end)
            self._truncated_at(end)

    def _truncated_at(self, end: int) -> None:
        self._end_at(end)
        self._snapshots.keep_only(lambda snapshot: snapshot <= end)
        ended = self.producers.ended_below(end)
        known = self._snapshots.load(self.producers, self.log_start_offset, end, None)
        replay_range(self.producers, self.segments, known, end)
        self.producers.restore_ended(ended)

    @contextmanager
    def _whole_or_offline(self) -> Iterator[None]:
        """A truncation that has begun and does not end leaves files that differ from what is known of them: the directory goes offline.

        Without this it would stay online after a lack of space or descriptors.
        """
        try:
            yield
        except BrokerError as error:
            raise StorageError(f"{self.topic_partition} could not be truncated: {error}") from error

    def _end_at(self, end: int) -> None:
        self.log_end_offset = end
        self.log_start_offset = min(self.log_start_offset, end)
        self.recovery_point = min(self.recovery_point, end)
        self.leader_epochs.truncate_from_end(end)
        if self.missing:
            self.set_missing([missing for missing in self.missing if missing.start < end])

    def truncate_fully_at(self, offset: int, *, now_ms: int) -> None:
        """All steps of `restart_towards` at once, syncing in place: for a log that is not in use."""
        while not self.restart_towards(offset, now_ms=now_ms):
            self._sync_names()
        self._sync_names()

    def restart_towards(self, offset: int, *, now_ms: int) -> bool:
        """Remove everything, so that the empty log starts and ends at `offset`: one step of several, as `truncate_towards`.

        Returns whether it was the last one.
        """
        if self.names_due or self._lower(min(offset, self._bases[0])):
            return False
        if len(self.segments) > 1:
            self._remove_last()
            return False
        segment = self.segments[0]
        if segment.size:
            self.generation += 1
            segment.cut_file(0)
            self._names_changed()
            self._unsynced.add(segment.path(LOG))  # records of before must not come back at the new offset
            with self._whole_or_offline():
                segment.cut_indexes(segment.base_offset)
                self._truncated_at(segment.base_offset)
            return False
        self.generation += 1
        with self._whole_or_offline():
            if offset < segment.base_offset:
                self._names_changed()  # records of the new offsets are not valid under the old name
            self._unsynced.add(self.directory)
            self._list.move_empty(offset).created_ms = now_ms
            self.leader_epochs.clear()
            self.producers.clear()
            self._snapshots.keep_only(lambda _: False)
            self._end_at(offset)
            self.log_start_offset = offset
            self.set_missing([])
        self._lower_bound = None
        return True
