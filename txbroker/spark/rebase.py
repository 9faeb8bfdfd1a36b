"""A table continues with the topics of another cluster, or with topics that were created again, if these have the same records at the same
offsets: a restored cluster, or a mirror that keeps offsets."""

from __future__ import annotations

from functools import reduce
from typing import Any

from txbroker.console.failures import CommandFailed
from txbroker.spark.offset_ranges import OffsetRange, TableOffsets
from txbroker.spark.snapshot import Snapshot
from txbroker.spark.tables.table import Table
from txbroker.spark.topic_source import TopicSource


def rebased(loaded: TableOffsets, snapshot: Snapshot) -> TableOffsets:
    """The table's offsets with the cluster's id and the ids of the snapshot's topics."""
    ids = {topic.name: topic.topic_id for topic in snapshot.topics if topic.name in loaded.topic_ids}
    return TableOffsets(snapshot.cluster_id, {**loaded.topic_ids, **ids}, loaded.offsets)


def check_same_records(spark: Any, table: Table, source: TopicSource, loaded: TableOffsets, snapshot: Snapshot) -> None:
    """Compare the last loaded record of each partition with the record that the topic has at its offset; CommandFailed if they differ.

    An offset that has no record any more, at the topic or in the table, is not compared.
    """
    from pyspark.sql import functions as f

    last = [OffsetRange(topic.name, index, end - 1, end) for topic in snapshot.topics
            for index, end in sorted(loaded.offsets.get(topic.name, {}).items())
            if index in topic.partitions and topic.partitions[index].log_start < end <= topic.partitions[index].end]
    if not last:
        return
    names = ("topic", "partition", "offset")
    wanted = reduce(lambda one, other: one | other, (
        (f.col("topic") == one.topic) & (f.col("partition") == one.partition) & (f.col("offset") == one.start) for one in last
    ))  # fmt: skip
    fields = ("key", "value", "timestamp_ms")
    there = source.records(spark, last).select(*names, *(f.col(field).alias(f"new_{field}") for field in fields))
    both = table.read().where(wanted).join(there, list(names))
    differ = reduce(lambda one, other: one | other, (~f.col(field).eqNullSafe(f.col(f"new_{field}")) for field in fields))
    found = both.where(differ).select(*names).orderBy(*names).first()
    if found is not None:
        raise CommandFailed(f"{found[0]}-{found[1]} has another record at offset {found[2]} than the table, so --rebase would mix two "
                            "logs; specify another --table")
