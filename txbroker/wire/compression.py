"""The codecs of record batches: gzip, snappy, lz4 and zstd, framed as Kafka's Java client writes and reads them.

All decompression is bounded: data that would decompress to more than `size_max` bytes are refused before that memory is used. What the
Java client reads is read with the same result: all members of gzip data, all frames of zstd data, all blocks and joined streams of snappy
data, the first frame of lz4 data, and the bytes after the data that it ignores. `decompress` also reads a few forms that the Java client
cannot read but other clients can, because logs may have them; produced records may not have these. Codec libraries are imported on first
use, because a start needs none of them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import IntEnum
from typing import TypeAlias

from txbroker.errors import BrokerError, CorruptRecords, ErrorCode
from txbroker.wire.codec_blocks import XERIAL_HEADER, unlz4, unsnappy
from txbroker.wire.lz4_frames import Frame, read_frame, with_broken_checksum
from txbroker.wire.zstd_frames import Frames, read_frames

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


def decompress(codec: Codec, data: Buffer, size_max: int, *, magic: int = 2, produced: bool = False) -> bytes:
    """What `data` decompresses to, at most `size_max` bytes.

    Errors: MESSAGE_TOO_LARGE beyond that; CorruptRecords when `data` is incomplete or malformed, and, if they are `produced`, when the
    Java client cannot read them.
    """
    if codec is Codec.NONE:
        if len(data) > size_max:
            raise _too_large(codec, size_max)
        return bytes(data)
    return _DECOMPRESSORS[codec](data, size_max, magic, produced)


def refuse_unless_java_reads(codec: Codec, data: Buffer) -> None:
    """CorruptRecords if the frames of `data` show that the Java client cannot read them. Nothing is decompressed."""
    if codec is Codec.LZ4:
        _lz4_frame(data, 2, True)
    elif codec is Codec.ZSTD:
        _zstd_frames(memoryview(data), True)


def _too_large(codec: Codec, size_max: int) -> BrokerError:
    return BrokerError(ErrorCode.MESSAGE_TOO_LARGE, f"{codec.name.lower()} records have more than {size_max} bytes uncompressed")


def _unsound(codec: Codec, problem: object) -> CorruptRecords:
    return CorruptRecords(f"{codec.name.lower()} records cannot be decompressed: {problem}")


# --- gzip (RFC 1952) ---


def _gzip(data: Buffer, level: int | None, magic: int) -> bytes:
    import zlib

    compressor = zlib.compressobj(zlib.Z_DEFAULT_COMPRESSION if level is None else level, wbits=31)
    return compressor.compress(data) + compressor.flush()


def _gunzip(data: Buffer, size_max: int, magic: int, produced: bool) -> bytes:
    import zlib

    decompressor = zlib.decompressobj(wbits=31)
    try:
        # One byte more than allowed, so that a stream of exactly the allowed size reaches its end.
        plain = decompressor.decompress(data, size_max + 1)
    except zlib.error:
        return _gunzip_members(memoryview(data), size_max)
    if len(plain) > size_max:
        raise _too_large(Codec.GZIP, size_max)
    if not decompressor.eof:
        raise _unsound(Codec.GZIP, "it ends early")
    return _gunzip_members(memoryview(data), size_max) if decompressor.unused_data else plain


_GZIP_HEADER = struct.Struct("<HBB6x")  # magic, method, flags; time, level and system do not matter
_GZIP_START = (0x8B1F, 8)
_GZIP_CHECKED, _GZIP_EXTRA, _GZIP_NAME, _GZIP_COMMENT = 2, 4, 8, 16
_GZIP_TRAILER = struct.Struct("<II")  # CRC-32 and size, modulo 2**32
_GZIP_REST_MIN = 19  # of a further member: Java's reader ignores fewer bytes
_UINT16 = struct.Struct("<H")


def _gunzip_members(data: memoryview, size_max: int) -> bytes:
    """All members, as Java's `GZIPInputStream` reads them: bytes after a member that do not begin with a header are ignored."""
    import zlib

    parts: list[bytes] = []
    left, position = size_max, _gzip_header_end(data, 0)
    while True:
        inflater = zlib.decompressobj(wbits=-15)
        crc = size = 0
        step = 512  # the inflater copies what follows a member, so small members take small steps
        while not inflater.eof:
            if position >= len(data):
                raise _unsound(Codec.GZIP, "it ends early")
            try:
                part = inflater.decompress(data[position : position + step], left + 1)
            except zlib.error as error:
                raise _unsound(Codec.GZIP, error) from None
            if len(part) > left:
                raise _too_large(Codec.GZIP, size_max)
            position = min(position + step, len(data)) - len(inflater.unused_data) - len(inflater.unconsumed_tail)
            step = min(2 * step, 1 << 20)
            left -= len(part)
            size += len(part)
            crc = zlib.crc32(part, crc)
            parts.append(part)
        if position + _GZIP_TRAILER.size > len(data):
            raise _unsound(Codec.GZIP, "it ends early")
        if _GZIP_TRAILER.unpack_from(data, position) != (crc, size & 0xFFFFFFFF):
            raise _unsound(Codec.GZIP, "a member has a wrong checksum or size")
        position += _GZIP_TRAILER.size
        if len(data) - position < _GZIP_REST_MIN:
            break
        try:
            position = _gzip_header_end(data, position)
        except CorruptRecords:
            break
    return b"".join(parts)


