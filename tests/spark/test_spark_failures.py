"""What the exceptions of Spark and of its gateway are for people."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from txbroker.client.client_errors import Unreachable
from txbroker.console.failures import CommandFailed
from txbroker.spark.spark_failures import spark_failures
from txbroker.spark.tables.table_folder import locked


def no_broker(rows: Any) -> Any:
    raise Unreachable("broker:9092", "refused")


def no_number(rows: Any) -> Any:
    return [1 // 0]


def in_a_task(spark: Any, work: Callable[[Any], Any]) -> None:
    spark.sparkContext.parallelize([1], 1).mapPartitions(work).collect()


@pytest.mark.process
@pytest.mark.parametrize(("fail", "text"), [
    (lambda spark: in_a_task(spark, no_broker), r"no connection to broker:9092 \(refused\)$"),
    (lambda spark: in_a_task(spark, no_number), "Spark failed: ZeroDivisionError: .* by zero;"),
    (lambda spark: spark._jvm.java.io.FileInputStream("/no/file"), "Spark failed: java.io.FileNotFoundException: /no/file .*;"),
    (lambda spark: spark.read.parquet("/no/folder"), r"Spark failed: \[PATH_NOT_FOUND\] .*;"),
])  # fmt: skip
def test_the_reason_is_named(spark: Any, fail: Callable[[Any], Any], text: str) -> None:
    with pytest.raises(CommandFailed, match=f"^{text}"), spark_failures():
        fail(spark)


@pytest.mark.process
def test_a_table_that_cannot_be_written(spark: Any) -> None:
    text = r"^/proc/table cannot be written \(java.io.FileNotFoundException: .*\); correct --table"
    with pytest.raises(CommandFailed, match=text), locked(spark, Path("/proc/table")):
        pass
