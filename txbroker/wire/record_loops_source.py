"""Records in a batch (magic 2): the loops over them.

A record, all numbers zigzag varints: length of what follows | attributes (one byte, unused) | timestamp delta | offset delta |
key length, key | value length, value | header count, and for each header name length, name, value length, value. A negative
length of a key or value is null; a header's name cannot be null.

`check_records` looks at everything and keeps nothing, `find_time` steps from record to record until one is late enough,
`decode_records` makes records, `find_header` looks for one header of a record. Each is a loop of its own because each is called for
millions of records and does only what it needs. All walks over records are here, with one exception: the log cleaner reads many batches
at once, as columns of numpy (`log/cleaner/record_columns.py`).

`find_time_in_batch` does what `records.first_of_time` does after a header is read, for a batch that holds nothing unusual.

txbroker uses `record_loops.py`, which is generated from `record_loops_source.py`: it reads varints of one and two bytes, nearly all of
them, in place instead of by a call (`inline_varints.py`). It is compiled by Cython where a compiler is there when txbroker is installed
(`setup.py`; types in `record_loops.pxd`), and is plain Python otherwise: about 6 against 500 ns a record. All forms give the same results.

The functions for records raise CorruptRecords where they do not hold together, and IndexError where the data end within a record.
"""

from __future__ import annotations

from txbroker.errors import BrokerError, CorruptRecords, ErrorCode
from txbroker.wire.batch import CODEC_MASK, HEADER, HEADER_SIZE, LOG_APPEND_TIME, LOG_OVERHEAD
from txbroker.wire.compression import CODECS, Buffer, decompress

# The broker reads no batch with more records than this: making one costs it a microsecond, in which it serves no other client, and a codec
# packs millions of equal ones into a few kilobytes. The default of max.message.bytes holds 150,000 of the smallest records uncompressed.
# A producer with more in a batch receives MESSAGE_TOO_LARGE, on which Java's splits the batch.
RECORDS_MAX = 500_000

# A header costs a reader as much as a record, and a codec packs millions of empty ones into a few kilobytes.
HEADERS_MAX = 500_000

_INT64_MAX = 2**63 - 1
_INT64_MIN = -(2**63)
_read_header = HEADER.unpack_from


def read_unsigned(data: Buffer, position: int, bits: int) -> tuple[int, int]:
    """The unsigned varint of at most `bits` (32 or 64) at `position`, and the position after it."""
    byte = data[position]
    raw = byte & 0x7F
    shift = 7
    while byte > 127:
        position += 1
        byte = data[position]
        if shift + 7 > bits and (shift > bits or byte >> (bits - shift)):
            raise CorruptRecords(f"a varint in a record does not fit {bits} bits")
        raw |= (byte & 0x7F) << shift
        shift += 7
    return raw, position + 1


