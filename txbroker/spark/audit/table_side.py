"""A table of `load` as the delivered side of an audit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from txbroker.console.failures import CommandFailed
from txbroker.spark.audit.blocks import Key
from txbroker.spark.audit.sides import Span, TopicRules, inside
from txbroker.spark.offset_ranges import OffsetRange, TableOffsets, WrongData
from txbroker.spark.session import check_session
from txbroker.spark.snapshot import Snapshot
from txbroker.spark.tables.opening import open_table
from txbroker.spark.tables.table_folder import DELTA, no_table
from txbroker.wire.records import INT64_MAX


class TableSide:
    """The table as it is now: later loads are not seen. CommandFailed if there is none."""

    kind = "table"
    same_offsets = True
    latest_by = None
    group = None

    def __init__(self, spark: Any, location: str) -> None:
        table = open_table(spark, location)
        check_session(spark, delta=table.format == DELTA)
        loaded = None
        while loaded is None or table.loaded() != loaded:  # a load may commit between the offsets and the rows
            loaded = table.loaded()
            if loaded is None:
                raise no_table(table.path)
            self._rows = table.read()
        self._spark = spark
        self._path = table.path
        self._is_delta = table.format == DELTA
        self._offsets = loaded.offsets
        self.name = f"table {table.path}"

    def spans(self, snapshot: Snapshot) -> Mapping[Key, Span]:
        """Up to what was loaded."""
        return loaded_spans(self._offsets, snapshot)

    def records(self, ranges: Sequence[OffsetRange]) -> Any:
        """Its rows."""
        return inside(self._spark, self._rows, ranges)

    def since(self, written: Mapping[Key, int], timestamp_ms: int) -> Mapping[Key, int]:
        """The same offsets."""
        return written

    def rules(self, written: TopicRules) -> TopicRules:
        """No row is removed from the table."""
        return written._replace(compacted=frozenset())

    def command(self, topic: str, partition: int, offset: int) -> str:
        """For Spark's SQL shell."""
        rows = f"delta.`{self._path}`" if self._is_delta else f"the files that `txbroker spark files --table {self._path}` lists"
        return f"SELECT * FROM {rows} WHERE topic = '{topic}' AND partition = {partition} AND offset = {offset}"


def loaded_spans(table: TableOffsets, snapshot: Snapshot) -> Mapping[Key, Span]:
    """What is compared with a table that has these offsets.

    CommandFailed for a table of something else. WrongData for a topic that ends before what the table has, or has fewer partitions.
    """
    if table.cluster_id != snapshot.cluster_id:
        raise CommandFailed(f"the table has data of the cluster {table.cluster_id}, and this is {snapshot.cluster_id}; "
                            "correct --bootstrap-server or --table")
    spans = {}
    for topic in snapshot.topics:
        known = table.offsets.get(topic.name)
        if known is None:
            raise CommandFailed(f"the table has nothing of topic {topic.name}, only of {', '.join(sorted(table.offsets))}; "
                                "correct --topic or --table")
        if table.topic_ids[topic.name] != topic.topic_id:
            raise CommandFailed(f"topic {topic.name} was deleted and created again: the table has data of the topic id "
                                f"{table.topic_ids[topic.name]}, and the topic has {topic.topic_id}; correct --table")
        lost = sorted(known.keys() - topic.partitions.keys())
        if lost:
            raise WrongData(f"topic {topic.name} has no partition {lost[0]}, of which the table has offsets; look at the brokers' logs")
        for index, offsets in topic.partitions.items():
            loaded = known.get(index, offsets.log_start)
            if loaded > offsets.high_watermark:
                raise WrongData(f"{topic.name}-{index} ends at offset {offsets.high_watermark}, and the table has it up to {loaded}: "
                                "the log lost records; compare with `txbroker get-offsets`, and look at the brokers' logs")
            # A table that was loaded without regard to transactions may have more than can be read now.
            end = min(max(loaded, offsets.log_start), offsets.end)
            written = OffsetRange(topic.name, index, min(offsets.log_start, end), end)
            spans[topic.name, index] = Span(written, offsets.end, written._replace(end=INT64_MAX if loaded <= end else end))
    return spans
