"""The headers of zstd frames and of their blocks (RFC 8878), checked as far as Kafka's Java reader does (zstd-jni's `ZstdInputStream`).

The Java reader reads all frames, and skips skippable frames. It ignores a last frame that is incomplete if an earlier frame has ended since
it filled its buffer.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from txbroker.errors import CorruptRecords

_MAGIC = 0xFD2FB528
_SKIPPABLE, _SKIPPABLE_MASK = 0x184D2A50, 0xFFFFFFF0
_BLOCK_MAX = 128 * 1024
_JAVA_BUFFER = 131_075  # bytes: zstd's recommended size of an input buffer
_JAVA_OUTPUT = 16 * 1024  # bytes: frames of at most this size are decompressed at once, without a window
_WINDOW_MAX = (1 << 27) + 1  # zstd's default limit
_UINT32 = struct.Struct("<I")
_SIZE_FORMATS = ("<B", "<H", "<I", "<Q")
_DICTIONARY_BYTES = (0, 1, 2, 4)


class Frames(NamedTuple):
    """`content_max`: the most bytes that all frames can decompress to. `window_max`: the largest window of a frame that needs one."""

    content_max: int
    window_max: int

    @property
    def fit_java(self) -> bool:
        """Whether a Java client can read the frames: its library refuses larger windows."""
        return self.window_max <= _WINDOW_MAX


def read_frames(data: memoryview) -> Frames:
    """Look at the headers of all frames and blocks in `data`.

    CorruptRecords if a frame ends early or claims more content than its blocks have.
    """
    position, end, content_max, window_max = 0, len(data), 0, 0
    while position < end:
        start = position
        position, content, window = _frame(data, start)
        content_max += content
        window_max = max(window_max, window)
        if position > end and (start % _JAVA_BUFFER == 0 or start // _JAVA_BUFFER != (end - 1) // _JAVA_BUFFER):
            raise _unsound("it ends early")
    if position == 0:
        raise _unsound("it is empty")
    return Frames(content_max, window_max)


def _frame(data: memoryview, position: int) -> tuple[int, int, int]:
    """The end of the frame, above the end of `data` if it is incomplete; the most bytes that it can decompress to; its window (0: none)."""
    end = len(data)
    beyond = end + 1, 0, 0
    if position + 5 > end:
        return beyond
    (magic,) = _UINT32.unpack_from(data, position)
    if magic & _SKIPPABLE_MASK == _SKIPPABLE:
        return (position + 8 + _UINT32.unpack_from(data, position + 4)[0], 0, 0) if position + 8 <= end else beyond
    if magic != _MAGIC:
        raise _unsound("a frame does not begin with a frame's magic number")
    described = data[position + 4]
    size_flag, single_segment = described >> 6, described & 0x20
    window_at = position + 5
    size_at = window_at + (0 if single_segment else 1) + _DICTIONARY_BYTES[described & 3]
    has_size = size_flag or single_segment
    at = size_at + ((1 << size_flag) if has_size else 0)
    if at > end:
        return beyond
    claimed = 0
    if has_size:
        claimed = struct.unpack_from(_SIZE_FORMATS[size_flag], data, size_at)[0] + (256 if size_flag == 1 else 0)
    window = claimed if single_segment else (1 << 10 + (data[window_at] >> 3)) * (8 + (data[window_at] & 7)) // 8
    at, content = _blocks(data, at)
    if at <= end:
        at += 4 if described & 4 else 0  # its checksum
        if claimed > content:
            raise _unsound(f"its header has {claimed} bytes, its blocks have at most {content}")
    return at, content, 0 if has_size and claimed <= _JAVA_OUTPUT else window


def _blocks(data: memoryview, position: int) -> tuple[int, int]:
    """The position after the last block, above the end of `data` if it is incomplete; the most bytes that the blocks can decompress to."""
    content, end = 0, len(data)
    while position + 3 <= end:
        header = data[position] | data[position + 1] << 8 | data[position + 2] << 16
        kind, size = header >> 1 & 3, header >> 3
        position += 3 + (1 if kind == 1 else size)  # kind 1 repeats one byte, `size` times
        content += _BLOCK_MAX if kind == 2 else size
        if header & 1:
            return position, content
    return end + 1, content


def _unsound(problem: str) -> CorruptRecords:
    return CorruptRecords(f"zstd records cannot be decompressed: {problem}")
