"""The Delta table of `upsert`: one row a key, also for deleted keys, and the offsets that it covers in each commit.

The table's properties say what it is made of (`Identity`). A commit has the offsets in its user metadata (`LoadCommit`) and a transaction
id whose version grows by one. For MERGE both are settings of a Spark session, so each commit has a session of its own.

If Delta has removed the commit with the offsets from its log (after `delta.logRetentionDuration`, 30 days), or the table was restored to a
time, everything is merged again, which changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from txbroker.console.failures import CommandFailed
from txbroker.log.cleaner.cleaning_job import Strategy
from txbroker.log.cleaner.compaction_order import CompactionOrder
from txbroker.spark.order import rank
from txbroker.spark.tables.delta_log import DeltaLog, struct_of, text
from txbroker.spark.tables.load_commit import LoadCommit, parse
from txbroker.spark.tables.table_folder import DELTA, format_of

KEY = "txbroker.upsert"
COLUMNS = {
    "key": "BINARY", "value": "BINARY", "headers": "ARRAY<STRUCT<key: STRING, value: BINARY>>", "partition": "INT", "offset": "BIGINT",
    "timestamp": "TIMESTAMP", "timestamp_ms": "BIGINT", "timestamp_type": "INT", "version": "BIGINT", "deleted": "BOOLEAN",
    "merged_ms": "BIGINT", "key_bucket": "INT",
}  # fmt: skip
"""`version`: of the header strategy. `deleted`: the latest record has no value. `merged_ms`: when the row was written."""
FORGETS = "delta.setTransactionRetentionDuration"
INCOMPARABLE = "txbroker-key-in-two-partitions"


def is_upsert_table(spark: Any, path: Path) -> bool:
    """Whether a folder has a table that `upsert` made. CommandFailed for a folder that has something else than a table."""
    return format_of(path) == DELTA and f"{KEY}.topic" in DeltaLog(spark, path).properties()


class Identity(NamedTuple):
    """What a table is made of, and does not change. `order`: the topic's strategy.

    `by_timestamp`: under the offset strategy, compare all records by their timestamps, since offsets of two partitions do not compare.
    """

    cluster_id: str
    topic: str
    topic_id: str
    order: CompactionOrder
    by_timestamp: bool
    buckets: int

    @property
    def effective(self) -> CompactionOrder:
        """By what records are compared."""
        return CompactionOrder(Strategy.TIMESTAMP) if self.by_timestamp and self.order.strategy is Strategy.OFFSET else self.order

    def properties(self) -> dict[str, str]:
        """As the table's properties."""
        values = {"cluster.id": self.cluster_id, "topic": self.topic, "topic.id": self.topic_id, "strategy": self.order.strategy.value,
                  "header": quote(self.order.header), "by.timestamp": str(self.by_timestamp).lower(), "buckets": str(self.buckets)}
        return {f"{KEY}.{name}": value for name, value in values.items()}

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> Identity:
        """From the table's properties; KeyError, ValueError."""
        found = {name: properties[f"{KEY}.{name}"] for name in ("cluster.id", "topic", "topic.id", "strategy", "header", "by.timestamp",
                                                                "buckets")}
        order = CompactionOrder(Strategy(found["strategy"]), unquote(found["header"]))
        return cls(found["cluster.id"], found["topic"], found["topic.id"], order, found["by.timestamp"] == "true", int(found["buckets"]))


class Merged(NamedTuple):
    """What a MERGE changed. The other keys of its source had a record of the same or a higher order in the table."""

    inserted: int
    updated: int


