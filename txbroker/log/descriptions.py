"""Log directories as DescribeLogDirs shows them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from txbroker.errors import ErrorCode
from txbroker.log.directory import LogDirectory
from txbroker.log.disk import Disk
from txbroker.log.log import Log
from txbroker.names import TopicPartition

UNKNOWN_LAG = -1


class ReplicaDescription(NamedTuple):
    """One log as DescribeLogDirs shows it; `size` in bytes, `is_future` for the unfinished copy of a move.

    `offset_lag`: the records that it lacks, UNKNOWN_LAG for a log that is no replica at the moment.
    """

    topic_partition: TopicPartition
    size: int
    offset_lag: int
    is_future: bool


class DirectoryDescription(NamedTuple):
    """One log directory as DescribeLogDirs shows it; bytes of its file system, -1 when it is offline (KAFKA_STORAGE_ERROR)."""

    directory: str
    error: ErrorCode
    total_bytes: int
    usable_bytes: int
    replicas: list[ReplicaDescription]


def describe_offline(directory: LogDirectory) -> DirectoryDescription:
    """A directory that cannot be read."""
    return DirectoryDescription(directory.path, ErrorCode.KAFKA_STORAGE_ERROR, -1, -1, [])


def describe_directory(
    directory: LogDirectory,
    disk: Disk,
    get: Callable[[TopicPartition], Log | None],
    high_watermark: Callable[[TopicPartition], int | None],
) -> DirectoryDescription:
    """A directory with its logs and copies; `get` finds the log in use, `high_watermark` is None for one without a role.

    StorageError when its disk fails.
    """
    if not directory.online:
        return describe_offline(directory)
    usage = disk.usage(directory.path)
    replicas = []
    for topic_partition, log in directory.logs.items():
        end = high_watermark(topic_partition)
        lag = UNKNOWN_LAG if end is None else max(0, end - log.log_end_offset)
        replicas.append(ReplicaDescription(topic_partition, log.size, lag, False))
    for topic_partition, copy in directory.copies.items():
        used = get(topic_partition)
        lag = 0 if used is None else max(0, used.log_end_offset - copy.log.log_end_offset)
        replicas.append(ReplicaDescription(topic_partition, copy.log.size, lag, True))
    return DirectoryDescription(directory.path, ErrorCode.NONE, usage.total, usage.usable, replicas)
