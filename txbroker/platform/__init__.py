"""What differs between operating systems, in one place: `system`.

`linux.py` has what only Linux has, `portable.py` the same functions for every system that Python and Twisted run on. `use` chooses one of
them, as txbroker.platform says, before a broker is built; until then it is the one that fits. Callers use names of `system` as they would
those of `os`, and have no second way of their own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib import import_module
from mmap import mmap

Buffer = bytes | bytearray | memoryview

AUTO, LINUX, PORTABLE = "auto", "linux", "portable"


class Unavailable(Exception):
    """This system, or this build of Python, does not have what a platform uses."""


class System:
    """The functions and constants of a platform. Functions raise OSError, as those of `os`."""

    name: str
    """LINUX or PORTABLE."""
    reactor: str | None
    """The module of the reactor to install; None: Twisted's default."""
    waits_with_epoll: bool
    """Connections are polled with an epoll of their own; else by the reactor."""
    sends_files: bool
    """There is `os.sendfile`; else regions of files are read and sent."""
    maps_files: bool
    """A file that is mapped into memory can be renamed and removed."""
    starts_processes: bool
    """The reactor can start processes with pipes."""
    MSG_MORE: int
    """The flag of `socket.send` that says that more follows at once; 0 if there is none."""
    RWF_NOWAIT: int
    """The flag of `preadv` that makes it fail where it would wait for the disk; 0 if there is none: it waits."""
    NO_WAIT: int
    """The flags of `open` with which a named pipe does not wait for its other end, and a terminal does not become that of the process."""
    TCP_CONGESTION: int | None
    """The socket option of the congestion control; None if there is none."""
    LINGER_RESET: bytes
    """The value of SO_LINGER with which closing a socket resets its connection."""
    ending_signals: tuple[int, ...]
    """The signals that end a process cleanly."""
    reload_signal: int | None
    """The one of them that makes a broker with TLS load its certificates again."""
    open: Callable[[str, int, int], int]
    """`os.open` with path, flags and mode. Files of bytes, which can be renamed and removed while they are open."""
    rename: Callable[[str, str], None]
    """`os.rename`, also of a directory whose files are open."""
    pread: Callable[[int, int, int], bytes]
    """`os.pread`: descriptor, length, position."""
    preadv: Callable[..., int]
    """`os.preadv`: descriptor, buffers (only one is used), position, flags."""
    pwrite: Callable[[int, Buffer, int], int]
    """`os.pwrite`: descriptor, data, position."""
    read_ahead: Callable[[int, int, int], None]
    """Begin to read `length` bytes from `position` on into the page cache: descriptor, position, length."""
    sync_data: Callable[[int], None]
    """Make the content of a file durable, with the size that is needed to read it."""
    sync_file: Callable[[int], None]
    """Make a file durable, as `os.fsync`."""
    sync_path: Callable[[str], None]
    """Make a file, or the entries of a directory, durable."""
    lock: Callable[[int], None]
    """Lock a file for this process. BlockingIOError or PermissionError: another process has the lock."""
    is_locked: Callable[[int], bool]
    """Whether another process has the lock of a file."""
    anonymous_memory: Callable[[int], mmap]
    """An `mmap` without a file, private to this process; its bytes are zero."""
    secret_file: Callable[[bytes], AbstractContextManager[str]]
    """The path of a file with these bytes, which only this user can read, for as long as the context lasts."""
    raise_file_limit: Callable[[], None]
    """Let this process open as many files as it may."""
    file_limit: Callable[[], int]
    """How many descriptors this process can have; `sys.maxsize` if there is no limit."""
    lower_priority: Callable[[int], None]
    """`os.nice`, where there is one."""
    cores: Callable[[], int]
    """How many cores this process may use."""


system = System()


def use(name: str) -> None:
    """Use this platform from now on: LINUX, PORTABLE, or AUTO, which is LINUX where that is available. Unavailable."""
    if name == AUTO:
        try:
            use(LINUX)
        except Unavailable:
            use(PORTABLE)
        return
    if name == LINUX and sys.platform != "linux":
        raise Unavailable(f"this system is {sys.platform}")
    try:
        module = import_module(f"txbroker.platform.{name}")
    except (ImportError, AttributeError) as error:
        raise Unavailable(f"this Python lacks a function of Linux: {error}") from error
    for each in System.__annotations__:
        setattr(system, each, getattr(module, each))


use(AUTO)
