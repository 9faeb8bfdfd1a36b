"""Backups of what a repair removes, in the same directory, under names that brokers ignore.

`NAME.cut-at-POSITION` has the bytes that were cut off the end of a file, `NAME.taken-out-at-POSITION` bytes that were removed from its
middle, and `NAME.set-aside` is a whole file. If the name exists, a number is appended: no file is ever overwritten.
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
    """`path`, with a number appended if a file has that name."""
    name, number = path, 2
    while disk.size(name) is not None:
        name, number = f"{path}-{number}", number + 1
    return name


def set_aside(disk: Disk, path: str) -> str | None:
    """Rename a file; its new path, None when it does not exist."""
    if disk.size(path) is None:
        return None
    name = free_name(disk, path + SET_ASIDE)
    disk.rename(path, name)
    return name


def keep_copy(disk: Disk, path: str) -> str | None:
    """Copy a file before it is replaced, and sync the copy; the path of the copy, None when the file does not exist."""
    size = disk.size(path)
    if size is None:
        return None
    return save_ranges(disk, path, free_name(disk, path + SET_ASIDE), [(0, size)])


def save_ranges(disk: Disk, path: str, name: str, ranges: Sequence[tuple[int, int]]) -> str:
    """Copy byte ranges of a file into the new file `name`, one after the other, and sync it; returns `name`."""
    target = disk.create(name)
    copy_ranges(disk, path, target, ranges)
    target.sync()
    disk.sync(name.rpartition("/")[0])
    return name


def copy_ranges(disk: Disk, path: str, target: File, ranges: Sequence[tuple[int, int]]) -> None:
    """Append byte ranges of a file to another file. StorageError; CorruptRecords when the source was truncated."""
    source = disk.open_existing(path)
    if source is None:
        raise StorageError(f"{path} was deleted")
    for start, end in ranges:
        while start < end:
            data = source.pread(start, min(COPY_BYTES, end - start))
            if not data:
                raise CorruptRecords(f"{path} was truncated during the repair: another program changes it")
            target.append(data)
            start += len(data)
