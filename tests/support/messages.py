"""Random messages, generated from their declarations, that a version can encode, with many edge cases."""

from __future__ import annotations

from random import Random
from typing import Any

from txbroker.wire.fieldkinds import Kind, resolve
from txbroker.wire.schema import Message, Struct

_RANGES = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}


def random_message(cls: type[Message], version: int, random: Random) -> Any:
    """A message that this version can encode; fields that it does not have are at their defaults."""
    return _struct(cls, version, random, 0)


def _struct(cls: type[Struct], version: int, random: Random, depth: int) -> Any:
    values = {}
    for field in resolve(cls):
        if field.carried(version) or field.tagged(version):
            if field.tagged(version) and random.random() < 0.5:
                continue
            values[field.name] = _value(field.kind, field.nullable(version), version, random, depth)
    return cls(**values)


def _value(kind: Kind, nullable: bool, version: int, random: Random, depth: int) -> Any:
    if nullable and random.random() < 0.3:
        return None
    if kind.name in _RANGES:
        bits = _RANGES[kind.name]
        return random.choice([0, -1, 1, (1 << bits) - 1, -(1 << bits), random.getrandbits(bits)])
    if kind.name == "uint16":
        return random.getrandbits(16)
    if kind.name == "uint32":
        return random.getrandbits(32)
    if kind.name == "bool":
        return random.random() < 0.5
    if kind.name == "float64":
        return random.choice([0.0, -1.5, 1e300])
    if kind.name == "uuid":
        return random.randbytes(16)
    if kind.name == "string":
        return random.choice(["", "a", "täxt", "x" * 200])
    if kind.name in ("bytes", "records"):
        return random.choice([b"", b"\0\1\2", b"y" * 150])
    if kind.struct is not None:
        return _struct(kind.struct, version, random, depth + 1)
    assert kind.element is not None
    count = random.choice([0, 1, 2, 130 if depth == 0 and kind.element.struct is None else 3])
    return [_value(kind.element, kind.element.nullable, version, random, depth + 1) for _ in range(count)]
