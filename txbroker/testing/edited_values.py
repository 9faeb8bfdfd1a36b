"""The values of an answer that a function has changed: which of them cannot be encoded."""

from __future__ import annotations

import copy
import struct
from typing import Any

from txbroker.wire.fieldkinds import FIXED, Kind, resolve
from txbroker.wire.schema import MISSING, Field, Struct, StructMeta, shared_default

UUID_BYTES = 16
_FORMS = {
    "bool": "True or False", "float64": "a number", "string": "text", "uuid": f"{UUID_BYTES} bytes", "bytes": "bytes", "records": "bytes",
    "array": "a list",
}  # fmt: skip
_TYPES: dict[str, Any] = {
    "bool": bool, "float64": int | float, "string": str, "uuid": bytes | bytearray | memoryview, "bytes": bytes | bytearray | memoryview,
    "records": bytes | bytearray | memoryview, "array": list | tuple,
}  # fmt: skip


def own_structs(message: Struct) -> None:
    """Replace nested structs by copies, so that a function can change them: a default is shared by all messages."""
    for field in resolve(type(message)):
        value = getattr(message, field.name)
        if isinstance(value, Struct):
            value = copy.copy(value)
            setattr(message, field.name, value)
            own_structs(value)
        elif field.kind.element is not None and field.kind.element.struct is not None:
            for element in value or ():
                own_structs(element)


def value_problem(message: Struct, version: int, path: str = "") -> str:
    """What prevents that the message is encoded in this version: the path of the first wrong value, and what it must be. Or nothing."""
    for field in resolve(type(message)):
        value = getattr(message, field.name, MISSING)
        where = f"{path}{field.name}"
        if version not in field.field.versions:
            problem = "" if _is_default(field.field, value) else f"{where} is {value!r:.100}, and version {version} has no such field"
        else:
            problem = _problem(field.kind._replace(nullable=field.nullable(version)), value, version, where)
        if problem:
            return problem
    return ""


def _is_default(field: Field, value: Any) -> bool:
    """Whether it is what a decoded message has in a field that its version lacks."""
    if isinstance(field.factory, StructMeta):
        return bool(value == shared_default(field.factory))
    if field.factory is not None or field.default is MISSING:
        return not value or value == bytes(UUID_BYTES)
    return bool(value == field.default)


def _problem(kind: Kind, value: Any, version: int, path: str) -> str:
    if (value is None and kind.nullable) or _fits(kind, value):
        return _inner_problem(kind, value, version, path)
    form = f"a {kind.struct.__name__}" if kind.struct is not None else _FORMS.get(kind.name, f"a number that fits into {kind.name}")
    return f"{path} is {value!r:.100}; it must be {form}{' or None' if kind.nullable else ''}"


def _inner_problem(kind: Kind, value: Any, version: int, path: str) -> str:
    if isinstance(value, Struct):
        return value_problem(value, version, f"{path}.")
    if kind.element is not None and value:
        found = (_problem(kind.element, each, version, f"{path}[{number}]") for number, each in enumerate(value))
        return next(filter(None, found), "")
    return ""


def _fits(kind: Kind, value: Any) -> bool:
    if kind.struct is not None:
        return isinstance(value, kind.struct)
    if kind.name in _TYPES:
        fits = isinstance(value, _TYPES[kind.name]) and (kind.name == "bool" or not isinstance(value, bool))
        return fits and (kind.name != "uuid" or len(value) == UUID_BYTES)
    if not isinstance(value, int) or isinstance(value, bool):
        return False
    try:
        struct.pack(f">{FIXED[kind.name][0]}", value)
    except struct.error:
        return False
    return True
