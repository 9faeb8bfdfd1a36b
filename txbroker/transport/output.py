"""What is on its way out of one connection: bytes, joined where they are small, and file regions, sent with sendfile.

A region that the page cache does not hold must not make the reactor wait for the disk: before each slice is sent, a few
bytes of it are read with RWF_NOWAIT, and a cold slice is first read by a worker.
"""

from __future__ import annotations

import errno
import os
import socket
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Protocol

KIB = 1024
MIB = 1024 * KIB

# Below this, reading a region and joining it to what stands before and after it costs less than a sendfile of its own.
REGION_READ_MAX = 8 * KIB

# Parts up to this size are copied together; larger ones are sent from where they are.
PART_JOIN_MAX = 32 * KIB

# A region is examined, and read by the worker, in slices of this size; the kernel reads ahead some way beyond.
SLICE = 1 * MIB
READ_AHEAD = 8 * MIB
PROBE_STEP = 256 * KIB

# A turn of one connection ends after this much, however fast its peer reads.
TURN_BYTES = 4 * MIB

Buffer = bytes | bytearray | memoryview
_BUFFERS = (bytes, bytearray, memoryview)


class Region(Protocol):
    """A file region (txbroker.log.region), as far as it matters here."""

    file: Any
    position: int

    def __len__(self) -> int: ...


class RegionGone(Exception):
    """The file at `path` ends before the region does, or cannot be read."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(message)
        self.path = path


class Stretch:
    """The part of a region that is still to be sent. Up to `warm_until` its bytes need not be looked for on the disk."""

    __slots__ = ("end", "position", "region", "warm_until")

    def __init__(self, region: Region) -> None:
        self.region = region
        self.position = region.position
        self.end = region.position + len(region)
        self.warm_until = region.position

    def is_cold(self) -> bool:
        """Whether the next slice would have to wait for the disk."""
        if self.position < self.warm_until:
            return False
        slice_end = min(self.position + SLICE, self.end)
        if not _is_cached(self.region.file.fileno(), self.position, slice_end):
            return True
        self.warm_until = slice_end
        return False

    def warming(self) -> Callable[[], None]:
        """What a worker has to do so that the next slice is warm."""
        region, start, end = self.region, self.position, min(self.position + SLICE, self.end)
        ahead = min(start + READ_AHEAD, self.end) - start
        self.warm_until = end

        def read() -> None:
            # The region is held, and with it the file open, until this is done.
            fd = region.file.fileno()
            os.posix_fadvise(fd, start, ahead, os.POSIX_FADV_WILLNEED)
            os.pread(fd, end - start, start)

        return read

    @property
    def slice_left(self) -> int:
        """The bytes that are known to be warm."""
        return min(self.end, self.warm_until) - self.position

    def send(self, fd: int) -> int:
        """Send what the socket takes of the next slice; raises BlockingIOError when it takes nothing."""
        file = self.region.file
        try:
            count = os.sendfile(fd, file.fileno(), self.position, self.slice_left)
        except OSError as error:
            if error.errno == errno.EIO:
                raise RegionGone(file.path, f"{file.path} cannot be read, and a reply cannot be finished") from error
            raise
        if count == 0:
            where = f"{file.path} ends before position {self.end}, at {self.position} or earlier"
            raise RegionGone(file.path, f"{where}, and a reply cannot be finished")
        self.position += count
        return count


class SendQueue:
    """Parts in the order of sending. `size` counts the bytes in it; `cold` says that a worker must warm the head first."""

    __slots__ = ("_chunks", "cold", "size")

    def __init__(self) -> None:
        self._chunks: deque[Buffer | Stretch] = deque()
        self.size = 0
        self.cold = False

    def add(self, parts: Iterable[Buffer | Region], size: int) -> None:
        """Queue parts of `size` bytes together."""
        self.size += size
        run: list[Buffer] = []
        for part in parts:
            if isinstance(part, _BUFFERS):
                if len(part) <= PART_JOIN_MAX:
                    run.append(part)
                    continue
                chunk: Buffer | Stretch = part
            else:
                data = _read_small(part) if len(part) < REGION_READ_MAX else None
                if data is not None:
                    run.append(data)
                    continue
                chunk = Stretch(part)
            self._join(run)
            run = []
            self._chunks.append(chunk)
        self._join(run)

    def _join(self, run: list[Buffer]) -> None:
        joined = b"".join(run)
        if joined:
            self._chunks.append(joined)

    def send(self, skt: socket.socket) -> bool:
        """Send until all is gone (True), the socket is full, the head is cold or the turn is over (False). OSError, RegionGone."""
        chunks = self._chunks
        limit = self.size - TURN_BYTES
        try:
            while chunks:
                head = chunks[0]
                if isinstance(head, Stretch):
                    if head.is_cold():
                        self.cold = True
                        return False
                    wanted = head.slice_left
                    count = head.send(skt.fileno())
                    self.size -= count
                    if head.position == head.end:
                        chunks.popleft()
                    elif count < wanted:
                        return False  # the socket is full: to ask again would only tell the same
                else:
                    count = skt.send(head, socket.MSG_MORE if len(chunks) > 1 else 0)
                    self.size -= count
                    if count == len(head):
                        chunks.popleft()
                    else:
                        chunks[0] = memoryview(head)[count:]
                if self.size < limit:
                    return not chunks
        except BlockingIOError:
            return False
        return True

    def clear(self) -> None:
        """Forget what is left: a region holds its file, and the file its space on the disk after it was deleted."""
        self._chunks.clear()
        self.size = 0

    def warming(self) -> Callable[[], None]:
        """The work that the cold head needs."""
        head = self._chunks[0]
        assert isinstance(head, Stretch)
        return head.warming()


def join_small(parts: Iterable[Buffer | Region]) -> bytes | None:
    """All parts as bytes; None where a region is large, or not in the page cache."""
    run: list[Buffer] = []
    for part in parts:
        if part.__class__ is bytes or isinstance(part, _BUFFERS):
            run.append(part)
            continue
        data = _read_small(part) if len(part) < REGION_READ_MAX else None
        if data is None:
            return None
        run.append(data)
    return b"".join(run)


def _read_small(region: Region) -> Buffer | None:
    """The bytes of a small region; None where the page cache does not hold them."""
    length = len(region)
    if not length:
        return b""
    data = bytearray(length)
    try:
        count = os.preadv(region.file.fileno(), [data], region.position, os.RWF_NOWAIT)
    except OSError:
        return None
    return data if count == length else None


_probe = [bytearray(1)]


def _is_cached(fd: int, start: int, end: int) -> bool:
    """Whether the page cache seems to hold this range: looks at its ends and at places between."""
    try:
        for position in (*range(start, end - 1, PROBE_STEP), end - 1):
            os.preadv(fd, _probe, position, os.RWF_NOWAIT)
    except BlockingIOError:
        return False
    except OSError:
        # A file system that cannot tell, such as tmpfs on older kernels. What else is wrong, sendfile will say.
        return True
    return True
