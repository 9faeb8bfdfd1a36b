"""A Parquet table that `load` appends to: data files that Spark writes, and manifests that say which of them are the table.

Each attempt of a run writes into a folder of its own, `data/RUN-ATTEMPT`. Then the driver syncs the files, and one new manifest makes them
data, with the offsets in it. Files of a run that was killed are in no manifest; a later load deletes them when they are a day old.

The number of the next manifest is that of the one that was read when the load was planned, plus one. So a load that another one overtook
cannot commit, even where the lock of the table does not work.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from txbroker.console.failures import CommandFailed
from txbroker.spark.kafka_source import SCHEMA
from txbroker.spark.session import configured
from txbroker.spark.tables.load_commit import LoadCommit
from txbroker.spark.tables.manifests import DataFile, Manifests, ManifestTaken, State, sync_folder
from txbroker.spark.tables.table import COMPACTED_BYTES, SMALL_BYTES, Loaded
from txbroker.spark.tables.table_folder import PARQUET

DATA = "data"
ORPHAN_AGE_S = 24 * 3600
_MAGIC = b"PAR1"


class ParquetTable:
    """The table in a folder; see `table.Table`."""

    format = PARQUET

    def __init__(self, spark: Any, path: Path) -> None:
        self.path = path
        self._spark = spark
        self._manifests = Manifests(path)
        self._state: State | None = None  # as this process knows it: the base of its next commit
        self._attempts = 0

    def loaded(self) -> Loaded | None:
        """What the table has."""
        self._state = self._manifests.newest()
        if self._state is None:
            return None
        load = self._state.load
        return Loaded(load.table, load if load.checked is None else None)

    def create(self, cluster_id: str, topic_ids: Mapping[str, str], rows: Any) -> None:
        """The ids are in each manifest."""
        self._manifests.create_folder()

    def schema(self) -> Any:
        """By the newest manifest."""
        from pyspark.sql.types import StructType

        return StructType.fromDDL(SCHEMA) if self._state is None else StructType.fromJson(json.loads(self._state.schema))

    def append(self, data: Any, commit: LoadCommit) -> None:
        """Write files, and commit them."""
        self._attempts += 1
        files = self._write(data, f"{DATA}/{commit.run}-{self._attempts}")
        known = {} if self._state is None else self._state.files
        number = 1 if self._state is None else self._state.number + 1
        self._add(State(number, commit, data.schema.json(), {**known, **{one.path: one for one in files}}, files), ())
        self.delete_orphans()

    def append_check(self, commit: LoadCommit) -> None:
        """A manifest without files."""
        state = self._known()
        self._add(state._replace(number=state.number + 1, load=commit, added=()), ())

    def has(self, commit: LoadCommit) -> bool:
        """Whether the newest manifest has this commit."""
        newest = self._manifests.newest()
        return newest is not None and newest.load.run == commit.run and (newest.load.checked is None) is (commit.checked is None)

    def rows(self, commit: LoadCommit) -> Any | None:
        """The rows of the files that a commit added."""
        added = self._manifests.adding(commit.run)
        if added is None or not all((self.path / one.path).is_file() for one in added):
            return None
        return self._read(self._known(), [one.path for one in added])

    def read(self) -> Any:
        """The rows of all files of the newest manifest."""
        state = self._manifests.newest()
        if state is None:
            raise CommandFailed(f"{self.path} has no data yet; run `txbroker spark load` first")
        return self._read(state, list(state.files))

    def compact(self, files_min: int) -> int:
        """Into new files, sorted by offset; the old ones are deleted when they were removed a day ago."""
        state = self._known()
        assert state.load.checked is not None
        small = {path: one for path, one in state.files.items() if one.bytes < SMALL_BYTES}
        if len(small) < files_min:
            return 0
        count = -(-sum(one.bytes for one in small.values()) // COMPACTED_BYTES)
        order = ("topic", "partition", "offset")
        data = self._read(state, list(small)).repartitionByRange(count, *order).sortWithinPartitions(*order)
        files = self._write(data, f"{DATA}/compacted-{state.number + 1}-{uuid.uuid4()}")
        rows = sum(one.rows for one in files)
        if rows != sum(one.rows for one in small.values()):
            raise CommandFailed(f"compaction of {self.path} read {rows} rows and not those of the manifest; nothing was changed; "
                                "check the files with `txbroker spark files --verify`")
        kept = {path: one for path, one in state.files.items() if path not in small}
        self._add(state._replace(number=state.number + 1, files={**kept, **{one.path: one for one in files}}, added=files), small)
        return len(small)

    def delete_orphans(self) -> None:
        """Delete what no reader and no job can use: in no manifest, or removed from the table, in both cases for a day or longer.

        A day by the file system's own clock, which need not be that of this machine: before the newest manifest was written.
        """
        oldest_s = self._manifests.written_s(self._known().number) - ORPHAN_AGE_S
        kept = {*self._known().files, *self._manifests.removed_since(oldest_s)}
        for folder in sorted((self.path / DATA).iterdir()):
            _delete_older(folder, {self.path / path for path in kept}, oldest_s)

    def _known(self) -> State:
        assert self._state is not None
        return self._state

    def _add(self, state: State, removed: Iterable[str]) -> None:
        try:
            self._manifests.add(state, list(removed))
        except ManifestTaken:
            # On NFS link(2) may have succeeded before it was sent again: then the manifest is this one.
            newest = self._manifests.newest()
            if newest is not None and newest.number == state.number and newest.load == state.load and newest.files == state.files:
                self._state = state
                return
            raise CommandFailed(f"another load committed to {self.path} first, and this one wrote nothing; run it again") from None
        self._state = state

    def _read(self, state: State, paths: list[str]) -> Any:
        from pyspark.sql.types import StructType

        schema = StructType.fromJson(json.loads(state.schema))
        if not paths:
            return self._spark.createDataFrame([], schema)
        return self._spark.read.schema(schema).parquet(*(str(self.path / path) for path in paths))

    def _write(self, data: Any, folder: str) -> list[DataFile]:
        """Write rows into a new folder; the files, with their names and contents on the disk."""
        # Spark's own default is INT96, which is deprecated and has no statistics.
        with configured(self._spark, {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}):
            data.write.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false").parquet(str(self.path / folder))
        found = []
        for path in sorted((self.path / folder).glob("*.parquet")):
            size, digest = footer_of(path, sync=True)
            found.append(DataFile(f"{folder}/{path.name}", size, self._count(path), digest))
        for each in (self.path / folder, self.path / DATA, self.path):
            sync_folder(each)
        return found

    def _count(self, path: Path) -> int:
        """The rows of a file, by its footer."""
        jvm = self._spark._jvm
        name = jvm.org.apache.hadoop.fs.Path(path.as_uri())
        hadoop = self._spark._jsc.hadoopConfiguration()
        parquet = jvm.org.apache.parquet.hadoop
        reader = parquet.ParquetFileReader.open(parquet.util.HadoopInputFile.fromPath(name, hadoop))
        try:
            return int(reader.getRecordCount())
        finally:
            reader.close()


def read_parquet_table(spark: Any, location: str) -> Any:
    """A DataFrame of a Parquet table: of the files in its manifests and no others. CommandFailed if there is no such table."""
    return ParquetTable(spark, Path(location)).read()


def footer_of(path: Path, *, sync: bool = False) -> tuple[int, str]:
    """The size of a Parquet file and the SHA-256 of its footer, as text; CommandFailed for a file that is none."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(size - 8, 0))
            tail = file.read(8)
            length = struct.unpack("<I", tail[:4])[0] if len(tail) == 8 and tail[4:] == _MAGIC else size
            if length + 8 > size:
                raise CommandFailed(f"{path} is no whole Parquet file; restore it from a backup of the table")
            file.seek(size - 8 - length)
            digest = hashlib.sha256(file.read(length)).hexdigest()
            if sync:
                os.fsync(file.fileno())
    except OSError as error:
        raise CommandFailed(f"{path} cannot be read: {error.strerror}; restore it from a backup of the table") from None
    return size, digest


def _delete_older(folder: Path, kept: set[Path], oldest_s: float) -> None:
    """Delete the files of a run's folder that are older and not kept, and the folder when it is empty."""
    there = sorted(folder.rglob("*"), reverse=True)  # what is in a folder comes before it
    names = {path for path in kept if path.parent == folder}
    checksums = {path.with_name(f".{path.name}.crc") for path in names}
    for path in there:
        if path in names or path in checksums or path.stat().st_mtime >= oldest_s:
            continue
        if path.is_dir():
            if not any(path.iterdir()):
                path.rmdir()
        else:
            path.unlink()
    if folder.stat().st_mtime < oldest_s and not any(folder.iterdir()):
        folder.rmdir()
