"""What the code generators need of a field: its kind on the wire, its nullability and default in one version."""

from __future__ import annotations

import types
import typing
from typing import Annotated, Any, NamedTuple, get_args, get_origin

from txbroker.wire.schema import MISSING, Field, Struct, StructMeta, field_types, shared_default

# struct module codes (big-endian) and sizes of the kinds whose size never varies
FIXED: dict[str, tuple[str, int]] = {
    "bool": ("?", 1),
    "int8": ("b", 1),
    "int16": ("h", 2),
    "uint16": ("H", 2),
    "int32": ("i", 4),
    "uint32": ("I", 4),
    "int64": ("q", 8),
    "float64": ("d", 8),
    "uuid": ("16s", 16),
}
_ZERO: dict[str, Any] = {"bool": False, "float64": 0.0, "uuid": bytes(16), "string": "", "bytes": b"", "records": b""}


class Kind(NamedTuple):
    """A wire type: a name of `FIXED`, or string, bytes, records, array (with `element`), struct (with `struct`)."""

    name: str
    nullable: bool = False
    element: Kind | None = None
    struct: type[Struct] | None = None


def kind_of(annotation: Any) -> Kind:
    """The kind of a resolved annotation; TypeError when it is no wire type."""
    origin = get_origin(annotation)
    if origin is typing.Union or origin is types.UnionType:
        (inner,) = [a for a in get_args(annotation) if a is not type(None)]
        return kind_of(inner)._replace(nullable=True)
    if origin is Annotated:
        return Kind(get_args(annotation)[1])
    if origin is list:
        return Kind("array", element=kind_of(get_args(annotation)[0]))
    if isinstance(annotation, type) and issubclass(annotation, Struct):
        return Kind("struct", struct=annotation)
    raise TypeError(f"{annotation!r} is not a wire type")


class Resolved(NamedTuple):
    """One field in one version."""

    name: str
    kind: Kind
    field: Field

    def carried(self, version: int) -> bool:
        """Whether the untagged part of this version has the field."""
        return version in self.field.versions and version not in self.field.tagged

    def tagged(self, version: int) -> bool:
        """Whether this version carries the field as a tagged one."""
        return version in self.field.versions and version in self.field.tagged

    def nullable(self, version: int) -> bool:
        """Whether the field can be null in this version."""
        return self.kind.nullable and (self.field.nullable is None or version in self.field.nullable)


_resolved: dict[type[Struct], list[Resolved]] = {}


def resolve(cls: type[Struct]) -> list[Resolved]:
    """The fields of `cls` in wire order."""
    known = _resolved.get(cls)
    if known is None:
        hints = field_types(cls)
        known = [Resolved(n, kind_of(hints[n]), f) for n, f in cls.__fields__.items()]
        _resolved[cls] = known
    return known


def default_source(field: Resolved, scope: dict[str, Any]) -> str:
    """A source expression for the field's default; names that it uses are added to `scope`."""
    if field.field.factory is list or (field.kind.name == "array" and field.field.default is MISSING):
        return "[]"
    if isinstance(field.field.factory, StructMeta):
        name = f"shared_{field.field.factory.__name__}"
        scope[name] = shared_default(field.field.factory)
        return name
    if field.field.default is not MISSING:
        return repr(field.field.default)
    return repr(_ZERO.get(field.kind.name, 0))


def size_min(kind: Kind, version: int, flexible: bool) -> int:
    """The smallest size of a value in bytes: array counts are checked against it before anything is allocated."""
    if kind.name in FIXED:
        return FIXED[kind.name][1]
    if kind.name == "struct":
        assert kind.struct is not None
        fields = [f for f in resolve(kind.struct) if f.carried(version)]
        return max(1, int(flexible) + sum(_field_size_min(f, version, flexible) for f in fields))
    if flexible:
        return 1
    return 2 if kind.name == "string" else 4


def _field_size_min(field: Resolved, version: int, flexible: bool) -> int:
    if field.kind.struct is not None and field.nullable(version):
        return 1  # the byte for null
    return size_min(field.kind, version, flexible)
