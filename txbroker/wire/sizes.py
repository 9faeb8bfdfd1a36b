"""How many records a log entry holds, and how many bytes of keys and values: counted without making the records.

A consumer that only measures reads gigabytes; making `Record`s of them would be most of its time.
"""

from __future__ import annotations

from txbroker.errors import CorruptRecords
from txbroker.wire.batch import HEADER_SIZE, BatchHeader, Buffer
from txbroker.wire.compression import decompress
from txbroker.wire.entries import EntryHeader, read_records
from txbroker.wire.varint import read_varint


def content_size(buffer: Buffer, position: int, header: EntryHeader, bytes_max: int) -> tuple[int, int]:
    """Records, and bytes of their keys and values, of the entry at `position`; transaction markers count as nothing.

    Errors as `records.read_records`, as far as it looks: headers of records are passed over.
    """
    if not isinstance(header, BatchHeader):
        found = list(read_records(buffer, position, header, bytes_max))
        return len(found), sum(len(record.key or b"") + len(record.value or b"") for record in found)
    if header.control or not header.count:
        return 0, 0
    data = decompress(header.codec, memoryview(buffer)[position + HEADER_SIZE : position + header.size], bytes_max)
    try:
        return header.count, _content_bytes(data, header.count)
    except IndexError:
        raise CorruptRecords(f"the {header.count} records of the batch at offset {header.base_offset} end early") from None


def _content_bytes(data: bytes, count: int) -> int:
    """Varints of one and two bytes, nearly all of them, are read in place."""
    total = position = 0
    for _ in range(count):
        raw = data[position]
        position += 1
        if raw > 127:
            if data[position] > 127:
                length, position = read_varint(data, position - 1)
            else:
                raw += (data[position] << 7) - 128
                length = raw >> 1 ^ -(raw & 1)
                position += 1
        else:
            length = raw >> 1 ^ -(raw & 1)
        if length < 0:
            raise CorruptRecords(f"a record claims {length} bytes")
        end = position + length
        position += 1  # attributes
        while data[position] > 127:  # timestamp delta
            position += 1
        position += 1
        while data[position] > 127:  # offset delta
            position += 1
        position += 1
        if data[position] == 1:  # no key
            position += 1
        else:
            length, position = read_varint(data, position)
            if length > 0:
                total += length
                position += length
        raw = data[position]
        position += 1
        if raw > 127:
            if data[position] > 127:
                length, position = read_varint(data, position - 1)
            else:
                raw += (data[position] << 7) - 128
                length = raw >> 1 ^ -(raw & 1)
                position += 1
        else:
            length = raw >> 1 ^ -(raw & 1)
        if length > 0:
            total += length
            position += length
        if position >= end:
            raise CorruptRecords("a record is longer than it says")
        position = end
    if position != len(data):
        raise CorruptRecords(f"{len(data) - position} bytes follow the records of a batch")
    return total
