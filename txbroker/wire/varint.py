"""Zigzag varints of records (Protocol Buffers' sint32 and sint64). `primitives.py` has unsigned varints."""

from __future__ import annotations

from txbroker.wire.compression import Buffer
from txbroker.wire.record_loops import read_unsigned


def read_varint(data: Buffer, position: int) -> tuple[int, int]:
    """The int32 at `position` and the position after it; IndexError at the end of `data`, CorruptRecords beyond 32 bits."""
    raw, position = read_unsigned(data, position, 32)
    return raw >> 1 ^ -(raw & 1), position


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


# All varints of one byte, by value; negative values index from the end.
_SMALL = [_encode(value) for value in (*range(64), *range(-64, 0))]
