"""A Delta table that `load` appends to.

A commit carries the offsets (`LoadCommit`) in its user metadata, and a transaction id: a name derived from the cluster and the table, never
from the run, and a version that grows with the offsets. Delta skips a write silently if the table has that version already, so every commit
is read back: it is done only if it has this run's id.

The metadata is in Delta's log, which Delta removes after `delta.logRetentionDuration` (30 days). After that, and after a RESTORE to a time,
the offsets are taken from the data. Cluster and topic ids are properties of the table, which Delta keeps.

On a POSIX file system two JVMs can both believe that they wrote a version of Delta's log. The lock of `table_folder` prevents that.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from txbroker.console.failures import CommandFailed
from txbroker.spark.kafka_source import COLUMNS, SCHEMA
from txbroker.spark.offset_ranges import TableOffsets
from txbroker.spark.session import configured
from txbroker.spark.tables.delta_log import RESTORED, DeltaLog, actions, struct_of, text
from txbroker.spark.tables.load_commit import LoadCommit, parse
from txbroker.spark.tables.table import COMPACTED_BYTES, SMALL_BYTES, Loaded
from txbroker.spark.tables.table_folder import DELTA

CLUSTER_ID = "txbroker.cluster.id"
TOPIC_ID = "txbroker.topic.id."
FORGETS = "delta.setTransactionRetentionDuration"
_NOT_IN_NAMES = frozenset(" ,;{}()\n\t=")
_OPTIMIZE_BELOW = "spark.databricks.delta.optimize.minFileSize"
_OPTIMIZE_TO = "spark.databricks.delta.optimize.maxFileSize"


class DeltaTable:
    """The table in a folder; see `table.Table`."""

    format = DELTA

    def __init__(self, spark: Any, path: Path) -> None:
        self.path = path
        self._spark = spark
        self._log = DeltaLog(spark, path)

    def loaded(self) -> Loaded | None:
        """What the table has; CommandFailed if it is not a table of `load`."""
        if not self._log.exists:
            return None
        properties = self._log.properties()
        if CLUSTER_ID not in properties:
            raise CommandFailed(f"the Delta table {self.path} was not made by `txbroker spark load`; specify another --table")
        if FORGETS in properties:
            raise CommandFailed(f"the table has the property {FORGETS}, by which Delta forgets which loads it has; remove the property")
        self._log.check_columns(struct_of(COLUMNS), COLUMNS)
        for _, line in self._log.commits():
            found = parse(line.get("userMetadata"))
            if found is not None:
                return Loaded(found.table, found if found.checked is None else None)
        return self._loaded_by_data(properties)

    def create(self, cluster_id: str, topic_ids: Mapping[str, str], rows: Any) -> None:
        """Create the table without data if there is none, and store the ids."""
        _check_names(json.loads(rows.json()))
        if not self._log.exists:
            self._spark.sql(f"CREATE TABLE {self._log.name} ({SCHEMA}) USING delta TBLPROPERTIES ({text(CLUSTER_ID)} = {text(cluster_id)})")
        self._log.check_columns(json.loads(rows.json()), COLUMNS)
        known = self._log.properties()
        restored = {RESTORED: str(self._log.restored)} if self._log.restored else {}
        wanted = {CLUSTER_ID: cluster_id, **restored, **{f"{TOPIC_ID}{name}": topic_id for name, topic_id in topic_ids.items()}}
        new = {key: value for key, value in wanted.items() if known.get(key) != value}
        if new:
            pairs = ", ".join(f"{text(key)} = {text(value)}" for key, value in sorted(new.items()))
            self._spark.sql(f"ALTER TABLE {self._log.name} SET TBLPROPERTIES ({pairs})")

    def schema(self) -> Any:
        """By Delta."""
        return self.read().schema

    def append(self, data: Any, commit: LoadCommit) -> None:
        """Append, and read the commit back."""
        (data.write.format("delta").mode("append").option("txnAppId", self._application(commit.table.cluster_id))
         .option("txnVersion", commit.version).option("userMetadata", commit.to_json()).option("mergeSchema", "true").save(str(self.path)))
        if not self.has(commit):
            raise CommandFailed(f"another load committed to {self.path} first, and this one wrote nothing; run it again")

    def append_check(self, commit: LoadCommit) -> None:
        """A commit without data."""
        self.append(self.read().limit(0), commit)

    def has(self, commit: LoadCommit) -> bool:
        """Whether the newest commit of a load is this one."""
        newest = next((found for _, line in self._log.commits() if (found := parse(line.get("userMetadata"))) is not None), None)
        return newest is not None and newest.run == commit.run and (newest.checked is None) is (commit.checked is None)

    def rows(self, commit: LoadCommit) -> Any | None:
        """The rows of the files that a commit added."""
        for path, line in self._log.commits():
            found = parse(line.get("userMetadata"))
            if found is not None and found.run == commit.run and found.checked is None:
                files = [str(self.path / added["path"]) for added in actions(path, "add")]
                if not all(Path(file).exists() for file in files):
                    return None
                schema = self.read().schema
                return self._spark.read.schema(schema).parquet(*files) if files else self._spark.createDataFrame([], schema)
        return None

    def read(self) -> Any:
        """By Delta."""
        return self._spark.read.format("delta").load(str(self.path))

    def compact(self, files_min: int) -> int:
        """By OPTIMIZE, whose limits are settings of the session."""
        files = [Path(unquote(urlsplit(name).path)) for name in self.read().inputFiles()]
        small = sum(path.stat().st_size < SMALL_BYTES for path in files)
        if small < files_min:
            return 0
        with configured(self._spark, {_OPTIMIZE_BELOW: str(SMALL_BYTES), _OPTIMIZE_TO: str(COMPACTED_BYTES)}):
            self._spark.sql(f"OPTIMIZE {self._log.name}").collect()
        return small

    def _loaded_by_data(self, properties: Mapping[str, str]) -> Loaded:
        """The offsets from the rows. Offsets without a record at a partition's end are read again, which adds nothing."""
        rows = self.read().groupBy("topic", "partition").agg({"offset": "max"}).collect()
        offsets: dict[str, dict[int, int]] = {}
        for row in rows:
            offsets.setdefault(row[0], {})[row[1]] = row[2] + 1
        ids = {topic: properties[f"{TOPIC_ID}{topic}"] for topic in offsets if f"{TOPIC_ID}{topic}" in properties}
        missing = sorted(offsets.keys() - ids.keys())
        if missing:
            raise CommandFailed(f"the table {self.path} has rows of topic {missing[0]} and not the topic's id; specify another --table")
        table = TableOffsets(properties[CLUSTER_ID], ids, offsets)
        again = f"ALTER TABLE {self._log.name} SET TBLPROPERTIES ({text(RESTORED)} = {text(str(self._log.restored + 1))})"
        return Loaded(table, None, self._log.transaction(self._application(table.cluster_id)), again)

    def _application(self, cluster_id: str) -> str:
        return self._log.application("load", cluster_id)


def _check_names(kind: Any) -> None:
    """CommandFailed for a column, at any depth of a schema in Spark's JSON, whose name Delta does not take."""
    if isinstance(kind, dict):
        for field in kind.get("fields", ()):
            if _NOT_IN_NAMES.intersection(field["name"]):
                raise CommandFailed(f"a Delta table cannot have the column {field['name']!r}: a name must have no spaces and none of "
                                    ",;{}()=; rename the field, or specify --format parquet and another --table")
            _check_names(field["type"])
        for part in ("elementType", "keyType", "valueType"):
            _check_names(kind.get(part))
