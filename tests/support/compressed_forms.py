"""Compressed records in unusual forms, and whether Apache Kafka's Java reader reads them.

Kafka 3.9.1 and 4.3.1 give these answers: `pytest --broker=kafka tests/api/test_compressed_forms.py`.
"""

from __future__ import annotations

import gzip
import random
import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

import lz4.frame
import snappy
import zstandard

from tests.support.odd_batches import record, uncompressed_as
from txbroker.wire.compression import Codec
from txbroker.wire.lz4_frames import header_checksum


class Form(NamedTuple):
    """The compressed records of a batch. `read`: whether the Java reader reads all `records` of it."""

    name: str
    codec: Codec
    data: bytes
    plain: bytes
    records: int
    read: bool

    def batch(self, now_ms: int) -> bytes:
        """A record batch."""
        return uncompressed_as(self.codec, self.data, self.records, now_ms=now_ms)


COUNT = 20
SMALL = b"".join(record(offset=index, value=b"value-%d" % index) for index in range(COUNT))
# More bytes than Java's buffers have, which cannot be compressed.
LARGE = b"".join(record(offset=index, value=random.Random(index).randbytes(900)) for index in range(COUNT * 2))
HALF = 70

READ_BY_OTHERS = frozenset({"lz4: linked blocks", "zstd: a window of 256 MiB for large content"})
"""The forms that `decompress` reads although the Java reader does not."""


def forms() -> Iterator[Form]:
    """Every form."""
    for codec, made in ((Codec.GZIP, _gzip()), (Codec.LZ4, _lz4()), (Codec.ZSTD, _zstd()), (Codec.SNAPPY, _snappy())):
        for name, data, read in made:
            large = "large" in name
            yield Form(f"{codec.name.lower()}: {name}", codec, data, LARGE if large else SMALL, COUNT * (2 if large else 1), read)


def _member(data: bytes, flags: int = 0, extra: bytes = b"") -> bytes:
    made = gzip.compress(data, mtime=0)
    return made[:3] + bytes([flags]) + made[4:10] + extra + made[10:]


def _gzip() -> Iterator[tuple[str, bytes, bool]]:
    first, second = _member(SMALL[:HALF]), _member(SMALL[HALF:])
    whole, empty, more = _member(SMALL), _member(b""), _member(b"abc")
    yield "one member", whole, True
    yield "two members", first + second, True
    yield "two members and bytes", first + second + b"and other bytes after them", True
    yield "an empty member between", first + empty + second, True
    yield "an empty member at the end", whole + empty, True
    yield "a member after the records", whole + more, False
    yield "a few bytes after it", whole + b"x", True
    yield "zeros after it", whole + bytes(100), True
    yield "an incomplete empty member at the end", whole + empty[:-3], True
    yield "the header of a member at the end", whole + more[:10], True
    yield "no whole trailer", whole[:-3], False
    yield "no whole second trailer", first + second[:-3], False
    yield "a wrong CRC in the second member", first + second[:-8] + bytes(4) + second[-4:], False
    yield "a wrong size in the second member", first + second[:-4] + bytes(4), False
    yield "unknown flags", _member(SMALL, 0xE0), True
    yield "unknown flags in the second member", first + _member(SMALL[HALF:], 0xE0), True
    yield "extra field, name and comment", _member(SMALL, 0x1C, b"\x03\0abcname\0comment\0"), True
    yield "extra field, name and comment in both", _member(SMALL[:HALF], 0x1C, b"\0\0\0\0") + _member(SMALL[HALF:], 8, b"name\0"), True
    head = _member(SMALL, 2)[:10]
    checked = struct.pack("<H", zlib.crc32(head) & 0xFFFF)
    yield "a header checksum", _member(SMALL, 2, checked), True
    yield "a wrong header checksum", _member(SMALL, 2, b"\0\0"), False
    yield "another method", whole[:2] + b"\x07" + whole[3:], False
    for size in (500, 5000):
        yield f"large members of {size} bytes", b"".join(_member(LARGE[at : at + size]) for at in range(0, len(LARGE), size)), True
    for size in (8152, 8157, 8165, 8174, 8183, 8192):  # where Java's buffer of 8 KiB ends
        split = _stored(size - 5) + _member(LARGE[size - 5 :])
        yield f"large with a member that ends {8192 - size} bytes before the end of a buffer", split, True


def _stored(size: int) -> bytes:
    data = LARGE[:size]
    return _member(b"")[:10] + b"\1" + struct.pack("<HH", size, size ^ 0xFFFF) + data + struct.pack("<II", zlib.crc32(data), size)


def _frame(
    flags: int, *blocks: bytes, sizes: int = 0x40, end: bytes = bytes(4), checksum: int | None = None, content: bytes = b""
) -> bytes:
    described = bytes([flags, sizes]) + content
    head = b"\x04\x22\x4d\x18" + described + bytes([header_checksum(described) if checksum is None else checksum])
    return head + b"".join(struct.pack("<I", len(block) | 1 << 31) + block for block in blocks) + end


