"""Operations as JSON lines: an object with the operation's name under "op" and its fields, those with their defaults left out."""

from __future__ import annotations

import json
from typing import Any

from simulation.histories.operations import (
    Assign,
    Commit,
    Complete,
    Delete,
    End,
    FetchedCommit,
    Operation,
    Outcome,
    Poll,
    Send,
    Topic,
)

_KINDS: dict[str, Any] = {
    "send": Send, "end": End, "assign": Assign, "poll": Poll, "complete": Complete, "commit": Commit, "fetched-commit": FetchedCommit,
    "topic": Topic, "delete": Delete,
}  # fmt: skip
_NAMES = {kind: name for name, kind in _KINDS.items()}
_TUPLES = ("records", "readers")


def to_line(operation: Operation) -> str:
    """One line of JSON, without the end of line."""
    defaults = operation._field_defaults
    fields = {name: value for name, value in operation._asdict().items() if name not in defaults or value != defaults[name]}
    return json.dumps({"op": _NAMES[type(operation)], **fields}, separators=(",", ":"))


def from_line(line: str) -> Operation:
    """The operation of a line; ValueError that shows the line if it is not one."""
    try:
        fields = json.loads(line)
        kind = _KINDS[fields.pop("op")]
        if "outcome" in fields:
            fields["outcome"] = Outcome(fields["outcome"])
        for name in _TUPLES:
            if name in fields:
                fields[name] = tuple(tuple(each) if isinstance(each, list) else each for each in fields[name])
        operation: Operation = kind(**fields)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not an operation of a history ({error}): {line[:200]}") from None
    return operation
