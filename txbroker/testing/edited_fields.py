"""Changes of fields in a decoded answer, by paths: `topics[name=orders].partitions[0].leader_id`.

The names are those of Kafka's message schemas, in snake_case. A list without brackets stands for all of its elements, `[2]` for the
third one, and `[name=value]` for those with this value in a field.
"""

from __future__ import annotations

import base64
import copy
import re
import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from txbroker.errors import ErrorCode
from txbroker.names import id_from_text, id_to_text
from txbroker.testing.errors import KitError
from txbroker.wire.fieldkinds import FIXED, Kind, Resolved, resolve
from txbroker.wire.schema import MISSING, Response, Struct

PATHS_MAX = 100
_STEP = re.compile(r"(?P<field>\w+)(\[((?P<index>\d+)|(?P<key>\w+)=(?P<value>[^\]]*))\])?(\.|$)")
_NUMBERS = ("int8", "int16", "uint16", "int32", "uint32", "int64")
_FORMS = {
    "bool": "true or false", "string": "a text", "uuid": "a topic id as Kafka's commands show it", "bytes": "a text in base64",
    "array": "a list", "struct": "an object",
}  # fmt: skip


class Step(NamedTuple):
    """A field; of a list the element `number`, those whose field `key` has a value, or all."""

    field: Resolved
    number: int | None
    key: str
    value: str


class Edit(NamedTuple):
    """`value` is set where `steps` lead."""

    steps: tuple[Step, ...]
    value: Any


def parse_edits(response: type[Response], given: Mapping[str, Any]) -> list[Edit]:
    """The changes of answers of this class, from JSON; KitError."""
    if not 1 <= len(given) <= PATHS_MAX:
        raise KitError(f"edit has {len(given)} paths; it must have from 1 to {PATHS_MAX}, such as {{\"throttle_time_ms\": 100}}")
    return [_edit(response, path, value) for path, value in given.items()]


def apply_edits(message: Struct, version: int, edits: list[Edit]) -> bool:
    """Change an answer of this version; False if it has nothing that the edits change."""
    return sum(_apply(message, version, edit.steps, edit.value) for edit in edits) > 0


def _edit(response: type[Response], path: str, value: Any) -> Edit:
    steps: list[Step] = []
    cls: type[Struct] | None = response
    position = 0
    while position < len(path) or not steps:
        found = _STEP.match(path, position)
        if found is None:
            raise KitError(f"the path {path!r} of edit cannot be read: write fields with dots, as in topics[name=orders].error_code")
        if cls is None:
            raise KitError(f"the path {path!r} of edit leads through {steps[-1].field.name}, which has no fields")
        fields = {each.name: each for each in resolve(cls)}
        field = fields.get(found["field"])
        if field is None:
            raise KitError(f"{cls.__name__} has no field {found['field']!r} for edit; it has {', '.join(fields)}")
        element = field.kind.element
        if element is None and found["index"] is None and found["key"] is None:
            cls = field.kind.struct
        elif element is None:
            raise KitError(f"{field.name} in the path {path!r} of edit is no list: remove the brackets")
        else:
            cls = element.struct
            if found["key"] is not None and (cls is None or found["key"] not in {each.name for each in resolve(cls)}):
                raise KitError(f"the elements of {field.name} have no field {found['key']!r}, which the path {path!r} of edit names")
        number = None if found["index"] is None else int(found["index"])
        steps.append(Step(field, number, found["key"] or "", found["value"] or ""))
        position = found.end()
    last = steps[-1]
    kind = last.field.kind
    if kind.element is not None and (last.number is not None or last.key):
        raise KitError(f"the path {path!r} of edit ends with an element of a list: name a field of it, or the whole list")
    return Edit(tuple(steps), _converted(kind, value, path))


def _converted(kind: Kind, value: Any, path: str) -> Any:
    """A value from JSON in the form of a field; KitError."""
    if value is None and kind.nullable:
        return None
    if kind.name == "int16" and isinstance(value, str) and path.endswith("error_code") and value in ErrorCode.__members__:
        return int(ErrorCode[value])
    if kind.name in _NUMBERS and _is_number(value, int):
        with suppress(struct.error):
            struct.pack(f">{FIXED[kind.name][0]}", value)
            return value
    if kind.name == "bool" and isinstance(value, bool):
        return value
    if kind.name == "float64" and _is_number(value, int | float):
        return float(value)
    if kind.name == "string" and isinstance(value, str):
        return value
    if kind.name in ("uuid", "bytes") and isinstance(value, str):
        with suppress(ValueError):
            return id_from_text(value) if kind.name == "uuid" else base64.b64decode(value, validate=True)
    if kind.element is not None and isinstance(value, list):
        return [_converted(kind.element, each, path) for each in value]
    if kind.struct is not None and isinstance(value, Mapping):
        return _struct(kind.struct, value, path)
    if kind.name == "records":
        raise KitError(f"{path} cannot be edited, as it has record batches: use corrupt()")
    raise KitError(f"{path} of edit is {value!r}; it must be {_FORMS.get(kind.name, 'a number')}{' or null' if kind.nullable else ''}")


def _is_number(value: Any, kind: Any) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def _struct(cls: type[Struct], given: Mapping[str, Any], path: str) -> Struct:
    fields = {each.name: each for each in resolve(cls)}
    for name in given:
        if name not in fields:
            raise KitError(f"an element of {path} has no field {name!r}; it has {', '.join(fields)}")
    missing = [each.name for each in fields.values() if each.name not in given and each.field.default is MISSING and not each.field.factory]
    if missing:
        raise KitError(f"an element of {path} needs {', '.join(missing)}")
    return cls(**{name: _converted(fields[name].kind, value, f"{path}.{name}") for name, value in given.items()})


def _apply(message: Any, version: int, steps: Sequence[Step], value: Any) -> int:
    """How many fields were set."""
    step, *rest = steps
    name = step.field.name
    if version not in step.field.field.versions:
        return 0
    if not rest:
        setattr(message, name, copy.deepcopy(value))  # answers do not share a list
        return 1
    found = getattr(message, name)
    if isinstance(found, list):
        return sum(_apply(element, version, rest, value) for element in _chosen(found, step))
    if found is None:
        return 0
    own = copy.copy(found)  # a default is shared by all messages
    setattr(message, name, own)
    return _apply(own, version, rest, value)


def _chosen(elements: list[Any], step: Step) -> list[Any]:
    if step.number is not None:
        return elements[step.number : step.number + 1]
    return [each for each in elements if not step.key or _text(getattr(each, step.key)) == step.value]


def _text(value: object) -> str:
    return id_to_text(bytes(value)) if isinstance(value, bytes | memoryview) else str(value)
