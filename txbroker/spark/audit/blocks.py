"""The first level of an audit: counts and sums of both sides in blocks of offsets. Only blocks that are unequal are compared by record.

Blocks are divided by time too, in slots of ten minutes, so that one pass over the data also shows what was written and delivered when.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from txbroker.spark.checksum import PLACED, sum_columns
from txbroker.spark.offset_ranges import OffsetRange

BLOCK_BITS = 16  # 65,536 offsets
SLOT_MS = 600_000
MAP_COLUMNS = 48  # of the map of partitions and times
_HALVES = tuple(f"half_{i}" for i in range(4))

Key = tuple[str, int]
"""Topic and partition."""


class Kept:
    """DataFrames that Spark computes once and keeps, in memory and on disk, until `close`."""

    def __init__(self) -> None:
        self._frames: list[Any] = []

    def __call__(self, frame: Any) -> Any:
        """Keep one, when it is first used."""
        self._frames.append(frame.persist())
        return frame

    def rows(self, frame: Any) -> Any:
        """Compute and keep one; a DataFrame of its rows that does not contain its plan.

        Spark plans, and describes, all of a frame at each use, also what is kept: if each step uses the one before twice, that doubles at
        each step. The rows can still be computed again if an executor is lost.
        """
        from pyspark.sql import DataFrame

        kept, session = self(frame), frame.sparkSession
        rows = kept._jdf.queryExecution().toRdd()
        return DataFrame(session._jsparkSession.internalCreateDataFrame(rows, kept._jdf.schema(), False), session)

    def close(self) -> None:
        """Free all of them."""
        while self._frames:
            self._frames.pop().unpersist()


class PartitionSums(NamedTuple):
    """What level 1 found in a partition. `waiting`: records that were not delivered yet, which `written` leaves out.

    `first` and `last`: of the unequal blocks; -1 without one.
    """

    written: int = 0
    delivered: int = 0
    waiting: int = 0
    written_bytes: int = 0
    delivered_bytes: int = 0
    blocks: int = 0
    unequal: int = 0
    first: int = -1
    last: int = -1

    def unequal_offsets(self, within: OffsetRange) -> OffsetRange:
        """The part of a range that has all unequal blocks."""
        return within._replace(start=max(within.start, self.first << BLOCK_BITS), end=min(within.end, (self.last + 1) << BLOCK_BITS))


class TimeCell(NamedTuple):
    """The records of a partition with a timestamp in [start_ms, end_ms)."""

    topic: str
    partition: int
    start_ms: int
    end_ms: int
    written: int
    delivered: int
    waiting: int


class Blocks:
    """Counts and sums of `written` and `delivered`, DataFrames of `sides.prepared`.

    Records that were not delivered yet are `waiting` in `written`, a column more: they are counted and not compared.
    """

    def __init__(self, keep: Kept, written: Any, delivered: Any) -> None:
        from pyspark.sql import functions as f

        columns = ["topic", "partition", "offset", "timestamp_ms", "bytes", *PLACED]
        both = written.selectExpr(*columns, "if(waiting, 0, 1) AS sign").unionByName(delivered.selectExpr(*columns, "-1 AS sign"))
        place = ("topic", "partition", f"shiftright(offset, {BLOCK_BITS}) AS block", f"timestamp_ms div {SLOT_MS} AS slot", "sign", "bytes")
        counts = ("count_if(sign > 0) AS written", "count_if(sign < 0) AS delivered", "count_if(sign = 0) AS waiting",
                  "sum(if(sign > 0, bytes, 0L)) AS written_bytes", "sum(if(sign < 0, bytes, 0L)) AS delivered_bytes")  # fmt: skip
        grouped = both.selectExpr(*place, *PLACED).groupBy("topic", "partition", "block", "slot")
        self._slots = keep(grouped.agg(*map(f.expr, (*counts, *sum_columns(PLACED, "half", "sign")))))
        whole = self._slots.groupBy("topic", "partition", "block").agg(*(f.sum(name).alias(name) for name in (*_COUNTS, *_HALVES)))
        unequal = " OR ".join(["written != delivered", *(f"{name} != 0" for name in _HALVES)])
        self._blocks = whole.withColumn("unequal", f.expr(unequal))

    def partitions(self) -> Mapping[Key, PartitionSums]:
        """A row a partition; none for partitions without a record on either side."""
        from pyspark.sql import functions as f

        found = self._blocks.groupBy("topic", "partition").agg(
            *(f.sum(name) for name in _COUNTS), f.count("*"), f.expr("count_if(unequal)"),
            f.expr("coalesce(min(if(unequal, block, NULL)), -1)"), f.expr("coalesce(max(if(unequal, block, NULL)), -1)"),
        )  # fmt: skip
        return {(row[0], row[1]): PartitionSums(*row[2:]) for row in found.collect()}

    def unequal(self) -> Any:
        """A DataFrame of topic, partition and block."""
        return self._blocks.where("unequal").select("topic", "partition", "block")

    def times(self) -> list[TimeCell]:
        """What was written and delivered when: at most `MAP_COLUMNS` cells a partition.

        The few records that are far from all others in time are in the first or last cell, so that they do not stretch the map.
        """
        from pyspark.sql import functions as f

        weights = f.expr("percentile(slot, array(0.005, 0.995), written + delivered + waiting)")
        (bounds,) = self._slots.agg(weights).collect()
        if bounds[0] is None:
            return []
        low, high = int(bounds[0][0]), int(bounds[0][1])
        width = max(-(-(high - low + 1) // MAP_COLUMNS), 1)
        column = f.expr(f"(least(greatest(slot, {low}L), {high}L) - {low}L) div {width}L").alias("column")
        rows = self._slots.groupBy("topic", "partition", column).agg(f.sum("written"), f.sum("delivered"), f.sum("waiting")).collect()
        cells = []
        for topic, partition, at, *counts in rows:
            start = (low + at * width) * SLOT_MS
            cells.append(TimeCell(topic, partition, start, start + width * SLOT_MS, *counts))
        return sorted(cells)


_COUNTS = ("written", "delivered", "waiting", "written_bytes", "delivered_bytes")


def in_blocks(records: Any, blocks: Any) -> Any:
    """The records that are in these blocks."""
    from pyspark.sql import functions as f

    located = records.withColumn("block", f.expr(f"shiftright(offset, {BLOCK_BITS})"))
    return located.join(f.broadcast(blocks), ["topic", "partition", "block"], "left_semi").drop("block")


def ranges_with_unequal_blocks(ranges: Iterable[OffsetRange], sums: Mapping[Key, PartitionSums]) -> list[OffsetRange]:
    """The parts of these ranges that have to be compared by record."""
    found = []
    for one in ranges:
        sum_of = sums.get((one.topic, one.partition))
        if sum_of is not None and sum_of.unequal:
            found.append(sum_of.unequal_offsets(one))
    return [one for one in found if one.size > 0]
