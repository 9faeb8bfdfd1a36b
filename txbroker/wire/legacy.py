"""Message sets, the record formats before Kafka 0.11: magic 0, and magic 1 with timestamps (KIP-32).

A set is a sequence of messages, big-endian::

    offset int64 | size int32 | crc uint32 | magic int8 | attributes int8 | [magic 1: timestamp int64]
    key length int32, key | value length int32, value

`size` counts what follows it; the CRC-32 covers everything after itself; a negative length is null. Attributes: bits 0-2 codec,
bit 3 log append time (magic 1). A message with a codec is a wrapper: its value is a compressed set, its offset the last inner
message's. Inner offsets are absolute in magic 0, and in magic 1 relative to the first, so that the broker need not recompress
(KIP-31). Wrappers do not nest.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import ClassVar

from txbroker.errors import BrokerError, CorruptRecords, ErrorCode
from txbroker.lazy_dataclass import lazy_dataclass
from txbroker.wire.batch import CODEC_MASK, LOG_APPEND_TIME, LOG_OVERHEAD, MAGIC_POSITION, Buffer
from txbroker.wire.compression import CODECS, Codec, compress, decompress
from txbroker.wire.records import INT64_MAX, Record

# A wrapper with more messages is refused, as a batch with more than record_loops.RECORDS_MAX records; reading a message takes five times as
# long as a record. The default of max.message.bytes holds 40,000 of the smallest messages uncompressed.
MESSAGES_MAX = 100_000

_KEY_POSITIONS = (18, 26)  # by magic, of the key's length
_SIZES_MIN = (26, 34)  # by magic: key and value null
_OFFSET_AND_SIZE = struct.Struct(">qi")
_OFFSET_SIZE_CRC = struct.Struct(">qiI")
_HEADER = struct.Struct(">qiIbb")  # all but the timestamp
_INT64 = struct.Struct(">q")
_INT32 = struct.Struct(">i")
_NO_TIMESTAMP = -1


class DamagedMessage(CorruptRecords):
    """A message is not as it was sent: its CRC, its size or its magic is wrong. For these only, producers receive CORRUPT_MESSAGE."""


@lazy_dataclass(slots=True)
class MessageHeader:
    """One entry of a message set; has every attribute of a BatchHeader that the log uses.

    `last_offset` is the entry's offset field: of the last inner message if it is a wrapper. `size` counts the whole entry in bytes.
    """

    last_offset: int
    size: int
    magic: int
    crc: int
    attributes: int
    max_timestamp: int  # ms; -1 in magic 0

    leader_epoch: ClassVar[int] = -1
    producer_id: ClassVar[int] = -1
    producer_epoch: ClassVar[int] = -1
    base_sequence: ClassVar[int] = -1
    transactional: ClassVar[bool] = False
    control: ClassVar[bool] = False
    delete_horizon: ClassVar[None] = None

    @property
    def codec(self) -> Codec:
        """The codec of a wrapper's inner message set; NONE: this is a plain message."""
        return CODECS[self.attributes & CODEC_MASK]

    @property
    def log_append_time(self) -> bool:
        """Whether the broker set the timestamp (magic 1 only); a wrapper's applies to its inner messages."""
        return self.magic == 1 and self.attributes & LOG_APPEND_TIME != 0


def read_header(buffer: Buffer, position: int = 0) -> MessageHeader:
    """The header of the message at `position`, all of which must be in `buffer`; CorruptRecords otherwise.

    Checked: magic 0 or 1, a size that fits the smallest message and ends within the buffer, a codec that these formats have.
    """
    available = len(buffer) - position
    if available < _HEADER.size:
        raise DamagedMessage(f"{max(0, available)} bytes at {position} are too few for a message")
    offset, size, crc, magic, attributes = _HEADER.unpack_from(buffer, position)
    size += LOG_OVERHEAD
    if not 0 <= magic <= 1:
        raise (CorruptRecords if magic == 2 else DamagedMessage)(f"a message has magic {magic} instead of 0 or 1")
    if size < _SIZES_MIN[magic]:
        raise DamagedMessage(f"a message has a size of {size} bytes, less than its header")
    if size > available:
        raise DamagedMessage(f"a message has a size of {size} bytes, of which {available} are present")
    if attributes & CODEC_MASK > Codec.LZ4:
        raise CorruptRecords(f"a message of magic {magic} has the codec {attributes & CODEC_MASK}, which its format does not have")
    timestamp = _INT64.unpack_from(buffer, position + _HEADER.size)[0] if magic else _NO_TIMESTAMP
    return MessageHeader(offset, size, magic, crc, attributes, timestamp)