def check_records(data: Buffer, position: int, end: int, count: int, consecutive: bool) -> tuple[int, int, int, int]:
    """Walk the `count` records in `data[position:end]`, which they must fill exactly.

    Returns the smallest and the largest timestamp delta, the bytes of all keys and values, and the index of the first record
    without a key (-1: all have one). With `consecutive` the offset deltas must be 0, 1, 2 and so on, as a producer writes them;
    without, they may be anything. MESSAGE_TOO_LARGE for more than HEADERS_MAX headers.
    """
    earliest = latest = content_bytes = 0
    first_without_key = -1
    headers_left = HEADERS_MAX
    for index in range(count):
        raw, position = read_unsigned(data, position, 32)
        if raw & 1:
            raise CorruptRecords(f"record {index} has a negative length")
        record_end = position + (raw >> 1)
        if record_end > end:
            raise CorruptRecords(f"record {index} has a length of {raw >> 1} bytes, {end - position} are left in the batch")

        position += 1  # attributes
        raw, position = read_unsigned(data, position, 64)
        time_delta = (raw >> 1) ^ -(raw & 1)
        if index == 0:
            earliest = latest = time_delta
        elif time_delta > latest:
            latest = time_delta
        elif time_delta < earliest:
            earliest = time_delta

        raw, position = read_unsigned(data, position, 32)
        if consecutive and raw != index << 1:
            offset_delta = (raw >> 1) ^ -(raw & 1)
            raise CorruptRecords(f"record {index} has the offset delta {offset_delta}")

        raw, position = read_unsigned(data, position, 32)
        if raw & 1:
            if first_without_key < 0:
                first_without_key = index
        else:
            position += raw >> 1
            content_bytes += raw >> 1

        raw, position = read_unsigned(data, position, 32)
        if not raw & 1:
            position += raw >> 1
            content_bytes += raw >> 1

        raw, position = read_unsigned(data, position, 32)
        if raw:
            if raw & 1 or position + raw > record_end:  # a header has two bytes at least, and zigzag doubles the count
                raise CorruptRecords(f"record {index} has more headers than bytes for them")
            headers_left -= raw >> 1
            if headers_left < 0:
                raise _too_many_headers()
            for _ in range(raw >> 1):
                raw, position = read_unsigned(data, position, 32)
                if raw & 1:
                    raise CorruptRecords(f"record {index} has a header without a name")
                position += raw >> 1
                raw, position = read_unsigned(data, position, 32)
                if not raw & 1:
                    position += raw >> 1
        if position != record_end:
            raise CorruptRecords(f"the fields of record {index} do not fill its length")
    if position != end:
        raise CorruptRecords(f"{end - position} bytes follow the last of {count} records")
    return earliest, latest, content_bytes, first_without_key


def find_time(data: Buffer, position: int, end: int, count: int, time_delta_min: int, offset_delta_min: int) -> tuple[int, int, int]:
    """The first of `count` records from `position` on with both deltas at least as large.

    Returns its index (-1: there is none), its timestamp delta and its offset delta. What follows the deltas is not looked at.
    """
    for index in range(count):
        raw, position = read_unsigned(data, position, 32)
        record_end = position + (raw >> 1)
        position += 1  # attributes
        time_raw, position = read_unsigned(data, position, 64)
        if raw & 1 or position >= record_end or record_end > end:
            raise CorruptRecords(f"record {index} has a length that cannot be right")
        time_delta = (time_raw >> 1) ^ -(time_raw & 1)
        if time_delta >= time_delta_min:
            raw, position = read_unsigned(data, position, 32)
            offset_delta = (raw >> 1) ^ -(raw & 1)
            if offset_delta >= offset_delta_min:
                return index, time_delta, offset_delta
        position = record_end
    return -1, 0, 0


def find_time_in_batch(data: bytes, timestamp: int, offset_min: int, unpacked_max: int) -> tuple[int, int, int] | None:
    """Timestamp, offset and leader epoch of the first record of `timestamp` or later at `offset_min` or above in the batch `data`.

    None: the batch has none, or holds something unusual, which takes the usual way (`log/time_lookup.py`).
    """
    if len(data) < HEADER_SIZE:
        return None
    base, length, epoch, magic, _, attributes, last_delta, base_time, max_time, _, _, _, count = _read_header(data, 0)
    if (
        magic != 2
        or length != len(data) - LOG_OVERHEAD
        or base < 0
        or attributes & CODEC_MASK >= len(CODECS)
        or last_delta < 0
        or last_delta > _INT64_MAX - base
        or count < 0
        or count > RECORDS_MAX
        or base_time < 0
        or timestamp < 0
        or max_time < timestamp
    ):
        return None
    start = HEADER_SIZE
    try:
        if attributes & CODEC_MASK:
            data = decompress(CODECS[attributes & CODEC_MASK], data[HEADER_SIZE:], unpacked_max)
            start = 0
        time_delta_min = _INT64_MIN if attributes & LOG_APPEND_TIME else timestamp - base_time
        offset_delta_min = offset_min - base if offset_min > base else 0
        index, time_delta, offset_delta = find_time(data, start, len(data), count, time_delta_min, offset_delta_min)
    except (BrokerError, IndexError):
        return None
    if index < 0 or offset_delta > last_delta or time_delta > _INT64_MAX - base_time:
        return None
    return max_time if attributes & LOG_APPEND_TIME else base_time + time_delta, base + offset_delta, epoch


