"""DescribeLogDirs and AlterReplicaLogDirs (keys 35, 34): the log directories of replicas (KIP-113).

Version notes: DescribeLogDirs v3 has an error for the whole request, v4 sizes of the volumes (KIP-827), v5 cordoned directories
(KIP-1066), which do not exist here.
"""

from __future__ import annotations

from collections.abc import Callable

from txbroker.api.admin_log import partition_changed
from txbroker.api.request_context import RequestContext
from txbroker.api.resources import AclOperation, on_cluster
from txbroker.cluster.replicas import Replicas
from txbroker.errors import BrokerError, ErrorCode
from txbroker.log.descriptions import DirectoryDescription, ReplicaDescription
from txbroker.log.directories import LogDirectories
from txbroker.names import TopicPartition
from txbroker.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from txbroker.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from txbroker.wire.schema import Request


class DescribeLogDirsHandler:
    """All log directories, with the requested logs."""

    request: type[Request] = DescribeLogDirsRequest
    resources = on_cluster(AclOperation.DESCRIBE)

    def __init__(self, directories: LogDirectories, replicas: Replicas) -> None:
        self._directories = directories
        self._replicas = replicas

    def __call__(self, request: DescribeLogDirsRequest, context: RequestContext) -> DescribeLogDirsResponse:
        wanted = None
        if request.topics is not None:
            wanted = {TopicPartition(t.topic, p) for t in request.topics for p in t.partitions}
        described = self._directories.describe(self._high_watermark)
        return DescribeLogDirsResponse(throttle_time_ms=0, results=[_directory(d, wanted) for d in described])

    def _high_watermark(self, topic_partition: TopicPartition) -> int | None:
        partition = self._replicas.find(*topic_partition)
        return None if partition is None else partition.high_watermark

    def failed(self, request: DescribeLogDirsRequest, context: RequestContext, error: BrokerError) -> DescribeLogDirsResponse:
        """Only the error."""
        return DescribeLogDirsResponse(throttle_time_ms=0, error_code=error.code, results=[])


def _directory(directory: DirectoryDescription, wanted: set[TopicPartition] | None) -> DescribeLogDirsResult:
    topics: dict[str, list[ReplicaDescription]] = {}
    for replica in directory.replicas:
        if wanted is None or replica.topic_partition in wanted:
            topics.setdefault(replica.topic_partition.topic, []).append(replica)
    return DescribeLogDirsResult(
        error_code=directory.error,
        log_dir=directory.directory,
        topics=[
            DescribeLogDirsTopic(
                name=name,
                partitions=[
                    DescribeLogDirsPartition(
                        partition_index=r.topic_partition.partition,
                        partition_size=r.size,
                        offset_lag=r.offset_lag,
                        is_future_key=r.is_future,
                    )
                    for r in replicas
                ],
            )
            for name, replicas in topics.items()
        ],
        total_bytes=directory.total_bytes,
        usable_bytes=directory.usable_bytes,
    )


class AlterReplicaLogDirsHandler:
    """Starts to move replicas between the log directories of this broker."""

    request: type[Request] = AlterReplicaLogDirsRequest
    resources = on_cluster(AclOperation.ALTER)

    def __init__(self, directories: LogDirectories, now_ms: Callable[[], int]) -> None:
        self._directories = directories
        self._now_ms = now_ms

    def __call__(self, request: AlterReplicaLogDirsRequest, context: RequestContext) -> AlterReplicaLogDirsResponse:
        now_ms = self._now_ms()
        codes = {}
        for directory in request.dirs:
            for topic in directory.topics:
                for index in topic.partitions:
                    topic_partition = TopicPartition(topic.name, index)
                    codes[topic_partition] = self._move(topic_partition, directory.path, now_ms, context)
        return _moved(codes)

    def _move(self, topic_partition: TopicPartition, path: str, now_ms: int, context: RequestContext) -> ErrorCode:
        try:
            self._directories.moves.begin(topic_partition, path, now_ms)
        except BrokerError as error:
            return error.code
        partition_changed("move between directories", topic_partition, {"directory": path}, context)
        return ErrorCode.NONE

    def failed(self, request: AlterReplicaLogDirsRequest, context: RequestContext, error: BrokerError) -> AlterReplicaLogDirsResponse:
        """Every partition with the same error."""
        return _moved({TopicPartition(t.name, p): error.code for d in request.dirs for t in d.topics for p in t.partitions})


def _moved(codes: dict[TopicPartition, ErrorCode]) -> AlterReplicaLogDirsResponse:
    topics: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    for (topic, index), code in codes.items():
        topics.setdefault(topic, []).append(AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code))
    results = [AlterReplicaLogDirTopicResult(topic_name=name, partitions=results) for name, results in topics.items()]
    return AlterReplicaLogDirsResponse(throttle_time_ms=0, results=results)
