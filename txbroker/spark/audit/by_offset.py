"""The second level of an audit where both sides have the same offsets: what differs, record by record."""

from __future__ import annotations

from typing import Any

from txbroker.spark.audit.blocks import Kept

EVENTS = """topic STRING, partition INT, kind STRING, offset BIGINT, other BIGINT, timestamp_ms BIGINT, key BINARY, deleted BOOLEAN,
shared BOOLEAN"""
"""A row for each difference. Kinds, with the meaning of `offset` and `other`:

- missing: written at `offset`, not delivered.
- changed: the delivered record at `offset` has another key, value, timestamp or headers than the one written at `other`.
- doubled: delivered again at `offset`.
- out_of_order: delivered at `offset`, written at `other`.
- extra: delivered at `offset`, not written as far as the written side shows now. `shared`: another record was written at this offset.
- waiting: written at `offset`, after everything that was delivered.

Timestamp, key and `deleted` (the value is null) are the delivered record's, or the written one's if it was not delivered.
"""
_PLACE = ["topic", "partition", "offset"]
_RECORD = ("timestamp_ms", "key", "deleted")


def compare(keep: Kept, written: Any, delivered: Any) -> Any:
    """The differences between two DataFrames of `sides.prepared`.

    If the content of a record without an equal one is at another offset, it was moved (out_of_order), not lost or changed.
    """
    from pyspark.sql import functions as f
    from pyspark.sql.window import Window

    columns = ("content_0", "content_1", *_RECORD)
    a = written.select(*_PLACE, *(f.col(name).alias(f"a_{name}") for name in columns), f.lit(True).alias("a"))
    b = delivered.select(*_PLACE, *(f.col(name).alias(f"b_{name}") for name in columns), f.lit(True).alias("b"))
    equal = f.expr("a_content_0 <=> b_content_0 AND a_content_1 <=> b_content_1")
    of_offset = Window.partitionBy(*_PLACE).orderBy(f.col("equal").desc())
    status = f.expr("CASE WHEN nth > 1 THEN 'doubled' WHEN equal THEN 'equal' WHEN b IS NULL THEN 'missing' WHEN a IS NULL THEN 'extra' "
                    "ELSE 'changed' END")
    both = a.join(b, _PLACE, "full").withColumn("equal", equal).withColumn("nth", f.row_number().over(of_offset))
    different = both.withColumn("status", status).where("status != 'equal'")
    return _with_moves(keep, keep.rows(different))


def _with_moves(keep: Kept, different: Any) -> Any:
    """Find records that are at another offset, and make one row of each difference."""
    sides = []
    for side, statuses in (("a", "'missing', 'changed'"), ("b", "'extra', 'changed'")):
        some = different.where(f"status IN ({statuses})").selectExpr(
            "topic", "partition", f"{side}_content_0 AS content_0", f"{side}_content_1 AS content_1", f"offset AS {side}_offset",
            f"row_number() OVER (PARTITION BY topic, partition, {side}_content_0, {side}_content_1 ORDER BY offset) AS nth")  # fmt: skip
        sides.append(some)
    pairs = sides[0].join(sides[1], ["topic", "partition", "content_0", "content_1", "nth"])
    moves = keep.rows(pairs.select("topic", "partition", "a_offset", "b_offset"))
    to = moves.selectExpr("topic", "partition", "a_offset AS offset", "b_offset AS moved_to")
    origin = moves.selectExpr("topic", "partition", "b_offset AS offset", "a_offset AS moved_from")
    marked = different.join(to, _PLACE, "left").join(origin, _PLACE, "left")
    record = {side: ", ".join(f"{side}_{name}" for name in _RECORD) for side in "ab"}
    cases = {
        "status = 'doubled'": f"'doubled', offset, offset, {record['b']}, true",
        "status = 'changed' AND moved_to IS NULL AND moved_from IS NULL": f"'changed', offset, offset, {record['b']}, true",
        "status = 'missing' AND moved_to IS NULL OR status = 'changed' AND moved_to IS NULL AND moved_from IS NOT NULL":
            f"'missing', offset, NULL, {record['a']}, false",
        "status IN ('extra', 'changed') AND moved_from IS NOT NULL":
            f"'out_of_order', offset, moved_from, {record['b']}, status = 'changed'",
        "status = 'extra' AND moved_from IS NULL OR status = 'changed' AND moved_from IS NULL AND moved_to IS NOT NULL":
            f"'extra', offset, NULL, {record['b']}, status = 'changed'",
    }  # fmt: skip
    names = ("kind", "offset", "other", *_RECORD, "shared")
    found = [f"if({condition}, {_struct(names, values)}, NULL)" for condition, values in cases.items()]
    return marked.selectExpr("topic", "partition", f"inline(filter(array({', '.join(found)}), event -> event IS NOT NULL))")


def _struct(names: tuple[str, ...], values: str) -> str:
    pairs = ", ".join(f"{value} AS {name}" for name, value in zip(names, values.split(", "), strict=True))
    return f"struct({pairs.replace('NULL AS', 'CAST(NULL AS BIGINT) AS')})"
