"""What `portable.py` uses on Windows: files that can be renamed and removed while they are open, reads and writes at positions, locks.

Tests run it on Linux with stand-ins for `_winapi` and `msvcrt`; on Windows itself it is not tested.
"""

from __future__ import annotations

import os
from importlib import import_module
from importlib.util import find_spec
from threading import Lock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from txbroker.platform import Buffer

_winapi: Any = import_module("_winapi")
_msvcrt: Any = import_module("msvcrt")

# winnt.h, fileapi.h
_GENERIC_READ, _GENERIC_WRITE = 0x80000000, 0x40000000
_SHARE_ALL = 1 | 2 | 4  # reading, writing, and renaming and removing
_CREATE_NEW, _OPEN_EXISTING, _OPEN_ALWAYS = 1, 3, 4
_ATTRIBUTE_NORMAL = 0x80

_LOCKED_BYTES = 1

_position = Lock()  # of all descriptors: reading at a position takes two calls


def open_shared(path: str, flags: int, mode: int = 0o666) -> int:
    """`os.open` by CreateFile, as the C library's own open does not let others rename or remove the file."""
    access = _GENERIC_READ if flags & (os.O_RDWR | os.O_WRONLY) == 0 else _GENERIC_READ | _GENERIC_WRITE
    disposition = _OPEN_EXISTING if not flags & os.O_CREAT else _CREATE_NEW if flags & os.O_EXCL else _OPEN_ALWAYS
    handle = _winapi.CreateFile(path, access, _SHARE_ALL, 0, disposition, _ATTRIBUTE_NORMAL, 0)
    return int(_msvcrt.open_osfhandle(handle, (flags & (os.O_RDWR | os.O_WRONLY)) | getattr(os, "O_BINARY", 0)))


def rename(old: str, new: str) -> None:
    """`os.replace`, also of a directory with open files: each file is moved, which Windows allows, in place of the directory."""
    try:
        os.replace(old, new)
    except PermissionError:
        if not os.path.isdir(old):
            raise
        os.mkdir(new)
        for name in os.listdir(old):
            rename(os.path.join(old, name), os.path.join(new, name))
        os.rmdir(old)


def pread(fd: int, length: int, position: int) -> bytes:
    """`os.pread`."""
    with _position:
        os.lseek(fd, position, os.SEEK_SET)
        parts = []
        while length:
            part = os.read(fd, length)
            if not part:
                break
            parts.append(part)
            length -= len(part)
    return b"".join(parts)


def pwrite(fd: int, data: Buffer, position: int) -> int:
    """`os.pwrite`."""
    with _position:
        os.lseek(fd, position, os.SEEK_SET)
        return os.write(fd, data)


def lock(fd: int) -> None:
    """Lock the first byte of a file; PermissionError if another process has."""
    with _position:
        os.lseek(fd, 0, os.SEEK_SET)
        _msvcrt.locking(fd, _msvcrt.LK_NBLCK, _LOCKED_BYTES)


def unlock(fd: int) -> None:
    """The opposite of `lock`."""
    with _position:
        os.lseek(fd, 0, os.SEEK_SET)
        _msvcrt.locking(fd, _msvcrt.LK_UNLCK, _LOCKED_BYTES)


def twisted_starts_processes() -> bool:
    """Whether pywin32 is installed, which Twisted needs for that."""
    return find_spec("win32process") is not None
