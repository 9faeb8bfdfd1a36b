"""The output of one connection: bytes, which are joined if they are small, and file regions, which are sent with sendfile.

The reactor must not wait for the disk when a region is not in the page cache: before each slice is sent, a few bytes of it are read with
RWF_NOWAIT, and a cold slice is first read by a worker. A system without RWF_NOWAIT waits.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable, Iterable

from txbroker.api.encoded.response_frame import Part
from txbroker.log.region import Region
from txbroker.platform import system
from txbroker.transport.interfaces import Buffer
from txbroker.transport.limits import KIB, MIB
from txbroker.transport.stream import Stream

# A smaller region is read and joined with the parts before and after it, which costs less than a sendfile.
REGION_READ_MAX = 8 * KIB

# Parts up to this size are joined; larger ones are sent one by one.
PART_JOIN_MAX = 32 * KIB

# A region is probed, and read by the worker, in slices of this size; the kernel reads ahead by READ_AHEAD.
SLICE = 1 * MIB
READ_AHEAD = 8 * MIB
PROBE_STEP = 512 * KIB

# At most this much is sent to one connection before others are served.
TURN_BYTES = 4 * MIB


class RegionGone(Exception):
    """The file at `path` ends before the region does, or cannot be read."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(message)
        self.path = path


class RegionSend:
    """The part of a region that is still to be sent, from `position` on. Up to `warm_until` it is in the page cache: the current slice."""

    __slots__ = ("end", "position", "region", "warm_until")

    def __init__(self, region: Region) -> None:
        self.region = region
        self.position = region.position
        self.end = region.position + len(region)
        self.warm_until = region.position

    def is_cold(self) -> bool:
        """After a slice: whether sending the next one would wait for the disk. If not, it is the current slice."""
        slice_end = min(self.position + SLICE, self.end)
        if not _is_cached(self.region.file.fileno(), self.position, slice_end):
            return True
        self.warm_until = slice_end
        return False

    def warming(self) -> Callable[[], None]:
        """A job for a worker that reads the next slice into the page cache."""
        region, start, end = self.region, self.position, min(self.position + SLICE, self.end)
        ahead = min(start + READ_AHEAD, self.end) - start
        self.warm_until = end

        def read() -> None:
            # The region keeps the file open until this is done.
            fd = region.file.fileno()
            system.read_ahead(fd, start, ahead)
            system.pread(fd, end - start, start)

        return read

    def send(self, stream: Stream) -> int:
        """Send as much of the current slice as the stream takes; raises BlockingIOError when it takes nothing."""
        file, position = self.region.file, self.position
        try:
            count = stream.send_region(file.fileno(), position, self.warm_until - position)
        except OSError as error:
            if error.errno == errno.EIO:
                raise RegionGone(file.path, f"{file.path} cannot be read; a response is incomplete") from error
            raise
        if count == 0:
            where = f"{file.path} is truncated at {position} or earlier, before position {self.end}"
            raise RegionGone(file.path, f"{where}; a response is incomplete")
        self.position = position + count
        return count


class SendQueue:
    """Parts in the order of sending. `size`: the bytes in the queue; `cold`: its head if a worker must first read it into the page cache.
    """

    __slots__ = ("_chunks", "cold", "size")

    def __init__(self) -> None:
        self._chunks: deque[Buffer | RegionSend] = deque()
        self.size = 0
        self.cold: RegionSend | None = None

    def add(self, parts: Iterable[Part], size: int) -> None:
        """Queue parts of `size` bytes together."""
        self.size += size
        run: list[Buffer] = []
        for part in parts:
            data = _read_small(part) if isinstance(part, Region) else part
            if data is not None and len(data) <= PART_JOIN_MAX:
                run.append(data)
            else:
                self._join(run)
                run = []
                self._chunks.append(RegionSend(part) if isinstance(part, Region) else part)
        self._join(run)

    def _join(self, run: list[Buffer]) -> None:
        joined = b"".join(run)
        if joined:
            self._chunks.append(joined)

    def send(self, stream: Stream) -> bool:
        """Send until the queue is empty (True), or the stream is full, the head is cold or TURN_BYTES are sent (False).

        OSError, RegionGone.
        """
        chunks = self._chunks
        limit = self.size - TURN_BYTES
        try:
            while chunks:
                head = chunks[0]
                if isinstance(head, RegionSend):
                    if head.position == head.warm_until and head.is_cold():
                        self.cold = head
                        return False
                    count = head.send(stream)
                    self.size -= count
                    if head.position == head.end:
                        chunks.popleft()
                    elif head.position < head.warm_until:
                        return False  # the stream is full; another call would only return an error
                else:
                    count = stream.send(head, system.MSG_MORE if len(chunks) > 1 else 0)
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
        """Remove everything: a region keeps its file open, and a deleted file its disk space."""
        self._chunks.clear()
        self.size = 0

def join_small(parts: Iterable[Part]) -> bytes | None:
    """All parts as bytes; None where a region is large, or not in the page cache."""
    run: list[Buffer] = []
    for part in parts:
        data = _read_small(part) if isinstance(part, Region) else part
        if data is None:
            return None
        run.append(data)
    return b"".join(run)


def _read_small(region: Region) -> Buffer | None:
    """The bytes of a region that is small; None for a larger one, and where the page cache does not hold them."""
    length = region.length
    if length >= REGION_READ_MAX:
        return None
    if not length:
        return b""
    data = bytearray(length)
    try:
        count = system.preadv(region.file.fileno(), [data], region.position, system.RWF_NOWAIT)
    except OSError:
        return None
    return data if count == length else None


_probe = [bytearray(1)]


def _is_cached(fd: int, start: int, end: int) -> bool:
    """Whether this range seems to be in the page cache: its ends are, and some places between."""
    try:
        for position in (*range(start, end - 1, PROBE_STEP), end - 1):
            system.preadv(fd, _probe, position, system.RWF_NOWAIT)
    except BlockingIOError:
        return False
    except OSError:
        # The file system does not support RWF_NOWAIT, as tmpfs on older kernels. For other errors sendfile will fail, too.
        return True
    return True
