"""Converts messages to the JSON of Kafka's JsonConverter classes."""

from __future__ import annotations

import base64
import json
from typing import Any, get_args

from txbroker.names import id_to_text
from txbroker.wire.schema import Struct, field_types


def to_json(value: dict[str, Any]) -> str:
    """JSON on one line without spaces."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def plain(message: Struct, version: int) -> dict[str, Any]:
    """The fields that a message has in this version; tagged fields only if they are not the default."""
    shown: dict[str, Any] = {}
    types = field_types(type(message))
    for name, field in type(message).__fields__.items():
        value = getattr(message, name)
        if version not in field.versions:
            continue
        if field.tag is not None and version in field.tagged and value == (field.factory() if field.factory is not None else field.default):
            continue
        first, *others = name.split("_")
        shown["".join([first, *map(str.capitalize, others)])] = _plain_value(value, types[name], version)
    return shown


def _plain_value(value: Any, annotation: Any, version: int) -> Any:
    if isinstance(value, Struct):
        return plain(value, version)
    if isinstance(value, list):
        return [_plain_value(one, annotation, version) for one in value]
    if isinstance(value, bytes):
        return id_to_text(value) if _is_uuid(annotation) else base64.b64encode(value).decode("ascii")
    return value


def _is_uuid(annotation: Any) -> bool:
    """Whether a type is a UUID, a list of UUIDs, or an optional UUID."""
    return "uuid" in getattr(annotation, "__metadata__", ()) or any(_is_uuid(inner) for inner in get_args(annotation))
