"""Zigzag varints, as the records of a batch have them (Protocol Buffers' sint32 and sint64). Unsigned ones are in `primitives.py`."""

from __future__ import annotations

from txbroker.errors import CorruptRecords

_INT32_UNSIGNED_MAX = 0xFFFFFFFF
_INT64_UNSIGNED_MAX = 0xFFFFFFFFFFFFFFFF


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """The int32 at `position` and the position after it; IndexError at the end of `data`, CorruptRecords beyond 32 bits."""
    return _read(data, position, _INT32_UNSIGNED_MAX)


def read_varlong(data: bytes, position: int) -> tuple[int, int]:
    """The int64 at `position` and the position after it; IndexError at the end of `data`, CorruptRecords beyond 64 bits."""
    return _read(data, position, _INT64_UNSIGNED_MAX)


def _read(data: bytes, position: int, unsigned_max: int) -> tuple[int, int]:
    byte = data[position]
    raw, shift = byte & 0x7F, 7
    while byte > 127:
        position += 1
        byte = data[position]
        raw |= (byte & 0x7F) << shift
        shift += 7
        if raw > unsigned_max or shift > 70:
            raise CorruptRecords(f"a varint in a record does not fit {unsigned_max.bit_length()} bits")
    return raw >> 1 ^ -(raw & 1), position + 1


def encode_varint(value: int) -> bytes:
    """`value` (int32 or int64) as a varint."""
    return _SMALL[value] if -64 <= value < 64 else _encode(value)


def _encode(value: int) -> bytes:
    raw = value << 1 if value >= 0 else ~(value << 1)
    out = bytearray()
    while raw > 127:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


# By value, negative ones from the end as Python indexes them: all that take one byte.
_SMALL = [_encode(value) for value in (*range(64), *range(-64, 0))]