def check_crc(buffer: Buffer, position: int, header: MessageHeader) -> None:
    """Raise DamagedMessage unless the message's CRC-32 is that of its bytes."""
    crc = zlib.crc32(memoryview(buffer)[position + MAGIC_POSITION : position + header.size])
    if crc != header.crc:
        raise DamagedMessage(f"a message at {position} has the CRC {header.crc:#x}, its bytes have {crc:#x}")


def iterate(buffer: Buffer) -> Iterator[tuple[int, MessageHeader]]:
    """The whole messages of a set (wrappers unopened) as (position, header), up to a torn tail; CorruptRecords if one is malformed."""
    position, end = 0, len(buffer)
    while end - position >= LOG_OVERHEAD:
        size = _OFFSET_AND_SIZE.unpack_from(buffer, position)[1] + LOG_OVERHEAD
        if size > end - position:
            return
        yield position, read_header(buffer, position)
        position += size


def read_records(
    buffer: Buffer, position: int, header: MessageHeader, bytes_max: int, produced: bool = False
) -> Iterator[Record]:
    """The record of the message at `position`, or those inside the wrapper; errors as `records.read_records`, with MESSAGES_MAX.

    The caller checks the CRC of the entry itself (`check_crc`); those of inner messages are checked here. If they are `produced`, their
    offsets may be any, because the broker assigns others, and Java clients must be able to decompress the wrapper.
    """
    if header.codec is Codec.NONE:
        key, value = _key_and_value(buffer, position, header)
        yield Record(header.last_offset, header.max_timestamp, _copied(key), _copied(value))
        return
    inner_set = unwrap(buffer, position, header, bytes_max, produced)
    base = _base_of(header, _last_offset(inner_set, header))
    for at, entry in iterate(inner_set):
        _check_inner(inner_set, at, entry, header)
        offset = base + entry.last_offset
        if header.magic and not 0 <= offset <= INT64_MAX and not produced:
            raise CorruptRecords(f"a message inside the wrapper at offset {header.last_offset} has the offset {offset}")
        timestamp = header.max_timestamp if header.log_append_time else entry.max_timestamp
        key, value = _key_and_value(inner_set, at, entry)
        yield Record(offset, timestamp, _copied(key), _copied(value))


def unwrap(buffer: Buffer, position: int, header: MessageHeader, bytes_max: int, produced: bool = False) -> bytes:
    """The message set inside the wrapper at `position`; CorruptRecords, MESSAGE_TOO_LARGE as `read_records`."""
    value = _key_and_value(buffer, position, header)[1]
    if value is None:
        raise CorruptRecords(f"the wrapper message at offset {header.last_offset} is empty")
    return decompress(header.codec, value, bytes_max, magic=header.magic, produced=produced)


def _key_and_value(buffer: Buffer, position: int, header: MessageHeader) -> tuple[memoryview | None, memoryview | None]:
    view, end = memoryview(buffer), position + header.size
    key, at = _field(view, position + _KEY_POSITIONS[header.magic], end)
    return key, _field(view, at, end)[0]  # Kafka's readers ignore bytes after the value


def _field(view: memoryview, at: int, end: int) -> tuple[memoryview | None, int]:
    """The key or value whose length is at `at`, and the position after it."""
    if end - at < 4:
        raise CorruptRecords("a message ends before its value")
    length = _INT32.unpack_from(view, at)[0]
    at += 4
    if length < 0:
        return None, at
    if length > end - at:
        raise CorruptRecords(f"a key or value of {length} bytes does not fit the remaining {end - at} bytes of its message")
    return view[at : at + length], at + length


