"""A table of `upsert` as the delivered side of an audit: the latest record of each key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from txbroker.console.failures import BadUsage, CommandFailed
from txbroker.spark.audit.blocks import Key
from txbroker.spark.audit.sides import Span, TopicRules, inside
from txbroker.spark.audit.table_side import loaded_spans
from txbroker.spark.kafka_source import COLUMNS
from txbroker.spark.offset_ranges import OffsetRange
from txbroker.spark.order import literal
from txbroker.spark.session import check_session
from txbroker.spark.snapshot import Snapshot
from txbroker.spark.tables.table_folder import folder
from txbroker.spark.tables.upsert_table import UpsertTable


class UpsertSide:
    """The table as it is now: later runs are not seen. BadUsage, CommandFailed."""

    kind = "upsert"
    same_offsets = True
    group = None

    def __init__(self, spark: Any, location: str, isolation_level: str) -> None:
        if isolation_level != "read_committed":
            raise BadUsage("a table of `txbroker spark upsert` has committed records only; leave out --isolation-level")
        check_session(spark, delta=True)
        table = UpsertTable(spark, folder(location))
        identity, newest = table.identity(), table.newest()
        rows = table.read()
        while (again := table.newest()) != newest:  # a run may commit between the offsets and the rows
            newest, rows = again, table.read()
        if identity is None or newest is None:
            raise CommandFailed(f"Delta does not have the offsets of the table {table.path} any more; "
                                "run `txbroker spark upsert` once, which commits them again")
        self._spark = spark
        self._path = table.path
        self._rows = rows.selectExpr(f"{literal(identity.topic)} AS topic", *(name for name in COLUMNS if name != "topic"))
        self._offsets = newest.table
        self.latest_by = identity.effective
        self.name = f"table {table.path}"

    def spans(self, snapshot: Snapshot) -> Mapping[Key, Span]:
        """Up to what was merged."""
        return loaded_spans(self._offsets, snapshot)

    def records(self, ranges: Sequence[OffsetRange]) -> Any:
        """Its rows, those of deleted keys too."""
        return inside(self._spark, self._rows, ranges)

    def since(self, written: Mapping[Key, int], timestamp_ms: int) -> Mapping[Key, int]:
        """The same offsets. An audit of such a table refuses to begin at one."""
        return written

    def rules(self, written: TopicRules) -> TopicRules:
        """Rows are not compacted."""
        return written._replace(compacted=frozenset())

    def command(self, topic: str, partition: int, offset: int) -> str:
        """For Spark's SQL shell."""
        return f"SELECT * FROM delta.`{self._path}` WHERE partition = {partition} AND offset = {offset}"
