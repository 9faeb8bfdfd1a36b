"""What a configuration key is: its name, type, default and bounds, and how its text is read and written.

Types are Kafka's `ConfigDef.Type`; the numbers of `Type` are those of DescribeConfigs (KIP-569).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, IntEnum

# What a key's text is read into: LIST becomes a tuple of strings, INT, SHORT and LONG become int; None is "not set".
Value = bool | int | float | str | tuple[str, ...] | None


class Type(IntEnum):
    """The types of values, by their numbers in DescribeConfigs."""

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
    """How likely it is that somebody must set a key; printed in reference pages."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class Update(Enum):
    """Whether a broker key may change while the broker runs, and for whom (KIP-226)."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


class InvalidValue(ValueError):
    """A value that its key does not allow; the text says what is allowed."""


# A check takes the value that was read and returns what is allowed ("must be at least 1"), or None when the value is good.
Check = Callable[[Value], str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One configuration key."""

    name: str
    type: Type
    default: Value
    documentation: str
    importance: Importance = Importance.MEDIUM
    check: Check | None = None
    update: Update = Update.READ_ONLY
    effective: bool = True  # False: taken for the sake of existing files, changes nothing in this broker

    @property
    def sensitive(self) -> bool:
        """Never shown to anybody."""
        return self.type is Type.PASSWORD

    def parse(self, text: str) -> Value:
        """The value that `text` says; InvalidValue when the type or the bounds do not allow it."""
        raise NotImplementedError

    def format(self, value: Value) -> str | None:
        """The text of a value as Kafka prints it: lists with commas, numbers plain, true/false; None when not set."""
        raise NotImplementedError
