"""Plans and their parts as values of JSON, and back: checked against the annotations of their fields.

Objects have the fields that differ from their defaults. A partition is a text (`t0-1`), and so is a broker (`b1`, `controller`, `leader`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from simulation.plan import CONTROLLER, LEADER
from txbroker.names import TopicPartition, parse_partition_directory

KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}
BROKER_FIELDS = frozenset({"target", "left_out"})  # brokers by number, from 0 on, or by role
ROLES = {"controller": CONTROLLER, "leader": LEADER}
BROKER = re.compile(r"b([1-9]\d{0,2})")


class BadPlan(ValueError):
    """What is not a plan. The text names the key."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(f"{key}: {problem}" if key else problem)


def to_plain(value: Any) -> Any:
    """A value that `json` can write."""
    if isinstance(value, TopicPartition):
        return str(value)
    if is_record(type(value)):
        defaults = _defaults(type(value))
        found = {name: getattr(value, name) for name in defaults}
        return {name: _broker_name(one) if name in BROKER_FIELDS else to_plain(one)
                for name, one in found.items() if one != defaults[name]}  # fmt: skip
    if isinstance(value, Mapping):
        return dict(value)
    return [to_plain(one) for one in value] if isinstance(value, tuple) else value


def from_plain(kind: Any, value: Any, key: str) -> Any:
    """A value of this type; BadPlan, which names the key."""
    if kind is TopicPartition:
        return _partition(value, key)
    if is_record(kind):
        return _record(kind, value, key)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is UnionType:
        kinds = [one for one in arguments if one is not NoneType]
        return None if value is None else from_plain(kinds[0], value, key)
    if origin is tuple:
        if not isinstance(value, list):
            raise BadPlan(key, f"must be a list, not {_shown(value)}")
        return tuple(from_plain(arguments[0], one, f"{key}[{at}]") for at, one in enumerate(value))
    if origin is not None:
        if not isinstance(value, dict):
            raise BadPlan(key, f"must be an object, not {_shown(value)}")
        return {name: from_plain(arguments[1], one, f"{key}.{name}") for name, one in value.items()}
    return _scalar(kind, value, key)


def is_record(kind: Any) -> bool:
    """Whether values of this type are objects with fields."""
    return is_dataclass(kind) or hasattr(kind, "_fields")


def _scalar(kind: type, value: Any, key: str) -> Any:
    number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1 << 63
    if kind is float and number:
        return float(value)
    if not isinstance(value, kind) or isinstance(value, bool) != (kind is bool) or (kind is float):
        raise BadPlan(key, f"must be {KINDS[kind]}, not {_shown(value)}")
    return value


def _record(kind: Any, value: Any, key: str) -> Any:
    if not isinstance(value, dict):
        raise BadPlan(key, f"must be an object, not {_shown(value)}")
    hints, defaults = get_type_hints(kind), _defaults(kind)
    inside = f"{key}." if key else ""
    for name in value:
        if name not in defaults:
            raise BadPlan(f"{inside}{name}", f"is not known; the keys here are {', '.join(defaults)}")
    for name, default in defaults.items():
        if default is MISSING and name not in value:
            raise BadPlan(f"{inside}{name}", "is missing")
    return kind(**{
        name: _broker(one, f"{inside}{name}") if name in BROKER_FIELDS else from_plain(hints[name], one, f"{inside}{name}")
        for name, one in value.items()
    })  # fmt: skip


def _defaults(kind: Any) -> dict[str, Any]:
    """The fields, each with its default or MISSING."""
    if is_dataclass(kind):
        return {field.name: field.default if field.default_factory is MISSING else field.default_factory() for field in fields(kind)}
    return {name: kind._field_defaults.get(name, MISSING) for name in kind._fields}


def _partition(value: Any, key: str) -> TopicPartition:
    found = parse_partition_directory(value) if isinstance(value, str) else None
    if found is None:
        raise BadPlan(key, f"must be a partition such as t0-1, not {_shown(value)}")
    return found


def _broker_name(number: int) -> str:
    return next((role for role, value in ROLES.items() if value == number), f"b{number + 1}")


def _broker(value: Any, key: str) -> int:
    match = BROKER.fullmatch(value) if isinstance(value, str) else None
    if match is not None:
        return int(match[1]) - 1
    if value in ROLES and key != "left_out":
        return ROLES[value]
    raise BadPlan(key, f"must be a broker such as b1{'' if key == 'left_out' else ', controller or leader'}, not {_shown(value)}")


def _shown(value: Any) -> str:
    return repr(value)[:60]
