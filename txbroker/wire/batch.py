"""The header of a record batch (magic 2, KIP-98): read it, check it, and change it in place.

A batch on the wire and on disk, big-endian throughout::

    base offset int64 | length int32 | leader epoch int32 | magic int8 | crc uint32
    attributes int16 | last offset delta int32 | base timestamp int64 | max timestamp int64
    producer id int64 | producer epoch int16 | base sequence int32 | record count int32 | records

`length` counts what follows it. The CRC-32C covers everything from the attributes on, so base offset and leader epoch may be
written without touching it. Attributes: bits 0-2 codec, 3 log append time, 4 transactional, 5 control, 6 delete horizon
(the base timestamp is then the horizon). `records.py` reads records, `legacy.py` older formats.

Buffers are `bytes`, `bytearray` or `memoryview`, also of an mmap; `seal` and the functions that stamp need a writable one.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from txbroker.errors import CorruptRecords
from txbroker.lazy_dataclass import lazy_dataclass
from txbroker.names import amount
from txbroker.wire.compression import CODECS, Codec
from txbroker.wire.compression import Buffer as Buffer  # importers take it from here

HEADER_SIZE = 61
LOG_OVERHEAD = 12  # base offset and length, with which an entry of any magic begins
MAGIC_POSITION = 16  # of the magic byte in an entry of any magic

LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40
CODEC_MASK = 0x07

_LENGTH_MIN = HEADER_SIZE - LOG_OVERHEAD
_CRC_POSITION = 17
_ATTRIBUTES_POSITION = 21
_MAX_TIMESTAMP_POSITION = 35
_PRODUCER_POSITION = 43

HEADER = struct.Struct(">qiibIhiqqqhii")
_OFFSET = struct.Struct(">q")
_INT32 = struct.Struct(">i")
_UINT32 = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
_PRODUCER = struct.Struct(">qhi")
_unpack_header = HEADER.unpack_from


@lazy_dataclass(slots=True)
class BatchHeader:
    """The fixed part of one batch. `size` counts the whole batch in bytes, the first 12 included."""

    base_offset: int
    size: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int

    @property
    def last_offset(self) -> int:
        """The offset of the batch's last record, or of a later one that compaction removed."""
        return self.base_offset + self.last_offset_delta

    @property
    def codec(self) -> Codec:
        """The codec of the records."""
        return CODECS[self.attributes & CODEC_MASK]

    @property
    def log_append_time(self) -> bool:
        """Whether `max_timestamp`, set by the broker, is the timestamp of every record."""
        return self.attributes & LOG_APPEND_TIME != 0

    @property
    def transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return self.attributes & TRANSACTIONAL != 0

    @property
    def control(self) -> bool:
        """Whether the batch holds control records (transaction markers), which consumers never see."""
        return self.attributes & CONTROL != 0

    @property
    def delete_horizon(self) -> int | None:
        """The time (ms) from which compaction may remove tombstones and markers of this batch, once it has set one (KIP-534)."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON else None


_new: Callable[[type[BatchHeader]], BatchHeader] = object.__new__


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header of the batch at `position`, all of which must be in `buffer`; CorruptRecords otherwise.

    Checked: magic 2, a length that includes the header and ends within the buffer, no negative counts, a known codec. Not checked:
    the CRC (see `check_crc`) and the offsets (see `log/validate.py`).
    """
    # Every produced batch comes here: one unpack, one comparison if all is well, no call of __init__.
    header = _new(BatchHeader)
    try:
        (
            header.base_offset,
            length,
            header.leader_epoch,
            header.magic,
            header.crc,
            header.attributes,
            header.last_offset_delta,
            header.base_timestamp,
            header.max_timestamp,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.count,
        ) = _unpack_header(buffer, position)
    except struct.error:
        raise CorruptRecords(f"a batch header at {position} needs more than {amount(max(0, len(buffer) - position), 'byte')}") from None
    header.size = size = length + LOG_OVERHEAD
    if (
        header.magic != 2
        or length < _LENGTH_MIN
        or size > len(buffer) - position
        or header.count < 0
        or header.last_offset_delta < 0
        or header.attributes & CODEC_MASK >= len(CODECS)
    ):
        raise CorruptRecords(_problem_of(header, len(buffer) - position))
    return header


