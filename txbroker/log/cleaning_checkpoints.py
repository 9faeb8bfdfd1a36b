"""How far each log has been cleaned, as files in its directory keep it: cleaner-offset-checkpoint and `txbroker-cleaning`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from txbroker.log.cleaner.cleaning_history import History
from txbroker.log.directory_list import DirectoryList
from txbroker.log.disk import Disk
from txbroker.log.segment_swap import undo
from txbroker.names import TopicPartition


class CleaningCheckpoints:
    """Belongs to `LogDirectories`, and to the thread of the logs. Workers write the files."""

    def __init__(self, disk: Disk, directories: DirectoryList) -> None:
        self._disk = disk
        self._directories = directories

    def offset(self, topic_partition: TopicPartition) -> int | None:
        """Up to which offset a log has been cleaned; None when that is not known."""
        home = self._directories.by_partition.get(topic_partition)
        return None if home is None else home.kept_cleaner_offsets.get(topic_partition)

    def set_offset(self, topic_partition: TopicPartition, offset: int) -> None:
        """A log has been cleaned up to `offset`."""
        home = self._directories.by_partition[topic_partition]
        home.kept_cleaner_offsets[topic_partition] = offset
        home.cleaner_offsets.request()

    def lower(self, topic_partition: TopicPartition, offset: int) -> None:
        """A log was truncated to `offset` (Kafka's maybeTruncateCheckpoint)."""
        known = self.offset(topic_partition)
        if known is not None and known > offset:
            self.set_offset(topic_partition, offset)
            self.set_history(topic_partition, None)

    def history(self, topic_partition: TopicPartition) -> History | None:
        """What is known of a log's cleaning."""
        home = self._directories.by_partition.get(topic_partition)
        return None if home is None else home.kept_cleaning_histories.get(topic_partition)

    def set_history(self, topic_partition: TopicPartition, history: History | None) -> None:
        """Remember it, or with None forget it."""
        home = self._directories.by_partition[topic_partition]
        if history is not None:
            home.kept_cleaning_histories[topic_partition] = history
        elif home.kept_cleaning_histories.pop(topic_partition, None) is None:
            return
        home.cleaning_histories.request()

    def remove_unfinished(self, directory: str, done: Callable[[], None]) -> None:
        """Remove the files of an unfinished cleaning from a log's directory, which may be gone, then call `done`; not if the disk fails."""
        home = self._directories.by_path[directory.rpartition("/")[0]]
        home.later(0, partial(undo, self._disk, directory), done)
