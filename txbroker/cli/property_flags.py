"""--property flags made into a dataclass whose fields are named as the properties, with underscores for dots."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

from txbroker.cli.failures import BadUsage

T = TypeVar("T")

_TRUTH = {"true": True, "false": False}


def from_properties(kind: type[T], properties: Mapping[str, str], may_be_empty: str) -> T:
    """A `kind`, whose fields are truth values and bytes.

    BadUsage for a property that it does not have, for a bad truth value, and for empty text elsewhere than in the field `may_be_empty`.
    """
    fields = {field.name.replace("_", "."): field for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    chosen: dict[str, Any] = {}
    for key, text in properties.items():
        field = fields.get(key)
        if field is None:
            raise BadUsage(f"--property {key} is not known; known are {', '.join(fields)}")
        if isinstance(field.default, bool):
            if text.lower() not in _TRUTH:
                raise BadUsage(f"--property {key} is {text!r}; it must be true or false")
            chosen[field.name] = _TRUTH[text.lower()]
        elif not text and field.name != may_be_empty:
            raise BadUsage(f"--property {key} must not be empty")
        else:
            chosen[field.name] = text.encode(errors="surrogateescape")
    return kind(**chosen)
