"""Message sets of the formats before 0.11 with odd content, and batches with odd headers, and what brokers answer to a produce of each.

`pytest --broker=kafka-3.9 tests/api/test_odd_message_sets.py` checks the answers.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from tests.support.odd_batches import batch, record
from txbroker.errors import ErrorCode
from txbroker.wire.batch import seal
from txbroker.wire.compression import Codec, compress
from txbroker.wire.lz4_frames import with_broken_checksum

OK = ErrorCode.NONE
INVALID_RECORD = ErrorCode.INVALID_RECORD
INVALID_TIMESTAMP = ErrorCode.INVALID_TIMESTAMP
CORRUPT = ErrorCode.CORRUPT_MESSAGE
UNKNOWN = ErrorCode.UNKNOWN_SERVER_ERROR


def sized(content: bytes | None) -> bytes:
    """A length and that many bytes."""
    return struct.pack(">i", -1) if content is None else struct.pack(">i", len(content)) + content


def message(
    value: bytes | None,
    offset: int,
    timestamp: int,
    *,
    magic: int = 1,
    attributes: int = 0,
    key: bytes | None = b"k",
    crc: int = 0,
    after: bytes = b"",
) -> bytes:
    """A message. `crc`: is added to the right one. `after`: bytes after the value."""
    covered = bytes([magic, attributes]) + (struct.pack(">q", timestamp) if magic == 1 else b"") + sized(key) + sized(value) + after
    return struct.pack(">qiI", offset, len(covered) + 4, zlib.crc32(covered) + crc & 0xFFFFFFFF) + covered


class Case(NamedTuple):
    """A message set. `records`: how many are stored. `kafka`: Kafka's answer where it is another one, which is final too."""

    name: str
    data: bytes
    answer: ErrorCode
    records: int = 0
    kafka: ErrorCode | None = None


