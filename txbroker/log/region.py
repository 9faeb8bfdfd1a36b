"""A stretch of a log file: what a read returns, and what the transport sends with `sendfile`."""

from __future__ import annotations

from typing import Protocol

from txbroker.errors import StorageError


class Source(Protocol):
    """What a region needs of a file (`disk.File` has more)."""

    def pread(self, position: int, length: int) -> bytes: ...

    def fileno(self) -> int: ...


class Region:
    """`length` bytes of `file` from `position` on, as a part of a response.

    The region holds the file open: bytes stay readable when the segment is deleted meanwhile. Segments only grow, and
    what lies below a reader's end is not truncated while anybody may read it, so the bytes are the same whenever they
    are sent.
    """

    __slots__ = ("file", "length", "position")

    def __init__(self, file: Source, position: int, length: int) -> None:
        self.file = file
        self.position = position
        self.length = length

    def __len__(self) -> int:
        return self.length

    def read(self) -> bytes:
        """The bytes; StorageError when the file is shorter than it was."""
        data = self.file.pread(self.position, self.length)
        if len(data) != self.length:
            raise StorageError(f"only {len(data)} of {self.length} bytes are left at position {self.position}")
        return data


class _NoFile:
    def pread(self, position: int, length: int) -> bytes:
        return b""

    def fileno(self) -> int:
        return -1


EMPTY = Region(_NoFile(), 0, 0)