# Offset delta, timestamp delta, key, value, headers.
Decoded = tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


def decode_records(data: bytes, position: int, count: int, headers_left: int, records: list[Decoded]) -> int:
    """Add the next `count` records from `position` on to `records`; the position after them.

    Those before one that is corrupted are added all the same. MESSAGE_TOO_LARGE when they have more headers than `headers_left`.
    """
    end = len(data)
    for _ in range(count):
        raw, position = read_unsigned(data, position, 32)
        if raw & 1:
            raise CorruptRecords("a record has a negative length")
        record_end = position + (raw >> 1)
        if record_end > end:
            raise CorruptRecords(f"a record has a length of {raw >> 1} bytes, {end - position} are left in the batch")

        position += 1  # attributes
        raw, position = read_unsigned(data, position, 64)
        time_delta = (raw >> 1) ^ -(raw & 1)

        raw, position = read_unsigned(data, position, 32)
        offset_delta = (raw >> 1) ^ -(raw & 1)

        raw, position = read_unsigned(data, position, 32)
        key = None
        if not raw & 1:
            start = position
            position += raw >> 1
            key = data[start:position]

        raw, position = read_unsigned(data, position, 32)
        value = None
        if not raw & 1:
            start = position
            position += raw >> 1
            value = data[start:position]

        headers: tuple[tuple[str, bytes | None], ...] = ()
        if data[position]:
            headers, position = decode_headers(data, position, record_end, headers_left)
            headers_left -= len(headers)
        else:
            position += 1
        # Slices end silently at the end of the data, but then the position is beyond `record_end`.
        if position != record_end:
            raise CorruptRecords("the fields of a record do not fill its length")
        records.append((offset_delta, time_delta, key, value, headers))
    return position


def decode_headers(data: bytes, position: int, record_end: int, count_max: int) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    """The headers whose count is at `position`, and the position after them. Names that are not UTF-8 have surrogate escapes."""
    raw, position = read_unsigned(data, position, 32)
    if raw & 1 or position + raw > record_end:  # a header has two bytes at least, and zigzag doubles the count
        raise CorruptRecords("a record has more headers than bytes for them")
    count = raw >> 1
    if count > count_max:
        raise _too_many_headers()
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        raw, position = read_unsigned(data, position, 32)
        if raw & 1:
            raise CorruptRecords("a record has a header without a name")
        start = position
        position += raw >> 1
        name = data[start:position].decode("utf-8", "surrogateescape")
        raw, position = read_unsigned(data, position, 32)
        if raw & 1:
            headers.append((name, None))
        else:
            start = position
            position += raw >> 1
            headers.append((name, data[start:position]))
    return tuple(headers), position


def find_header(data: bytes, position: int, record_end: int, name: bytes) -> tuple[int, int]:
    """Where the value of a record's last header with this name is: its position, and its size in bytes, negative if it is null.

    (-1, -1) if no header has the name. The count of the headers is at `position`. No header may end beyond `record_end`.
    """
    found_at, found_size = -1, -1
    name_size = len(name)
    raw, position = read_unsigned(data, position, 32)
    if raw & 1 or position + raw > record_end:  # a header has two bytes at least, and zigzag doubles the count
        raise CorruptRecords("a record has more headers than bytes for them")
    for _ in range(raw >> 1):
        raw, position = read_unsigned(data, position, 32)
        if raw & 1:
            raise CorruptRecords("a record has a header without a name")
        start, size = position, raw >> 1
        position += size
        if position >= record_end:
            raise CorruptRecords("a record has a header that ends beyond it")
        named = size == name_size and data.startswith(name, start)
        raw, position = read_unsigned(data, position, 32)
        if named:
            found_at, found_size = position, (raw >> 1) ^ -(raw & 1)
        if not raw & 1:
            position += raw >> 1
        if position > record_end:
            raise CorruptRecords("a record has a header that ends beyond it")
    return found_at, found_size


def _too_many_headers() -> BrokerError:
    return BrokerError(ErrorCode.MESSAGE_TOO_LARGE, f"the records of a batch have more than {HEADERS_MAX} headers")
