"""Checksums of records that do not depend on their order, the same in Spark and in Python.

Canonical form of a record, as a sequence of fields: the length of the key (-1: null) and its bytes; the same of the value; the timestamp in
milliseconds; the number of headers, and of each, in order, the length of its name, the name in UTF-8, the length of its value (-1: null)
and the value. Lengths and the number are 4 bytes, the timestamp is 8, little-endian. A record without headers and one with an empty list of
them are the same. The length goes before each field, since Spark's hash skips nulls and joins fields without a border.

A record's hash has two lanes of 64 bits. A lane is a chain of XXH64, Spark's `xxhash64`: the hash of each field is the seed for the next
one, and the first field is the lane's number. Checksums are sums of lanes modulo 2^64. Unlike XOR a sum does not cancel pairs: a record
that is there twice changes it. It detects accidents, not an attacker who chooses the records.

A sum of `BIGINT` that overflows fails a job of Spark (ANSI), so the halves of a lane are added separately: 2^31 records in a group at most.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

SEED = 42  # of Spark's xxhash64
_LANES = (0, 1)
_MASK = 2**64 - 1
_LOW = 2**32 - 1
_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5

Headers = Sequence[tuple[str, bytes | None]]

# --- in Spark, on the columns key, value, timestamp_ms and headers of `kafka_source.SCHEMA` ---

CONTENT = ("content_0", "content_1")
_LENGTH = "coalesce(octet_length({0}), -1)"
_HEADER = f"struct({_LENGTH.format('h.key')} AS a, h.key AS b, {_LENGTH.format('h.value')} AS c, h.value AS d)"
_FIELDS = (
    f"{_LENGTH.format('key')}, key, {_LENGTH.format('value')}, value, timestamp_ms, "
    f"CASE WHEN headers IS NULL THEN 0 ELSE size(headers) END, transform(headers, h -> {_HEADER})"
)
_HEADER_BYTES = "aggregate(headers, 0L, (total, h) -> total + octet_length(h.key) + coalesce(octet_length(h.value), 0))"
CONTENT_COLUMNS = tuple(f"xxhash64({lane}, {_FIELDS}) AS {name}" for lane, name in zip(_LANES, CONTENT, strict=True))
"""SQL of the columns `CONTENT`: the lanes of a record's hash."""
PLACED = ("placed_0", "placed_1")
PLACED_COLUMNS = tuple(f"xxhash64(offset, {name}) AS {placed}" for name, placed in zip(CONTENT, PLACED, strict=True))
"""SQL of the columns `PLACED`, from `CONTENT`: the lanes of a record at its offset."""
BYTES_COLUMN = f"coalesce(octet_length(key), 0) + coalesce(octet_length(value), 0) + coalesce({_HEADER_BYTES}, 0L) AS bytes"
"""SQL of the bytes of a record's key, value and headers."""


def sum_columns(lanes: Sequence[str], prefix: str, factor: str = "1") -> list[str]:
    """SQL of aggregates: the sums of the halves of both lanes, as `prefix`_0 to `prefix`_3, for `joined` and `Checksum.of_halves`.

    `factor`: SQL of -1, 0 or 1 for each record. The halves of two groups of records are equal if those of one minus the other are 0.
    """
    halves = [half for lane in lanes for half in (f"{lane} & {_LOW}L", f"shiftrightunsigned({lane}, 32)")]
    return [f"coalesce(sum({factor} * ({half})), 0L) AS {prefix}_{i}" for i, half in enumerate(halves)]


def joined(prefix: str) -> str:
    """SQL of a checksum as text, `Checksum.text`, from the columns of `sum_columns`."""
    lanes = [f"shiftleft({prefix}_{i + 1} + shiftrightunsigned({prefix}_{i}, 32), 32) | ({prefix}_{i} & {_LOW}L)" for i in (0, 2)]
    digits = [f"lpad(hex({lane}), 16, '0')" for lane in lanes]
    return f"lower(concat({', '.join(digits)}))"


# --- in Python ---


class Checksum(NamedTuple):
    """The sums of some records, modulo 2^64."""

    lane_0: int = 0
    lane_1: int = 0

    @classmethod
    def of(cls, hashes: Iterable[tuple[int, int]]) -> Checksum:
        """The sum of these hashes."""
        total = cls()
        for one in hashes:
            total = cls((total[0] + one[0]) & _MASK, (total[1] + one[1]) & _MASK)
        return total

    @classmethod
    def of_halves(cls, halves: Sequence[int]) -> Checksum:
        """From the columns of `sum_columns`."""
        return cls((halves[0] + (halves[1] << 32)) & _MASK, (halves[2] + (halves[3] << 32)) & _MASK)

    @property
    def text(self) -> str:
        """32 hexadecimal digits."""
        return f"{self.lane_0:016x}{self.lane_1:016x}"


def content(key: bytes | None, value: bytes | None, timestamp_ms: int, headers: Headers = ()) -> tuple[int, int]:
    """The lanes of a record's hash, as unsigned numbers; Spark's are the same bits."""
    fields = [*_field(key), *_field(value), timestamp_ms.to_bytes(8, "little", signed=True), _number(len(headers))]
    for name, header in headers:
        fields += [*_field(name.encode()), *_field(header)]
    first, second = (_chain([_number(lane), *fields]) for lane in _LANES)
    return first, second


def _field(data: bytes | None) -> list[bytes]:
    return [_number(-1)] if data is None else [_number(len(data)), data]


def _number(value: int) -> bytes:
    return value.to_bytes(4, "little", signed=True)


def _chain(fields: Iterable[bytes]) -> int:
    seed = SEED
    for field in fields:
        seed = xxh64(field, seed)
    return seed


def xxh64(data: bytes, seed: int) -> int:
    """XXH64, by its specification."""
    position, size = 0, len(data)
    if size >= 32:
        state = [(seed + _P1 + _P2) & _MASK, (seed + _P2) & _MASK, seed, (seed - _P1) & _MASK]
        while position + 32 <= size:
            for i in range(4):
                state[i] = _round(state[i], data[position : position + 8])
                position += 8
        found = sum(_rotated(each, by) for each, by in zip(state, (1, 7, 12, 18), strict=True)) & _MASK
        for each in state:
            found = ((found ^ _round(0, each.to_bytes(8, "little"))) * _P1 + _P4) & _MASK
    else:
        found = (seed + _P5) & _MASK
    found = (found + size) & _MASK
    while position + 8 <= size:
        found = (_rotated(found ^ _round(0, data[position : position + 8]), 27) * _P1 + _P4) & _MASK
        position += 8
    if position + 4 <= size:
        found = (_rotated(found ^ int.from_bytes(data[position : position + 4], "little") * _P1 & _MASK, 23) * _P2 + _P3) & _MASK
        position += 4
    for byte in data[position:]:
        found = _rotated(found ^ byte * _P5 & _MASK, 11) * _P1 & _MASK
    found = (found ^ found >> 33) * _P2 & _MASK
    found = (found ^ found >> 29) * _P3 & _MASK
    return found ^ found >> 32


def _round(state: int, word: bytes) -> int:
    return _rotated((state + int.from_bytes(word, "little") * _P2) & _MASK, 31) * _P1 & _MASK


def _rotated(word: int, by: int) -> int:
    return (word << by | word >> 64 - by) & _MASK
