"""When the offset checkpoints of the log directories are written, and the high watermarks in them.

Recovery points and start offsets are the logs' own; high watermarks belong to partitions, which give them here.
"""

from __future__ import annotations

from collections.abc import Mapping

from txbroker.log.directory_list import DirectoryList
from txbroker.names import TopicPartition


class OffsetCheckpoints:
    """Belongs to `LogDirectories`, and to the thread of the logs. Workers write the files."""

    def __init__(self, directories: DirectoryList) -> None:
        self._directories = directories

    def write_recovery_points(self) -> None:
        """Have recovery-point-offset-checkpoint written (log.flush.offset.checkpoint.interval.ms)."""
        for directory in self._directories.online():
            directory.recovery_points.request()

    def write_log_start_offsets(self) -> None:
        """Have log-start-offset-checkpoint written (log.flush.start.offset.checkpoint.interval.ms)."""
        for directory in self._directories.online():
            directory.log_start_offsets.request()

    def write_high_watermarks(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Have these written to replication-offset-checkpoint, each in its directory (replica.high.watermark.checkpoint.interval.ms)."""
        for directory in self._directories.online():
            directory.kept_high_watermarks = {tp: offsets[tp] for tp in directory.logs if tp in offsets}
            directory.high_watermarks.request()

    def high_watermark(self, topic_partition: TopicPartition) -> int:
        """A partition's high watermark in replication-offset-checkpoint; 0 when it is not there."""
        offsets = (directory.kept_high_watermarks.get(topic_partition, 0) for directory in self._directories.online())
        return max(offsets, default=0)
