"""The second level of an audit where offsets differ, as in most mirrored topics: records are matched by their content, in order.

The n-th record with some content on one side is the n-th record with that content on the other one. Records that are matched and were not
delivered in the order in which they were written are out of order: as few of them as explain the difference. A record without a match is
missing or extra; if both are at the same place between matched records, the record was changed. Where retention or compaction may have
removed records on one side, which is before the first match and in compacted topics, only records of the same key and timestamp are paired.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator
from itertools import groupby
from typing import Any, NamedTuple

from txbroker.spark.audit.blocks import Kept
from txbroker.spark.order import literal

_CONTENT = ["topic", "partition", "content_0", "content_1", "nth"]
_SCHEMA = "topic STRING, partition INT, b_offset BIGINT"
_IN_PARTITION = "PARTITION BY topic, partition"


class Bounds(NamedTuple):
    """Of a partition: the first and last matched offset on both sides, -1 without a match, and the number of matches."""

    topic: str
    partition: int
    matched: int
    written_first: int
    written_last: int
    delivered_first: int
    delivered_last: int


def compare(spark: Any, keep: Kept, written: Any, delivered: Any, compacted: Collection[str]) -> tuple[Any, list[Bounds]]:
    """The differences between two DataFrames of `sides.prepared`, as `by_offset.EVENTS`, and what was matched.

    `compacted`: the topics that are compacted on at least one side.
    """
    a, b = (_numbered(side, name) for side, name in ((written, "a"), (delivered, "b")))
    both = keep.rows(a.join(b, _CONTENT, "full"))
    matched = both.where("a_offset IS NOT NULL AND b_offset IS NOT NULL")
    bounds = [Bounds(*row) for row in matched.groupBy("topic", "partition").agg(*_bounds()).collect()]
    highest = f"max(a_offset) OVER ({_IN_PARTITION} ORDER BY b_offset) AS highest"
    later = matched.selectExpr("topic", "partition", "a_offset", highest).where("highest > a_offset")
    disordered = [tuple(row) for row in later.select("topic", "partition").distinct().collect()]
    return _events(both, _moved(spark, matched, disordered), compacted), bounds


def _numbered(side: Any, name: str) -> Any:
    """With the number of each record among those of the same content, by offset."""
    window = f"OVER ({_IN_PARTITION}, content_0, content_1 ORDER BY offset)"
    columns = ("offset", "timestamp_ms", "key", "deleted")
    return side.selectExpr("topic", "partition", "content_0", "content_1", f"row_number() {window} AS nth",
                           *(f"{column} AS {name}_{column}" for column in columns))  # fmt: skip


def _bounds() -> list[Any]:
    from pyspark.sql import functions as f

    return [f.count("*"), f.min("a_offset"), f.max("a_offset"), f.min("b_offset"), f.max("b_offset")]


def _moved(spark: Any, matched: Any, partitions: list[tuple[Any, ...]]) -> Any:
    """The matched records that are out of order, of the partitions that have some."""
    from pyspark.sql import functions as f

    if not partitions:
        return spark.createDataFrame([], _SCHEMA)
    some = f.broadcast(spark.createDataFrame(partitions, "topic STRING, partition INT"))
    rows = matched.join(some, ["topic", "partition"], "left_semi").select("topic", "partition", "b_offset", "a_offset")
    ordered = rows.repartition("topic", "partition").sortWithinPartitions("topic", "partition", "b_offset")
    return spark.createDataFrame(ordered.rdd.mapPartitions(out_of_order), _SCHEMA)


def out_of_order(rows: Iterable[tuple[str, int, int, int]]) -> Iterator[tuple[str, int, int]]:
    """Of (topic, partition, delivered offset, written offset), in this order: the fewest without which the written offsets ascend."""
    for (topic, partition), some in groupby(rows, lambda row: (row[0], row[1])):
        pairs = [(row[2], row[3]) for row in some]
        lowest: list[int] = []  # the lowest written offset that ends an ascending sequence of each length
        length = []
        for _, offset in pairs:
            at = bisect_right(lowest, offset)
            lowest[at : at + 1] = [offset]
            length.append(at)
        wanted, limit, moved = len(lowest) - 1, None, []
        for (delivered, offset), at in zip(reversed(pairs), reversed(length), strict=True):
            if at == wanted and (limit is None or offset < limit):
                wanted, limit = wanted - 1, offset
            else:
                moved.append(delivered)
        yield from ((topic, partition, delivered) for delivered in reversed(moved))


def _events(both: Any, moved: Any, compacted: Collection[str]) -> Any:
    """One row of each difference."""
    empty = "false AS shared"
    count = "count(a_offset) OVER (PARTITION BY topic, partition, content_0, content_1)"
    known = both.withColumn("written", _expr(count))
    single = known.where("a_offset IS NULL OR b_offset IS NULL")
    doubled = single.where("a_offset IS NULL AND written > 0").selectExpr(
        "topic", "partition", "'doubled' AS kind", "b_offset AS offset", "CAST(NULL AS BIGINT) AS other", "b_timestamp_ms AS timestamp_ms",
        "b_key AS key", "b_deleted AS deleted", empty)  # fmt: skip
    # The written offset of the last match before each record, and the number of the record among those after this match.
    placed = []
    for side, other in (("a", "b"), ("b", "a")):
        present = known.where(f"{side}_offset IS NOT NULL")
        order = f"{_IN_PARTITION} ORDER BY {side}_offset"
        place = present.withColumn("place", _expr(f"coalesce(last(if({other}_offset IS NULL, NULL, a_offset), true) OVER ({order}), -1)"))
        alone = place.where(f"{other}_offset IS NULL" + (" AND written = 0" if side == "b" else ""))
        strict = " OR ".join(["place = -1", *(f"topic = {literal(topic)}" for topic in sorted(compacted))])
        same = f"if({strict}, struct({side}_key AS key, {side}_timestamp_ms AS timestamp_ms), NULL)"
        number = f"row_number() OVER (PARTITION BY topic, partition, place, {same} ORDER BY {side}_offset)"
        columns = [f"{side}_{name}" for name in ("offset", "timestamp_ms", "key", "deleted")]
        # The key and the timestamp as one text of JSON, which is empty where they do not matter: a join does not match nulls.
        same_text = f"coalesce(to_json({same}), '') AS same"
        placed.append(alone.selectExpr("topic", "partition", "place", same_text, f"{number} AS number", *columns))
    pairs = placed[0].join(placed[1], ["topic", "partition", "place", "same", "number"], "full")
    ends = known.where("a_offset IS NOT NULL AND b_offset IS NOT NULL").groupBy("topic", "partition").agg(_expr("max(a_offset) AS end"))
    kind = ("CASE WHEN a_offset IS NULL THEN 'extra' WHEN b_offset IS NOT NULL THEN 'changed' "
            "WHEN a_offset > coalesce(end, -1) THEN 'waiting' ELSE 'missing' END AS kind")  # fmt: skip
    record = [f"if(b_offset IS NULL, a_{name}, b_{name}) AS {name}" for name in ("offset", "timestamp_ms", "key", "deleted")]
    others = pairs.join(ends, ["topic", "partition"], "left").selectExpr(
        "topic", "partition", kind, record[0], "if(b_offset IS NULL, NULL, a_offset) AS other", *record[1:], empty)  # fmt: skip
    order = moved.join(both, ["topic", "partition", "b_offset"]).selectExpr(
        "topic", "partition", "'out_of_order' AS kind", "b_offset AS offset", "a_offset AS other", "b_timestamp_ms AS timestamp_ms",
        "b_key AS key", "b_deleted AS deleted", empty)  # fmt: skip
    return others.unionByName(doubled).unionByName(order)


def _expr(text: str) -> Any:
    from pyspark.sql import functions as f

    return f.expr(text)