def _gzip_header_end(data: memoryview, position: int) -> int:
    """The position after the header of a member. CorruptRecords. Like Java's reader, it ignores unknown flags."""
    import zlib

    at = position + _GZIP_HEADER.size
    if at > len(data):
        raise _unsound(Codec.GZIP, "it ends within a header")
    *start, flags = _GZIP_HEADER.unpack_from(data, position)
    if tuple(start) != _GZIP_START:
        raise _unsound(Codec.GZIP, "it does not begin with a header of gzip")
    if flags & _GZIP_EXTRA and at + 2 <= len(data):
        at += 2 + _UINT16.unpack_from(data, at)[0]
    for flag in (_GZIP_NAME, _GZIP_COMMENT):
        if flags & flag:
            while at < len(data) and data[at]:
                at += 1
            at += 1
    if flags & _GZIP_CHECKED and at + 2 <= len(data):
        if _UINT16.unpack_from(data, at)[0] != zlib.crc32(data[position:at]) & 0xFFFF:
            raise _unsound(Codec.GZIP, "a header has a wrong checksum")
        at += 2
    if at >= len(data):
        raise _unsound(Codec.GZIP, "it ends within a header")
    return at


# --- snappy: raw blocks (librdkafka, Go), or raw blocks in the framing of xerial's snappy-java (Java, most others) ---

_XERIAL_BLOCK = 32 * 1024  # snappy-java's default
_INT32 = struct.Struct(">i")


def _snappy(data: Buffer, level: int | None, magic: int) -> bytes:
    import cramjam

    view = memoryview(data)
    parts = [XERIAL_HEADER]
    for position in range(0, len(view), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(view[position : position + _XERIAL_BLOCK]))
        parts += (_INT32.pack(len(block)), block)
    return b"".join(parts)


def _unsnappy(data: Buffer, size_max: int, magic: int, produced: bool) -> bytes:
    return unsnappy(memoryview(data), size_max)


# --- lz4 frames ---

_LZ4_LEVEL_DEFAULT = 9  # Kafka's default, which means lz4's fast mode there; every other number is lz4-java's high compression
_LZ4_GROWTH_MAX = 255


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
    return with_broken_checksum(frame) if magic == 0 else frame


def _unlz4(data: Buffer, size_max: int, magic: int, produced: bool) -> bytes:
    unpacked = unlz4(memoryview(data), size_max)
    if unpacked is not None:
        return unpacked
    import lz4.frame

    frame = _lz4_frame(data, magic, produced)
    decompressor = lz4.frame.LZ4FrameDecompressor()
    try:
        # The library reserves all of this at once, but uses only the part that it fills. One byte more than allowed, as for gzip.
        plain: bytes = decompressor.decompress(frame.data, max_length=min(size_max, len(data) * _LZ4_GROWTH_MAX) + 1)
    except RuntimeError as error:
        raise _unsound(Codec.LZ4, error) from None
    if len(plain) > size_max:
        raise _too_large(Codec.LZ4, size_max)
    if not decompressor.eof:
        raise _unsound(Codec.LZ4, "it ends early")
    return plain


def _lz4_frame(data: Buffer, magic: int, produced: bool) -> Frame:
    frame = read_frame(memoryview(data), ignore_header_checksum=magic == 0)
    if produced and not frame.independent:
        raise _unsound(Codec.LZ4, "its blocks depend on each other, which Java clients cannot read")
    return frame


# --- zstd frames (RFC 8878) ---

def _zstd(data: Buffer, level: int | None, magic: int) -> bytes:
    import zstandard

    return zstandard.ZstdCompressor(level=3 if level is None else level).compress(data)


def _unzstd(data: Buffer, size_max: int, magic: int, produced: bool) -> bytes:
    import zstandard

    view = memoryview(data)
    content_max = _zstd_frames(view, produced).content_max
    try:
        # The reader reserves all of this at once, but uses only the part that it fills. One byte more than allowed, as for gzip.
        reader = zstandard.ZstdDecompressor().stream_reader(view, read_across_frames=True)
        plain = reader.read(min(content_max, size_max) + 1)
    except zstandard.ZstdError as error:
        raise _unsound(Codec.ZSTD, error) from None
    if len(plain) > size_max:
        raise _too_large(Codec.ZSTD, size_max)
    return plain


def _zstd_frames(data: memoryview, produced: bool) -> Frames:
    frames = read_frames(data)
    if produced and not frames.fit_java:
        raise _unsound(Codec.ZSTD, "it needs a window of more than 128 MiB, which Java clients do not have")
    return frames


_COMPRESSORS: dict[Codec, Callable[[Buffer, int | None, int], bytes]] = {
    Codec.GZIP: _gzip,
    Codec.SNAPPY: _snappy,
    Codec.LZ4: _lz4,
    Codec.ZSTD: _zstd,
}
_DECOMPRESSORS: dict[Codec, Callable[[Buffer, int, int, bool], bytes]] = {
    Codec.GZIP: _gunzip,
    Codec.SNAPPY: _unsnappy,
    Codec.LZ4: _unlz4,
    Codec.ZSTD: _unzstd,
}
