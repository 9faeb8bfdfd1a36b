"""The value of a key by its type."""

from __future__ import annotations

import builtins

from txbroker.config.broker_keys import BROKER_KEYS
from txbroker.config.keys import Type, Value, split_csv


class Values:
    """`value` of a subclass, checked for its type. An unknown name or a wrong type is an internal error: KeyError or TypeError."""

    def value(self, name: str) -> Value:
        """The value of a key of any type; None if it is not set."""
        raise NotImplementedError

    def boolean(self, name: str) -> bool:
        """The value of a BOOLEAN key."""
        value = self.value(name)
        if isinstance(value, bool):
            return value
        raise _wrong_type(name, value, "a boolean")

    def int(self, name: str) -> builtins.int:
        """The value of an INT, SHORT or LONG key that is always set."""
        value = self.value(name)
        if isinstance(value, builtins.int) and not isinstance(value, bool):
            return value
        raise _wrong_type(name, value, "a whole number")

    def double(self, name: str) -> float:
        """The value of a DOUBLE key."""
        value = self.value(name)
        if isinstance(value, float):
            return value
        raise _wrong_type(name, value, "a double")

    def text(self, name: str) -> str:
        """The value of a STRING, CLASS or PASSWORD key that is always set."""
        value = self.value(name)
        if isinstance(value, str):
            return value
        raise _wrong_type(name, value, "a text")

    def optional_text(self, name: str) -> str | None:
        """The value of a STRING, CLASS or PASSWORD key; None if it is not set."""
        return None if self.value(name) is None else self.text(name)

    def list(self, name: str) -> tuple[str, ...]:
        """The value of a LIST key, or the comma-separated parts of a STRING key, without empty ones; empty if it is not set."""
        value = self.value(name)
        if value is None or isinstance(value, str):
            return split_csv(value or "")
        if isinstance(value, tuple):
            return value
        raise _wrong_type(name, value, "a list")


def _wrong_type(name: str, value: Value, wanted: str) -> TypeError:
    return TypeError(f"{name} is {'not set' if value is None else Type(BROKER_KEYS[name].type).name}, not {wanted}")
