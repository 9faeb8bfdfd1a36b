"""Reads files that a configuration names. What is not a regular file is refused: to open or read a named pipe may wait for ever."""

from __future__ import annotations

import errno
import os
import stat

from txbroker.platform import system


def open_regular(path: str) -> int:
    """The descriptor of a file, open for reading; OSError, also if it is not a regular file."""
    fd = system.open(path, os.O_RDONLY | system.NO_WAIT, 0)
    try:
        mode = os.fstat(fd).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "it is not a regular file, but a pipe or a device", path)
    except BaseException:
        os.close(fd)
        raise
    return fd


def read_regular(path: str, bytes_max: int) -> bytes:
    """The content of a file; OSError, also if it is not a regular file, or is larger than `bytes_max`, a multiple of 1 MiB."""
    with open(open_regular(path), "rb") as file:
        data = file.read(bytes_max + 1)
    if len(data) > bytes_max:
        raise OSError(errno.EFBIG, f"it is larger than {bytes_max >> 20} MiB", path)
    return data
