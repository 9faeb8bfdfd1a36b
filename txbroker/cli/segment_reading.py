"""Reading the segments of a log directory while a broker may use it: nothing is created, locked or changed."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import Self

from txbroker.console.failures import CommandFailed

_LOG = ".log"
_OFFSET_DIGITS = 20


class ReadOnlyFile:
    """A file that stays readable when the broker renames or deletes it. OSError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.descriptor = os.open(path, os.O_RDONLY)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Close it, if it is open."""
        descriptor, self.descriptor = getattr(self, "descriptor", -1), -1
        if descriptor >= 0:
            os.close(descriptor)

    @property
    def size(self) -> int:
        """Its size in bytes, now."""
        return os.fstat(self.descriptor).st_size

    def pread(self, position: int, length: int) -> bytes:
        """Bytes at a position; fewer at the end."""
        return os.pread(self.descriptor, length, position)


def base_offsets(directory: Path) -> list[int]:
    """The base offsets of the segments in a partition's directory, sorted. OSError."""
    names = [name.removesuffix(_LOG) for name in os.listdir(directory) if name.endswith(_LOG)]
    return sorted(int(name) for name in names if len(name) == _OFFSET_DIGITS and name.isdecimal())


def segment_path(directory: Path, base_offset: int) -> Path:
    """The log file of a segment."""
    return directory / f"{base_offset:0{_OFFSET_DIGITS}d}{_LOG}"


def unreadable(path: Path, error: OSError) -> CommandFailed:
    """A file or directory of the log directory given by --log-dir cannot be read."""
    file = error.filename or path
    if isinstance(error, PermissionError):
        return CommandFailed(f"{file} cannot be read: {error.strerror}; run this as the user that the broker runs as")
    advice = "--log-dir must be one of the broker's log.dirs; if the broker runs, it may have deleted the file: try again"
    return CommandFailed(f"{file} cannot be read: {error.strerror}; {advice}")
