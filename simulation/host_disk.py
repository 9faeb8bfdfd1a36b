"""The disk as one process sees it: it ends with the process, also in the middle of a step, and fails where a fault says so."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

from simulation.memory_disk import MemoryDisk
from simulation.process import Killed, Process
from txbroker.log.disk import Buffer, DiskUsage, File, Lock, storage_error


class Faults:
    """What a process's disk does next. `changes_left`: the process is killed before so many further changes; None: it is not.

    `fails`: every change fails with this errno.
    """

    def __init__(self) -> None:
        self.changes_left: int | None = None
        self.fails = 0
        self.kill: Callable[[], None] = _nothing


def _nothing() -> None:
    """No fault."""


class HostDisk:
    """Implements `Disk`."""

    def __init__(self, disk: MemoryDisk, process: Process) -> None:
        self.disk = disk
        self.process = process
        self.faults = Faults()

    def check(self, what: str, path: str) -> None:
        """Before a change."""
        if not self.process.alive:
            raise Killed
        faults = self.faults
        if faults.changes_left is not None:
            if not faults.changes_left:
                faults.kill()
                raise Killed
            faults.changes_left -= 1
        if faults.fails:
            raise storage_error(what, path, OSError(faults.fails, os.strerror(faults.fails)))

    def read_check(self, path: str) -> None:
        """Before a read."""
        if self.faults.fails == errno.EIO:
            raise storage_error("read", path, OSError(errno.EIO, os.strerror(errno.EIO)))

    def create(self, path: str) -> File:
        """See `Disk`."""
        self.check("open", path)
        return _HostFile(self, self.disk.create(path))

    def open(self, path: str) -> File:
        """See `Disk`."""
        return _HostFile(self, self.disk.open(path))

    def open_existing(self, path: str) -> File | None:
        """See `Disk`."""
        self.read_check(path)
        file = self.disk.open_existing(path)
        return None if file is None else _HostFile(self, file)

    def read(self, path: str) -> bytes | None:
        """See `Disk`."""
        self.read_check(path)
        return self.disk.read(path)

    def map(self, path: str) -> bytes:
        """See `Disk`."""
        return self.disk.map(path)

    def write(self, path: str, data: Buffer) -> None:
        """See `Disk`."""
        self.check("write", path)
        self.disk.write(path, data)

    def replace(self, path: str, data: Buffer, *, sync: bool = True, private: bool = False) -> None:
        """See `Disk`."""
        self.check("replace", path)
        self.disk.replace(path, data, sync=sync, private=private)

    def append(self, path: str, data: Buffer) -> None:
        """See `Disk`."""
        self.check("write", path)
        self.disk.append(path, data)

    def truncate(self, path: str, size: int) -> None:
        """See `Disk`."""
        self.check("truncate", path)
        self.disk.truncate(path, size)

    def size(self, path: str) -> int | None:
        """See `Disk`."""
        return self.disk.size(path)

    def modified_ms(self, path: str) -> int:
        """See `Disk`."""
        return self.disk.modified_ms(path)

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """See `Disk`."""
        self.check("write", path)
        self.disk.set_modified_ms(path, modified_ms)

    def names(self, directory: str) -> list[str]:
        """See `Disk`."""
        return self.disk.names(directory)

    def is_directory(self, path: str) -> bool:
        """See `Disk`."""
        return self.disk.is_directory(path)

    def make_directory(self, path: str) -> None:
        """See `Disk`."""
        self.check("make", path)
        self.disk.make_directory(path)

    def rename(self, old: str, new: str) -> None:
        """See `Disk`."""
        self.check("rename", old)
        self.disk.rename(old, new)

    def remove(self, path: str) -> None:
        """See `Disk`."""
        self.check("remove", path)
        self.disk.remove(path)

    def remove_tree(self, path: str) -> None:
        """See `Disk`."""
        self.check("remove", path)
        self.disk.remove_tree(path)

    def sync(self, path: str) -> None:
        """See `Disk`."""
        self.check("sync", path)
        self.disk.sync(path)

    def usage(self, path: str) -> DiskUsage:
        """See `Disk`."""
        return self.disk.usage(path)

    def lock(self, path: str) -> Lock | None:
        """See `Disk`."""
        self.check("lock", path)
        return self.disk.lock(path)

    def locked(self, path: str) -> bool:
        """See `Disk`."""
        return self.disk.locked(path)


class _HostFile:
    """See `File`."""

    __slots__ = ("__weakref__", "_disk", "_file", "path", "size")

    def __init__(self, disk: HostDisk, file: File) -> None:
        self._disk = disk
        self._file = file
        self.path = file.path
        self.size = file.size

    def append(self, data: Buffer) -> None:
        self._disk.check("write", self.path)
        try:
            self._file.append(data)
        finally:
            self.size = self._file.size

    def cut_tail(self) -> None:
        self._file.cut_tail()

    def pread(self, position: int, length: int) -> bytes:
        self._disk.read_check(self.path)
        return self._file.pread(position, length)

    def truncate(self, size: int) -> None:
        self._disk.check("truncate", self.path)
        self._file.truncate(size)
        self.size = size

    def sync(self) -> None:
        self._disk.check("sync", self.path)
        self._file.sync()

    def fileno(self) -> int:
        return self._file.fileno()
