"""The manifests of a Parquet table, without Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from txbroker.console.failures import CommandFailed
from txbroker.spark.offset_ranges import TableOffsets
from txbroker.spark.tables.load_commit import LoadCommit
from txbroker.spark.tables.manifests import FULL_EVERY, DataFile, Manifests, ManifestTaken, State
from txbroker.spark.tables.parquet import ParquetTable


def commit(number: int) -> LoadCommit:
    return LoadCommit(f"run {number}", "read_committed", TableOffsets("C", {"t": "id"}, {"t": {0: number}}), [], [])


def state(before: State | None, *, checked: bool = False) -> State:
    """The state after the one before, with one more file."""
    number = 1 if before is None else before.number + 1
    new = DataFile(f"data/{number}.parquet", 10, 1, "hash")
    load = commit(number)._replace(checked=[] if checked else None)
    return State(number, load, "{}", {**({} if before is None else before.files), new.path: new}, [new])


@pytest.fixture
def manifests(tmp_path: Path) -> Manifests:
    made = Manifests(tmp_path)
    made.create_folder()
    return made


def test_no_manifest_is_no_table(tmp_path: Path, manifests: Manifests) -> None:
    assert manifests.newest() is None
    assert Manifests(tmp_path / "missing").newest() is None


def test_the_newest_of_many(tmp_path: Path, manifests: Manifests) -> None:
    """Readers need the manifests from the last full one on only."""
    now: State | None = None
    for _ in range(2 * FULL_EVERY + 3):
        now = state(now)
        manifests.add(now)
        if now.number in (1, 50, FULL_EVERY - 1, FULL_EVERY, FULL_EVERY + 1):
            assert manifests.newest() == now
    assert manifests.newest() == now
    for number in range(1, 2 * FULL_EVERY):
        (tmp_path / "_manifests" / f"{number:020d}.json").unlink()
    assert manifests.newest() == now
    assert now is not None
    removing = now._replace(number=now.number + 1, files={"data/7.parquet": now.files["data/7.parquet"]}, added=[])
    manifests.add(removing, [path for path in now.files if path != "data/7.parquet"])
    assert manifests.newest() == removing


def test_one_of_two_writers_wins(tmp_path: Path, manifests: Manifests) -> None:
    first = state(None)
    manifests.add(first)
    with pytest.raises(ManifestTaken):
        manifests.add(first._replace(load=commit(99)))
    assert manifests.newest() == first
    assert [path.name for path in (tmp_path / "_manifests").iterdir()] == ["00000000000000000001.json"], "no temporary file is left"


def test_the_files_of_a_run(manifests: Manifests) -> None:
    first = state(None)
    manifests.add(first)
    checked = first._replace(number=2, load=first.load._replace(checked=[]), added=())
    manifests.add(checked)
    assert manifests.adding("run 1") == first.added
    assert manifests.adding("run 2") is None


def test_manifests_that_are_refused(tmp_path: Path, manifests: Manifests) -> None:
    now: State | None = None
    for _ in range(3):
        now = state(now)
        manifests.add(now)
    folder = tmp_path / "_manifests"
    newest = folder / "00000000000000000003.json"
    good = newest.read_text()
    content = json.loads(good)
    for change in (
        {"schema_version": 2}, {"number": 7}, {"load": {}}, {"added": [{"path": "x"}]}, {"added": 3},
        {"added": [{"path": "../../etc/passwd", "bytes": 1, "rows": 1, "footer_sha256": ""}]},
        {"added": [{"path": "/etc/passwd", "bytes": 1, "rows": 1, "footer_sha256": ""}]},
    ):  # fmt: skip
        newest.write_text(json.dumps({**content, **change}))
        with pytest.raises(CommandFailed, match=r"cannot be read|newer version"):
            manifests.newest()
    for damaged in ("", "[]", good[:-20]):
        newest.write_text(damaged)
        with pytest.raises(CommandFailed, match="cannot be read"):
            manifests.newest()
    newest.write_text(good)
    (folder / "00000000000000000002.json").unlink()
    with pytest.raises(CommandFailed, match=r"00000000000000000002.json is missing; restore it"):
        manifests.newest()


def test_a_link_that_was_made_and_answered_as_if_not(tmp_path: Path) -> None:
    """As NFS can: the manifest is there, and it is this writer's own."""
    table = ParquetTable(None, tmp_path)
    table.create("C", {}, None)
    first = state(None)
    table._add(first, ())
    table._add(first, ())
    with pytest.raises(CommandFailed, match="another load committed to"):
        table._add(first._replace(load=commit(99)), ())
