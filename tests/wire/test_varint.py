from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txbroker.errors import CorruptRecords
from txbroker.wire.record_loops import read_unsigned
from txbroker.wire.varint import encode_varint, read_varint


def read_varlong(data: bytes, position: int) -> tuple[int, int]:
    raw, position = read_unsigned(data, position, 64)
    return raw >> 1 ^ -(raw & 1), position


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (-65, "8101"),
        (8191, "fe7f"),
        (-8192, "ff7f"),
        (8192, "808001"),
        (2**31 - 1, "feffffff0f"),
        (-(2**31), "ffffffff0f"),
        (2**63 - 1, "feffffffffffffffff01"),
        (-(2**63), "ffffffffffffffffff01"),
    ],
)
def test_zigzag_encoding(value: int, encoded: str) -> None:
    data = bytes.fromhex(encoded)
    assert encode_varint(value) == data
    assert read_varlong(b"x" + data + b"y", 1) == (value, 1 + len(data))
    if len(data) <= 5:
        assert read_varint(b"x" + data, 1) == (value, 1 + len(data))


@given(st.integers(-(2**63), 2**63 - 1))
def test_varints_are_decoded_as_encoded(value: int) -> None:
    data = encode_varint(value)
    assert read_varlong(data, 0) == (value, len(data))


def test_too_long_and_incomplete_varints_are_refused() -> None:
    for data in (b"\xff\xff\xff\xff\x10", b"\xff\xff\xff\xff\xff\x01", b"\x80" * 10 + b"\0"):
        with pytest.raises(CorruptRecords):
            read_varint(data, 0)
    for data in (b"\xff" * 9 + b"\x02", b"\xff" * 10 + b"\x01", b"\x80" * 10 + b"\0"):
        with pytest.raises(CorruptRecords):
            read_varlong(data, 0)
    for data in (b"", b"\x80", b"\x80" * 9):
        with pytest.raises(IndexError):
            read_varlong(data, 0)
