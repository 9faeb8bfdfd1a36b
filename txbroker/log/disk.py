"""The log's interface to the file system, which `os_disk.py` implements on the operating system.

Every `OSError` becomes a `StorageError`, which takes the log directory offline unless it is `OutOfResources`. A full file system is
`NoSpace`: the write fails, files stay as they were, and writes succeed again as soon as there is space. (Kafka takes the
directory offline until a restart.)
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from mmap import mmap
from typing import Protocol

from txbroker.errors import MissingFile, NoSpace, OutOfResources, StorageError
from txbroker.lazy_dataclass import lazy_dataclass

Buffer = bytes | bytearray | memoryview
Mapped = bytes | mmap


class File(Protocol):
    """A file that grows at its end. `size` counts bytes. It is closed with its last reference (see `Region`); weak ones are possible."""

    path: str
    size: int

    def append(self, data: Buffer) -> None:
        """Write all of `data` at the end. A failed or short write raises StorageError and leaves `size` as it was.

        Bytes after `size` are removed at once, or by `cut_tail`, which the next append calls.
        """

    def cut_tail(self) -> None:
        """Remove bytes after `size` that a failed append could not remove. StorageError."""

    def pread(self, position: int, length: int) -> bytes:
        """At most `length` bytes from `position` on; fewer only at the end of the file."""

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None: ...

    def fileno(self) -> int: ...


@lazy_dataclass(slots=True, frozen=True)
class DiskUsage:
    """Bytes of a file system: all, and those that this process can still write."""

    total: int
    usable: int


class Lock(Protocol):
    """An exclusive lock on a file, held until released or until the process ends."""

    def release(self) -> None: ...


class Disk(Protocol):
    """Files and directories by path. Tests use a disk in memory and one that fails."""

    def create(self, path: str) -> File:
        """Create a file that does not exist, and open it for reading and appending; StorageError when it exists."""

    def open(self, path: str) -> File:
        """Open for reading and appending; MissingFile when it does not exist."""

    def open_existing(self, path: str) -> File | None:
        """Open for reading; None when it does not exist."""

    def read(self, path: str) -> bytes | None:
        """All bytes of a small file; None when it does not exist."""

    def map(self, path: str) -> Mapped:
        """The bytes of a file as they are now, paged in on demand; empty when it does not exist."""

    def write(self, path: str, data: Buffer) -> None:
        """Write a file with exactly these bytes, in place and not synced: for content that has a CRC or can be rebuilt."""

    def replace(self, path: str, data: Buffer, *, sync: bool = True, private: bool = False) -> None:
        """Replace a file atomically: write a new one beside it and rename it; with `sync` also durably.

        With `private` only its owner may read it.
        """

    def append(self, path: str, data: Buffer) -> None:
        """Add bytes at a file's end; MissingFile when it does not exist."""

    def truncate(self, path: str, size: int) -> None:
        """Cut a file; MissingFile when it does not exist."""

    def size(self, path: str) -> int | None:
        """Bytes; None when the file does not exist."""

    def modified_ms(self, path: str) -> int:
        """When the file was last written, in milliseconds of the wall clock."""

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Set when a file was last written."""

    def names(self, directory: str) -> list[str]:
        """The names in a directory, sorted."""

    def is_directory(self, path: str) -> bool: ...

    def make_directory(self, path: str) -> None:
        """Create it and its parents; no error when it exists."""

    def rename(self, old: str, new: str) -> None: ...

    def remove(self, path: str) -> None:
        """Remove a file; no error when it does not exist."""

    def remove_tree(self, path: str) -> None: ...

    def sync(self, path: str) -> None:
        """Make a file's bytes, or a directory's entries, durable; MissingFile when it does not exist."""

    def usage(self, path: str) -> DiskUsage: ...

    def lock(self, path: str) -> Lock | None:
        """Lock a file for this process (created when missing); None when another process has the lock."""

    def locked(self, path: str) -> bool:
        """Whether another process has the lock of a file. The file is neither created nor locked."""


@contextmanager
def unless_renamed(disk: Disk, directory: str) -> Iterator[None]:
    """For work in a worker: a file that is missing is no error if its directory is gone, too, because the log was deleted or moved."""
    try:
        yield
    except MissingFile:
        if disk.is_directory(directory):
            raise


# No fault of the disk: other files or connections use all that the system has.
_PASSING = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})


_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


def storage_error(what: str, path: str, error: OSError) -> StorageError:
    """The StorageError for a failed operation, by its errno; `what` is a verb."""
    kind = OutOfResources if error.errno in _PASSING else MissingFile if error.errno == errno.ENOENT else StorageError
    # A sync that finds no space has lost data that were written before: that is a failure of the disk.
    if error.errno in _FULL and what != "sync":
        kind = NoSpace
    return kind(f"cannot {what} {path}: {error.strerror or error}")
