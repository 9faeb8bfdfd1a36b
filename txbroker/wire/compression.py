"""The codecs of record batches: gzip, snappy, lz4 and zstd, framed as Kafka's Java client writes and reads them.

All decompression is bounded: data that would decompress to more than `size_max` bytes are refused before that memory is used. The
records of a batch are one gzip member, lz4 frame or zstd frame, as every client writes them; anything after it is refused. Codec
libraries are imported on first use, because a start needs none of them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import IntEnum
from typing import TypeAlias

from txbroker.errors import BrokerError, CorruptRecords, ErrorCode

Buffer: TypeAlias = bytes | bytearray | memoryview


class Codec(IntEnum):
    """Compression codecs by their ids in a batch's attributes (`org.apache.kafka.common.record.CompressionType`)."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


CODECS = tuple(Codec)


def compress(codec: Codec, data: Buffer, level: int | None = None, *, magic: int = 2) -> bytes:
    """`data` compressed at `level` (Kafka's `compression.<codec>.level`; None: Kafka's default). `magic`: of the batch."""
    if codec is Codec.NONE:
        return bytes(data)
    return _COMPRESSORS[codec](data, level, magic)


def decompress(codec: Codec, data: Buffer, size_max: int, *, magic: int = 2) -> bytes:
    """What `data` decompresses to, at most `size_max` bytes.

    Errors: MESSAGE_TOO_LARGE beyond that; CorruptRecords when `data` is incomplete or malformed.
    """
    if codec is Codec.NONE:
        if len(data) > size_max:
            raise _too_large(codec, size_max)
        return bytes(data)
    return _DECOMPRESSORS[codec](data, size_max, magic)


def _too_large(codec: Codec, size_max: int) -> BrokerError:
    return BrokerError(ErrorCode.MESSAGE_TOO_LARGE, f"{codec.name.lower()} records have more than {size_max} bytes uncompressed")


def _unsound(codec: Codec, problem: object) -> CorruptRecords:
    return CorruptRecords(f"{codec.name.lower()} records cannot be decompressed: {problem}")


# --- gzip (RFC 1952) ---


def _gzip(data: Buffer, level: int | None, magic: int) -> bytes:
    import zlib

    compressor = zlib.compressobj(zlib.Z_DEFAULT_COMPRESSION if level is None else level, wbits=31)
    return compressor.compress(data) + compressor.flush()


def _gunzip(data: Buffer, size_max: int, magic: int) -> bytes:
    import zlib

    decompressor = zlib.decompressobj(wbits=31)
    try:
        # One byte more than allowed, so that a stream of exactly the allowed size reaches its end.
        plain = decompressor.decompress(data, size_max + 1)
    except zlib.error as error:
        raise _unsound(Codec.GZIP, error) from None
    if len(plain) > size_max:
        raise _too_large(Codec.GZIP, size_max)
    if not decompressor.eof or decompressor.unused_data:
        raise _unsound(Codec.GZIP, "bytes after its end" if decompressor.eof else "it ends early")
    return plain


# --- snappy: raw blocks (librdkafka, Go), or raw blocks in the framing of xerial's snappy-java (Java, most others) ---

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)  # version, oldest version that can read it
_XERIAL_BLOCK = 32 * 1024  # snappy-java's default
_INT32 = struct.Struct(">i")
# Snappy's densest element copies 64 bytes for 3: a block cannot be more than this times its own size.
_SNAPPY_GROWTH_MAX = 22


def _snappy(data: Buffer, level: int | None, magic: int) -> bytes:
    import snappy

    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for position in range(0, len(view), _XERIAL_BLOCK):
        block = snappy.compress(bytes(view[position : position + _XERIAL_BLOCK]))
        parts += (_INT32.pack(len(block)), block)
    return b"".join(parts)


