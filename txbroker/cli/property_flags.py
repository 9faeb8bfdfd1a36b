"""The properties of --reader-property and --formatter-property as a dataclass, whose fields have their names with underscores for dots."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

from txbroker.console.failures import BadUsage

T = TypeVar("T")

_TRUTH = {"true": True, "false": False}


def from_properties(kind: type[T], properties: Mapping[str, str], flag: str, may_be_empty: str) -> T:
    """A `kind`, whose fields are truth values, bytes and optional text; `flag` is the one that sets the properties.

    BadUsage for an unknown property, for an invalid truth value, and for empty text in another field than `may_be_empty`.
    """
    fields = {field.name.replace("_", "."): field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    chosen: dict[str, Any] = {}
    for key, text in properties.items():
        field = fields.get(key)
        if field is None:
            raise BadUsage(f"{flag} {key} is not known; known are {', '.join(fields)}")
        if isinstance(field.default, bool):
            if text.lower() not in _TRUTH:
                raise BadUsage(f"{flag} {key} is {text!r}; it must be true or false")
            chosen[field.name] = _TRUTH[text.lower()]
        elif not text and field.name != may_be_empty:
            raise BadUsage(f"{flag} {key} must not be empty")
        elif field.name.endswith("deserializer"):
            chosen[field.name] = text
        else:
            chosen[field.name] = text.encode(errors="surrogateescape")
    return kind(**chosen)
