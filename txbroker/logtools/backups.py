"""Keeping what a repair takes out of the way: beside its place, under names that no broker takes for a log's.

`NAME.cut-at-POSITION` and `NAME.taken-out-at-POSITION` hold bytes that were cut off or taken out of a file there; `NAME.set-aside` is
the whole file. A number follows where there is such a file already: nothing is ever overwritten.
"""

from __future__ import annotations

from collections.abc import Sequence

from txbroker.errors import CorruptRecords, StorageError
from txbroker.log.disk import Disk, File

COPY_BYTES = 1024 * 1024
SET_ASIDE = ".set-aside"
CUT = ".cut-at-"
TAKEN_OUT = ".taken-out-at-"


def free_name(disk: Disk, path: str) -> str:
    """`path`, or with a number behind it, so that no file has that name."""
    name, number = path, 2
    while disk.size(name) is not None:
        name, number = f"{path}-{number}", number + 1
    return name


def set_aside(disk: Disk, path: str) -> str | None:
    """Give a file another name; that name, None when there is no such file."""
    if disk.size(path) is None:
        return None
    name = free_name(disk, path + SET_ASIDE)
    disk.rename(path, name)
    return name


def keep_copy(disk: Disk, path: str) -> str | None:
    """Copy a file that is about to be replaced, durably; the copy's name, None when there is no such file."""
    size = disk.size(path)
    if size is None:
        return None
    return save_ranges(disk, path, free_name(disk, path + SET_ASIDE), [(0, size)])


def save_ranges(disk: Disk, path: str, name: str, ranges: Sequence[tuple[int, int]]) -> str:
    """Copy byte ranges of a file, one after the other, into a new file, durably; its name."""
    target = disk.open(name)
    copy_ranges(disk, path, target, ranges)
    target.sync()
    disk.sync(name.rpartition("/")[0])
    return name


def copy_ranges(disk: Disk, path: str, target: File, ranges: Sequence[tuple[int, int]]) -> None:
    """Append byte ranges of a file to another. StorageError; CorruptRecords when the file is shorter than it was."""
    source = disk.open_existing(path)
    if source is None:
        raise StorageError(f"{path} is gone")
    for start, end in ranges:
        while start < end:
            data = source.pread(start, min(COPY_BYTES, end - start))
            if not data:
                raise CorruptRecords(f"{path} became shorter while it was repaired: something else changes it")
            target.append(data)
            start += len(data)
