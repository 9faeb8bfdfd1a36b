"""Reading the metadata file while another thread writes it: a reader sees one state of the tree, without a lock."""

from __future__ import annotations

import os
import sqlite3
import threading
from pathlib import Path

import pytest

from txbroker.cluster.tree import sqlite_file
from txbroker.cluster.tree.interface import Create, Set
from txbroker.cluster.tree.sqlite import FILE_NAME, SqliteNodes, connect
from txbroker.cluster.tree.sqlite_file import read_nodes
from txbroker.cluster.tree.znodes import Overlay
from txbroker.errors import StartError

NAMES = [f"/n{number}" for number in range(300)]


class Writer(threading.Thread):
    """Sets all nodes to the same data in each transaction, with a checkpoint every few of them."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        connection = connect(str(path))
        connection.execute("PRAGMA wal_autocheckpoint = 500")
        connection.execute("PRAGMA synchronous = OFF")
        self._nodes = SqliteNodes(connection)
        self.stopped = threading.Event()
        self.written = 0
        self._write([Create(name, b"0" * 3000) for name in NAMES])

    def _write(self, ops: list[Create] | list[Set]) -> None:
        overlay = Overlay(self._nodes)
        overlay.perform(ops, 0)
        self._nodes.write(overlay.changes, overlay.zxid)

    def run(self) -> None:
        while not self.stopped.is_set():
            self.written += 1
            self._write([Set(name, b"%d" % (self.written % 10) * 3000) for name in NAMES])
        self._nodes.close()


def test_a_reader_sees_one_state_while_the_file_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / FILE_NAME
    monkeypatch.setattr(sqlite_file, "COPY_ATTEMPTS", 100_000)  # this writer checkpoints hundreds of times a second
    writer = Writer(path)
    writer.start()
    try:
        seen = set()
        for _ in range(40):
            found = read_nodes(str(path), NAMES)
            assert len(found) == len(NAMES) and len(set(found.values())) == 1
            seen |= set(found.values())
        assert len(seen) > 1
    finally:
        writer.stopped.set()
        writer.join()
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_write_ahead_log_that_begins_again_during_a_copy_is_copied_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / FILE_NAME
    connection = connect(str(path))
    nodes = SqliteNodes(connection)
    copy = sqlite_file.copyfile
    copied: list[str] = []

    def write(*ops: Create | Set) -> None:
        overlay = Overlay(nodes)
        overlay.perform(ops, 0)
        nodes.write(overlay.changes, overlay.zxid)

    def copy_then_write(source: str, target: str) -> None:
        copy(source, target)
        copied.append(source)
        if len(copied) == 1:  # the file has the first state; the log begins again, with a part of the third
            write(Set("/a", b"2" * 5000), Set("/b", b"2" * 5000))
            connection.execute("PRAGMA wal_checkpoint(RESTART)")
            write(Set("/a", b"3" * 5000))

    write(Create("/a", b"1" * 5000), Create("/b", b"1" * 5000))
    connection.execute("PRAGMA wal_checkpoint(RESTART)")
    write(Create("/c", b""))
    monkeypatch.setattr(sqlite_file, "copyfile", copy_then_write)
    assert read_nodes(str(path), ["/a", "/b"]) == {"/a": b"3" * 5000, "/b": b"2" * 5000}
    assert len(copied) == 4
    nodes.close()


def test_a_write_ahead_log_that_begins_again_during_each_copy_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / FILE_NAME
    writer = Writer(path)
    copy = sqlite_file.copyfile

    def restarted(source: str, target: str) -> None:
        copy(source, target)
        (tmp_path / f"{FILE_NAME}-wal").write_bytes(os.urandom(100))

    monkeypatch.setattr(sqlite_file, "copyfile", restarted)
    with pytest.raises(StartError, match="changes too fast to be copied: try again"):
        read_nodes(str(path), NAMES)
    writer.stopped.set()
