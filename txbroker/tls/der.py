"""The elements of DER (X.690): tag, length, content. Only what certificates and key stores need."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

INTEGER, BIT_STRING, OCTET_STRING, OID, SEQUENCE, SET = 0x02, 0x03, 0x04, 0x06, 0x30, 0x31
UTF8, PRINTABLE, T61, IA5, GENERAL, BMP = 0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E
UTC_TIME, GENERALIZED_TIME = 0x17, 0x18

_LENGTH_BYTES_MAX = 4


class Malformed(ValueError):
    """These bytes are not the expected DER."""


class Element(NamedTuple):
    """One element. `whole` has its tag and length, too."""

    tag: int
    content: bytes
    whole: bytes

    def children(self) -> Iterator[Element]:
        """The elements in the content; Malformed."""
        return elements(self.content)


def elements(data: bytes) -> Iterator[Element]:
    """The elements, one after the other; Malformed."""
    position = 0
    while position < len(data):
        element = _at(data, position)
        position += len(element.whole)
        yield element


def only(data: bytes, tag: int) -> Element:
    """The one element that the data consists of; Malformed."""
    element = _at(data, 0)
    if element.tag != tag or len(element.whole) != len(data):
        raise Malformed("not one element of the expected kind")
    return element


def _at(data: bytes, start: int) -> Element:
    if start + 2 > len(data):
        raise Malformed("the data ends within an element")
    tag, length = data[start], data[start + 1]
    position = start + 2
    if tag & 0x1F == 0x1F:
        raise Malformed("a tag of several bytes")
    if length >= 0x80:
        count = length & 0x7F
        if not 0 < count <= _LENGTH_BYTES_MAX or position + count > len(data):
            raise Malformed("an element without a valid length")
        length = int.from_bytes(data[position : position + count], "big")
        position += count
    if position + length > len(data):
        raise Malformed("an element is longer than the data")
    end = position + length
    return Element(tag, data[position:end], data[start:end])


def oid_text(content: bytes) -> str:
    """An object identifier with dots; Malformed."""
    numbers: list[int] = []
    number = 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    if not numbers or content[-1] & 0x80:
        raise Malformed("an invalid object identifier")
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))
