"""A Parquet table of `load`: readers trust its manifests alone, and what no manifest has is deleted after a day."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commands import run
from tests.spark.loads import Load, offsets, whole
from tests.spark.producing import produce
from tests.support.server import Server
from txbroker.console.failures import CommandFailed
from txbroker.spark.tables import parquet
from txbroker.spark.tables.parquet import ORPHAN_AGE_S, ParquetTable, read_parquet_table


def listed(table: Path) -> list[str]:
    return run("spark", "files", "--table", str(table))[0].splitlines()


def test_files_that_no_manifest_has_are_not_read(spark: Any, broker: Server, topic: str, table: Path, loading: Load,
                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    """Two loads, and files of a third one that ended before its commit; those that are a day old are deleted by the next load."""
    loading(format="parquet")
    before = listed(table)
    assert len(before) == 3 and all(Path(path).is_file() for path in before)

    class Killed(BaseException):
        """Before the commit."""

    def fail(*_: Any) -> None:
        raise Killed

    produce(broker, topic, 3)
    with monkeypatch.context() as patch:
        patch.setattr(parquet.ParquetTable, "_add", fail)
        with pytest.raises(Killed):
            loading()
    orphans = {str(path) for path in (table / "data").glob("*/*.parquet")} - set(before)
    assert len(orphans) == 3
    assert offsets(spark, table) == whole(topic, 10) and listed(table) == before
    loading()
    assert offsets(spark, table) == whole(topic, 11)
    assert all(Path(path).exists() for path in orphans), "another program may still write them"
    old_s = time.time() - ORPHAN_AGE_S - 60
    for path in (table / "data").rglob("*"):
        os.utime(path, (old_s, old_s))
    assert not loading().loaded
    assert all(Path(path).exists() for path in orphans), "a load without data deletes nothing"
    produce(broker, topic, 3)
    loading()
    assert not any(Path(path).exists() for path in orphans)
    assert not any((table / "data").glob(f"{Path(next(iter(orphans))).parent.name}/*"))
    assert offsets(spark, table) == whole(topic, 12), "files of the table are kept, however old"
    # A later one removes the empty folders.
    assert len(listed(table)) == 9
    assert read_parquet_table(spark, str(table)).count() == 36


def test_the_list_of_files(spark: Any, topic: str, table: Path, loading: Load) -> None:
    loading(format="parquet")
    rows = [line.split("\t") for line in run("spark", "files", "--table", str(table), "--long")[0].splitlines()]
    assert sum(int(count) for _, _, count, _ in rows) == 30
    assert all(Path(path).stat().st_size == int(size) for path, size, _, _ in rows)
    assert spark.read.parquet(*(path for path, *_ in rows)).count() == 30
    assert run("spark", "files", "--table", str(table), "--verify")[0] == "3 files with 30 rows, 0 missing or different\n"
    first, second, _ = (Path(path) for path, *_ in rows)
    content = bytearray(first.read_bytes())
    content[-20] ^= 1
    first.write_bytes(content)
    second.write_bytes(second.read_bytes()[:-1])
    output, complaint = run("spark", "files", "--table", str(table), "--verify", status=1)
    assert output == "3 files with 30 rows, 2 missing or different\n"
    assert f"{first} is not the file that was loaded" in complaint and f"{second} is no whole Parquet file" in complaint


def test_folders_without_a_parquet_table(spark: Any, table: Path, tmp_path: Path, loading: Load) -> None:
    loading(format="delta")
    _, complaint = run("spark", "files", "--table", str(table), status=2)
    assert f"{table} has a Delta table" in complaint
    with pytest.raises(CommandFailed, match="has the format delta; leave out --format parquet"):
        loading(format="parquet")
    _, complaint = run("spark", "files", "--table", str(tmp_path / "none"), status=2)
    assert "has no table" in complaint
    with pytest.raises(CommandFailed, match="has no data yet"):
        ParquetTable(spark, tmp_path / "none").read()
