"""The blocks of snappy data and of lz4 frames, decompressed one by one.

Producers send small batches, for which the libraries' readers of whole frames cost more than the data: one of lz4 allocates the largest
block that its header allows, which is 4 MiB for some clients. Here each block is one call of a function that decompresses a raw block.

Cython compiles the module where a compiler is there when txbroker is installed (`setup.py`; types in `codec_blocks.pxd`), and it is plain
Python otherwise. Both forms give the same results.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from txbroker.errors import BrokerError, CorruptRecords, ErrorCode
from txbroker.wire.lz4_frames import CONTENT_CHECKSUM, CONTENT_SIZE, INDEPENDENT_BLOCKS, STORED, header_checksum

XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER = XERIAL_MAGIC + struct.pack(">ii", 1, 1)  # version, oldest version that can read it

# Snappy's densest element copies 64 bytes for 3: a block cannot be more than this times its own size.
_SNAPPY_GROWTH_MAX = 22
_LZ4_GROWTH_MAX = 255
# A block costs a call even if it is empty. snappy-java's have 1 KiB at least, and 32 KiB by default.
_XERIAL_BLOCKS_MAX = 16_384
_XERIAL_START = struct.unpack_from(">i", XERIAL_MAGIC)[0]
_INT32 = struct.Struct(">i").unpack_from
_LZ4_MAGIC = 0x184D2204
_LZ4_FLAGS = CONTENT_SIZE | CONTENT_CHECKSUM  # which do not matter: as for the Java reader, both are ignored
_LZ4_VERSION = 0x40
_LZ4_BLOCKS_MAX = 256  # a frame with more takes longer here than the library needs for it
_LZ4_START = struct.Struct("<IBB").unpack_from  # magic, flags, block size
_UINT32 = struct.Struct("<I").unpack_from

_libraries: tuple[Callable[..., Any], type[Exception], Callable[..., Any], type[Exception]] | None = None


def _load() -> tuple[Callable[..., Any], type[Exception], Callable[..., Any], type[Exception]]:
    """The functions that decompress a raw block of snappy and of lz4, each with its error. They are imported on first use."""
    global _libraries
    if _libraries is None:
        import cramjam
        import lz4.block

        _libraries = cramjam.snappy.decompress_raw, cramjam.DecompressionError, lz4.block.decompress, lz4.block.LZ4BlockError
    return _libraries


def unsnappy(data: memoryview, size_max: int) -> bytes:
    """What raw snappy (librdkafka, Go) or blocks in the framing of xerial's snappy-java (Java, most others) decompress to.

    CorruptRecords; MESSAGE_TOO_LARGE beyond `size_max` bytes.
    """
    end = len(data)
    if end < len(XERIAL_HEADER) or data[0] != XERIAL_MAGIC[0] or data[: len(XERIAL_MAGIC)] != XERIAL_MAGIC:
        return _unsnappy_block(data, size_max, size_max)
    parts: list[bytes] = []
    left, position = size_max, len(XERIAL_HEADER)
    while position + 4 <= end:  # snappy-java ignores up to three bytes at the end
        start = position + 4
        size = _INT32(data, position)[0]
        if size == _XERIAL_START:  # snappy-java reads joined streams
            position += len(XERIAL_HEADER)
            if position > end:
                raise _unsound("it ends within its header")
            if data[start : start + 4] == XERIAL_MAGIC[4:] and _INT32(data, start + 4)[0] < 1:
                raise _unsound("a joined stream has a version below 1")
            continue
        position = start + size
        if not start < position <= end:
            raise _unsound(f"a block has a size of {size} bytes")
        if len(parts) == _XERIAL_BLOCKS_MAX:
            raise BrokerError(ErrorCode.MESSAGE_TOO_LARGE, f"snappy records have more than {_XERIAL_BLOCKS_MAX} blocks")
        part = _unsnappy_block(data[start:position], left, size_max)
        left -= len(part)
        parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _unsnappy_block(block: memoryview, left: int, size_max: int) -> bytes:
    """One raw block, which may have `left` bytes decompressed; `size_max` is the limit for all blocks, for the error."""
    size = shift = at = 0
    available = len(block)
    byte = 0x80
    while byte >= 0x80:
        if at == 5 or at == available:
            raise _unsound("a block has no length")
        byte = block[at]
        size |= (byte & 0x7F) << shift
        shift += 7
        at += 1
    if size > available * _SNAPPY_GROWTH_MAX:
        raise _unsound(f"a block of {available} bytes has the uncompressed size {size}")
    if size > left:
        raise BrokerError(ErrorCode.MESSAGE_TOO_LARGE, f"snappy records have more than {size_max} bytes uncompressed")
    decompress, decompression_error, _, _ = _libraries or _load()
    try:
        return bytes(decompress(block))
    except decompression_error as error:
        raise _unsound(error) from None


def _unsound(problem: object) -> CorruptRecords:
    return CorruptRecords(f"snappy records cannot be decompressed: {problem}")


def unlz4(data: memoryview, size_max: int) -> bytes | None:
    """What the first lz4 frame decompresses to, if its blocks are independent of each other and have no checksums.

    None for any other frame, for one that is invalid, and beyond `size_max` bytes: `compression.py` reads it with the library.
    """
    end = len(data)
    if end < 11:
        return None
    magic, flags, sizes = _LZ4_START(data, 0)
    if magic != _LZ4_MAGIC or flags & ~_LZ4_FLAGS != _LZ4_VERSION | INDEPENDENT_BLOCKS or sizes & 0x8F or sizes < 0x40:
        return None
    position = 15 if flags & CONTENT_SIZE else 7
    if end < position + 4 or data[position - 1] != header_checksum(bytes(data[4 : position - 1])):
        return None
    _, _, decompress, decompression_error = _libraries or _load()
    block_max = 1 << 8 + (sizes >> 3)
    left = size_max
    parts: list[bytes] = []
    while True:
        word = _UINT32(data, position)[0]
        position += 4
        size = word & (STORED - 1)
        if size == 0:
            break
        begin = position
        position += size
        if size > block_max or position + 4 > end or len(parts) == _LZ4_BLOCKS_MAX:
            return None
        if word & STORED:
            part = bytes(data[begin:position])
        else:
            try:
                part = decompress(data[begin:position], min(block_max, size * _LZ4_GROWTH_MAX, left + 1))
            except decompression_error:
                return None
        left -= len(part)
        if left < 0:
            return None
        parts.append(part)
    if flags & CONTENT_CHECKSUM and position + 4 > end:
        return None
    return parts[0] if len(parts) == 1 else b"".join(parts)
