"""The headers and blocks of lz4 frames, checked as Kafka's Java reader does (`Lz4BlockInputStream`, KIP-57).

    magic uint32, 0x184D2204 | flags uint8 | block size uint8 | [content size int64] | header checksum uint8
    blocks: size uint32 (highest bit: stored as it is), data, [checksum uint32] | end mark: size 0 | [content checksum uint32]

Numbers are little-endian. The Java reader reads one frame, and ignores everything after it, the content size and the value of the content
checksum. It refuses blocks that depend on earlier blocks.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import NamedTuple

from txbroker.errors import CorruptRecords

_MAGIC = b"\x04\x22\x4d\x18"
_VERSION, _VERSION_MASK = 0x40, 0xC0
INDEPENDENT_BLOCKS = 0x20
BLOCK_CHECKSUMS = 0x10
CONTENT_SIZE = 0x08
CONTENT_CHECKSUM = 0x04
_RESERVED_FLAGS = 0x03  # the lower one is a dictionary's in newer versions of the format
_RESERVED_SIZES = 0x8F
STORED = 1 << 31
_UINT32 = struct.Struct("<I")


class Frame(NamedTuple):
    """The part of a frame that the Java reader uses, for lz4's library: without content size and content checksum.

    `independent`: no block needs an earlier one.
    """

    data: bytes | memoryview
    independent: bool


def read_frame(data: memoryview, *, ignore_header_checksum: bool) -> Frame:
    """The frame at the beginning of `data`. The blocks themselves are not looked at. CorruptRecords.

    `ignore_header_checksum`: as for messages of magic 0, whose clients included the magic number in that checksum (KAFKA-3160).
    """
    end = _header_end(data)
    flags, sizes = data[4], data[5]
    if flags & _VERSION_MASK != _VERSION or flags & _RESERVED_FLAGS:
        raise _unsound(f"its header has the flags {flags:#x}, which no reader knows")
    if sizes & _RESERVED_SIZES or sizes < 0x40:
        raise _unsound(f"its header has the block size {sizes:#x}, which no reader knows")
    checksum = header_checksum(bytes(data[4 : end - 1]))
    right = data[end - 1] == checksum
    if not right and not ignore_header_checksum:
        raise _unsound("its header has a wrong checksum")
    blocks_end = _blocks_end(data, end, 1 << 8 + (sizes >> 3), 4 if flags & BLOCK_CHECKSUMS else 0)
    frame_end = blocks_end + 4
    independent = flags & INDEPENDENT_BLOCKS != 0
    if flags & CONTENT_CHECKSUM and frame_end + 4 > len(data):
        raise _unsound("it ends early")
    if right and frame_end == len(data) and not flags & (CONTENT_SIZE | CONTENT_CHECKSUM) and data[-1] == 0:
        return Frame(data, independent)
    flags &= ~(CONTENT_SIZE | CONTENT_CHECKSUM)
    described = bytes((flags, sizes))
    head = _MAGIC + described + bytes([header_checksum(described)])
    return Frame(b"".join((head, data[end:blocks_end], bytes(4))), independent)


def with_broken_checksum(frame: bytes) -> bytes:
    """`frame` with the header checksum that messages of magic 0 have: it includes the magic number."""
    end = _header_end(memoryview(frame))
    return b"%b%c%b" % (frame[: end - 1], _xxh32(frame[: end - 1]) >> 8 & 0xFF, frame[end:])


def _header_end(data: memoryview) -> int:
    if len(data) < 7:
        raise _unsound("it is shorter than a frame's header")
    if data[:4] != _MAGIC:
        raise _unsound("it does not begin with a frame's magic number")
    end = 15 if data[4] & CONTENT_SIZE else 7
    if len(data) < end:
        raise _unsound("it is shorter than a frame's header")
    return end


def _blocks_end(data: memoryview, position: int, block_max: int, checksum_bytes: int) -> int:
    """The position of the end mark, which is any block of size 0 for the Java reader."""
    limit = len(data) - 4
    while position <= limit:
        (word,) = _UINT32.unpack_from(data, position)
        size = word & ~STORED
        if size == 0:
            return position
        if size > block_max:
            raise _unsound(f"a block has a size of {size} bytes, {block_max} are allowed by its header")
        position += 4 + size + checksum_bytes
    raise _unsound("it ends early")


@lru_cache(maxsize=64)
def header_checksum(described: bytes) -> int:
    """The checksum of a header's flags, block size and content size."""
    return _xxh32(described) >> 8 & 0xFF


def _xxh32(data: bytes) -> int:
    """XXH32 with seed 0, for inputs shorter than 16 bytes (which skip its main loop): a header has at most 14 before its checksum."""
    hashed = 0x165667B1 + len(data)
    whole = len(data) & ~3
    for position in range(0, whole, 4):
        hashed = hashed + int.from_bytes(data[position : position + 4], "little") * 0xC2B2AE3D & 0xFFFFFFFF
        hashed = (hashed << 17 | hashed >> 15) * 0x27D4EB2F & 0xFFFFFFFF
    for byte in data[whole:]:
        hashed = hashed + byte * 0x165667B1 & 0xFFFFFFFF
        hashed = (hashed << 11 | hashed >> 21) * 0x9E3779B1 & 0xFFFFFFFF
    hashed = (hashed ^ hashed >> 15) * 0x85EBCA77 & 0xFFFFFFFF
    hashed = (hashed ^ hashed >> 13) * 0xC2B2AE3D & 0xFFFFFFFF
    return hashed ^ hashed >> 16


def _unsound(problem: str) -> CorruptRecords:
    return CorruptRecords(f"lz4 records cannot be decompressed: {problem}")
