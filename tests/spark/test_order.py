"""Spark and the log cleaner agree which record of a key is the latest."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.cleaner.latest_of_key import CASES, LatestOfKey
from txbroker.log.cleaner.cleaning_job import Strategy
from txbroker.log.cleaner.compaction_order import CompactionOrder
from txbroker.spark.order import rank, version

SCHEMA = "offset BIGINT, partition INT, timestamp_ms BIGINT, value BINARY, headers ARRAY<STRUCT<key: STRING, value: BINARY>>"


def frame(spark: Any, case: LatestOfKey) -> Any:
    """The records, mixed; headers are null if there are none, as Spark's Kafka source has it."""
    rows = [(one.offset, 0, one.timestamp, one.value, list(one.headers) or None) for one in case.records]
    random.Random(3).shuffle(rows)
    return spark.createDataFrame(rows, SCHEMA)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_records_from_the_earliest_to_the_latest(spark: Any, case: LatestOfKey) -> None:
    rows = frame(spark, case)
    expected = [one.offset for one in case.records]
    assert [row.offset for row in rows.orderBy(expression(rank(case.order))).collect()] == expected
    stored = rows.selectExpr("*", f"{version(case.order)} AS version").drop("headers").alias("t")
    by_stored = expression(rank(case.order, "t", version_column="version"))
    assert [row.offset for row in stored.orderBy(by_stored).collect()] == expected
    (latest,) = rows.selectExpr(f"max_by(offset, {rank(case.order)}) AS offset").collect()
    assert latest.offset == expected[-1]


def test_versions_are_the_cleaners(spark: Any) -> None:
    for case in CASES:
        found = frame(spark, case).selectExpr("offset", f"{version(case.order)} AS version").collect()
        expected = {one.offset: case.order.rank(one)[0] if case.order.rank(one)[1] else None for one in case.records}
        assert {row.offset: row.version for row in found} == expected


def test_a_header_with_a_quote_in_its_name(spark: Any) -> None:
    order = CompactionOrder(Strategy.HEADER, "it's \\ ${v}")
    rows = spark.createDataFrame([(0, 0, 0, None, [(order.header, bytes(7) + b"\x05")])], SCHEMA)
    assert rows.selectExpr(f"{version(order)} AS version").collect()[0].version == 5


def expression(text: str) -> Any:
    from pyspark.sql import functions as f

    return f.expr(text)