def cases(now: int) -> Iterator[Case]:
    """Every case for this time."""

    def plain(offset: int, *, magic: int = 1, attributes: int = 0, crc: int = 0) -> bytes:
        return message(b"value", offset, now, magic=magic, attributes=attributes, crc=crc)

    def inner(*offsets: int, magic: int = 1) -> bytes:
        return b"".join(plain(offset, magic=magic) for offset in offsets)

    def wrapper(content: bytes | None, offset: int, *, magic: int = 1, timestamp: int = now, attributes: int = 1, crc: int = 0) -> bytes:
        packed = None if content is None else compress(Codec.GZIP, content, magic=magic)
        return message(packed, offset, timestamp, magic=magic, key=None, attributes=attributes, crc=crc)

    for magic in (0, 1):
        def case(name: str, data: bytes, answer: ErrorCode, count: int = 0, kafka: ErrorCode | None = None, magic: int = magic) -> Case:
            return Case(f"magic {magic}, {name}", data, answer, count, kafka)

        yield case("plain", inner(0, 1, magic=magic), OK, 2)
        yield case("plain, odd offsets", inner(7, -1, 7, magic=magic), OK, 3)
        yield case("wrapped", wrapper(inner(0, 1, 2, magic=magic), 2, magic=magic), OK, 3)
        for offset in (-1, 0, 1, 2, 3, 100, -5):
            for offsets in ((-1, -1, -1), (0, 0, 0), (0, 1, 2), (5, 6, 7), (2, 1, 0), (0, 2, 7), (-1, 0, 1), (100, -100, 2)):
                right = magic == 0 or offset == 0 or offset >= offsets[-1]
                data = wrapper(inner(*offsets, magic=magic), offset, magic=magic)
                yield case(f"wrapper {offset}, inner {offsets}", data, OK if right else INVALID_RECORD, 3 if right else 0)
        yield case("wrong crc", plain(0, magic=magic, crc=1), CORRUPT)
        yield case("wrong crc of a second", plain(0, magic=magic) + plain(1, magic=magic, crc=1), CORRUPT)
        yield case("wrong crc of wrapper", wrapper(inner(0, magic=magic), 0, magic=magic, crc=1), CORRUPT)
        yield case("wrong crc inside", wrapper(plain(0, magic=magic, crc=1), 0, magic=magic), CORRUPT)
        yield case("a wrapper of nothing", wrapper(b"", 0, magic=magic), INVALID_RECORD)
        yield case("a wrapper without a value", wrapper(None, 0, magic=magic), INVALID_RECORD)
        yield case("a wrapper of half a message", wrapper(inner(0, magic=magic)[:-3], 0, magic=magic), INVALID_RECORD)
        yield case("a wrapper of a message and a half", wrapper(inner(0, 1, magic=magic)[:-3], 1, magic=magic), OK, 1)
        yield case("a wrapper of a message and few bytes", wrapper(inner(0, magic=magic) + b"abc", 0, magic=magic), OK, 1)
        yield case("a wrapper in a wrapper", wrapper(wrapper(inner(0, magic=magic), 0, magic=magic), 0, magic=magic), INVALID_RECORD)
        yield case("another magic inside", wrapper(inner(0, magic=1 - magic), 0, magic=magic), INVALID_RECORD)
        yield case("two wrappers", 2 * wrapper(inner(0, magic=magic), 0, magic=magic), INVALID_RECORD)
        yield case("a wrapper and a message", wrapper(inner(0, magic=magic), 0, magic=magic) + plain(1, magic=magic), INVALID_RECORD)
        yield case("a message and a wrapper", plain(0, magic=magic) + wrapper(inner(1, magic=magic), 1, magic=magic), INVALID_RECORD)
        yield case("both formats", plain(0, magic=magic) + plain(1, magic=1 - magic), INVALID_RECORD)
        yield case("zstd", message(b"abc", 0, now, magic=magic, attributes=4), INVALID_RECORD)
        yield case("zstd inside", wrapper(message(b"abc", 0, now, magic=magic, attributes=4), 0, magic=magic), INVALID_RECORD)
        for codec in (5, 7):
            yield case(f"codec {codec}", message(b"abc", 0, now, magic=magic, attributes=codec), INVALID_RECORD, kafka=UNKNOWN)
        yield case("no gzip", message(b"abc", 0, now, magic=magic, attributes=1), INVALID_RECORD, kafka=UNKNOWN)
        yield case("unknown attributes", plain(0, magic=magic, attributes=0xF0), OK, 1)
        yield case("a torn end", inner(0, 1, magic=magic)[:-3], OK, 1)
        yield case("few bytes after it", inner(0, magic=magic) + b"abc", OK, 1)
        yield case("only a torn message", inner(0, magic=magic)[:-3], INVALID_RECORD, kafka=OK)
        yield case("bytes after the value", message(b"v", 0, now, magic=magic, after=b"abc"), OK, 1)
        yield case("a size of -1", inner(0, magic=magic) + struct.pack(">qi", 0, -1) + bytes(40), CORRUPT)
        yield case("a size that is too small", inner(0, magic=magic) + struct.pack(">qi", 0, 9) + bytes(40), CORRUPT)
        yield case("magic 3 after it", inner(0, magic=magic) + message(b"v", 1, now, magic=3), CORRUPT)
        yield case("a batch after it", inner(0, magic=magic) + message(b"v" * 90, 1, now, magic=2), INVALID_RECORD)
        for negative in (-2, -100):
            body = bytes([magic, 0]) + (struct.pack(">q", now) if magic else b"") + struct.pack(">i", negative) + sized(b"v")
            yield case(f"a key length of {negative}", struct.pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body, OK, 1)
        for key, value in ((100, 1), (1, 100)):
            body = bytes([magic, 0]) + (struct.pack(">q", now) if magic else b"") + struct.pack(">i", key) + b"k" + struct.pack(">i", value)
            beyond = struct.pack(">qiI", 0, len(body) + 5, zlib.crc32(body + b"v")) + body + b"v"
            lengths = f"a key of {key} and a value of {value} bytes"
            yield case(lengths, beyond, INVALID_RECORD, kafka=UNKNOWN)
            yield case(f"{lengths} inside", wrapper(beyond, 0, magic=magic), INVALID_RECORD, kafka=UNKNOWN)
        packed = compress(Codec.LZ4, inner(0, 1, magic=magic))
        yield case("lz4", message(packed, 1, now, magic=magic, attributes=3, key=None), OK, 2)
        old = message(with_broken_checksum(packed), 1, now, magic=magic, attributes=3, key=None)
        yield case("lz4 of old clients", old, *((INVALID_RECORD, 0, UNKNOWN) if magic else (OK, 2)))
    yield Case("a timestamp of -1", message(b"v", 0, -1), OK, 1)
    yield Case("a timestamp of -2", message(b"v", 0, -2), INVALID_TIMESTAMP, kafka=UNKNOWN)
    yield Case("a timestamp of -1 in the wrapper", wrapper(inner(0), 0, timestamp=-1), OK, 1)
    yield Case("a timestamp of -1 inside", wrapper(message(b"v", 0, -1), 0), OK, 1)
    yield Case("a timestamp of -2 inside", wrapper(message(b"v", 0, -2), 0), INVALID_TIMESTAMP, kafka=UNKNOWN)
    yield Case("a timestamp of -2 in the wrapper", wrapper(inner(0), 0, timestamp=-2), OK, 1)
    yield Case("LogAppendTime", plain(0, attributes=8), OK, 1)
    yield Case("LogAppendTime inside", wrapper(plain(0, attributes=8), 0), OK, 1)
    yield Case("LogAppendTime in the wrapper", wrapper(inner(0), 0, attributes=9), OK, 1)
    yield Case("LogAppendTime in magic 0", plain(0, magic=0, attributes=8), OK, 1)
    yield Case("nothing", b"", INVALID_RECORD, kafka=OK)
    yield Case("few bytes", b"abc", INVALID_RECORD, kafka=OK)


