"""Every system that Python and Twisted run on: macOS, the BSDs, Windows, and Linux where it is asked for.

What a system has besides is used where it is there. `windows.py` has what differs on Windows: there is no `fcntl`.
"""

from __future__ import annotations

import mmap
import os
import select
import signal
import socket
import struct
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any

try:
    _fcntl: Any = import_module("fcntl")
    _windows: Any = None
except ImportError:
    _fcntl = None
    _windows = import_module("txbroker.platform.windows")
try:
    _resource: Any = import_module("resource")
except ImportError:
    _resource = None

# macOS refuses a limit of open files above kern.maxfilesperproc, which is at least this, though its hard limit is infinite.
_OPEN_MAX = 10_240

_polls = hasattr(select, "poll")

name = "portable"
# Not the reactor that Twisted chooses on macOS: `select` takes no descriptor above 1023.
reactor = "twisted.internet.pollreactor" if _polls else "twisted.internet.selectreactor"
waits_with_epoll = False
sends_files = False
maps_files = _windows is None
starts_processes = hasattr(os, "fork") or (_windows is not None and _windows.twisted_starts_processes())
MSG_MORE = getattr(socket, "MSG_MORE", 0)
RWF_NOWAIT = 0
NO_WAIT = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
TCP_CONGESTION = None
LINGER_RESET = struct.pack("ii" if _windows is None else "HH", 1, 0)
ending_signals = tuple(getattr(signal, each) for each in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, each))
reload_signal: int | None = getattr(signal, "SIGHUP", None)

_FULL_SYNC: int | None = getattr(_fcntl, "F_FULLFSYNC", None)


if _windows is None:
    open = os.open
    rename = os.replace
    pread = os.pread
    pwrite = os.pwrite
else:
    open = _windows.open_shared
    rename = _windows.rename
    pread = _windows.pread
    pwrite = _windows.pwrite


def preadv(fd: int, buffers: Sequence[bytearray | memoryview], position: int, flags: int = 0) -> int:
    """See `System`."""
    buffer = buffers[0]
    data = pread(fd, len(buffer), position)
    buffer[: len(data)] = data
    return len(data)


def read_ahead(fd: int, position: int, length: int) -> None:
    """See `System`: the system decides."""


def sync_file(fd: int) -> None:
    """See `System`. On macOS fsync leaves data in the cache of the drive; F_FULLFSYNC does not, but not every file system has it."""
    if _FULL_SYNC is not None:
        with suppress(OSError):
            _fcntl.fcntl(fd, _FULL_SYNC)
            return
    os.fsync(fd)


sync_data = sync_file


def sync_path(path: str) -> None:
    """See `System`. Windows has no sync of directories, and syncs only what is open for writing."""
    if _windows is not None and os.path.isdir(path):
        return
    fd = open(path, os.O_RDONLY if _windows is None else os.O_RDWR, 0)
    try:
        sync_file(fd)
    finally:
        os.close(fd)


def lock(fd: int) -> None:
    """See `System`."""
    if _windows is None:
        _fcntl.lockf(fd, _fcntl.LOCK_EX | _fcntl.LOCK_NB)
    else:
        _windows.lock(fd)


def is_locked(fd: int) -> bool:
    """See `System`. Takes the lock for a moment, shared where that is possible."""
    try:
        if _windows is None:
            _fcntl.lockf(fd, _fcntl.LOCK_SH | _fcntl.LOCK_NB)
            _fcntl.lockf(fd, _fcntl.LOCK_UN)
        else:
            _windows.lock(fd)
            _windows.unlock(fd)
    except (BlockingIOError, PermissionError):
        return True
    return False


def anonymous_memory(size: int) -> mmap.mmap:
    """See `System`."""
    if hasattr(mmap, "MAP_PRIVATE"):
        return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return mmap.mmap(-1, size)


@contextmanager
def secret_file(data: bytes) -> Iterator[str]:
    """See `System`."""
    fd, path = tempfile.mkstemp(prefix="txbroker-")  # readable by this user only
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
        yield path
    finally:
        os.unlink(path)


def raise_file_limit() -> None:
    """See `System`: the hard limit, or what macOS allows."""
    if _resource is None:
        return
    soft, hard = _resource.getrlimit(_resource.RLIMIT_NOFILE)
    for limit in (hard, _OPEN_MAX):
        if soft == limit or (limit != _resource.RLIM_INFINITY and limit < soft):
            return
        with suppress(OSError, ValueError):
            _resource.setrlimit(_resource.RLIMIT_NOFILE, (limit, hard))
            return


def file_limit() -> int:
    """See `System`: where nothing else is known, what `select` takes on Windows."""
    if _resource is None:
        return 512
    limit: int = _resource.getrlimit(_resource.RLIMIT_NOFILE)[0]
    if not _polls:
        limit = 1024 if limit == _resource.RLIM_INFINITY else min(limit, 1024)
    return sys.maxsize if limit == _resource.RLIM_INFINITY else limit


def lower_priority(by: int) -> None:
    """See `System`."""
    if hasattr(os, "nice"):
        os.nice(by)


def cores() -> int:
    """See `System`."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
