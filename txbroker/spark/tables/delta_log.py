"""What the log of a Delta table says: the commits that are still there as JSON, properties, and transactions."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from txbroker.spark.tables.table_folder import DELTA_LOG

_COMMIT_FILE = re.compile(r"\d{20}\.json")


class _Metadata(NamedTuple):
    table_id: str
    properties: Mapping[str, str]


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
        """The commits that Delta has not removed yet, the newest first, each with its `commitInfo`."""
        for path in self._commit_files():
            for info in actions(path, "commitInfo"):
                yield path, info

    def properties(self) -> Mapping[str, str]:
        """The table's properties."""
        return self._metadata().properties

    def application(self, job: str, cluster_id: str) -> str:
        """The id of a job's transactions: it depends on the table and the cluster, and never on the run."""
        return f"txbroker-{job}-{hashlib.sha256(f'{cluster_id}/{self._metadata().table_id}'.encode()).hexdigest()[:32]}"

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
                return _Metadata(str(found[-1]["id"]), dict(found[-1].get("configuration") or {}))
        (detail,) = self._spark.sql(f"DESCRIBE DETAIL {self.name}").select("id", "properties").collect()
        return _Metadata(detail.id, dict(detail.properties))

    def _commit_files(self) -> list[Path]:
        return sorted((path for path in (self._log.iterdir() if self.exists else ()) if _COMMIT_FILE.fullmatch(path.name)), reverse=True)


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
