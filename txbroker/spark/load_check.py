"""Whether a load has every record: the rows that a commit added against its offset ranges, and why offsets have no row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from txbroker.spark.brokers import Brokers
from txbroker.spark.decoding.decoding import ERROR
from txbroker.spark.gaps import GapCounts, classify
from txbroker.spark.offset_ranges import OffsetRange
from txbroker.spark.session import shuffles_for

CLASSIFY_TASKS_MAX = 64


class CheckedRange(NamedTuple):
    """A range, its rows in the table, and its offsets without one. `doubled`: rows whose offset the table has twice.

    `undecodable`: rows whose value could not be decoded; the first one's offset, and why.
    """

    range: OffsetRange
    rows: int
    doubled: int
    gaps: GapCounts
    undecodable: int = 0
    first_undecodable: int | None = None
    decode_error: str | None = None

    @property
    def is_right(self) -> bool:
        """Whether every offset has one row or a reason for having none."""
        return self.gaps.unexplained == 0 and self.doubled == 0 and self.rows + self.gaps.total == self.range.size

    def as_json(self) -> dict[str, Any]:
        """For reports and commits; rows, doubled rows left out, and gaps add up to end - start."""
        decoding = {"undecodable": self.undecodable, "first_undecodable": self.first_undecodable, "decode_error": self.decode_error}
        return {**self.range._asdict(), "rows": self.rows, "doubled": self.doubled, **self.gaps._asdict(), **decoding}


class _Found(NamedTuple):
    """The rows of a partition: how many, their first and last offset, and the sum of their offsets."""

    rows: int
    first: int
    last: int
    total: int


def check_rows(spark: Any, rows: Any, ranges: Sequence[OffsetRange], brokers: Brokers, isolation_level: str) -> list[CheckedRange]:
    """Check ranges, at most one a partition, against a DataFrame of topic, partition and offset, and of decode_error if values are decoded.

    A partition whose rows are all of its range costs one aggregation; offsets are looked up at the broker only where there are gaps.
    Executors do that: only a row a partition reaches the driver.
    """
    with shuffles_for(spark, sum(one.size for one in ranges)):
        return _checked(spark, rows, ranges, brokers, isolation_level)


def _checked(spark: Any, rows: Any, ranges: Sequence[OffsetRange], brokers: Brokers, isolation_level: str) -> list[CheckedRange]:
    from pyspark.sql import functions as f

    # The first offset that could not be decoded, with the reason: structs are compared field by field, and nulls are left out.
    error = f.col(ERROR) if ERROR in rows.columns else f.lit(None).cast("string")
    sums = rows.groupBy("topic", "partition").agg(
        f.count("*"), f.min("offset"), f.max("offset"), f.sum(f.col("offset").cast("decimal(20,0)")),
        f.count(error), f.min(f.when(error.isNotNull(), f.struct("offset", error.alias("error")))),
    )  # fmt: skip
    summed = {(row[0], row[1]): row for row in sums.collect()}
    found = {key: _Found(row[2], row[3], row[4], int(row[5])) for key, row in summed.items()}
    sparse = [one for one in ranges if not _is_dense(one, found.get((one.topic, one.partition)))]
    doubled, gaps = _gaps(spark, rows, sparse, found) if sparse else ({}, None)
    counts: dict[tuple[str, int], GapCounts] = {}
    if gaps is not None:
        tasks = min(len(sparse), CLASSIFY_TASKS_MAX)
        ordered = gaps.repartition(tasks, "topic", "partition").sortWithinPartitions("topic", "partition", "start")
        classified = ordered.rdd.mapPartitions(_Classify(brokers, isolation_level)).collect()
        counts = {(topic, partition): GapCounts(*counted) for topic, partition, counted in classified}
    checked = []
    for one in ranges:
        key = (one.topic, one.partition)
        twice = doubled.get(key, 0)
        undecodable, first = (summed[key][6], summed[key][7]) if key in summed else (0, None)
        checked.append(CheckedRange(one, (found[key].rows if key in found else 0) - twice, twice, counts.get(key, GapCounts()),
                                    undecodable, *(first or (None, None))))
    return checked


class _Classify:
    """Classifies gaps on an executor, which needs txbroker installed."""

    def __init__(self, brokers: Brokers, isolation_level: str) -> None:
        self._brokers = brokers
        self._isolation_level = isolation_level

    def __call__(self, rows: Iterable[Any]) -> Iterator[tuple[str, int, tuple[Any, ...]]]:
        gaps = (OffsetRange(row[0], row[1], row[2], row[3]) for row in rows)
        for topic, partition, counts in classify(self._brokers, self._isolation_level, gaps):
            yield topic, partition, tuple(counts)


def _is_dense(one: OffsetRange, found: _Found | None) -> bool:
    """Whether the rows are each offset of the range once. The sum notices one row twice and another missing."""
    total = (one.start + one.end - 1) * one.size // 2
    return found == _Found(one.size, one.start, one.end - 1, total)


def _gaps(
    spark: Any, rows: Any, ranges: Sequence[OffsetRange], found: dict[tuple[str, int], _Found]
) -> tuple[dict[tuple[str, int], int], Any]:
    """Rows that are doubled or outside of their range, by partition, and a DataFrame of gaps: topic, partition, start, end."""
    from pyspark.sql import functions as f
    from pyspark.sql.window import Window

    schema = "topic STRING, partition INT, start BIGINT, end BIGINT"
    bounds = f.broadcast(spark.createDataFrame(list(map(tuple, ranges)), schema))
    in_order = Window.partitionBy("topic", "partition").orderBy("offset")
    before = rows.join(bounds, ["topic", "partition"]).withColumn("before", f.lag("offset").over(in_order))
    wrong = (f.col("before") == f.col("offset")) | (f.col("offset") < f.col("start")) | (f.col("offset") >= f.col("end"))
    doubled = {(row[0], row[1]): row[2] for row in before.where(wrong).groupBy("topic", "partition").count().collect()}
    first = f.coalesce(f.col("before") + 1, f.col("start"))
    between = before.select("topic", "partition", first.alias("start"), f.col("offset").alias("end")).where("start < end")
    tails = []
    for one in ranges:
        there = found.get((one.topic, one.partition))
        start = one.start if there is None else there.last + 1
        if start < one.end:
            tails.append((one.topic, one.partition, start, one.end))
    return doubled, between.unionByName(spark.createDataFrame(tails, schema))
