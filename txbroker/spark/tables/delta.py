"""A Delta table that `load` appends to.

A commit carries the offsets (`LoadCommit`) in its user metadata, and a transaction id: a name derived from the cluster and the table, never
from the run, and a version that grows with the offsets. Delta skips a write silently if the table has that version already, so every commit
is read back: it is done only if it has this run's id.

The metadata is in Delta's log, which Delta removes after `delta.logRetentionDuration` (30 days). After that the offsets are taken from the
data. Cluster and topic ids are properties of the table, which Delta keeps.

On a POSIX file system two JVMs can both believe that they wrote a version of Delta's log. A lock on a file beside the table's folder
prevents that (Delta creates no table in a folder that has a file). The JVM holds it, since it is the JVM that commits: it ends with it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from txbroker.cli.failures import BadUsage, CommandFailed
from txbroker.spark.kafka_source import SCHEMA
from txbroker.spark.offset_ranges import TableOffsets
from txbroker.spark.tables.load_commit import LoadCommit, parse

CLUSTER_ID = "txbroker.cluster.id"
TOPIC_ID = "txbroker.topic.id."
FORGETS = "delta.setTransactionRetentionDuration"
_COMMIT_FILE = re.compile(r"\d{20}\.json")
_held: set[str] = set()  # opening the lock's file again in one process would release the lock


class Loaded(NamedTuple):
    """`offsets`: what the table has. `unchecked`: its last commit, if the gaps in it are not classified yet.

    `transaction`: the version of the last commit, where its metadata is gone.
    """

    offsets: TableOffsets
    unchecked: LoadCommit | None
    transaction: int | None = None


class DeltaTable:
    """The table in a folder. CommandFailed for a folder that has something else."""

    def __init__(self, spark: Any, location: str) -> None:
        if "://" in location.removeprefix("file://"):
            raise BadUsage(f"--table is {location}: only folders of a file system that the driver and all executors mount are supported")
        self.path = Path(location.removeprefix("file://")).absolute()
        if "`" in str(self.path):
            raise BadUsage(f"--table is {location}: a backquote in the path is not supported; rename the folder")
        self._spark = spark
        self._log = self.path / "_delta_log"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the table, for one load at a time; CommandFailed if another one holds it."""
        busy = CommandFailed(f"another load writes to {self.path}; wait until it has ended, and run this again")
        folder = self.path.resolve()
        path = str(folder.with_name(f".{folder.name}.load.lock"))
        if path in _held:
            raise busy
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            file = self._spark._jvm.java.io.RandomAccessFile(path, "rw")
        except Exception as error:
            reason = str(error).splitlines()[0]
            raise CommandFailed(f"{self.path} cannot be written ({reason}); correct --table or its permissions") from None
        _held.add(path)
        try:
            if file.getChannel().tryLock() is None:
                raise busy
            yield
        finally:
            _held.discard(path)
            file.close()

    def loaded(self) -> Loaded | None:
        """What the table has; None if there is no table yet. CommandFailed if it is not a table of `load`."""
        if not self._log.is_dir() or not any(self._log.iterdir()):
            others = [path.name for path in self.path.iterdir()] if self.path.is_dir() else []
            if others:
                raise CommandFailed(f"{self.path} is not empty and has no Delta table ({others[0]}); specify another --table")
            return None
        properties = self._properties()
        if CLUSTER_ID not in properties:
            raise CommandFailed(f"the Delta table {self.path} was not made by `txbroker spark load`; specify another --table")
        if FORGETS in properties:
            raise CommandFailed(f"the table has the property {FORGETS}, by which Delta forgets which loads it has; remove the property")
        for _, line in self._commit_lines():
            found = parse(line.get("userMetadata"))
            if found is not None:
                return Loaded(found.table, found if found.checked is None else None)
        return self._loaded_by_data(properties)

    def create(self, cluster_id: str, topic_ids: Mapping[str, str]) -> None:
        """Create the table without data if there is none, and store the ids."""
        if not self._log.is_dir() or not any(self._log.iterdir()):
            self._spark.sql(f"CREATE TABLE {self._name} ({SCHEMA}) USING delta TBLPROPERTIES ({_text(CLUSTER_ID)} = {_text(cluster_id)})")
        known = self._properties()
        new = {f"{TOPIC_ID}{name}": topic_id for name, topic_id in topic_ids.items() if f"{TOPIC_ID}{name}" not in known}
        if new:
            pairs = ", ".join(f"{_text(key)} = {_text(value)}" for key, value in sorted(new.items()))
            self._spark.sql(f"ALTER TABLE {self._name} SET TBLPROPERTIES ({pairs})")

    def append(self, data: Any, commit: LoadCommit) -> None:
        """Append a DataFrame and commit both in one step. CommandFailed if another load was first.

        Another exception does not mean that nothing was committed; `has` shows it.
        """
        (data.write.format("delta").mode("append").option("txnAppId", self._application(commit.table.cluster_id))
         .option("txnVersion", commit.version).option("userMetadata", commit.to_json()).save(str(self.path)))
        if not self.has(commit):
            raise CommandFailed(f"another load committed to {self.path} first, and this one wrote nothing; run it again")

    def append_check(self, commit: LoadCommit) -> None:
        """Commit what was found about the gaps of the commit before."""
        self.append(self._spark.read.format("delta").load(str(self.path)).limit(0), commit)

    def has(self, commit: LoadCommit) -> bool:
        """Whether the newest commit of a load is this one."""
        newest = next((found for _, line in self._commit_lines() if (found := parse(line.get("userMetadata"))) is not None), None)
        return newest is not None and newest.run == commit.run and (newest.checked is None) is (commit.checked is None)

    def rows(self, commit: LoadCommit) -> Any | None:
        """A DataFrame of topic, partition and offset of the rows that a commit added; None if Delta's log does not have it any more."""
        for path, line in self._commit_lines():
            found = parse(line.get("userMetadata"))
            if found is not None and found.run == commit.run and found.checked is None:
                files = [str(self.path / added["path"]) for added in _actions(path, "add")]
                if not all(Path(file).exists() for file in files):
                    return None
                schema = "topic STRING, partition INT, offset BIGINT"
                return self._spark.read.schema(schema).parquet(*files) if files else self._spark.createDataFrame([], schema)
        return None

    @property
    def _name(self) -> str:
        return f"delta.`{self.path}`"

    def _application(self, cluster_id: str) -> str:
        (detail,) = self._spark.sql(f"DESCRIBE DETAIL {self._name}").select("id").collect()
        return f"txbroker-load-{hashlib.sha256(f'{cluster_id}/{detail.id}'.encode()).hexdigest()[:32]}"

    def _properties(self) -> Mapping[str, str]:
        for path in self._commit_files():
            found = list(_actions(path, "metaData"))
            if found:
                return dict(found[-1].get("configuration") or {})
        (detail,) = self._spark.sql(f"DESCRIBE DETAIL {self._name}").select("properties").collect()
        return dict(detail.properties)

    def _commit_files(self) -> list[Path]:
        """The commits that Delta's log still has as JSON, the newest first."""
        return sorted((path for path in self._log.iterdir() if _COMMIT_FILE.fullmatch(path.name)), reverse=True)

    def _commit_lines(self) -> Iterator[tuple[Path, Mapping[str, Any]]]:
        for path in self._commit_files():
            for info in _actions(path, "commitInfo"):
                yield path, info

    def _loaded_by_data(self, properties: Mapping[str, str]) -> Loaded:
        """The offsets from the rows. Offsets without a record at a partition's end are read again, which adds nothing."""
        rows = self._spark.read.format("delta").load(str(self.path)).groupBy("topic", "partition").agg({"offset": "max"}).collect()
        offsets: dict[str, dict[int, int]] = {}
        for row in rows:
            offsets.setdefault(row[0], {})[row[1]] = row[2] + 1
        ids = {topic: properties[f"{TOPIC_ID}{topic}"] for topic in offsets if f"{TOPIC_ID}{topic}" in properties}
        missing = sorted(offsets.keys() - ids.keys())
        if missing:
            raise CommandFailed(f"the table {self.path} has rows of topic {missing[0]} and not the topic's id; specify another --table")
        table = TableOffsets(properties[CLUSTER_ID], ids, offsets)
        options = self._spark._jvm.scala.Option
        log = self._spark._jvm.org.apache.spark.sql.delta.DeltaLog.forTable(self._spark._jsparkSession, str(self.path))
        found = log.update(False, options.empty(), options.empty()).transactions().get(self._application(table.cluster_id))
        return Loaded(table, None, int(found.get()) if found.isDefined() else None)


def _actions(path: Path, kind: str) -> Iterator[dict[str, Any]]:
    """The actions of a kind in a commit of Delta's log."""
    for line in path.read_text(encoding="utf-8").splitlines():
        if f'"{kind}"' in line:
            found = json.loads(line).get(kind)
            if isinstance(found, dict):
                yield found


def _text(value: str) -> str:
    """A string of SQL. Names of topics and ids have neither quotes nor backslashes."""
    assert not {"'", "\\"}.intersection(value), value
    return f"'{value}'"
