"""Record batches with a right CRC and wrong content, and what brokers answer to a produce of each."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple

from txbroker.errors import ErrorCode
from txbroker.wire.batch import HEADER, HEADER_SIZE, seal
from txbroker.wire.compression import Codec, compress
from txbroker.wire.varint import encode_varint

HOUR_MS = 3_600_000

OK = ErrorCode.NONE
INVALID_RECORD = ErrorCode.INVALID_RECORD
INVALID_TIMESTAMP = ErrorCode.INVALID_TIMESTAMP
CORRUPT = ErrorCode.CORRUPT_MESSAGE
UNKNOWN = ErrorCode.UNKNOWN_SERVER_ERROR

# A header: name length and name, value length and value; None for a length that is -1.
Header = tuple[bytes | None, bytes | None]


def sized(content: bytes | None) -> bytes:
    """A length and that many bytes."""
    return encode_varint(-1) if content is None else encode_varint(len(content)) + content


def fields(
    *,
    time: int = 0,
    offset: int = 0,
    key: bytes | None = b"k",
    value: bytes | None = b"v",
    headers: Sequence[Header] = (),
    count: int | None = None,
) -> bytes:
    """A record without its length. `count`: the header count, if it is not the number of headers."""
    parts = [b"\0", encode_varint(time), encode_varint(offset), sized(key), sized(value)]
    parts.append(encode_varint(len(headers) if count is None else count))
    for name, content in headers:
        parts += (sized(name), sized(content))
    return b"".join(parts)


def record(
    *,
    time: int = 0,
    offset: int = 0,
    key: bytes | None = b"k",
    value: bytes | None = b"v",
    headers: Sequence[Header] = (),
    count: int | None = None,
) -> bytes:
    """A whole record."""
    return sized(fields(time=time, offset=offset, key=key, value=value, headers=headers, count=count))


def batch(
    *records: bytes,
    now_ms: int,
    codec: Codec = Codec.NONE,
    count: int | None = None,
    last_offset_delta: int | None = None,
    base: int | None = None,
    latest: int | None = None,
    attributes: int = 0,
) -> bytes:
    """A batch of these records. `base` and `latest`: the header's timestamps, by default `now_ms`."""
    payload = compress(codec, b"".join(records))
    counted = len(records) if count is None else count
    return uncompressed_as(
        codec, payload, counted, now_ms=now_ms, last_offset_delta=last_offset_delta, base=base, latest=latest, attributes=attributes
    )


def uncompressed_as(
    codec: Codec,
    payload: bytes,
    count: int,
    *,
    now_ms: int,
    last_offset_delta: int | None = None,
    base: int | None = None,
    latest: int | None = None,
    attributes: int = 0,
) -> bytes:
    """A batch with these bytes for records, whatever the codec in its header says."""
    made = bytearray(HEADER_SIZE + len(payload))
    HEADER.pack_into(
        made, 0, 0, HEADER_SIZE - 12 + len(payload), -1, 2, 0, attributes | codec,
        count - 1 if last_offset_delta is None else last_offset_delta,
        now_ms if base is None else base, now_ms if latest is None else latest, -1, -1, -1, count,
    )  # fmt: skip
    made[HEADER_SIZE:] = payload
    seal(made, 0, len(made))
    return bytes(made)


def latest_of(data: bytes) -> int:
    """The largest timestamp in a header."""
    (latest,) = struct.unpack_from(">q", data, 35)
    return int(latest)


class Case(NamedTuple):
    """One batch. `answer`: this broker's. `kafka` and `kafka_compressed`: Apache Kafka's, where it is another one.

    `latest`: the largest timestamp that the stored header has, from now on.
    """

    make: Callable[[int, Codec], bytes]
    answer: ErrorCode
    kafka: ErrorCode | None = None
    kafka_compressed: ErrorCode | None = None
    latest: int = 0

    def expected(self, codec: Codec, *, of_kafka: bool) -> ErrorCode:
        """The answer to the batch with this codec."""
        others = self.kafka if codec is Codec.NONE else self.kafka_compressed
        return self.answer if others is None or not of_kafka else others


def _of(*records: bytes, **options: int) -> Callable[[int, Codec], bytes]:
    return lambda now_ms, codec: batch(*records, now_ms=now_ms, codec=codec, **options)


def _ahead(*records: bytes, **ahead_ms: int) -> Callable[[int, Codec], bytes]:
    """The header's timestamps are given from now on."""
    return lambda now_ms, codec: batch(*records, now_ms=now_ms, codec=codec, **{name: now_ms + ms for name, ms in ahead_ms.items()})


