"""Topics with tables for tests of the audit, and what every report must fulfil."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.server import Server
from txbroker.spark.audit.job import AuditOptions, audit
from txbroker.spark.audit.report import AuditReport
from txbroker.spark.load import LoadOptions, load
from txbroker.spark.topic_source import TopicSource

Rows = list[dict[str, Any]]


class Audited:
    """A topic, and a Delta table of it in `place`."""

    def __init__(self, spark: Any, server: Server, topic: str, place: Path, isolation_level: str = "read_committed") -> None:
        self.spark = spark
        self.server = server
        self.topic = topic
        self.table = place / "table"
        self.source = TopicSource(server.address, [topic], isolation_level=isolation_level)

    def load(self) -> None:
        """Load what the table lacks."""
        assert not load(self.spark, LoadOptions(self.source, str(self.table), format="delta")).wrong

    def changed(self, edit: Callable[[Rows], Rows]) -> Path:
        """A copy of the table, with other rows. One commit for all: each of Delta's takes a second or two."""
        copy = self.table.with_name("changed")
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.table, copy)
        table = self.spark.read.format("delta").load(str(copy))
        rows = edit([row.asDict(recursive=True) for row in table.orderBy("partition", "offset").collect()])
        self.spark.createDataFrame(rows, table.schema).coalesce(1).write.format("delta").mode("overwrite").save(str(copy))
        return copy

    def audit(self, table: Path | None = None, **options: Any) -> AuditReport:
        """An audit against the table, or a copy; its counts add up."""
        return audited_with(self.spark, AuditOptions(self.source, str(table or self.table), **options))


def without(*places: tuple[int, int]) -> Callable[[Rows], Rows]:
    """An edit that removes rows, by partition and offset."""
    return lambda rows: [row for row in rows if (row["partition"], row["offset"]) not in places]


def audited_with(spark: Any, options: AuditOptions) -> AuditReport:
    """An audit whose counts add up."""
    report = audit(spark, options, time.time_ns() // 1_000_000)
    adds_up(report)
    return report


def adds_up(report: AuditReport) -> None:
    """The counts of each partition, on both sides and over all offsets."""
    for one in report.partitions:
        gaps = 0 if one.gaps is None else one.gaps.total
        whole = one.written + gaps == one.end - one.start
        # Offsets without a record on both replicas are not looked up, and of a table of upsert only the latest records count.
        assert whole or report.kind in ("replica", "upsert"), one
        assert one.equal >= 0 and one.waiting >= 0, one
    assert sum(cell.written + cell.waiting for cell in report.times) == sum(one.written + one.waiting for one in report.partitions)
    assert sum(cell.delivered for cell in report.times) == sum(one.delivered for one in report.partitions)


def found(report: AuditReport) -> list[tuple[str, int, int, int]]:
    """Kind, partition, count and first offset of each finding."""
    return [(one.kind, one.partition, one.count, one.first_offset) for one in report.findings]
