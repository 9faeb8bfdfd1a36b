"""Linux: the functions of the system itself. Importing this fails where one of them is missing."""

from __future__ import annotations

import fcntl
import mmap
import os
import resource
import select
import signal
import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_USED_ELSEWHERE = select.epoll, os.sendfile

name = "linux"
reactor = None
waits_with_epoll = True
sends_files = True
maps_files = True
starts_processes = True
MSG_MORE = socket.MSG_MORE
RWF_NOWAIT = os.RWF_NOWAIT
NO_WAIT = os.O_NONBLOCK | os.O_NOCTTY
TCP_CONGESTION = socket.TCP_CONGESTION
LINGER_RESET = struct.pack("ii", 1, 0)
ending_signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
reload_signal = signal.SIGHUP

open = os.open
rename = os.rename
pread = os.pread
preadv = os.preadv
pwrite = os.pwrite
sync_data = os.fdatasync
sync_file = os.fsync
lower_priority = os.nice

_WILL_NEED = os.POSIX_FADV_WILLNEED
_advise = os.posix_fadvise

# struct flock: type, whence, start, length, process.
_FLOCK = struct.Struct("hhqqi4x")


def read_ahead(fd: int, position: int, length: int) -> None:
    """See `System`."""
    _advise(fd, position, length, _WILL_NEED)


def sync_path(path: str) -> None:
    """See `System`."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def lock(fd: int) -> None:
    """See `System`."""
    fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


def is_locked(fd: int) -> bool:
    """See `System`. It asks, and never has the lock itself."""
    asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    held: int = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, asked))[0]
    return held != fcntl.F_UNLCK


def anonymous_memory(size: int) -> mmap.mmap:
    """See `System`."""
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


@contextmanager
def secret_file(data: bytes) -> Iterator[str]:
    """See `System`. It is never on a disk."""
    fd = os.memfd_create("secret", os.MFD_CLOEXEC)
    try:
        while data:
            data = data[os.write(fd, data) :]
        yield f"/proc/self/fd/{fd}"
    finally:
        os.close(fd)


def raise_file_limit() -> None:
    """See `System`: the hard limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def file_limit() -> int:
    """See `System`."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return sys.maxsize if limit == resource.RLIM_INFINITY else limit


def cores() -> int:
    """See `System`."""
    return len(os.sched_getaffinity(0))
