"""Standard output and standard error, whose lines a signal does not cut."""

from __future__ import annotations

import io
from typing import TextIO


def whole_lines(stream: TextIO) -> TextIO:
    """A stream that writes all of each line, also with `python -u` and PYTHONUNBUFFERED; otherwise `stream` itself.

    With those, Python's text streams write directly to the file and drop what it does not take. A pipe takes less than a line if a signal
    arrives while it is full: one that the process handles, also the end of a child process.
    """
    raw = getattr(stream, "buffer", None)
    if not isinstance(raw, io.RawIOBase):
        return stream
    return io.TextIOWrapper(io.BufferedWriter(raw), stream.encoding, stream.errors, line_buffering=True)