def _unsnappy(data: Buffer, size_max: int, magic: int) -> bytes:
    view = memoryview(data)
    if view[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _unsnappy_block(view, size_max, size_max)
    parts: list[bytes] = []
    left, position = size_max, len(_XERIAL_HEADER)
    while position < len(view):
        if view[position : position + len(_XERIAL_MAGIC)] == _XERIAL_MAGIC:  # snappy-java reads joined streams
            position += len(_XERIAL_HEADER)
            continue
        start = position + 4
        if start > len(view):
            raise _unsound(Codec.SNAPPY, "it ends within a block's length")
        position = start + _INT32.unpack_from(view, position)[0]
        if not start < position <= len(view):
            raise _unsound(Codec.SNAPPY, f"a block has a size of {position - start} bytes")
        parts.append(_unsnappy_block(view[start:position], left, size_max))
        left -= len(parts[-1])
    if position > len(view):
        raise _unsound(Codec.SNAPPY, "it ends within its header")
    return b"".join(parts)


def _unsnappy_block(block: memoryview, left: int, size_max: int) -> bytes:
    """One raw block, which may have `left` bytes decompressed; `size_max` is the limit for all blocks, for the error."""
    import snappy

    size = shift = 0
    for byte in block[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    else:
        raise _unsound(Codec.SNAPPY, "a block has no length")
    if size > len(block) * _SNAPPY_GROWTH_MAX:
        raise _unsound(Codec.SNAPPY, f"a block of {len(block)} bytes has the uncompressed size {size}")
    if size > left:
        raise _too_large(Codec.SNAPPY, size_max)
    try:
        plain: bytes = snappy.uncompress(bytes(block))
    except snappy.UncompressError as error:
        raise _unsound(Codec.SNAPPY, error.__cause__ or error) from None
    return plain


# --- lz4 frames ---

_LZ4_LEVEL_DEFAULT = 9  # Kafka's default, which means lz4's fast mode there; every other number is lz4-java's high compression
_LZ4_GROWTH_MAX = 255
_LZ4_CONTENT_SIZE = 0x08


def _lz4(data: Buffer, level: int | None, magic: int) -> bytes:
    import lz4.frame

    # Kafka's reader supports independent blocks only, and is fastest with blocks of 64 KiB.
    frame: bytes = lz4.frame.compress(
        data,
        compression_level=0 if level in (None, _LZ4_LEVEL_DEFAULT) else max(3, min(level or 0, lz4.frame.COMPRESSIONLEVEL_MAX)),
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )
    return _with_descriptor_checksum(frame, broken=True) if magic == 0 else frame


def _unlz4(data: Buffer, size_max: int, magic: int) -> bytes:
    import lz4.frame

    frame = _with_descriptor_checksum(bytes(data), broken=False) if magic == 0 else data
    decompressor = lz4.frame.LZ4FrameDecompressor()
    # The library reserves all of this at once, but uses only the part that it fills. One byte more than allowed, as for gzip.
    reserve = min(size_max, len(frame) * _LZ4_GROWTH_MAX) + 1
    try:
        plain: bytes = decompressor.decompress(frame, max_length=reserve)
    except RuntimeError as error:
        raise _unsound(Codec.LZ4, error) from None
    if len(plain) > size_max:
        raise _too_large(Codec.LZ4, size_max)
    if not decompressor.eof or decompressor.unused_data:
        raise _unsound(Codec.LZ4, "bytes after its end" if decompressor.eof else "it ends early")
    return plain


def _with_descriptor_checksum(frame: bytes, *, broken: bool) -> bytes:
    """`frame` with a new checksum byte of its descriptor.

    Clients of magic 0 included the frame's magic number in that checksum. Kafka writes it so there (`broken`), and ignores it when it
    reads (KAFKA-3160).
    """
    if len(frame) < 7:
        raise _unsound(Codec.LZ4, "it is shorter than a frame's header")
    end = 6 + (8 if frame[4] & _LZ4_CONTENT_SIZE else 0)
    checksum = _xxh32(frame[0 if broken else 4 : end]) >> 8 & 0xFF
    return b"%b%c%b" % (frame[:end], checksum, frame[end + 1 :])


def _xxh32(data: bytes) -> int:
    """XXH32 with seed 0, for inputs shorter than 16 bytes (which skip its main loop): a frame descriptor is at most 14."""
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


# --- zstd frames (RFC 8878) ---

_ZSTD_BLOCK_MAX = 128 * 1024


def _zstd(data: Buffer, level: int | None, magic: int) -> bytes:
    import zstandard

    return zstandard.ZstdCompressor(level=3 if level is None else level).compress(data)


def _unzstd(data: Buffer, size_max: int, magic: int) -> bytes:
    import zstandard

    view = memoryview(data)
    try:
        claimed = zstandard.frame_content_size(view)  # -1: unknown, as streaming writers leave it
        bound = _zstd_bound(view, zstandard.frame_header_size(view), zstandard.get_frame_parameters(view).has_checksum)
        if claimed > bound:
            raise _unsound(Codec.ZSTD, f"its header has {claimed} bytes, its blocks have at most {bound}")
        # The reader reserves all of this at once, but uses only the part that it fills. One byte more than allowed, as for gzip.
        plain = zstandard.ZstdDecompressor().stream_reader(view).read(min(bound, size_max) + 1)
    except zstandard.ZstdError as error:
        raise _unsound(Codec.ZSTD, error) from None
    if len(plain) > size_max:
        raise _too_large(Codec.ZSTD, size_max)
    return plain


def _zstd_bound(frame: memoryview, position: int, has_checksum: bool) -> int:
    """The largest number of bytes that the blocks from `position` on can decompress to; CorruptRecords unless they fill the frame."""
    bound, last = 0, False
    while not last:
        if position + 3 > len(frame):
            raise _unsound(Codec.ZSTD, "it ends early")
        header = frame[position] | frame[position + 1] << 8 | frame[position + 2] << 16
        last, kind, size = header & 1 == 1, header >> 1 & 3, header >> 3
        position += 3 + (1 if kind == 1 else size)  # kind 1 repeats one byte, `size` times
        bound += _ZSTD_BLOCK_MAX if kind == 2 else size
    if position + (4 if has_checksum else 0) != len(frame):
        raise _unsound(Codec.ZSTD, "its blocks do not end where it does")
    return bound


_COMPRESSORS: dict[Codec, Callable[[Buffer, int | None, int], bytes]] = {
    Codec.GZIP: _gzip,
    Codec.SNAPPY: _snappy,
    Codec.LZ4: _lz4,
    Codec.ZSTD: _zstd,
}
_DECOMPRESSORS: dict[Codec, Callable[[Buffer, int, int], bytes]] = {
    Codec.GZIP: _gunzip,
    Codec.SNAPPY: _unsnappy,
    Codec.LZ4: _unlz4,
    Codec.ZSTD: _unzstd,
}