PLAIN = record()
CASES: dict[str, Case] = {
    "two records": Case(_of(PLAIN, record(offset=1)), OK),
    "null key, null value, header without a value": Case(_of(record(key=None, value=None, headers=[(b"\xff", None)])), OK),
    "unknown attributes of a record": Case(_of(sized(b"\x7f" + fields()[1:])), OK),
    # Lengths
    "no varint": Case(_of(b"\xff" * 40, count=1), INVALID_RECORD, UNKNOWN, INVALID_RECORD),
    "zeros": Case(_of(bytes(40), count=3), INVALID_RECORD),
    "fewer records than counted": Case(_of(PLAIN, count=2), INVALID_RECORD),
    "more records than counted": Case(_of(PLAIN, record(offset=1), count=1), INVALID_RECORD),
    "a byte after the records": Case(_of(PLAIN, b"\0", count=1), INVALID_RECORD),
    "a negative length": Case(_of(encode_varint(-1) + fields()), INVALID_RECORD, None, OK),
    "a length beyond the batch": Case(_of(encode_varint(200) + fields()), INVALID_RECORD, None, OK),
    "a length that is too short": Case(_of(encode_varint(3) + fields()), INVALID_RECORD, None, OK),
    "bytes after the last field": Case(_of(sized(fields() + b"xx")), INVALID_RECORD),
    "a key beyond its record": Case(_of(sized(b"\0\0\0" + encode_varint(100) + b"abcd")), INVALID_RECORD),
    "a key of 1 GiB": Case(_of(sized(b"\0\0\0" + encode_varint(2**30) + b"ab")), INVALID_RECORD),
    "a value beyond its record": Case(_of(sized(b"\0\0\0" + encode_varint(-1) + encode_varint(100) + b"abc")), INVALID_RECORD),
    "a key length of -2": Case(_of(sized(b"\0\0\0" + encode_varint(-2) + sized(b"v") + b"\0")), OK),
    "a varint of 11 bytes": Case(_of(b"\x80" * 10 + b"\1", count=1), INVALID_RECORD, UNKNOWN, INVALID_RECORD),
    # Headers
    "a negative header count": Case(_of(record(count=-1)), INVALID_RECORD),
    "headers that are missing": Case(_of(record(count=5)), INVALID_RECORD),
    "2**30 headers": Case(_of(record(count=2**30)), INVALID_RECORD),
    "a header without a name": Case(_of(record(headers=[(None, b"x")])), INVALID_RECORD),
    # Offsets: Kafka stores what is uncompressed as it came, and fails with an internal error on what is compressed.
    "equal offset deltas": Case(_of(PLAIN, PLAIN), INVALID_RECORD, OK, UNKNOWN),
    "descending offset deltas": Case(_of(record(offset=1), PLAIN), INVALID_RECORD, OK, UNKNOWN),
    "offset deltas that jump back": Case(_of(PLAIN, record(offset=1), record(offset=1), record(offset=3)), INVALID_RECORD, OK, UNKNOWN),
    "a gap in the offset deltas": Case(_of(PLAIN, record(offset=2)), INVALID_RECORD, OK, UNKNOWN),
    "a gap that the header has too": Case(_of(PLAIN, record(offset=2), last_offset_delta=2), INVALID_RECORD),
    "a negative offset delta": Case(_of(record(offset=-1)), INVALID_RECORD, OK, UNKNOWN),
    "a first offset delta of 1": Case(_of(record(offset=1)), INVALID_RECORD, OK, UNKNOWN),
    "no records": Case(_of(count=0, last_offset_delta=0), INVALID_RECORD),
    # Timestamps
    "records out of order": Case(_ahead(record(time=10), record(time=5, offset=1), latest=10), OK, latest=10),
    "a base after all records": Case(_ahead(record(time=-10), latest=-10), OK, latest=-10),
    "a largest timestamp of 0": Case(_of(PLAIN, latest=0), OK),
    "no largest timestamp": Case(_of(PLAIN, latest=-1), OK),
    "a largest timestamp that is too small": Case(_of(PLAIN, record(offset=1, time=1000)), OK, latest=1000),
    "a largest timestamp that is too large": Case(_ahead(PLAIN, latest=1000), OK),
    "a largest timestamp of the far future": Case(_ahead(PLAIN, latest=100 * HOUR_MS), OK),
    "a base of 0": Case(lambda now_ms, codec: batch(record(time=now_ms), now_ms=now_ms, codec=codec, base=0), OK),
    "base and largest timestamp of 0": Case(
        lambda now_ms, codec: batch(record(time=now_ms), now_ms=now_ms, codec=codec, base=0, latest=0), OK
    ),
    "a timestamp beyond 64 bits": Case(_of(record(time=2**62), base=2**62 + 2**61, latest=2**62), INVALID_TIMESTAMP, OK, OK),
    "LogAppendTime": Case(_of(PLAIN, attributes=8), OK),
}
