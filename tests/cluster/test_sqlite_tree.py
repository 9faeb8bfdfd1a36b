from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
from twisted.internet.defer import Deferred

from tests.support.fakes.turns import Turns
from txbroker.cluster.tree.interface import ConnectionLost, NoSpaceInStore, Tree
from txbroker.cluster.tree.sqlite import FILE_NAME, SqliteTrees, open_sqlite_tree
from txbroker.errors import StartError
from txbroker.names import parse_partition_directory

T = TypeVar("T")


def opened(path: Path, turns: Turns) -> Tree:
    return open_sqlite_tree(str(path), worker=turns.worker)


def written(path: Path, turns: Turns) -> Tree:
    tree = opened(path, turns)
    turns.result(tree.create("/a", b"kept"))
    turns.result(tree.create("/a/e", ephemeral=True))
    return tree


def test_the_name_is_no_partition_directory() -> None:
    assert parse_partition_directory(FILE_NAME) is None


def test_acknowledged_writes_survive_a_kill_and_ephemeral_nodes_do_not(tmp_path: Path) -> None:
    turns = Turns()
    path = tmp_path / FILE_NAME
    tree = written(path, turns)
    stat = turns.result(tree.exists("/a/e"))
    assert stat is not None
    after_kill = tmp_path / "copy"
    after_kill.mkdir()
    for file in tmp_path.glob(f"{FILE_NAME}*"):
        shutil.copy(file, after_kill)
    again = opened(after_kill / FILE_NAME, turns)
    assert turns.result(again.get("/a"))[0] == b"kept"
    assert turns.result(again.children("/a")) == []
    assert again.session_id > tree.session_id
    turns.result(again.create("/a/e", ephemeral=True))
    new_stat = turns.result(again.exists("/a/e"))
    assert new_stat is not None and new_stat.czxid > stat.czxid


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    turns = Turns()
    written(tmp_path / FILE_NAME, turns)
    with pytest.raises(StartError, match=r"cannot be used .*locked"):
        opened(tmp_path / FILE_NAME, turns)


def test_a_closed_tree_leaves_one_plain_file(tmp_path: Path) -> None:
    turns = Turns()
    turns.result(written(tmp_path / FILE_NAME, turns).close())
    assert [file.name for file in tmp_path.iterdir()] == [FILE_NAME]


@pytest.mark.parametrize("at", [0, 40, 4096, 8192])
def test_a_damaged_file_stops_the_start(tmp_path: Path, at: int) -> None:
    turns = Turns()
    path = tmp_path / FILE_NAME
    turns.result(written(path, turns).close())
    data = bytearray(path.read_bytes())
    data[at : at + 200] = b"\xff" * 200
    path.write_bytes(data)
    with pytest.raises(StartError, match=r"metadata"):
        opened(path, turns)


def test_a_file_of_another_program_stops_the_start_and_is_not_changed(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE mine (x)")
    other.close()
    with pytest.raises(StartError, match="another program"):
        opened(path, Turns())
    with sqlite3.connect(path) as other:
        assert other.execute("SELECT name FROM sqlite_master").fetchall() == [("mine",)]
    other.close()


def test_a_newer_format_stops_the_start(tmp_path: Path) -> None:
    turns = Turns()
    path = tmp_path / FILE_NAME
    turns.result(written(path, turns).close())
    with sqlite3.connect(path) as later:
        later.execute("PRAGMA user_version = 2")
    later.close()
    with pytest.raises(StartError, match="format 2"):
        opened(path, turns)


def test_a_missing_directory_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="unable to open"):
        opened(tmp_path / "missing" / FILE_NAME, Turns())


def test_a_file_is_closed_after_the_operations_that_were_submitted(tmp_path: Path) -> None:
    """Also after those that wait behind a running job."""
    turns = Turns()
    trees = SqliteTrees(str(tmp_path / FILE_NAME), worker=turns.worker)
    session = trees.session()
    running, waiting = session.create("/running"), session.create("/waiting")
    closed = trees.close()
    late = session.create("/late")
    with pytest.raises(ConnectionLost):
        turns.result(late)
    assert turns.result(running) == "/running"
    assert turns.result(waiting) == "/waiting"
    turns.result(closed)
    again = opened(tmp_path / FILE_NAME, turns)
    assert sorted(turns.result(again.children("/"))) == ["running", "waiting"]


def test_operations_that_wait_together_share_a_job(tmp_path: Path) -> None:
    turns = Turns()
    jobs: list[object] = []

    def worker(job: Callable[[], T], /) -> Deferred[T]:
        jobs.append(job)
        return turns.worker(job)

    tree = open_sqlite_tree(str(tmp_path / FILE_NAME), worker=worker)
    results = [tree.create(f"/{i}") for i in range(50)]
    assert turns.result(results[-1]) == "/49"
    assert len(jobs) == 2  # the first operation, and all that came while it ran


def test_a_write_that_fails_is_not_acknowledged_and_the_tree_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    turns = Turns()
    failing = [False]

    def worker(job: Callable[[], T], /) -> Deferred[T]:
        if not failing[0]:
            return turns.worker(job)

        def fails() -> T:
            limit = connection_of(tree)
            limit.execute("PRAGMA max_page_count = 1")  # what a full disk does: SQLITE_FULL
            try:
                return job()
            finally:
                limit.execute("PRAGMA max_page_count = 1000000")

        return turns.worker(fails)

    path = tmp_path / FILE_NAME
    full: list[bool] = []
    tree = open_sqlite_tree(str(path), worker=worker, on_full=lambda: full.append(True))
    turns.result(tree.create("/a"))
    failing[0] = True
    events: list[object] = []
    turns.result(tree.exists("/b", watch=events.append))
    for _ in range(5):
        with pytest.raises(NoSpaceInStore, match=f"^cannot write {path}: No space left on device$"):
            turns.result(tree.create("/b", bytes(100_000)))
    assert [record.message.partition(" (")[2] for record in caplog.records] == [
        f"failures in a row: {times}): cannot write {path}: No space left on device" for times in (1, 2, 4)
    ]
    assert len(full) == 5
    failing[0] = False
    assert events == []
    assert turns.result(tree.exists("/b")) is None
    assert turns.result(tree.create("/b", b"now")) == "/b"
    assert len(events) == 1


def connection_of(tree: Tree) -> sqlite3.Connection:
    connection: sqlite3.Connection = tree._store._nodes._connection  # type: ignore[attr-defined]
    return connection
