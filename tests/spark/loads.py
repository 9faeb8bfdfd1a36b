"""What a load's tests compare: the rows of a table, and a report in short."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.spark.producing import PARTITIONS
from txbroker.spark.load import LoadReport
from txbroker.spark.tables.opening import open_table

Load = Callable[..., LoadReport]


def offsets(spark: Any, table: Path) -> list[tuple[str, int, int]]:
    """All rows of the table, by topic, partition and offset, sorted."""
    rows = open_table(spark, str(table)).read().select("topic", "partition", "offset").collect()
    return sorted((row[0], row[1], row[2]) for row in rows)


def whole(topic: str, count: int, partitions: int = PARTITIONS, start: int = 0) -> list[tuple[str, int, int]]:
    """Each offset of [start, count) of each partition."""
    return [(topic, partition, offset) for partition in range(partitions) for offset in range(start, count)]


def summary(report: LoadReport) -> list[tuple[int, int, int, int]]:
    """Partition, start, end and rows of each checked range; no report in these tests has gaps unless the test says so."""
    return [(one.range.partition, one.range.start, one.range.end, one.rows) for one in report.checked]
