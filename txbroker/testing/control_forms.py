"""What an operation of the control port is: its path, what it does, and the forms of its parameters, body and answer (JSON Schema)."""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, NamedTuple, Union, get_args, get_origin, get_type_hints

from txbroker.testing.errors import KitError
from txbroker.testing.faults import Faults

Schema = Mapping[str, Any]
Body = Callable[[bool], Any]  # the decoded body of a request; with True it must not be empty

TEXT: Schema = {"type": "string"}
COUNT: Schema = {"type": "integer", "minimum": 0}
BOOLEAN: Schema = {"type": "boolean"}
_PLAIN: Mapping[object, Schema] = {str: TEXT, int: {"type": "integer"}, float: {"type": "number"}, bool: BOOLEAN}
_VARIABLE = re.compile(r"\{(\w+)\}")


class Asked(NamedTuple):
    """A request. `path` and `query`: their values by name, as text. `body`: decoded JSON, None unless it is a POST or PUT."""

    path: Mapping[str, str]
    query: Mapping[str, str]
    body: Any


@dataclass(frozen=True)
class Operation:
    """One request that the port serves. `path`: after /v1, with {names} of variables, which are numbers.

    `run` makes the answer of a `part` of the broker, or a Deferred of it, in the form of `answer`; it raises KitError. `query`: the forms
    of optional parameters. `body`: of a POST; without it the object is empty.
    """

    method: str
    path: str
    name: str
    summary: str
    run: Callable[[Any, Asked], object]
    answer: Schema
    query: Mapping[str, Schema] = field(default_factory=dict)
    body: Schema | None = None
    part: type = Faults

    @property
    def variables(self) -> list[str]:
        """The names in its path."""
        return _VARIABLE.findall(self.path)

    @property
    def needs_body(self) -> bool:
        """Whether its body must have something in it."""
        return bool((self.body or {}).get("required"))

    def asked(self, path: Mapping[str, str], query: Mapping[str, Sequence[str]], body: Body) -> Asked:
        """A request for this operation; KitError for an unknown parameter, and what `body` raises."""
        unknown = sorted(query.keys() - self.query.keys())
        if unknown:
            problem = f"{self.method} {self.path} has no parameter {', '.join(unknown)} in its query"
            raise KitError(f"{problem}; it may have {', '.join(self.query) or 'none'}")
        content = body(self.needs_body) if self.method in ("POST", "PUT") else None
        return Asked(path, {name: values[0] for name, values in query.items()}, content)


def find(operations: Iterable[Operation], method: str, path: Sequence[str]) -> tuple[Operation, dict[str, str]] | None:
    """The operation for a path, in its parts after /v1, and the values in it; None if there is none."""
    for operation in operations:
        parts = operation.path.split("/")[1:]
        if operation.method == method and len(parts) == len(path):
            pairs = list(zip(parts, path, strict=True))
            if all(part == given or _VARIABLE.fullmatch(part) for part, given in pairs):
                return operation, {part[1:-1]: given for part, given in pairs if _VARIABLE.fullmatch(part)}
    return None


def object_of(**properties: Schema) -> Schema:
    """An object with exactly these properties."""
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def list_of(element: Schema) -> Schema:
    """An array of such elements."""
    return {"type": "array", "items": element}


EMPTY = object_of()


def object_like(cls: type, described: Mapping[str, Schema]) -> Schema:
    """The object that a dataclass is in JSON. `described`: at least a description for each field; KeyError if one has none.

    A field with a default may be left out.
    """
    hints = get_type_hints(cls)
    properties: dict[str, Schema] = {}
    required = []
    for each in fields(cls):
        properties[each.name] = {**_form(hints[each.name]), **described[each.name]}
        if each.default is MISSING:
            required.append(each.name)
        else:
            properties[each.name] = {**properties[each.name], "default": each.default}
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _form(kind: Any) -> Schema:
    if kind in _PLAIN:
        return _PLAIN[kind]
    if get_origin(kind) is Mapping:
        return {"type": "object"}
    if get_origin(kind) is tuple:
        return list_of(_form(get_args(kind)[0]))
    if get_origin(kind) in (Union, types.UnionType):
        return {"type": [_form(each)["type"] if each is not type(None) else "null" for each in get_args(kind)]}
    raise TypeError(f"{kind} has no form in JSON here")
