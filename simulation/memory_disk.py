"""A `Disk` in memory that behaves like `OsDisk`, and can lose power.

A `MemoryDisk` is what one process sees of a machine's storage: `other_process` gives another process on the same storage, which excludes
the first one by locks. `end_process` is a kill -9: what was written stays, locks are released. `power_cut` is a loss of power: of each
file an end that was not synced may be missing or zeroed, and each change of a name may be undone whose directory was not synced after it,
by itself (`memory_names.py`). POSIX promises no more; most file systems keep the order of these changes.

A truncation survives at once. Files are not shared between threads.
"""

from __future__ import annotations

import errno
import io
import posixpath
from collections.abc import Callable
from random import Random
from typing import NoReturn

from simulation.memory_names import Inode, Names, os_error
from txbroker.log.disk import Buffer, DiskUsage, File, Lock, storage_error

DEFAULT_CAPACITY = 1 << 40


# How probably a change of a name that was not synced survives a power cut; one is drawn for each of them.
SURVIVAL = (0.0, 0.1, 0.5, 0.9, 1.0)


class _Storage:
    """What all processes of one machine share."""

    def __init__(self, now_ms: Callable[[], int], capacity: int) -> None:
        self.now_ms = now_ms
        self.capacity = capacity
        self.names = Names()
        self.locks: dict[str, MemoryDisk] = {}

    def used(self) -> int:
        return sum(len(inode.data) for inode in self.names.files())

    def put(self, inode: Inode, position: int, data: Buffer) -> None:
        """Write at a position, beyond which the file may go on; OSError ENOSPC when there is no room, after what there was room for."""
        room = len(data)
        if not room:
            return
        if self.capacity < DEFAULT_CAPACITY:
            room = min(room, max(0, self.capacity - self.used()) + max(0, len(inode.data) - position))
        inode.data += bytes(max(0, position - len(inode.data)))
        inode.data[position : position + room] = memoryview(data)[:room]
        inode.synced = min(inode.synced, position)
        inode.modified_ms = self.now_ms()
        if room < len(data):
            raise os_error(errno.ENOSPC)

    def power_cut(self, chance: Random, lost_max: int | None) -> None:
        survival = chance.choice(SURVIVAL) if lost_max is None else 1.0
        self.names = self.names.after_power_cut(lambda: chance.random() < survival)
        for inode in self.names.files():
            _lose_power(inode, chance, lost_max)
        self.locks.clear()


def _lose_power(inode: Inode, chance: Random, lost_max: int | None) -> None:
    shortest = inode.synced if lost_max is None else max(inode.synced, len(inode.data) - lost_max)
    data = inode.data[: chance.randint(shortest, len(inode.data))]
    if len(data) < len(inode.data) and chance.random() < 0.3:
        # The new length was written, the bytes were not.
        data += bytes(chance.randint(0, len(inode.data) - len(data)))
    inode.data, inode.synced = data, len(data)


class MemoryFile:
    """A `File` of a `MemoryDisk`. It has no descriptor."""

    __slots__ = ("__weakref__", "_has_tail", "_inode", "_storage", "_writable", "path", "size")

    def __init__(self, path: str, inode: Inode, storage: _Storage, *, writable: bool = True) -> None:
        self.path = path
        self.size = len(inode.data)
        self._inode = inode
        self._storage = storage
        self._writable = writable
        self._has_tail = False  # a failed append found more bytes than `size`, and the next one fails to cut them off

    def append(self, data: Buffer) -> None:
        self.cut_tail()
        try:
            self._check_writable(errno.EBADF)
            self._storage.put(self._inode, self.size, data)
        except OSError as error:
            if self._writable:
                del self._inode.data[self.size :]
            self._has_tail = len(self._inode.data) > self.size
            raise storage_error("write", self.path, error) from error
        self.size += len(data)

    def cut_tail(self) -> None:
        if self._has_tail:
            self.truncate(self.size)

    def pread(self, position: int, length: int) -> bytes:
        return bytes(memoryview(self._inode.data)[position : position + length])

    def truncate(self, size: int) -> None:
        try:
            self._check_writable(errno.EINVAL)
        except OSError as error:
            raise storage_error("truncate", self.path, error) from error
        _resize(self._inode, size, self._storage.now_ms())
        self.size = size

    def sync(self) -> None:
        self._inode.synced = len(self._inode.data)

    def fileno(self) -> int:
        raise io.UnsupportedOperation("a file in memory has no descriptor")

    def _check_writable(self, number: int) -> None:
        if not self._writable:
            raise os_error(number)


