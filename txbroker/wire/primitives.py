"""Unsigned varints (KIP-482): lengths, counts and tags of flexible versions."""

from __future__ import annotations

from txbroker.errors import ProtocolError

SMALL_UVARINTS = [bytes((n,)) for n in range(128)]


def read_uvarint(buffer: memoryview | bytes, position: int) -> tuple[int, int]:
    """The number at `position`, of at most 31 bits as Kafka's lengths, and the position after it; IndexError at the end of the buffer."""
    value = shift = 0
    while True:
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 128:
            break
        shift += 7
        if shift > 28:
            raise ProtocolError("an unsigned varint is longer than five bytes")
    if value > 0x7FFFFFFF:
        raise ProtocolError("a length exceeds 31 bits")
    return value, position


def write_uvarint(value: int) -> bytes:
    """`value` (not negative) as an unsigned varint."""
    if value < 128:
        return SMALL_UVARINTS[value]
    if value < 16384:
        return bytes((value & 0x7F | 0x80, value >> 7))
    out = bytearray()
    while value > 127:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
