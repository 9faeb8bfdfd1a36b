"""Kafka's deserializers (package org.apache.kafka.common.serialization) for `txbroker consume`, with the text that Java prints."""

from __future__ import annotations

import math
import struct
import uuid
from collections.abc import Callable
from typing import Any

from txbroker.console.failures import BadUsage

PACKAGE = "org.apache.kafka.common.serialization."


class NotDeserialized(Exception):
    """The bytes are not of this type. The text is that of Kafka's deserializer."""


class Deserializer:
    """The deserializer of a class name, with or without its package; BadUsage."""

    def __init__(self, name: str, flag: str) -> None:
        self.name = name.removeprefix(PACKAGE)
        if self.name not in _KINDS:
            raise BadUsage(f"{flag} {name} is not available; use one of {', '.join(_KINDS)}")
        self._decode, self._text = _KINDS[self.name]

    def value(self, data: bytes) -> Any:
        """A value for JSON: a number, a truth value or text, or the bytes of BytesDeserializer and ByteArrayDeserializer."""
        return self._decode(data, self.name)

    def text(self, data: bytes) -> bytes:
        """The value as Java prints it, in UTF-8. ByteArrayDeserializer, whose Java text has no use, leaves the bytes as they are."""
        return self._text(self._decode(data, self.name))


def _number(layout: str) -> Callable[[bytes, str], Any]:
    packed = struct.Struct(f">{layout}")

    def decode(data: bytes, name: str) -> Any:
        if len(data) != packed.size:
            raise NotDeserialized(f"Size of data received by {name} is not {packed.size}")
        return packed.unpack(data)[0]

    return decode


def _boolean(data: bytes, name: str) -> bool:
    if len(data) != 1:
        raise NotDeserialized(f"Size of data received by {name} is not 1")
    if data not in (b"\0", b"\1"):
        raise NotDeserialized(f"Unexpected byte received by {name}: {int.from_bytes(data, 'big', signed=True)}")
    return data == b"\1"


def _string(data: bytes, name: str) -> str:
    return data.decode("utf-8", "replace")


def _uuid(data: bytes, name: str) -> str:
    try:
        return str(uuid.UUID(data.decode()))
    except ValueError:
        raise NotDeserialized(f"Error parsing data into UUID: {_string(data, name)[:60]!r}") from None


def _void(data: bytes, name: str) -> None:
    raise NotDeserialized(f"Data should be null for a {name}")


def _bytes(data: bytes, name: str) -> bytes:
    return data


def _as_text(value: Any) -> bytes:
    return (str(value).lower() if isinstance(value, bool) else str(value)).encode()


def _escaped(data: bytes) -> bytes:
    """As org.apache.kafka.common.utils.Bytes: printable ASCII, and the rest as \\xHH."""
    return "".join(chr(byte) if 0x20 <= byte < 0x7F and byte != 0x5C else f"\\x{byte:02X}" for byte in data).encode()


def _java_double(value: float) -> bytes:
    return java_number(value, "d")


def _java_float(value: float) -> bytes:
    return java_number(value, "f")


def java_number(value: float, layout: str) -> bytes:
    """Java's Double.toString (layout "d") or Float.toString ("f").

    That is the fewest digits, but at least one after the point, that give the same number; with an exponent from 1E7 on and below 1E-3.
    """
    if not math.isfinite(value):
        return b"NaN" if math.isnan(value) else b"Infinity" if value > 0 else b"-Infinity"
    if value == 0:
        return b"-0.0" if math.copysign(1, value) < 0 else b"0.0"
    digits = next(count for count in range(1, 18) if _rounds_to(f"{value:.{count}e}", value, layout))
    mantissa, _, exponent_text = f"{value:.{digits}e}".partition("e")
    exponent = int(exponent_text)
    if not -3 <= exponent < 7:
        return f"{mantissa}E{exponent}".encode()
    text = f"{value:.{max(digits - exponent, 1)}f}".rstrip("0")
    return (f"{text}0" if text.endswith(".") else text).encode()


def _rounds_to(text: str, value: float, layout: str) -> bool:
    try:
        return struct.pack(f">{layout}", float(text)) == struct.pack(f">{layout}", value)
    except OverflowError:  # rounded up beyond the largest float
        return False


_Kind = tuple[Callable[[bytes, str], Any], Callable[[Any], bytes]]
_KINDS: dict[str, _Kind] = {
    "StringDeserializer": (_string, _as_text),
    "ShortDeserializer": (_number("h"), _as_text),
    "IntegerDeserializer": (_number("i"), _as_text),
    "LongDeserializer": (_number("q"), _as_text),
    "FloatDeserializer": (_number("f"), _java_float),
    "DoubleDeserializer": (_number("d"), _java_double),
    "BooleanDeserializer": (_boolean, _as_text),
    "UUIDDeserializer": (_uuid, _as_text),
    "VoidDeserializer": (_void, _as_text),
    "BytesDeserializer": (_bytes, _escaped),
    "ByteArrayDeserializer": (_bytes, bytes),
}