def _lz4() -> Iterator[tuple[str, bytes, bool]]:
    first, second = SMALL[:HALF], SMALL[HALF:]
    whole = _frame(0x60, first, second)
    yield "two blocks", whole, True
    yield "linked blocks", _frame(0x40, first, second), False
    yield "bytes after it", whole + b"bytes", True
    yield "a frame after the records", whole + _frame(0x60, b"abc"), True
    yield "records in two frames", _frame(0x60, first) + _frame(0x60, second), False
    yield "a skippable frame before it", struct.pack("<II", 0x184D2A50, 3) + b"abc" + whole, False
    packed = lz4.frame.compress(SMALL, block_linked=False, store_size=True, content_checksum=True, block_checksum=True)
    yield "all checksums and the content size", packed, True
    yield "a wrong content checksum", packed[:-4] + b"abcd", True
    yield "no content checksum", packed[:-4], False
    yield "part of the content checksum", packed[:-1], False
    yield "a wrong block checksum", packed[:-9] + b"\xff" + packed[-8:], False
    yield "a wrong content size", _frame(0x68, first, second, content=struct.pack("<q", 5)), True
    yield "a wrong header checksum", _frame(0x60, first, second, checksum=header_checksum(b"\x60\x40") ^ 1), False
    yield "no end mark", whole[:-4], False
    yield "an end mark with the bit of stored blocks", _frame(0x60, first, second, end=struct.pack("<I", 1 << 31)), True
    yield "blocks after that end mark", _frame(0x60, first, b"", second), False
    yield "a block that is too large", _frame(0x60, LARGE + LARGE[: 1 << 16]), False
    yield "large blocks of other sizes", _frame(0x60, LARGE[:40_000], LARGE[40_000:], sizes=0x70), True
    yield "a dictionary", _frame(0x61, first, second), False
    yield "a reserved flag", _frame(0x62, first, second), False
    yield "a reserved size", _frame(0x60, first, second, sizes=0x41), False
    yield "a high reserved size", _frame(0x60, first, second, sizes=0xC0), False
    yield "blocks of 16 KiB", _frame(0x60, first, second, sizes=0x30), False
    yield "version 2", _frame(0xA0, first, second), False
    yield "the format before frames", struct.pack("<II", 0x184C2102, len(SMALL) + 2) + b"\xf0" + SMALL, False


def _zstd_frame(window: int, data: bytes, size: int | None = None) -> bytes:
    """A frame of one stored block, without a checksum."""
    head = bytes([0, window]) if size is None else struct.pack("<BBI", 0x80, window, size)
    return b"\x28\xb5\x2f\xfd" + head + struct.pack("<I", 1 | len(data) << 3)[:3] + data


def _zstd() -> Iterator[tuple[str, bytes, bool]]:
    compress = zstandard.ZstdCompressor().compress
    checked = zstandard.ZstdCompressor(write_checksum=True).compress
    first, second, whole = SMALL[:HALF], SMALL[HALF:], compress(SMALL)
    skippable = struct.pack("<II", 0x184D2A5F, 3) + b"abc"
    yield "one frame", whole, True
    yield "two frames", compress(first) + compress(second), True
    yield "two frames with checksums", checked(first) + checked(second), True
    yield "skippable frames", skippable + compress(first) + skippable + compress(second) + skippable, True
    yield "an empty frame at the end", whole + compress(b""), True
    yield "a frame after the records", whole + compress(b"more"), False
    yield "an incomplete skippable frame at the end", whole + skippable[:-1], True
    yield "an incomplete header at the end", whole + compress(b"more")[:6], True
    yield "an incomplete frame with records at the end", compress(first) + compress(second)[:-1], False
    yield "one byte after it", whole + b"x", False
    yield "bytes after it", whole + b"other bytes after it", False
    yield "an incomplete frame", whole[:-1], False
    yield "an incomplete checksum", checked(SMALL)[:-1], False
    yield "a wrong checksum", checked(SMALL)[:-4] + b"abcd", False
    yield "nothing", b"", False
    yield "a window of 128 MiB", _zstd_frame(17 << 3, SMALL), True
    yield "a window of 144 MiB", _zstd_frame(17 << 3 | 1, SMALL), False
    yield "a window of 256 MiB for small content", _zstd_frame(18 << 3, SMALL, len(SMALL)), True
    yield "a window of 256 MiB for large content", _zstd_frame(18 << 3, LARGE, len(LARGE)), False
    yield "more content than its header has", _zstd_frame(17 << 3, SMALL, len(SMALL) - 1), False
    yield "less content than its header has", _zstd_frame(17 << 3, SMALL, len(SMALL) + 1), False


def _snappy() -> Iterator[tuple[str, bytes, bool]]:
    def block(data: bytes) -> bytes:
        packed: bytes = snappy.compress(data)
        return struct.pack(">i", len(packed)) + packed

    def head(version: int, compatible: int = 1) -> bytes:
        return b"\x82SNAPPY\0" + struct.pack(">ii", version, compatible)

    first, second, whole = block(SMALL[:HALF]), block(SMALL[HALF:]), block(SMALL)
    yield "a raw block", snappy.compress(SMALL), True
    yield "two blocks of snappy-java", head(1) + first + second, True
    yield "two streams of snappy-java", head(1) + first + head(1) + second, True
    for count in (1, 2, 3):
        yield f"{count} of a length after it", head(1) + whole + bytes(count), True
    yield "a length of 0 after it", head(1) + whole + bytes(4), False
    yield "a block of nothing", head(1) + first + block(b"") + second, True
    yield "a negative length", head(1) + whole + struct.pack(">i", -5) + b"abc", False
    yield "an incomplete block", head(1) + whole[:-1], False
    for version, compatible in ((0, 1), (-1, 1), (1, 0), (2, 99)):
        yield f"version {version} that is compatible with {compatible}", head(version, compatible) + whole, True
    yield "a second stream of version 0", head(1) + first + head(0) + second, False
    yield "a second stream with another magic", head(1) + first + head(1)[:4] + b"abcdefghijkl" + second, True
    yield "an incomplete second stream", head(1) + whole + head(1)[:9], False
    yield "a byte after a raw block", snappy.compress(SMALL) + b"x", False
    yield "a byte after a block", head(1) + struct.pack(">i", len(whole) - 3) + whole[4:] + b"x", False