def _resize(inode: Inode, size: int, now_ms: int) -> None:
    inode.data += bytes(max(0, size - len(inode.data)))
    del inode.data[size:]
    inode.synced = min(inode.synced, size)
    inode.modified_ms = now_ms


class _MemoryLock:
    def __init__(self, storage: _Storage, path: str, owner: MemoryDisk) -> None:
        self._storage = storage
        self._path = path
        self._owner = owner

    def release(self) -> None:
        if self._storage.locks.get(self._path) is self._owner:
            del self._storage.locks[self._path]


class MemoryDisk:
    """One process's `Disk`. Paths begin at `/`; `capacity` is in bytes, and may be changed at any time."""

    def __init__(self, now_ms: Callable[[], int] = lambda: 1_700_000_000_000, *, capacity: int = DEFAULT_CAPACITY) -> None:
        self._storage = _Storage(now_ms, capacity)

    # What a machine's operator and its power supply do.

    @property
    def capacity(self) -> int:
        """Bytes of all files together. A write beyond it fails with NoSpace."""
        return self._storage.capacity

    @capacity.setter
    def capacity(self, capacity: int) -> None:
        self._storage.capacity = capacity

    @property
    def used(self) -> int:
        """Bytes of all files that have a name."""
        return self._storage.used()

    def other_process(self) -> MemoryDisk:
        """The same storage, as another process of the machine sees it."""
        other = MemoryDisk()
        other._storage = self._storage
        return other

    def synced(self, path: str) -> int:
        """So many bytes of a file survive a power cut."""
        return self._storage.names.file(_normal(path)).synced

    def end_process(self) -> None:
        """The process of this disk ends without notice: its locks are released."""
        self._storage.locks = {path: owner for path, owner in self._storage.locks.items() if owner is not self}

    def power_cut(self, chance: Random, lost_max: int | None = None) -> None:
        """The machine loses power: what was not synced may be missing, and all locks are released.

        With `lost_max` at most so many bytes at the end of each file, and no change of names.
        """
        self._storage.power_cut(chance, lost_max)

    # The protocol `Disk`.

    def create(self, path: str) -> File:
        try:
            if self._storage.names.exists(_normal(path)):
                raise os_error(errno.EEXIST)
            return MemoryFile(path, self._open(path), self._storage)
        except OSError as error:
            raise storage_error("open", path, error) from error

    def open(self, path: str) -> File:
        try:
            return MemoryFile(path, self._storage.names.file(_normal(path)), self._storage)
        except OSError as error:
            raise storage_error("open", path, error) from error

    def open_existing(self, path: str) -> File | None:
        try:
            return MemoryFile(path, self._storage.names.file(_normal(path)), self._storage, writable=False)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise storage_error("open", path, error) from error

    def read(self, path: str) -> bytes | None:
        try:
            return bytes(self._storage.names.file(_normal(path)).data)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise storage_error("read", path, error) from error

    def map(self, path: str) -> bytes:
        try:
            return bytes(self._storage.names.file(_normal(path)).data)
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise storage_error("map", path, error) from error

    def write(self, path: str, data: Buffer) -> None:
        try:
            inode = self._open(path)
            _resize(inode, 0, self._storage.now_ms())
            self._storage.put(inode, 0, data)
        except OSError as error:
            raise storage_error("write", path, error) from error

    def replace(self, path: str, data: Buffer, *, sync: bool = True, private: bool = False) -> None:
        self.write(path + ".tmp", data)
        if sync:
            self.sync(path + ".tmp")
        try:
            self._rename(path + ".tmp", path)
        except OSError as error:
            raise storage_error("replace", path, error) from error
        if sync:
            self.sync(posixpath.dirname(path))

    def append(self, path: str, data: Buffer) -> None:
        self.open(path).append(data)

    def truncate(self, path: str, size: int) -> None:
        self.open(path).truncate(size)

    def size(self, path: str) -> int | None:
        try:
            node = self._storage.names.find(_normal(path))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise storage_error("read", path, error) from error
        return 0 if node is None else len(node.data)

    def modified_ms(self, path: str) -> int:
        try:
            node = self._storage.names.find(_normal(path))
        except OSError as error:
            raise storage_error("read", path, error) from error
        return self._storage.now_ms() if node is None else node.modified_ms

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        try:
            self._storage.names.file(_normal(path)).modified_ms = modified_ms
        except OSError as error:
            raise storage_error("write", path, error) from error

    def names(self, directory: str) -> list[str]:
        try:
            return sorted(self._storage.names.entries(_normal(directory)))
        except OSError as error:
            raise storage_error("list", directory, error) from error

    def is_directory(self, path: str) -> bool:
        return self._storage.names.is_directory(_normal(path))

    def make_directory(self, path: str) -> None:
        missing = [_normal(path)]
        try:
            if self._storage.names.is_directory(missing[0]):
                return
            while not self._storage.names.exists(posixpath.dirname(missing[0])):
                missing.insert(0, posixpath.dirname(missing[0]))
            for made in missing:
                self._storage.names.make_directory(made)
        except OSError as error:
            raise storage_error("make", path, error) from error

    def rename(self, old: str, new: str) -> None:
        try:
            self._rename(old, new)
        except OSError as error:
            raise storage_error("rename", old, error) from error

    def remove(self, path: str) -> None:
        try:
            self._storage.names.remove(_normal(path))
        except FileNotFoundError:
            return
        except OSError as error:
            raise storage_error("remove", path, error) from error

    def remove_tree(self, path: str) -> None:
        try:
            self._storage.names.remove_tree(_normal(path))
        except FileNotFoundError:
            return
        except OSError as error:
            raise storage_error("remove", path, error) from error

    def sync(self, path: str) -> None:
        normal = _normal(path)
        try:
            node = self._storage.names.find(normal)
        except OSError as error:
            raise storage_error("sync", path, error) from error
        if node is None:
            self._storage.names.sync(normal)
        else:
            node.synced = len(node.data)

    def usage(self, path: str) -> DiskUsage:
        try:
            self._storage.names.find(_normal(path))
        except OSError as error:
            raise storage_error("read", path, error) from error
        return DiskUsage(self.capacity, max(0, self.capacity - self.used))

    def lock(self, path: str) -> Lock | None:
        try:
            self._open(path)
        except OSError as error:
            raise storage_error("open", path, error) from error
        if self.locked(path):
            return None
        self._storage.locks[_normal(path)] = self
        return _MemoryLock(self._storage, _normal(path), self)

    def locked(self, path: str) -> bool:
        try:
            self._storage.names.file(_normal(path))
        except FileNotFoundError:
            return False
        except OSError as error:
            raise storage_error("open", path, error) from error
        return self._storage.locks.get(_normal(path), self) is not self

    def _open(self, path: str) -> Inode:
        """The file at this path, made when missing."""
        normal = _normal(path)
        try:
            return self._storage.names.file(normal)
        except FileNotFoundError:
            made = Inode(self._storage.now_ms())
            self._storage.names.link(normal, made)
            return made

    def _rename(self, old: str, new: str) -> None:
        self._storage.names.rename(_normal(old), _normal(new))


def _normal(path: str) -> str:
    if not path.startswith("/"):
        _fail_relative(path)
    # Two slashes at the start mean something else to POSIX, and stay.
    return posixpath.normpath("/" + path.lstrip("/")) if "//" in path or "/." in path or path.endswith("/") else path


def _fail_relative(path: str) -> NoReturn:
    raise ValueError(f"a path on a disk in memory begins with /: {path!r}")