class UpsertTable:
    """The table in a folder. One `upsert` at a time: `table_folder.locked`."""

    def __init__(self, spark: Any, path: Path) -> None:
        self.path = path
        self._spark = spark
        self._log = DeltaLog(spark, path)

    def identity(self) -> Identity | None:
        """What the table is made of; None if there is no table. CommandFailed for a table that `upsert` did not make."""
        if not self._log.exists:
            return None
        properties = self._log.properties()
        if FORGETS in properties:
            raise CommandFailed(f"the table has the property {FORGETS}, by which Delta forgets which commits it has; remove the property")
        try:
            identity = Identity.of(properties)
        except (KeyError, ValueError):
            raise CommandFailed(f"the Delta table {self.path} was not made by `txbroker spark upsert`; specify another --table") from None
        self._log.check_columns(struct_of(COLUMNS), COLUMNS)
        return identity

    def create(self, identity: Identity) -> None:
        """Create the table without data."""
        columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
        pairs = ", ".join(f"{text(key)} = {text(value)}" for key, value in identity.properties().items())
        self._spark.sql(f"CREATE TABLE {self._log.name} ({columns}) USING delta PARTITIONED BY (key_bucket) TBLPROPERTIES ({pairs})")

    def newest(self) -> LoadCommit | None:
        """The newest commit; None if there is none, or Delta has removed it."""
        return next((found for _, info in self._log.commits() if (found := parse(info.get("userMetadata"), KEY)) is not None), None)

    def transaction(self, identity: Identity) -> int:
        """The number of the newest merge; 0 without one."""
        return self._log.transaction(self._log.application("upsert", identity.cluster_id)) or 0

    def merge(self, source: Any, identity: Identity, buckets: Iterable[int], commit: LoadCommit, transaction: int) -> Merged:
        """Merge a DataFrame of `COLUMNS` with one row a key, all of these buckets. CommandFailed if another run committed first.

        `transaction`: the number of this merge; Delta skips it silently if the table has the number already. An exception with the text
        INCOMPARABLE: a key is in the table from another partition, and nothing says which record is later.
        """
        session = source.sparkSession
        for name, value in {
            "spark.databricks.delta.write.txnAppId": self._log.application("upsert", identity.cluster_id),
            "spark.databricks.delta.write.txnVersion": str(transaction),
            "spark.databricks.delta.commitInfo.userMetadata": commit.to_json(KEY),
        }.items():
            session.conf.set(name, value)
        source.createOrReplaceTempView("latest")
        order = identity.effective
        later = f"{_rank(order, 's')} > {_rank(order, 't')}"
        session.sql(f"""
            MERGE INTO {self._log.name} AS t USING latest AS s
            ON t.key_bucket IN ({', '.join(map(str, sorted(buckets)))}) AND t.key_bucket = s.key_bucket AND t.key = s.key
            WHEN MATCHED AND CASE WHEN {incomparable(order)} THEN CAST(raise_error('{INCOMPARABLE}') AS BOOLEAN) ELSE {later} END
            THEN UPDATE SET {', '.join(f't.{name} = s.{name}' for name in COLUMNS)}
            WHEN NOT MATCHED THEN INSERT ({', '.join(COLUMNS)}) VALUES ({', '.join(f's.{name}' for name in COLUMNS)})
        """)
        for _, info in self._log.commits():
            found = parse(info.get("userMetadata"), KEY)
            if found is not None and found.run == commit.run:
                metrics = info.get("operationMetrics") or {}
                return Merged(int(metrics.get("numTargetRowsInserted", 0)), int(metrics.get("numTargetRowsUpdated", 0)))
            if found is not None:
                break
        raise CommandFailed(f"another upsert committed to {self.path} first, and this one wrote nothing; run it again")

    def purge(self, before_ms: int) -> int:
        """Delete the rows of deleted keys that were written before a time; how many."""
        (row,) = self._spark.sql(f"DELETE FROM {self._log.name} WHERE deleted AND merged_ms < {before_ms}").collect()
        return int(row.num_affected_rows)

    def read(self) -> Any:
        """A DataFrame of all rows, those of deleted keys too."""
        return self._spark.read.format("delta").load(str(self.path))


def incomparable(order: CompactionOrder) -> str:
    """SQL: whether `s` and `t`, records of one key, are in two partitions and have nothing to compare but their offsets."""
    if order.strategy is Strategy.TIMESTAMP:
        return "false"
    several = "t.partition <> s.partition"
    return several if order.strategy is Strategy.OFFSET else f"{several} AND t.version IS NULL AND s.version IS NULL"


def _rank(order: CompactionOrder, row: str) -> str:
    return rank(order, row, version_column="version")
