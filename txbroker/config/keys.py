"""Configuration keys: name, type, default and bounds, and how a value is read from text and printed.

Types, bounds and text form are those of Kafka's `ConfigDef`; the numbers of `Type` are those of DescribeConfigs (KIP-569).
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from enum import Enum, IntEnum

from txbroker.config.checks import Check
from txbroker.lazy_dataclass import lazy_dataclass

# The value of a key: a LIST is a tuple of strings; INT, SHORT and LONG are int; None is "not set".
Value = bool | int | float | str | tuple[str, ...] | None


INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
DOUBLE_MAX = sys.float_info.max


class Type(IntEnum):
    """The types of values, with their numbers in DescribeConfigs."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Importance(Enum):
    """The importance of a key, as in Kafka's documentation."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class Update(Enum):
    """Whether a broker key can be changed while the broker runs, and for which brokers (KIP-226)."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


class InvalidValue(ValueError):
    """A value that its key does not allow; the message names the key and the allowed values."""


@lazy_dataclass(frozen=True, slots=True)
class Key:
    """One configuration key."""

    name: str
    type: Type
    default: Value
    importance: Importance
    documentation: str
    check: Check | None = None
    update: Update = Update.READ_ONLY
    effective: bool = True  # False: accepted for compatibility, without effect on this broker

    @property
    def sensitive(self) -> bool:
        """Whether its value is hidden from all clients and logs."""
        return self.type is Type.PASSWORD

    def parse(self, text: str) -> Value:
        """The value of `text`; InvalidValue if the type or the bounds do not allow it."""
        text = text.strip(_TRIMMED)
        try:
            value = _READERS[self.type](text)
        except ValueError as error:
            raise self._invalid(text, str(error)) from None
        allowed = self.check(value) if self.check is not None else None
        if allowed is not None:
            raise self._invalid(text, allowed)
        return value

    def format(self, value: Value) -> str | None:
        """The text of a value as Kafka prints it; None if it is not set."""
        if value is None:
            return None
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ",".join(value)
        if isinstance(value, float):
            return java_double(value)
        return str(value)

    def _invalid(self, text: str, allowed: str) -> InvalidValue:
        if self.sensitive:
            return InvalidValue(f"{self.name} must be {allowed}")
        shown = text if len(text) <= _SHOWN_MAX else text[:_SHOWN_MAX] + "..."
        return InvalidValue(f"{self.name} is '{shown}'; it must be {allowed}")


_TRIMMED = "".join(map(chr, range(0x21)))  # what Java's String.trim removes
_SHOWN_MAX = 200  # characters of an invalid value in an error message


def by_name(keys: Iterable[Key]) -> Mapping[str, Key]:
    """The keys by name, in the order of names."""
    return {key.name: key for key in sorted(keys, key=lambda key: key.name)}


def split_list(text: str) -> tuple[str, ...]:
    """The trimmed parts of a comma-separated text, as Kafka reads a LIST; none if it is empty."""
    text = text.strip(_TRIMMED)
    return tuple(part.strip() for part in text.split(",")) if text else ()


def split_csv(text: str) -> tuple[str, ...]:
    """The trimmed parts of a comma-separated text without empty ones, as Kafka reads the lists in STRING keys (Csv.parseCsvList)."""
    return tuple(part for part in split_list(text) if part)


def java_double(value: float) -> str:
    """A number as Java's `Double.toString` prints it: plain from 0.001 to 10 million, otherwise with an exponent (1.0E-4)."""
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    from decimal import Decimal  # no default needs it

    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)  # not one of Decimal's infinities
    fraction = "".join(map(str, digits[1:])) or "0"
    return f"{'-' if sign else ''}{digits[0]}.{fraction}E{exponent + len(digits) - 1}"


_INTEGER = re.compile(r"([+-]?)0*([0-9]{1,20})", re.ASCII)
_DOUBLE = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?[dDfF]?", re.ASCII)


def _read_boolean(text: str) -> bool:
    match text.lower():
        case "true":
            return True
        case "false":
            return False
        case _:
            raise ValueError("true or false")


def _read_integer(text: str, bits: int) -> int:
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    match = _INTEGER.fullmatch(text)
    value = int(match.group(1) + match.group(2)) if match is not None else None
    if value is None or not low <= value <= high:
        raise ValueError(f"a whole number from {low} to {high}")
    return value


def _read_double(text: str) -> float:
    unsigned = text.removeprefix("-" if text.startswith("-") else "+")
    if unsigned != "Infinity" and _DOUBLE.fullmatch(text) is None:
        raise ValueError("a number")
    value = float(text if unsigned == "Infinity" else text.rstrip("dDfF"))
    return max(-DOUBLE_MAX, min(value, DOUBLE_MAX))


_READERS: Mapping[Type, Callable[[str], Value]] = {
    Type.BOOLEAN: _read_boolean,
    Type.STRING: str,
    Type.INT: lambda text: _read_integer(text, 32),
    Type.SHORT: lambda text: _read_integer(text, 16),
    Type.LONG: lambda text: _read_integer(text, 64),
    Type.DOUBLE: _read_double,
    Type.LIST: split_list,
    Type.CLASS: str,
    Type.PASSWORD: str,
}
