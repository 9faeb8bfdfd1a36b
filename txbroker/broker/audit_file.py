"""The file of the audit log: appended to by workers, and renamed when it is large, so that no request waits for a disk."""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.python.failure import Failure

from txbroker.errors import StorageError
from txbroker.log.disk import Disk
from txbroker.repeated_lines import RepeatedLines

log = logging.getLogger("txbroker.security")

# Lines that wait for a worker; what comes then is dropped, and counted. A line has some 400 bytes.
WAITING_MAX = 20_000
_NEWLINE = b"\n"


class AuditFile:
    """`bytes_max`: the size at which the file is renamed to `path`.1, and that one to `path`.2; `kept`: how many of these there may be.

    Another program may move the file away: the next line begins another one. `dropped`: lines that were not written. `report` makes a
    line of such a number; it is written as soon as that succeeds again.
    """

    def __init__(
        self,
        path: str,
        bytes_max: int,
        kept: int,
        disk: Disk,
        in_worker: Callable[[Callable[[], Any]], Deferred[Any]],
        monotonic_s: Callable[[], float],
        report: Callable[[int], bytes],
    ) -> None:
        self._path = path
        self._bytes_max = bytes_max
        self._kept = kept
        self._disk = disk
        self._in_worker = in_worker
        self._failures = RepeatedLines(monotonic_s)
        self._report = report
        self._waiting: list[bytes] = []
        self._is_writing = False
        self._closed: Deferred[None] | None = None
        self._unreported = 0
        self.dropped = 0

    def open(self) -> None:
        """Create the file, or end an incomplete last line, as a loss of power may leave one. StorageError."""
        size = self._disk.size(self._path)
        if size is None:
            self._create()
            return
        file = self._disk.open(self._path)
        if size and file.pread(size - 1, 1) != _NEWLINE:
            file.append(_NEWLINE)

    def write(self, line: bytes) -> None:
        """Write a line soon."""
        if len(self._waiting) >= WAITING_MAX:
            self._drop(1)
            return
        self._waiting.append(line)
        self._begin()

    def close(self) -> Deferred[None]:
        """Fires when all lines are written, or dropped."""
        if not self._is_writing:
            return succeed(None)
        self._closed = Deferred()
        return self._closed

    def _begin(self) -> None:
        if self._is_writing or not self._waiting:
            return
        lines, self._waiting = self._waiting, []
        reported = self._unreported
        batch = _Batch([self._report(reported), *lines] if reported else lines, reported)
        self._is_writing = True
        self._in_worker(lambda: self._append(batch)).addCallbacks(lambda _: self._written(batch), self._failed, errbackArgs=(batch,))

    def _written(self, batch: _Batch) -> None:
        self._unreported -= batch.reported
        self._go_on()

    def _failed(self, failure: Failure, batch: _Batch) -> None:
        lost = len(batch.lines) - batch.written
        if batch.reported:
            if batch.written:
                self._unreported -= batch.reported
            else:
                lost -= 1
        self._drop(lost)
        if self._failures.left_out(self._path) is not None:
            why = failure.getErrorMessage() if failure.check(StorageError) else failure.getTraceback()
            log.error("lines of the audit log are lost, %d since the start: %s", self.dropped, why)
        self._go_on()

    def _go_on(self) -> None:
        self._is_writing = False
        self._begin()
        if not self._is_writing and self._closed is not None:
            closed, self._closed = self._closed, None
            closed.callback(None)

    def _drop(self, count: int) -> None:
        self.dropped += count
        self._unreported += count

    # In a worker, one at a time.

    def _append(self, batch: _Batch) -> None:
        """StorageError."""
        size = self._disk.size(self._path)
        if size is None:
            self._create()
        size = size or 0
        while batch.written < len(batch.lines):
            if size and size + len(batch.lines[batch.written]) > self._bytes_max:
                self._rotate()
                size = 0
            part: list[bytes] = []
            for line in batch.lines[batch.written :]:
                if size and size + len(line) > self._bytes_max:
                    break
                part.append(line)
                size += len(line)
            self._disk.append(self._path, b"".join(part))
            batch.written += len(part)

    def _create(self) -> None:
        self._disk.replace(self._path, b"", sync=False, private=True)

    def _rotate(self) -> None:
        names = [self._path, *(f"{self._path}.{number}" for number in range(1, self._kept + 1))]
        self._disk.remove(names[-1])
        for old, new in reversed(list(pairwise(names))):
            if self._disk.size(old) is not None:
                self._disk.rename(old, new)
        self._create()


class _Batch:
    """Lines for a worker, and how many of them are written. `reported`: the number of lost lines that the first one names; 0: none does."""

    def __init__(self, lines: list[bytes], reported: int) -> None:
        self.lines = lines
        self.reported = reported
        self.written = 0
