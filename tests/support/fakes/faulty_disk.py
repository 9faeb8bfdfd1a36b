"""Faults by script in front of any `Disk`: operations that fail from some moment on, for some time, below some path.

    disk = FaultyDisk(MemoryDisk())
    disk.fail("rename", after=2, error=errno.ENOSPC)    # the third rename fails, and all that follow
    disk.fail(WRITES, times=1, torn=True)               # the next write fails in the middle
    disk.fail(CHANGES, after=7, error=Killed)           # the process ends before its eighth change

An error is an errno, which becomes the exception that `OsDisk` raises, or a class of exceptions, for the end of a process.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Collection
from dataclasses import dataclass

from txbroker.log.disk import Buffer, Disk, DiskUsage, File, Lock, Mapped, storage_error

# What puts bytes somewhere.
WRITES = frozenset({"create", "append", "write", "replace"})
NAMES = frozenset({"create", "replace", "rename", "remove", "remove_tree", "make_directory"})
# What changes anything that a later process can see.
CHANGES = WRITES | NAMES | {"truncate"}
READS = frozenset({"open", "read", "pread", "map", "size", "names", "usage"})
TIMES = frozenset({"modified_ms"})  # of files in use: these are in memory, and fail only by name
EVERYTHING = CHANGES | READS | {"sync", "lock"}


class Killed(BaseException):
    """The process ends here."""


@dataclass(slots=True, eq=False)
class Fault:
    """`operations` at or below `path` fail, after `after` of them succeeded, and then `times` times (None: always).

    `torn`: half of the bytes are written first. They stay where they would on a real disk: in a file written in place or beside
    the file to replace, and at the end of a log when the process ended, which could not cut them off again.
    """

    operations: Collection[str]
    path: str
    after: int
    times: int | None
    error: int | type[BaseException]
    torn: bool
    failed: int = 0

    def due(self, operation: str, path: str) -> bool:
        """Whether this operation fails."""
        if operation not in self.operations or not (path == self.path or path.startswith(self.path.rstrip("/") + "/")):
            return False
        if self.after:
            self.after -= 1
            return False
        if self.times is not None and self.failed >= self.times:
            return False
        self.failed += 1
        return True

    def exception(self, operation: str, path: str) -> BaseException:
        """What this operation raises."""
        if isinstance(self.error, int):
            error = OSError(self.error, os.strerror(self.error))
            made = storage_error(operation, path, error)
            made.__cause__ = error
            return made
        return self.error(f"{operation} {path}")


class FaultyDisk:
    """`disk` with faults. `done`: the changes and syncs that succeeded, as (operation, path), in order."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.done: list[tuple[str, str]] = []
        self._faults: list[Fault] = []

    def fail(self, operations: str | Collection[str] = EVERYTHING, path: str = "/", *, after: int = 0, times: int | None = None,
             error: int | type[BaseException] = errno.EIO, torn: bool = False) -> Fault:
        """Add a fault. An operation fails with the first fault that is due."""
        names = {operations} if isinstance(operations, str) else operations
        assert (EVERYTHING | TIMES).issuperset(names), f"{names} are not all operations of a disk"
        self._faults.append(Fault(names, path, after, times, error, torn))
        return self._faults[-1]

    def repair(self) -> None:
        """Remove all faults."""
        self._faults.clear()

    def paths(self, operations: str | Collection[str]) -> list[str]:
        """The paths of what succeeded, in order."""
        names = {operations} if isinstance(operations, str) else operations
        return [path for operation, path in self.done if operation in names]

    def check(self, operation: str, path: str) -> None:
        """Raise what this operation fails with, if it does."""
        fault = self.due(operation, path)
        if fault is not None:
            raise fault.exception(operation, path)

    def due(self, operation: str, path: str) -> Fault | None:
        return next((fault for fault in self._faults if fault.due(operation, path)), None)

    def note(self, operation: str, path: str) -> None:
        self.done.append((operation, path))

    def create(self, path: str) -> File:
        self.check("create", path)
        file = self.disk.create(path)
        self.note("create", path)
        return _FaultyFile(self, file)

    def open(self, path: str) -> File:
        self.check("open", path)
        return _FaultyFile(self, self.disk.open(path))

    def open_existing(self, path: str) -> File | None:
        self.check("open", path)
        file = self.disk.open_existing(path)
        return None if file is None else _FaultyFile(self, file)

    def read(self, path: str) -> bytes | None:
        self.check("read", path)
        return self.disk.read(path)

    def map(self, path: str) -> Mapped:
        self.check("map", path)
        return self.disk.map(path)

    def write(self, path: str, data: Buffer) -> None:
        fault = self.due("write", path)
        if fault is not None:
            if fault.torn:
                self.disk.write(path, _half(data))
            raise fault.exception("write", path)
        self.disk.write(path, data)
        self.note("write", path)

    def replace(self, path: str, data: Buffer, *, sync: bool = True, private: bool = False) -> None:
        fault = self.due("replace", path)
        if fault is not None:
            if fault.torn:
                self.disk.write(path + ".tmp", _half(data))
            raise fault.exception("replace", path)
        self.disk.replace(path, data, sync=sync, private=private)
        self.note("replace", path)

    def append(self, path: str, data: Buffer) -> None:
        self.open(path).append(data)

    def truncate(self, path: str, size: int) -> None:
        self.open(path).truncate(size)

    def size(self, path: str) -> int | None:
        self.check("size", path)
        return self.disk.size(path)

    def modified_ms(self, path: str) -> int:
        self.check("modified_ms", path)
        return self.disk.modified_ms(path)

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        self.disk.set_modified_ms(path, modified_ms)

    def names(self, directory: str) -> list[str]:
        self.check("names", directory)
        return self.disk.names(directory)

    def is_directory(self, path: str) -> bool:
        return self.disk.is_directory(path)

    def make_directory(self, path: str) -> None:
        self.check("make_directory", path)
        self.disk.make_directory(path)
        self.note("make_directory", path)

    def rename(self, old: str, new: str) -> None:
        self.check("rename", old)
        self.disk.rename(old, new)
        self.note("rename", old)

    def remove(self, path: str) -> None:
        self.check("remove", path)
        self.disk.remove(path)
        self.note("remove", path)

    def remove_tree(self, path: str) -> None:
        self.check("remove_tree", path)
        self.disk.remove_tree(path)
        self.note("remove_tree", path)

    def sync(self, path: str) -> None:
        self.check("sync", path)
        self.disk.sync(path)
        self.note("sync", path)

    def usage(self, path: str) -> DiskUsage:
        self.check("usage", path)
        return self.disk.usage(path)

    def lock(self, path: str) -> Lock | None:
        self.check("lock", path)
        return self.disk.lock(path)

    def locked(self, path: str) -> bool:
        return self.disk.locked(path)


class _FaultyFile:
    """A `File` whose operations ask the disk's faults first."""

    def __init__(self, disk: FaultyDisk, file: File) -> None:
        self._disk = disk
        self._file = file
        self.path = file.path
        self.size = file.size

    def append(self, data: Buffer) -> None:
        fault = self._disk.due("append", self.path)
        if fault is not None:
            if fault.torn and not isinstance(fault.error, int):
                self._file.append(_half(data))
            raise fault.exception("append", self.path)
        self._file.append(data)
        self.size = self._file.size
        self._disk.note("append", self.path)

    def cut_tail(self) -> None:
        self._file.cut_tail()

    def pread(self, position: int, length: int) -> bytes:
        self._disk.check("pread", self.path)
        return self._file.pread(position, length)

    def truncate(self, size: int) -> None:
        self._disk.check("truncate", self.path)
        self._file.truncate(size)
        self.size = size
        self._disk.note("truncate", self.path)

    def sync(self) -> None:
        self._disk.check("sync", self.path)
        self._file.sync()
        self._disk.note("sync", self.path)

    def fileno(self) -> int:
        return self._file.fileno()


def _half(data: Buffer) -> bytes:
    return bytes(memoryview(data)[: len(data) // 2])
