"""The file of the metadata tree while no broker uses it: read as a whole, or made anew as a whole.

What reads it works on a copy, with the write-ahead log that a crash left: the file itself stays as it is, and may be read-only. What
makes one builds it beside its place and renames it, so that it is there whole or not at all.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from shutil import copyfile
from tempfile import TemporaryDirectory

from txbroker.cluster.tree.interface import Op
from txbroker.cluster.tree.sqlite import FILE_NAME, SqliteNodes, check_format, connect
from txbroker.cluster.tree.znodes import Overlay
from txbroker.errors import StartError, StorageError
from txbroker.log.disk import Disk

_WAL = "-wal"
# What SQLite may leave beside a file.
_COMPANIONS = (_WAL, "-shm", "-journal")
_BUILT = ".new"


def read_nodes(path: str, names: Sequence[str]) -> dict[str, bytes]:
    """The data of these nodes in the file of a broker that does not run; those that exist and have data. StartError."""
    found = {}
    with _copy(path) as connection:
        for name in names:
            row = connection.execute("SELECT data FROM node WHERE path = ?", (name,)).fetchone()
            if row is not None and row[0] is not None:
                found[name] = bytes(row[0])
    return found


def read_tree(path: str) -> dict[str, bytes | None]:
    """All nodes in the file of a broker that does not run, but for ephemeral ones; paths to data. StartError."""
    with _copy(path) as connection:
        rows = connection.execute("SELECT path, data FROM node WHERE ephemeral_owner = 0")
        return {name: None if data is None else bytes(data) for name, data in rows}


@contextmanager
def _copy(path: str) -> Iterator[sqlite3.Connection]:
    try:
        with TemporaryDirectory(prefix="txbroker-") as directory:
            copy = f"{directory}/{FILE_NAME}"
            for suffix in ("", _WAL):
                with suppress(FileNotFoundError):
                    copyfile(path + suffix, copy + suffix)
            with closing(sqlite3.connect(copy)) as connection:
                check_format(connection, path)
                yield connection
    except (sqlite3.Error, OSError) as error:
        raise StartError(f"The metadata file {path} cannot be read: {error}.") from error


def write_tree(path: str, ops: Sequence[Op], disk: Disk) -> None:
    """Make the file at `path`, which does not exist, of what these operations make of an empty tree. StorageError; TreeError.

    What an attempt that was interrupted has left behind is replaced.
    """
    built = path + _BUILT
    for suffix in ("", *_COMPANIONS):
        disk.remove(built + suffix)
    try:
        nodes = SqliteNodes(connect(built))
        try:
            overlay = Overlay(nodes)
            overlay.perform(ops, 0)
            nodes.write(overlay.changes, overlay.zxid)
        finally:
            nodes.close()  # which leaves one file, without a write-ahead log
    except sqlite3.Error as error:
        raise StorageError(f"cannot write {built}: {error}") from error
    disk.sync(built)
    for suffix in _COMPANIONS:
        disk.remove(path + suffix)  # SQLite would take it for a part of the new file
    disk.rename(built, path)
    disk.sync(path.rpartition("/")[0])


def set_aside(path: str, disk: Disk, ending: str) -> str:
    """Rename the file, with the write-ahead log that a crash left, to `<path>.<ending>` or the next free number; its new name."""
    target, number = f"{path}.{ending}", 1
    while disk.size(target) is not None or disk.size(target + _WAL) is not None:
        number += 1
        target = f"{path}.{ending}-{number}"
    with suppress(sqlite3.Error, StartError):  # of a damaged file both parts are kept
        connect(path).close()  # what a crash left in the write-ahead log comes into the file
    for suffix in ("", *_COMPANIONS):
        if disk.size(path + suffix) is not None:
            disk.rename(path + suffix, target + suffix)
    disk.sync(path.rpartition("/")[0])
    return target


def data_of(nodes: Mapping[str, bytes | None], parent: str) -> dict[str, bytes | None]:
    """The children of a node: names to data."""
    start = f"{parent}/"
    return {path[len(start) :]: data for path, data in nodes.items() if path.startswith(start) and "/" not in path[len(start) :]}
