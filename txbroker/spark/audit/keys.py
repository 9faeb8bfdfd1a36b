"""The audit key by key: the latest value that was written and the latest one that was delivered, as `txbroker audit keys` shows them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from txbroker.console.failures import CommandFailed
from txbroker.log.cleaner.compaction_order import CompactionOrder
from txbroker.spark.audit.blocks import Key
from txbroker.spark.audit.report import AgeBucket, KeyCounts
from txbroker.spark.checksum import CONTENT, joined, sum_columns
from txbroker.spark.order import literal, rank

_S, _MIN, _H, _D = 1000, 60_000, 3_600_000, 86_400_000
AGES_MS = (0, _S, 10 * _S, _MIN, 10 * _MIN, _H, 3 * _H, 6 * _H, 12 * _H, _D, 2 * _D, 7 * _D, 30 * _D, 90 * _D, 365 * _D)
_VALUE = "struct(offset, timestamp_ms, version, deleted, content_0, content_1)"


def check_folder(location: str) -> None:
    """CommandFailed if the folder of the table of keys is there already."""
    if Path(location).exists():
        raise CommandFailed(f"{location} exists already; remove it, or specify another --keys-table")


def compare(written: Any, delivered: Any, order: CompactionOrder, group: str | None) -> Any:
    """A row for each partition and key of two DataFrames of `sides.prepared`.

    The columns are those of `txbroker audit keys --output`, and for each side the number of records and the checksum of their contents.
    `offset` and the columns after it are null for a key that is in no written record; those that begin with `delivered_` likewise.
    """
    from pyspark.sql import functions as f

    columns = ("topic", "partition", "key", "offset", "timestamp_ms", "version", "deleted", *CONTENT)
    sides = written.selectExpr(*columns, "true AS here").unionByName(delivered.selectExpr(*columns, "false AS here"))
    order_sql = rank(order, version_column="version")
    aggregates = [f.expr(f"max_by(if({condition}, {_VALUE}, NULL), if({condition}, {order_sql}, NULL)) AS {name}")
                  for name, condition in (("w", "here"), ("d", "NOT here"))]  # fmt: skip
    for prefix, factor in (("records", "if(here, 1, 0)"), ("delivered_records", "if(here, 0, 1)")):
        aggregates += [f.expr(f"sum({factor}) AS {prefix}"), *map(f.expr, sum_columns(CONTENT, prefix, factor))]
    grouped = sides.where("key IS NOT NULL").groupBy("topic", "partition", "key").agg(*aggregates)
    unseen = ("w IS NOT NULL AND (d IS NULL OR d.content_0 != w.content_0 OR d.content_1 != w.content_1) AS unseen")
    return grouped.selectExpr(
        "topic", "partition", "key", *_value("w", ""), "CAST(NULL AS STRING) AS group" if group is None else f"{literal(group)} AS group",
        *_value("d", "delivered_"), unseen, "records", f"{joined('records')} AS checksum", "delivered_records",
        f"{joined('delivered_records')} AS delivered_checksum",
    )  # fmt: skip


def _value(side: str, prefix: str) -> list[str]:
    time = f"if({side}.timestamp_ms < 0, NULL, timestamp_millis({side}.timestamp_ms)) AS {prefix}timestamp"
    return [f"{side}.offset AS {prefix}offset", time, f"{side}.version AS {prefix}version", f"{side}.deleted AS {prefix}deleted"]


def summary(keys: Any, now_ms: int) -> tuple[Mapping[Key, KeyCounts], list[AgeBucket]]:
    """The keys of each partition, and of all by the age of their latest written value."""
    from pyspark.sql import functions as f

    age = f"greatest({now_ms} - coalesce(unix_millis(timestamp), 0), 0)"
    lag = "greatest(if(delivered_offset IS NULL, age, unix_millis(timestamp) - unix_millis(delivered_timestamp)), 0)"
    bucket = f"array_size(filter(array({', '.join(f'{ms}L' for ms in AGES_MS)}), since -> since <= age)) - 1"
    aged = keys.where("offset IS NOT NULL").withColumn("age", f.expr(age))
    counted = aged.groupBy("topic", "partition", f.expr(bucket).alias("bucket")).agg(
        f.count("*"), f.expr("count_if(unseen)"), f.expr("count_if(delivered_offset IS NULL)"),
        f.expr(f"coalesce(max(if(unseen, {lag}, 0)), 0)"),
    )  # fmt: skip
    partitions: dict[Key, KeyCounts] = {}
    ages: dict[int, list[int]] = {}
    for topic, partition, at, total, unseen, never, lag_ms in counted.collect():
        before = partitions.get((topic, partition), KeyCounts())
        partitions[topic, partition] = KeyCounts(before.keys + total, before.unseen + unseen, before.never + never)
        found = ages.setdefault(at, [0, 0, 0, 0])
        ages[at] = [found[0] + total, found[1] + unseen, found[2] + never, max(found[3], lag_ms)]
    limits = (*AGES_MS[1:], None)
    return partitions, [AgeBucket(AGES_MS[at], limits[at], *counts) for at, counts in sorted(ages.items())]