def batches(now: int) -> Iterator[Case]:
    """Record batches with a field of the header changed, or not whole."""

    def put(form: str, at: int, *values: int, sealed: bool = True) -> bytes:
        made = bytearray(plain)
        struct.pack_into(form, made, at, *values)
        if sealed:
            seal(made, 0, len(made))
        return bytes(made)

    plain = batch(record(), now_ms=now)
    yield Case("plain", plain, OK, 1)
    yield Case("nothing", b"", INVALID_RECORD)
    for size in (5, 40, 61, len(plain) - 1):
        yield Case(f"the first {size} bytes", plain[:size], INVALID_RECORD)
    yield Case("bytes after it", plain + b"abc", OK, 1)
    yield Case("part of a batch after it", plain + plain[:-1], OK, 1)
    yield Case("two batches", plain + plain, INVALID_RECORD)
    yield Case("an old message after it", plain + message(b"v", 1, now), INVALID_RECORD)
    for length in (-(2**31), -1, 0, 10, 14, 30, 48):
        yield Case(f"a length of {length}", put(">i", 8, length, sealed=False), CORRUPT)
    yield Case("a length beyond it", put(">i", 8, 2**31 - 1, sealed=False), INVALID_RECORD, kafka=UNKNOWN)
    yield Case("magic 3", put(">b", 16, 3), CORRUPT)
    yield Case("magic -1", put(">b", 16, -1), CORRUPT)
    for magic in (0, 1):
        yield Case(f"magic {magic}", message(b"v", 0, now, magic=magic), INVALID_RECORD)
    yield Case("a wrong CRC", put(">I", 17, 5, sealed=False), CORRUPT)
    for codec in (5, 7):
        yield Case(f"codec {codec}", put(">h", 21, codec), INVALID_RECORD, kafka=UNKNOWN)
    yield Case("no gzip data", put(">h", 21, 1), INVALID_RECORD, kafka=UNKNOWN)
    yield Case("a negative count, damaged", put(">i", 57, -1, sealed=False), CORRUPT)
    for count in (-1, 0, 2, 2**31 - 1):
        yield Case(f"a count of {count}", put(">i", 57, count), INVALID_RECORD)
    for delta in (-2, -1, 1):
        yield Case(f"a last offset delta of {delta}", put(">i", 23, delta), INVALID_RECORD)
    for offset in (5, -1):
        yield Case(f"base offset {offset}", put(">q", 0, offset), INVALID_RECORD)
    yield Case("a leader epoch", put(">i", 12, 77), OK, 1)
    yield Case("a control batch", put(">h", 21, 0x20), INVALID_RECORD)
    for attributes in (0x40, 0x80, -0x8000):
        yield Case(f"attributes {attributes:#x}", put(">h", 21, attributes), OK, 1)
    yield Case("a producer id without a sequence", put(">qhi", 43, 5, 0, -1), INVALID_RECORD)
    yield Case("sequence -2", put(">qhi", 43, 6, 0, -2), INVALID_RECORD)
