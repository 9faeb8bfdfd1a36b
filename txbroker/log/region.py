"""A region of a log file, which a read returns and the transport sends with `sendfile`."""

from __future__ import annotations

from typing import Protocol

from txbroker.errors import StorageError


class Source(Protocol):
    """What a region uses of a file."""

    path: str

    def pread(self, position: int, length: int) -> bytes: ...

    def fileno(self) -> int: ...


class Region:
    """`length` bytes of `file` from `position` on, as a part of a response.

    The region keeps the file open: its bytes stay readable when the segment is deleted. Segments only grow, and records below a
    reader's end are not truncated, so the bytes are the same whenever they are sent.
    """

    __slots__ = ("file", "length", "position")

    def __init__(self, file: Source, position: int, length: int) -> None:
        self.file = file
        self.position = position
        self.length = length

    def __len__(self) -> int:
        return self.length

    def read(self) -> bytes:
        """The bytes; StorageError when the file has become shorter."""
        data = self.file.pread(self.position, self.length)
        if len(data) != self.length:
            raise StorageError(f"only {len(data)} of {self.length} bytes can be read at position {self.position}")
        return data


class _NoFile:
    path = ""

    def pread(self, position: int, length: int) -> bytes:
        return b""

    def fileno(self) -> int:
        return -1


EMPTY = Region(_NoFile(), 0, 0)
