"""Reads numbers at many positions of a buffer at once with numpy: unaligned 64-bit words, and varints.

An unaligned word is read as two aligned ones: indexing a view with a stride of one byte takes numpy four times as long.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from txbroker.errors import CorruptRecords
from txbroker.log.disk import Buffer

Ints: TypeAlias = NDArray[np.int64]
Words: TypeAlias = NDArray[np.uint64]
Bytes: TypeAlias = NDArray[np.uint8]
Flags: TypeAlias = NDArray[np.bool_]

PADDING = 24  # bytes that must follow the last byte that is read

_ONE, _SEVEN, _EIGHT, _LOW7 = np.uint64(1), np.uint64(7), np.uint64(8), np.uint64(0x7F)
_SIXTY_THREE = np.uint64(63)


def words_of(buffer: Buffer) -> Words:
    """The buffer as little-endian words, without an incomplete last one."""
    return np.frombuffer(buffer, dtype="<u8", count=len(buffer) // 8)


def gather(words: Words, at: Ints) -> Words:
    """The eight bytes at each position, as little-endian numbers."""
    index = at >> 3
    shift = (at & 7).view(np.uint64) << np.uint64(3)
    low: Words = words[index]
    index += 1
    high: Words = words[index]
    low >>= shift
    high <<= _ONE
    high <<= _SIXTY_THREE - shift
    low |= high
    return low


def gather_big(words: Words, at: Ints) -> Words:
    """The eight bytes at each position as big-endian numbers."""
    return gather(words, at).byteswap(inplace=True)


def varints(words: Words, at: Ints) -> tuple[Words, Ints]:
    """The unsigned varint at each position, and its size in bytes. CorruptRecords for more than 64 bits."""
    word = gather(words, at)
    value = word & _LOW7
    more = (word >> _SEVEN) & _ONE
    size = more.astype(np.int64)
    size += 1
    shift = 7
    while more.any():
        if shift == 56:
            word = gather(words, at + 8)
        elif shift > 63:
            raise CorruptRecords("a record has a varint of more than 64 bits")
        else:
            word >>= _EIGHT
        part = word & _LOW7
        part *= more
        part <<= np.uint64(shift)
        value |= part
        more &= word >> _SEVEN
        size += more.view(np.int64)
        shift += 7
    return value, size


def varint_rows(word: Words, count: int) -> tuple[list[Words], list[Ints], Flags]:
    """The first `count` varints in each word, and their sizes; True where the word holds all of them."""
    values: list[Words] = []
    sizes: list[Ints] = []
    used = np.zeros(len(word), dtype=np.int64)
    for _ in range(count):
        value = word & _LOW7
        more = (word >> _SEVEN) & _ONE
        size = more.view(np.int64) + 1
        shift = 7
        while more.any() and shift < 63:
            part = word >> np.uint64(shift + shift // 7)
            bits = part & _LOW7
            bits *= more
            bits <<= np.uint64(shift)
            value |= bits
            part >>= _SEVEN
            more &= part
            size += more.view(np.int64)
            shift += 7
        used += size
        values.append(value)
        sizes.append(size)
        word = word >> (np.minimum(size, 7) << 3).view(np.uint64)
    return values, sizes, used <= 8


def unzigzag(raw: Words) -> Ints:
    """Signed numbers from their zigzag form."""
    signed: Ints = (raw >> _ONE).view(np.int64) ^ -(raw & _ONE).view(np.int64)
    return signed


def zigzag(signed: Ints) -> Words:
    """The zigzag form of signed numbers."""
    raw: Words = ((signed << 1) ^ (signed >> 63)).view(np.uint64)
    return raw
