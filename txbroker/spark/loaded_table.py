"""A table of `load` as the source of another job: its rows instead of the topic's records, so that the brokers are not read again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from txbroker.console.failures import CommandFailed
from txbroker.spark.kafka_source import COLUMNS
from txbroker.spark.offset_ranges import OffsetRange
from txbroker.spark.snapshot import PartitionOffsets, Snapshot, TopicSnapshot
from txbroker.spark.tables.opening import open_table
from txbroker.spark.tables.table_folder import folder, format_of


@dataclass(frozen=True)
class LoadedTable:
    """The rows of one topic; `topic` may be left out if the table has one only."""

    location: str
    topic: str | None = None

    def find(self) -> None:
        """CommandFailed, BadUsage if there is no table in the folder."""
        if format_of(folder(self.location)) is None:
            raise self._no_table()

    def _no_table(self) -> CommandFailed:
        return CommandFailed(f"{self.location} has no table; run `txbroker spark load` first, or correct --from-table")

    def snapshot(self, spark: Any) -> Snapshot:
        """The topic with the offsets that the table has, from 0 on; CommandFailed, BadUsage."""
        loaded = open_table(spark, self.location).loaded()
        if loaded is None:
            raise self._no_table()
        offsets = loaded.offsets
        names = sorted(offsets.offsets)
        if self.topic is None and len(names) != 1:
            raise CommandFailed(f"{self.location} has the topics {', '.join(names)}; specify one with --topic")
        name = names[0] if self.topic is None else self.topic
        if name not in offsets.offsets:
            raise CommandFailed(f"{self.location} has no rows of topic {name}, but of {', '.join(names)}; correct --topic or --from-table")
        partitions = {index: PartitionOffsets(0, end, end) for index, end in sorted(offsets.offsets[name].items())}
        return Snapshot(offsets.cluster_id, [TopicSnapshot(name, offsets.topic_ids[name], partitions)])

    def records(self, spark: Any, ranges: Sequence[OffsetRange]) -> Any:
        """A DataFrame of `kafka_source.SCHEMA` with the records of these ranges. Rows are only added, so it is the same each time."""
        from pyspark.sql import functions as f

        rows = open_table(spark, self.location).read().select(*COLUMNS).where(f.col("topic") == ranges[0].topic)
        return rows.where(" OR ".join(f"partition = {one.partition} AND offset >= {one.start} AND offset < {one.end}" for one in ranges))
