"""Access to the metadata file by tools: reading it, and writing a new one.

Reads work on a copy that includes the write-ahead log: the file itself does not change and may be read-only, and a broker may be using
it. A new file is built under a temporary name and renamed, so that it is complete or absent; no broker may run.
"""

from __future__ import annotations

import os
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
# Suffixes of the files that SQLite may leave beside the database.
_COMPANIONS = (_WAL, "-shm", "-journal")
_BUILT = ".new"
WAL_HEADER_BYTES = 32  # its salts differ each time that SQLite begins the write-ahead log again
COPY_ATTEMPTS = 20


def read_nodes(path: str, names: Sequence[str]) -> dict[str, bytes]:
    """The data of these nodes, without those that do not exist or have no data. StartError when the file cannot be read."""
    found = {}
    with _copy(path) as connection:
        for name in names:
            row = connection.execute("SELECT data FROM node WHERE path = ?", (name,)).fetchone()
            if row is not None and row[0] is not None:
                found[name] = bytes(row[0])
    return found


def read_tree(path: str) -> dict[str, bytes | None]:
    """The data of all nodes by path, without ephemeral nodes. StartError when the file cannot be read."""
    with _copy(path) as connection:
        rows = connection.execute("SELECT path, data FROM node WHERE ephemeral_owner = 0")
        return {name: None if data is None else bytes(data) for name, data in rows}


@contextmanager
def _copy(path: str) -> Iterator[sqlite3.Connection]:
    try:
        with TemporaryDirectory(prefix="txbroker-") as directory:
            copy = f"{directory}/{FILE_NAME}"
            _copy_files(path, copy)
            with closing(sqlite3.connect(copy)) as connection:
                check_format(connection, path)
                yield connection
    except (sqlite3.Error, OSError) as error:
        raise StartError(f"The metadata file {path} cannot be read: {error}.") from error


def _copy_files(path: str, copy: str) -> None:
    """Copy the file, then its write-ahead log (WAL), so that both are of one state; OSError, StartError.

    A broker appends changed pages to the WAL; a checkpoint copies them into the file, and only then the WAL begins again, with another
    header. As long as the header stays the same, the WAL holds every page that may have changed in the file while it was copied.
    """
    for _ in range(COPY_ATTEMPTS):
        before = _wal_header(path)
        copyfile(path, copy)
        with suppress(FileNotFoundError):
            copyfile(path + _WAL, copy + _WAL)
        if _wal_header(path) == before == _wal_header(copy):
            return
        with suppress(FileNotFoundError):
            os.remove(copy + _WAL)
    raise StartError(f"The metadata file {path} changes too fast to be copied: try again, or stop the broker.")


def _wal_header(path: str) -> bytes:
    try:
        with open(path + _WAL, "rb") as file:
            return file.read(WAL_HEADER_BYTES)
    except FileNotFoundError:
        return b""


def write_tree(path: str, ops: Sequence[Op], disk: Disk) -> None:
    """Create the file at `path` by applying these operations to an empty tree. StorageError; TreeError.

    Leftovers of an interrupted attempt are replaced.
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
        disk.remove(path + suffix)  # SQLite would treat it as part of the new file
    disk.rename(built, path)
    disk.sync(path.rpartition("/")[0])


def rename_file(path: str, disk: Disk, ending: str) -> str:
    """Rename the file, with the write-ahead log left by a crash, to `<path>.<ending>` or the next free number; returns the new name."""
    target, number = f"{path}.{ending}", 1
    while disk.size(target) is not None or disk.size(target + _WAL) is not None:
        number += 1
        target = f"{path}.{ending}-{number}"
    with suppress(sqlite3.Error, StartError):  # keep both parts of a damaged file
        connect(path, create=False).close()  # checkpoint the write-ahead log into the file
    for suffix in ("", *_COMPANIONS):
        if disk.size(path + suffix) is not None:
            disk.rename(path + suffix, target + suffix)
    disk.sync(path.rpartition("/")[0])
    return target


def data_of(nodes: Mapping[str, bytes | None], parent: str) -> dict[str, bytes | None]:
    """The children of a node: names to data."""
    start = f"{parent}/"
    return {path[len(start) :]: data for path, data in nodes.items() if path.startswith(start) and "/" not in path[len(start) :]}