def _problem_of(header: BatchHeader, available: int) -> str:
    """Which of read_header's checks failed."""
    if header.magic != 2:
        return f"a record batch has magic {header.magic} instead of 2"
    if header.size < HEADER_SIZE:
        return f"a record batch has a size of {header.size} bytes, less than its header"
    if header.size > available:
        return f"a record batch has a size of {header.size} bytes, of which {available} are present"
    if header.count < 0 or header.last_offset_delta < 0:
        return f"a record batch has {amount(header.count, 'record')} and the last offset delta {header.last_offset_delta}"
    return f"a record batch has the unknown codec {header.attributes & CODEC_MASK}"


_crc32c: Callable[[Buffer], int] | None = None


def crc32c_function() -> Callable[[Buffer], int]:
    """The CRC-32C of bytes. It is imported on first use: importing the package takes 20 ms of the start."""
    global _crc32c
    if _crc32c is None:
        import crc32c

        _crc32c = crc32c.crc32c
    return _crc32c


def check_crc(buffer: Buffer, position: int, header: BatchHeader) -> None:
    """Raise CorruptRecords unless the batch's CRC-32C is that of its bytes."""
    crc = (_crc32c or crc32c_function())(memoryview(buffer)[position + _ATTRIBUTES_POSITION : position + header.size])
    if crc != header.crc:
        raise CorruptRecords(f"a record batch at {position} has the CRC {header.crc:#x}, its bytes have {crc:#x}")


def stamp(buffer: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int) -> None:
    """Write base offset and leader epoch of the batch at `position` in place; its CRC does not cover them."""
    _OFFSET.pack_into(buffer, position, base_offset)
    _INT32.pack_into(buffer, position + LOG_OVERHEAD, leader_epoch)


def stamp_max_timestamp(buffer: bytearray | memoryview, position: int, max_timestamp: int, *, log_append_time: bool) -> None:
    """Write the largest timestamp and the timestamp type of the batch at `position` in place, and its new CRC.

    Headers that were read before are invalid then.
    """
    size = _INT32.unpack_from(buffer, position + 8)[0] + LOG_OVERHEAD
    attributes = _ATTRIBUTES.unpack_from(buffer, position + _ATTRIBUTES_POSITION)[0] & ~LOG_APPEND_TIME
    _ATTRIBUTES.pack_into(buffer, position + _ATTRIBUTES_POSITION, attributes | (LOG_APPEND_TIME if log_append_time else 0))
    _OFFSET.pack_into(buffer, position + _MAX_TIMESTAMP_POSITION, max_timestamp)
    seal(buffer, position, size)


def read_producer(batch: Buffer) -> tuple[int, int]:
    """The id and epoch of the producer of a v2 batch that has a whole header."""
    producer_id, epoch, _ = _PRODUCER.unpack_from(batch, _PRODUCER_POSITION)
    return producer_id, epoch


def stamp_producer(
    buffer: bytearray | memoryview, position: int, producer_id: int, producer_epoch: int, base_sequence: int, *, cleared: int = 0
) -> None:
    """Write the producer of the batch at `position` in place, clear these bits of its attributes, and write its new CRC.

    Headers that were read before are invalid then.
    """
    size = _INT32.unpack_from(buffer, position + 8)[0] + LOG_OVERHEAD
    attributes = _ATTRIBUTES.unpack_from(buffer, position + _ATTRIBUTES_POSITION)[0]
    _ATTRIBUTES.pack_into(buffer, position + _ATTRIBUTES_POSITION, attributes & ~cleared)
    _PRODUCER.pack_into(buffer, position + _PRODUCER_POSITION, producer_id, producer_epoch, base_sequence)
    seal(buffer, position, size)


def seal(buffer: bytearray | memoryview, position: int, size: int) -> None:
    """Write the CRC-32C of the batch of `size` bytes at `position` into it."""
    crc = (_crc32c or crc32c_function())(memoryview(buffer)[position + _ATTRIBUTES_POSITION : position + size])
    _UINT32.pack_into(buffer, position + _CRC_POSITION, crc)
