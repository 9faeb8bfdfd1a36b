"""The `Disk` of the operating system: the only module of this package that opens, writes, syncs or removes files."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import shutil
import time
from collections import deque
from threading import Lock as ThreadLock

from txbroker.errors import StorageError
from txbroker.log.disk import Buffer, DiskUsage, File, Lock, Mapped, storage_error
from txbroker.platform import system
from txbroker.regular_files import open_regular

SYNCS_KEPT = 1024


class SyncTimes:
    """How long the last syncs of log files took, in seconds, and how many there were. Workers add, other threads read."""

    def __init__(self) -> None:
        self.latest: deque[float] = deque(maxlen=SYNCS_KEPT)
        self.count = 0
        self._lock = ThreadLock()

    def add(self, seconds: float) -> None:
        """Add a sync."""
        with self._lock:
            self.count += 1
            self.latest.append(seconds)


# A mapping keeps a file descriptor open, and most indexes of small logs are smaller than a page.
MAPPED_BYTES_MIN = 16 * 1024
READ_BYTES = 64 * 1024


class OsFile:
    """A `File` of the operating system. The descriptor is closed with the last reference."""

    __slots__ = ("__weakref__", "_fd", "_has_tail", "_syncs", "path", "size")

    def __init__(self, path: str, syncs: SyncTimes | None = None, *, flags: int = os.O_RDWR) -> None:
        self.path = path
        self._syncs = syncs
        self._has_tail = False
        self._fd = -1
        try:
            self._fd = system.open(path, flags, 0o666)
            self.size = os.fstat(self._fd).st_size
        except OSError as error:
            raise storage_error("open", path, error) from error

    def append(self, data: Buffer) -> None:
        if self._has_tail:
            self.cut_tail()
        try:
            written = system.pwrite(self._fd, data, self.size)
            if written != len(data):
                written = self._write_rest(data, written)
        except OSError as error:
            self._has_tail = True
            with contextlib.suppress(OSError, StorageError):  # the next append, roll or close tries again; recovery removes what is left
                self._has_tail = error.errno != errno.EBADF and os.fstat(self._fd).st_size > self.size  # read only: nothing was written
                self.cut_tail()
            raise storage_error("write", self.path, error) from error
        self.size += written

    def _write_rest(self, data: Buffer, written: int) -> int:
        """A disk that becomes full writes a part, and only the next write fails."""
        view = memoryview(data)
        while written < len(data):
            written += system.pwrite(self._fd, view[written:], self.size + written)
        return written

    def cut_tail(self) -> None:
        if self._has_tail:
            self.truncate(self.size)

    def pread(self, position: int, length: int) -> bytes:
        try:
            return system.pread(self._fd, length, position)
        except OSError as error:
            raise storage_error("read", self.path, error) from error

    def truncate(self, size: int) -> None:
        try:
            os.ftruncate(self._fd, size)
        except OSError as error:
            raise storage_error("truncate", self.path, error) from error
        self.size = size
        self._has_tail = False

    def sync(self) -> None:
        begun = time.monotonic()
        try:
            system.sync_data(self._fd)
        except OSError as error:
            raise storage_error("sync", self.path, error) from error
        if self._syncs is not None:
            self._syncs.add(time.monotonic() - begun)

    def fileno(self) -> int:
        return self._fd

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)


class _OsLock:
    def __init__(self, fd: int, path: str, held: set[str]) -> None:
        self._fd = fd
        self._path = path
        self._held = held
        held.add(path)

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._held.discard(self._path)
            self._fd = -1


def _read_all(fd: int) -> bytes:
    parts: list[bytes] = []
    while not parts or parts[-1]:
        parts.append(os.read(fd, READ_BYTES))
    return parts[0] if len(parts) == 2 else b"".join(parts)


class OsDisk:
    """The real `Disk`. `syncs` records how long syncs of the files that it opened take."""

    def __init__(self, syncs: SyncTimes | None = None) -> None:
        self._syncs = syncs
        self._held: set[str] = set()  # paths that this process has locked

    def create(self, path: str) -> File:
        return OsFile(path, self._syncs, flags=os.O_RDWR | os.O_CREAT | os.O_EXCL)

    def open(self, path: str) -> File:
        return OsFile(path, self._syncs)

    def open_existing(self, path: str) -> File | None:
        try:
            return OsFile(path, flags=os.O_RDONLY)
        except StorageError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return None
            raise

    def read(self, path: str) -> bytes | None:
        # A start reads three small files for each log; this takes a third of the time of a file object.
        try:
            fd = open_regular(path)
            try:
                return _read_all(fd)
            finally:
                os.close(fd)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise storage_error("read", path, error) from error

    def map(self, path: str) -> Mapped:
        try:
            fd = system.open(path, os.O_RDONLY, 0)
            try:
                size = os.fstat(fd).st_size
                if size < MAPPED_BYTES_MIN or not system.maps_files:
                    return _read_all(fd)
                return mmap.mmap(fd, size, access=mmap.ACCESS_READ)
            finally:
                os.close(fd)
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise storage_error("map", path, error) from error

    def write(self, path: str, data: Buffer) -> None:
        self._write(path, data, sync=False)

    def _write(self, path: str, data: Buffer, *, sync: bool, private: bool = False) -> None:
        try:
            with open(path, "wb", buffering=0) as file:
                if private:
                    os.chmod(path, 0o600)
                view, written = memoryview(data), 0
                while written < len(data):
                    written += file.write(view[written:])
                if sync:
                    system.sync_file(file.fileno())
        except OSError as error:
            raise storage_error("write", path, error) from error

    def replace(self, path: str, data: Buffer, *, sync: bool = True, private: bool = False) -> None:
        self._write(path + ".tmp", data, sync=sync, private=private)
        try:
            os.replace(path + ".tmp", path)
        except OSError as error:
            raise storage_error("replace", path, error) from error
        if sync:
            self.sync(os.path.dirname(path))

    def append(self, path: str, data: Buffer) -> None:
        OsFile(path).append(data)

    def truncate(self, path: str, size: int) -> None:
        OsFile(path).truncate(size)

    def size(self, path: str) -> int | None:
        try:
            return os.stat(path).st_size
        except FileNotFoundError:
            return None
        except OSError as error:
            raise storage_error("read", path, error) from error

    def modified_ms(self, path: str) -> int:
        try:
            return os.stat(path).st_mtime_ns // 1_000_000
        except OSError as error:
            raise storage_error("read", path, error) from error

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        try:
            os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))
        except OSError as error:
            raise storage_error("write", path, error) from error

    def names(self, directory: str) -> list[str]:
        try:
            return sorted(os.listdir(directory))
        except OSError as error:
            raise storage_error("list", directory, error) from error

    def is_directory(self, path: str) -> bool:
        return os.path.isdir(path)

    def make_directory(self, path: str) -> None:
        try:
            os.makedirs(path, exist_ok=True)
        except OSError as error:
            raise storage_error("make", path, error) from error

    def rename(self, old: str, new: str) -> None:
        try:
            system.rename(old, new)
        except OSError as error:
            raise storage_error("rename", old, error) from error

    def remove(self, path: str) -> None:
        try:
            os.remove(path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise storage_error("remove", path, error) from error

    def remove_tree(self, path: str) -> None:
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise storage_error("remove", path, error) from error

    def sync(self, path: str) -> None:
        try:
            system.sync_path(path)
        except OSError as error:
            raise storage_error("sync", path, error) from error

    def usage(self, path: str) -> DiskUsage:
        try:
            total, _, usable = shutil.disk_usage(path)
        except OSError as error:
            raise storage_error("read", path, error) from error
        return DiskUsage(total, usable)

    def lock(self, path: str) -> Lock | None:
        fd = -1
        try:
            fd = system.open(path, os.O_RDWR | os.O_CREAT, 0o666)
            system.lock(fd)
        except OSError as error:
            if fd < 0:
                raise storage_error("open", path, error) from error
            os.close(fd)
            if isinstance(error, (BlockingIOError, PermissionError)):
                return None
            raise storage_error("lock", path, error) from error
        return _OsLock(fd, path, self._held)

    def locked(self, path: str) -> bool:
        if path in self._held:
            return False  # and it must not be opened: closing any descriptor of a file releases the process's locks on it
        try:
            fd = system.open(path, os.O_RDONLY, 0)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise storage_error("open", path, error) from error
        try:
            return system.is_locked(fd)
        except OSError as error:
            raise storage_error("ask for the lock of", path, error) from error
        finally:
            os.close(fd)
