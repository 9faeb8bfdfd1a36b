"""Standard output and standard error, whose lines a signal does not cut."""

from __future__ import annotations

import io
from typing import Any, TextIO


def whole_lines(stream: TextIO) -> TextIO:
    """A stream that writes all of each line, also with `python -u` and PYTHONUNBUFFERED; otherwise `stream` itself.

    With those, Python's text streams write directly to the file and drop what it does not take. A pipe takes less than a line if a signal
    arrives while it is full: one that the process handles, also the end of a child process.
    """
    raw = getattr(stream, "buffer", None)
    if not isinstance(raw, io.RawIOBase):
        return stream
    return io.TextIOWrapper(io.BufferedWriter(_Kept(raw)), stream.encoding, stream.errors, line_buffering=True)


class _Kept(io.RawIOBase):
    """A file that stays open when this is closed, because the first stream still has it."""

    def __init__(self, raw: io.RawIOBase) -> None:
        self._raw = raw

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int | None:
        return self._raw.write(data)

    def fileno(self) -> int:
        return self._raw.fileno()

    def isatty(self) -> bool:
        return self._raw.isatty()
