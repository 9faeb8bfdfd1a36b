"""What `load` would do: the snapshot, the ranges and their sizes. Nothing is written, neither a table nor a lock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from txbroker.client.client_errors import ClientError
from txbroker.client.topic_leaders import Broker
from txbroker.errors import ErrorCode
from txbroker.spark.brokers import Brokers
from txbroker.spark.load import LoadOptions, check_options
from txbroker.spark.offset_ranges import OffsetRange, plan
from txbroker.spark.rebase import rebased
from txbroker.spark.session import check_session
from txbroker.spark.snapshot import Snapshot
from txbroker.spark.spark_failures import spark_failures
from txbroker.spark.tables.opening import open_table
from txbroker.spark.tables.table_folder import DELTA
from txbroker.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest, DescribeLogDirsResponse
from txbroker.wire.messages.metadata import MetadataRequest, MetadataResponse


@dataclass(frozen=True)
class PlannedRange:
    """A range, the tasks that would read it, and about how many bytes it has on the broker's disk; None if that is not known."""

    range: OffsetRange
    tasks: int
    bytes: int | None


@dataclass(frozen=True)
class DryRun:
    """`new`: whether the table would be created."""

    table: str
    format: str
    new: bool
    snapshot: Snapshot
    planned: Sequence[PlannedRange]
    expired: Sequence[OffsetRange]

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "dry_run": True,
            "table": self.table,
            "format": self.format,
            "new": self.new,
            "cluster_id": self.snapshot.cluster_id,
            "topic_ids": {topic.name: topic.topic_id for topic in self.snapshot.topics},
            "planned": [{**one.range._asdict(), "tasks": one.tasks, "bytes": one.bytes} for one in self.planned],
            "expired": [one._asdict() for one in self.expired],
        }


def dry_run(spark: Any, options: LoadOptions) -> DryRun:
    """The plan of `load`, which refuses what `load` would refuse: CommandFailed, ClientError."""
    check_options(options)
    table = open_table(spark, options.table, options.format)
    check_session(spark, delta=table.format == DELTA)
    with spark_failures():
        options.decoding.prepare(spark)
        before = table.loaded()
        snapshot = options.source.snapshot()
        loaded = None if before is None else before.offsets
        if loaded is not None and options.rebase:
            loaded = rebased(loaded, snapshot)
        found = plan(snapshot, loaded, skip_expired=options.skip_expired, can_rebase=True)
    sizes = _sizes(options.source.brokers, snapshot)
    planned = [PlannedRange(one, -(-one.size // (options.source.split or one.size)), _share(one, snapshot, sizes)) for one in found.ranges]
    return DryRun(str(table.path), table.format, before is None, snapshot, planned, found.expired)


def _share(one: OffsetRange, snapshot: Snapshot, sizes: Mapping[tuple[str, int], int]) -> int | None:
    """The part of a partition's bytes that a range has, as if all offsets had the same."""
    (offsets,) = (topic.partitions[one.partition] for topic in snapshot.topics if topic.name == one.topic)
    size = sizes.get((one.topic, one.partition))
    return None if size is None else size * one.size // max(offsets.high_watermark - offsets.log_start, 1)


def _sizes(brokers: Brokers, snapshot: Snapshot) -> dict[tuple[str, int], int]:
    """The bytes of each partition, of its largest replica; without those of brokers that do not show them."""
    topics = [DescribableLogDirTopic(topic=topic.name, partitions=list(topic.partitions)) for topic in snapshot.topics]
    with brokers.connect() as connection:
        answer: MetadataResponse = connection.call(MetadataRequest(topics=[], allow_auto_topic_creation=False))
    sizes: dict[tuple[str, int], int] = {}
    for broker in answer.brokers:
        try:
            with brokers.connect_to(Broker(broker.node_id, broker.host, broker.port)) as connection:
                found: DescribeLogDirsResponse = connection.call(DescribeLogDirsRequest(topics=topics))
        except ClientError:
            continue
        for directory in found.results:
            for topic in directory.topics if directory.error_code == ErrorCode.NONE else ():
                for partition in topic.partitions:
                    key = (topic.name, partition.partition_index)
                    sizes[key] = max(sizes.get(key, 0), partition.partition_size)
    return sizes
