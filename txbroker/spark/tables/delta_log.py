"""What the log of a Delta table says: the commits that are still there as JSON, properties, and transactions."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from txbroker.console.failures import CommandFailed
from txbroker.spark.tables.table_folder import DELTA_LOG

_COMMIT_FILE = re.compile(r"\d{20}\.json")


_PHYSICAL_NAME = "delta.columnMapping.physicalName"
# The version of the newest RESTORE that a job has seen, for later jobs, which may find Delta's log without that commit.
RESTORED = "txbroker.restored"


Struct = Mapping[str, Any]
"""A struct in Spark's JSON."""


def struct_of(names: Iterable[str]) -> Struct:
    """Columns whose types do not matter."""
    return {"fields": [{"name": name, "type": None} for name in names]}


class _Metadata(NamedTuple):
    """`schema`: in Spark's JSON, with Delta's metadata of columns; None if the log does not have it any more."""

    table_id: str
    properties: Mapping[str, str]
    schema: Struct | None


class DeltaLog:
    """The log of the table in a folder, which may not exist yet."""

    def __init__(self, spark: Any, path: Path) -> None:
        self._spark = spark
        self._path = path
        self._log = path / DELTA_LOG

    @property
    def exists(self) -> bool:
        """Whether there is a table."""
        return self._log.is_dir() and any(self._log.iterdir())

    @property
    def name(self) -> str:
        """The table in SQL."""
        return f"delta.`{self._path}`"

    def commits(self) -> Iterator[tuple[Path, Mapping[str, Any]]]:
        """The commits that made the table what it is now and that Delta has not removed yet, the newest first, with their `commitInfo`.

        A RESTORE takes back the commits after the version that it restores. The log does not say which version a RESTORE to a time means:
        no commit before it is returned.
        """
        below: int | None = None
        for path in self._commit_files():
            if below is not None and _version(path) > below:
                continue
            for info in actions(path, "commitInfo"):
                if info.get("operation") == "RESTORE":
                    below = _restored_version(info)
                    if below is None:
                        return
                else:
                    yield path, info

    @property
    def restored(self) -> int:
        """The version of the newest RESTORE, also of one that Delta has removed from its log since a job saw it; 0 without one."""
        known = self._metadata().properties.get(RESTORED, "0")
        newest = next((_version(path) for path in self._commit_files()
                       for info in actions(path, "commitInfo") if info.get("operation") == "RESTORE"), 0)  # fmt: skip
        return max(newest, int(known) if known.isascii() and known.isdecimal() else 0)

    def properties(self) -> Mapping[str, str]:
        """The table's properties."""
        return self._metadata().properties

    def check_columns(self, wanted: Struct, required: Collection[str]) -> None:
        """CommandFailed if a column of `wanted`, at any depth, has another name now, or one of `required` is missing.

        A job writes columns by their names and may add some, so it would make a second column of the old name.
        """
        there = self._metadata().schema
        if there is None:
            there = json.loads(self._spark.read.format("delta").load(str(self._path)).schema.json())
        found = _renamed(wanted, there, "")
        if found is not None:
            name, other = found
            back = f"ALTER TABLE {self.name} RENAME COLUMN {other} TO {name.rpartition('.')[2]}"
            raise CommandFailed(f"the column {name} of the table {self._path} was renamed to {other}; rename it back ({back}), or specify "
                                "another --table")
        missing = [name for name in required if name not in {field["name"] for field in there["fields"]}]
        if missing:
            raise CommandFailed(f"the table {self._path} has no column {missing[0]}, which this job writes; restore the table to a version "
                                "that has it, or specify another --table")

    def application(self, job: str, cluster_id: str) -> str:
        """The id of a job's transactions: it depends on the table and the cluster, and never on the run.

        RESTORE does not take back the versions of transactions, and Delta skips a version that it has had, so each RESTORE begins a new id.
        """
        restored = f"/{self.restored}" if self.restored else ""
        return f"txbroker-{job}-{hashlib.sha256(f'{cluster_id}/{self._metadata().table_id}{restored}'.encode()).hexdigest()[:32]}"

    def transaction(self, application: str) -> int | None:
        """The newest version that was committed under a transaction id. Delta keeps it when it removes the commits."""
        options = self._spark._jvm.scala.Option
        log = self._spark._jvm.org.apache.spark.sql.delta.DeltaLog.forTable(self._spark._jsparkSession, str(self._path))
        found = log.update(False, options.empty(), options.empty()).transactions().get(application)
        return int(found.get()) if found.isDefined() else None

    def _metadata(self) -> _Metadata:
        for path in self._commit_files():
            found = list(actions(path, "metaData"))
            if found:
                newest = found[-1]
                return _Metadata(str(newest["id"]), dict(newest.get("configuration") or {}), json.loads(newest["schemaString"]))
        (detail,) = self._spark.sql(f"DESCRIBE DETAIL {self.name}").select("id", "properties").collect()
        return _Metadata(detail.id, dict(detail.properties), None)

    def _commit_files(self) -> list[Path]:
        return sorted((path for path in (self._log.iterdir() if self.exists else ()) if _COMMIT_FILE.fullmatch(path.name)), reverse=True)


def _renamed(wanted: Struct, there: Struct, path: str) -> tuple[str, str] | None:
    """The first wanted column that has another name there, and that name, both with their paths. Data files have the old name."""
    known = {field["name"]: field for field in there["fields"]}
    stored = {(field.get("metadata") or {}).get(_PHYSICAL_NAME): field["name"] for field in there["fields"]}
    for field in wanted["fields"]:
        name = field["name"]
        if name not in known:
            if name in stored:
                return path + name, path + stored[name]
        elif isinstance(field["type"], Mapping) and "fields" in field["type"] and "fields" in (known[name]["type"] or ()):
            found = _renamed(field["type"], known[name]["type"], f"{path}{name}.")
            if found is not None:
                return found
    return None


def _version(path: Path) -> int:
    return int(path.stem)


def _restored_version(info: Mapping[str, Any]) -> int | None:
    """The version that a RESTORE restored; None if it was given as a time."""
    version = str((info.get("operationParameters") or {}).get("version"))
    return int(version) if version.isascii() and version.isdecimal() else None


def actions(path: Path, kind: str) -> Iterator[dict[str, Any]]:
    """The actions of a kind in a commit of Delta's log."""
    for line in path.read_text(encoding="utf-8").splitlines():
        if f'"{kind}"' in line:
            found = json.loads(line).get(kind)
            if isinstance(found, dict):
                yield found


def text(value: str) -> str:
    """A string of SQL, which must not have quotes and backslashes: a topic's name, or an id."""
    assert not {"'", "\\", "$"}.intersection(value), value
    return f"'{value}'"