def _copied(field: memoryview | None) -> bytes | None:
    return None if field is None else bytes(field)


def _last_offset(inner_set: bytes, wrapper: MessageHeader) -> int:
    """The offset field of the last whole message in a wrapper. Kafka's readers ignore an incomplete one at the end."""
    number = offset = -1
    for number, (_, entry) in enumerate(iterate(inner_set)):
        offset = entry.last_offset
        if number == MESSAGES_MAX:
            raise too_many()
    if number < 0:
        raise CorruptRecords(f"the wrapper message at offset {wrapper.last_offset} does not hold a whole message")
    return offset


def too_many() -> BrokerError:
    """The error for more than MESSAGES_MAX messages."""
    return BrokerError(ErrorCode.MESSAGE_TOO_LARGE, f"a message set has more than {MESSAGES_MAX} messages")


def _check_inner(inner_set: bytes, at: int, entry: MessageHeader, wrapper: MessageHeader) -> None:
    check_crc(inner_set, at, entry)
    if entry.magic != wrapper.magic:
        raise CorruptRecords(f"a message of magic {entry.magic} is in a wrapper of magic {wrapper.magic}")
    if entry.codec is not Codec.NONE:
        raise CorruptRecords(f"the wrapper message at offset {wrapper.last_offset} holds another wrapper")


def _base_of(wrapper: MessageHeader, last_inner_offset: int) -> int:
    """The number to add to the offsets inside `wrapper`."""
    # Some versions of librdkafka leave a produced wrapper's offset 0; its inner offsets are right.
    if wrapper.magic == 0 or wrapper.last_offset == 0:
        return 0
    if wrapper.last_offset < last_inner_offset:
        raise CorruptRecords(f"the wrapper message at offset {wrapper.last_offset} holds the relative offset {last_inner_offset}")
    return wrapper.last_offset - last_inner_offset


def build(
    records: Sequence[Record], *, magic: int, codec: Codec = Codec.NONE, level: int | None = None, log_append_time: int | None = None
) -> bytes:
    """A message set of `records` (headers are dropped; magic 0 drops timestamps too), in one wrapper unless `codec` is NONE.

    `log_append_time` (ms; magic 1 only) becomes every message's timestamp. ValueError for zstd, which these formats lack.
    """
    if codec is Codec.ZSTD:
        raise ValueError(f"a message set of magic {magic} cannot be compressed with zstd")
    if not records:
        return b""
    flags = LOG_APPEND_TIME if magic and log_append_time is not None else 0
    base_offset = records[0].offset if magic and codec is not Codec.NONE else 0
    parts: list[bytes] = []
    timestamp_max = _NO_TIMESTAMP
    for record in records:
        timestamp = record.timestamp if log_append_time is None else log_append_time
        timestamp_max = max(timestamp_max, timestamp)
        parts += _message(record.offset - base_offset, magic, flags, timestamp, record.key, record.value)
    inner_set = b"".join(parts)
    if codec is Codec.NONE:
        return inner_set
    value = compress(codec, inner_set, level, magic=magic)
    return b"".join(_message(records[-1].offset, magic, flags | codec, timestamp_max, None, value))


def _message(offset: int, magic: int, attributes: int, timestamp: int, key: bytes | None, value: bytes | None) -> tuple[bytes, bytes]:
    """One message in two parts: up to the CRC, and the part that the CRC covers."""
    covered = b"%b%b%b%b" % (bytes((magic, attributes)), _INT64.pack(timestamp) if magic else b"", _sized(key), _sized(value))
    return _OFFSET_SIZE_CRC.pack(offset, len(covered) + 4, zlib.crc32(covered)), covered


def _sized(field: bytes | None) -> bytes:
    return b"\xff\xff\xff\xff" if field is None else _INT32.pack(len(field)) + field
