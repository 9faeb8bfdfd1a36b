"""Cuts the bytes of a connection into response frames: an int32 size, and that many bytes.

Bytes come in by one of two ways, which must not be mixed on one object:

- `buffer()` and `received(count)`, for `recv_into`: nothing is copied but the beginning of a frame that is not complete. The frames of one
  `received` are views that are valid until the next `buffer()`.
- `feed(data)`, for bytes that an event loop has read: frames are views of `data` or of memory of their own, and stay valid.
"""

from __future__ import annotations

import struct

# As Kafka's clients accept at most; metadata of a hundred thousand partitions fits, and the letters "HTTP" read as a size do not.
RESPONSE_BYTES_MAX = 100 * 1024 * 1024
CORRELATION_ID_BYTES = 4
_SIZE = struct.Struct(">i")
_CHUNK_BYTES = 256 * 1024
_MALFORMED_SHOWN_BYTES = 64


class ResponseFrames:
    """`malformed` is set to the first bytes of what is not a frame; later bytes are ignored then."""

    def __init__(self, frame_bytes_max: int = RESPONSE_BYTES_MAX, chunk_bytes: int = _CHUNK_BYTES) -> None:
        self.malformed: bytes | None = None
        self._frame_bytes_max = frame_bytes_max
        self._chunk_bytes = chunk_bytes
        self._chunk = bytearray()  # allocated with the first `buffer()`
        self._head = b""  # fewer than the four bytes of a size
        self._frame: bytearray | None = None  # a frame that is not complete, and how much of it is there
        self._frame_end = 0

    @property
    def incomplete(self) -> bytes:
        """The beginning of a response that is not complete, for error messages."""
        if self._frame is None:
            return self._head
        return _SIZE.pack(len(self._frame)) + bytes(self._frame[: min(self._frame_end, _MALFORMED_SHOWN_BYTES)])

    def buffer(self) -> memoryview:
        """Where to receive the next bytes."""
        if self._frame is not None:
            return memoryview(self._frame)[self._frame_end :]
        if not self._chunk:
            self._chunk = bytearray(self._chunk_bytes)
        if self._head:
            self._chunk[: len(self._head)] = self._head
        return memoryview(self._chunk)[len(self._head) :]

    def received(self, count: int) -> list[memoryview]:
        """The frames that are complete with `count` more bytes in `buffer()`."""
        if self._frame is not None:
            self._frame_end += count
            return self._completed()
        end = len(self._head) + count
        return self._cut(memoryview(self._chunk)[:end])

    def feed(self, data: bytes) -> list[memoryview]:
        """The frames that are complete with these bytes."""
        frames: list[memoryview] = []
        rest = memoryview(data)
        if self._frame is not None:
            part = rest[: len(self._frame) - self._frame_end]
            self._frame[self._frame_end : self._frame_end + len(part)] = part
            self._frame_end += len(part)
            rest = rest[len(part) :]
            frames = self._completed()
        if len(rest):
            frames += self._cut(memoryview(self._head + bytes(rest)) if self._head else rest)
        return frames

    def _completed(self) -> list[memoryview]:
        if self._frame is None or self._frame_end < len(self._frame):
            return []
        frame, self._frame = self._frame, None
        return [memoryview(frame)]

    def _cut(self, view: memoryview) -> list[memoryview]:
        """The frames in `view`. What follows the last one is kept."""
        self._head = b""
        if self.malformed is not None:
            return []
        frames: list[memoryview] = []
        position, end = 0, len(view)
        while end - position >= _SIZE.size:
            (size,) = _SIZE.unpack_from(view, position)
            if not CORRELATION_ID_BYTES <= size <= self._frame_bytes_max:
                self.malformed = bytes(view[position : position + _MALFORMED_SHOWN_BYTES])
                return frames
            start = position + _SIZE.size
            position = start + size
            if position > end:
                self._frame = bytearray(size)
                self._frame_end = end - start
                self._frame[: self._frame_end] = view[start:]
                return frames
            frames.append(view[start:position])
        self._head = bytes(view[position:])
        return frames
