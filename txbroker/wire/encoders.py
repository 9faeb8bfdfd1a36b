"""Generates the function that encodes one message class in one version into a list of parts.

`Records` values are parts of their own and stay as they are, so that a file region reaches the transport. A value other than the
default in a field that the version lacks is a ValueError, unless the field is ignorable.

What makes it fast: fixed-size fields, and the lengths between them, are written by one `pack`. In flexible versions lengths are
varints; so there are two functions, one for messages whose counts and strings are all short (lengths of one byte) and whose tagged
fields have their defaults, and one for any message, which the first one falls back to.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from txbroker.wire.fieldkinds import FIXED, Kind, Resolved, default_source, resolve
from txbroker.wire.primitives import SMALL_UVARINTS, write_uvarint
from txbroker.wire.schema import Message, Struct
from txbroker.wire.source import Source, compile_function


def _refuse(what: str) -> None:
    raise ValueError(f"{what} cannot be carried by this version")


# The largest count or length in a varint of one byte: they are sent plus one, null as 0.
_SHORT_MAX = 126


class _Encoder:
    def __init__(self, cls: type[Message], version: int, *, short: bool) -> None:
        self.version = version
        self.flexible = version in cls.flexible
        self.short = short
        self.source = Source()
        self.sink = "w"
        self.run: list[tuple[str, str]] = []  # (struct code, expression) not written yet
        self.scope: dict[str, Any] = {"T": SMALL_UVARINTS, "uvarint": write_uvarint, "refuse": _refuse, "pack": struct.pack}

    def flush(self, *tail: str) -> None:
        """Write the pending run, and `tail` (bytes expressions) with it as one part."""
        parts = list(tail)
        if [code for code, _ in self.run] == ["B"]:
            parts.insert(0, f"T[{self.run.pop()[1]}]")
        elif self.run:
            codes = "".join(code for code, _ in self.run)
            name = f"p_{codes.replace('?', 'o')}"
            self.scope[name] = struct.Struct(">" + codes).pack
            parts.insert(0, f"{name}({', '.join(expression for _, expression in self.run)})")
            self.run.clear()
        if parts:
            self.source(f"{self.sink}({' + '.join(parts)})")

    def length(self, n: str, code: str) -> list[str]:
        """Add the length in the name `n` (-1 is null) to the pending fields; returns the expression to be written after it."""
        if not self.flexible:
            self.run.append((code, n))
        elif self.short:
            self.source(f"if {n} > {_SHORT_MAX}: return encode_any(o)")
            self.run.append(("B", f"{n} + 1"))
        else:
            return [_varint(n)]
        return []

    def value(self, kind: Kind, expression: str, nullable: bool) -> None:
        if kind.name in FIXED:
            self.run.append((FIXED[kind.name][0], expression))
        elif kind.name == "string":
            self.string(expression, nullable)
        elif kind.name == "struct":
            self.nested(kind, expression, nullable)
        elif kind.name == "array":
            self.array(kind, expression, nullable)
        else:
            self.blob(kind, expression, nullable)

    def string(self, expression: str, nullable: bool) -> None:
        x, n = self.source.fresh("x"), self.source.fresh("n")
        if nullable:
            self.source(f"{x} = {expression}")
            with self.source.block(f"if {x} is None:"):
                self.source(f"{n} = -1; {x} = b''")
            with self.source.block("else:"):
                self.source(f"{x} = {x}.encode(); {n} = len({x})")
        else:
            self.source(f"{x} = {expression}.encode(); {n} = len({x})")
        self.flush(*self.length(n, "h"), x)

    def blob(self, kind: Kind, expression: str, nullable: bool) -> None:
        x, n = self.source.fresh("x"), self.source.fresh("n")
        self.source(f"{x} = {expression}")
        self.source(f"{n} = -1 if {x} is None else len({x})" if nullable else f"{n} = len({x})")
        if self.flexible:
            self.flush(_varint(n))
        else:
            self.run.append(("i", n))
            self.flush()
        with self.source.block(f"if {n} > 0:"):
            self.source(f"{self.sink}({x})")

    def nested(self, kind: Kind, expression: str, nullable: bool) -> None:
        assert kind.struct is not None
        o = self.source.fresh("o")
        self.source(f"{o} = {expression}")
        if not nullable:
            self.struct(kind.struct, o)
            return
        self.flush()
        with self.source.block(f"if {o} is None:"):
            self.source(f"{self.sink}(b'\\xff')")
        with self.source.block("else:"):
            self.run.append(("b", "1"))
            self.struct(kind.struct, o)
            self.flush()

    def array(self, kind: Kind, expression: str, nullable: bool) -> None:
        assert kind.element is not None
        element = kind.element
        x, n = self.source.fresh("x"), self.source.fresh("n")
        self.source(f"{x} = {expression}")
        self.source(f"{n} = -1 if {x} is None else len({x})" if nullable else f"{n} = len({x})")
        self.flush(*self.length(n, "i"))
        if nullable:
            self.source(f"if {x} is None: {x} = ()")
        if element.name in FIXED and element.name != "uuid":
            self.source(f'if {n} > 0: {self.sink}(pack(">%d{FIXED[element.name][0]}" % {n}, *{x}))')
            return
        item = self.source.fresh("i")
        with self.source.block(f"for {item} in {x}:"):
            if element.name == "struct":
                assert element.struct is not None
                self.struct(element.struct, item)
            else:
                self.value(element, item, element.nullable)
            self.flush()

    def struct(self, cls: type[Struct], o: str) -> None:
        tagged: list[Resolved] = []
        for field in resolve(cls):
            if field.tagged(self.version):
                tagged.append(field)
            elif field.carried(self.version):
                self.value(field.kind, f"{o}.{field.name}", field.nullable(self.version))
            elif not field.field.ignorable:
                with self.source.block(f"if {self.differs(o, field)}:"):
                    self.source(f"refuse('{cls.__name__}.{field.name} = %r' % ({o}.{field.name},))")
        if not self.flexible:
            return
        if not tagged:
            self.run.append(("B", "0"))
            return
        if self.short:
            self.source(f"if {' or '.join(self.differs(o, field) for field in tagged)}: return encode_any(o)")
            self.run.append(("B", "0"))
            return
        self.flush()
        self.tags(o, sorted(tagged, key=lambda f: f.field.tag or 0))

    def differs(self, o: str, field: Resolved) -> str:
        """A condition: the field does not have its default. Nested structs are mostly the shared default object."""
        value, default = f"{o}.{field.name}", default_source(field, self.scope)
        return f"{value} is not {default} and {value} != {default}" if field.kind.name == "struct" else f"{value} != {default}"

    def tags(self, o: str, tagged: list[Resolved]) -> None:
        t = self.source.fresh("t")
        self.source(f"{t} = []")
        for field in tagged:
            with self.source.block(f"if {self.differs(o, field)}:"):
                outer, parts, self.sink = self.sink, self.source.fresh("s"), self.source.fresh("w")
                self.source(f"{parts} = []; {self.sink} = {parts}.append")
                self.value(field.kind, f"{o}.{field.name}", field.nullable(self.version))
                self.flush()
                self.sink = outer
                self.source(f"{parts} = b''.join({parts})")
                self.source(f"{t}.append(uvarint({field.field.tag}) + uvarint(len({parts})) + {parts})")
        self.source(f"{self.sink}(uvarint(len({t})) + b''.join({t}) if {t} else b'\\0')")


def _varint(n: str) -> str:
    """An expression: the length in the name `n` as a varint of flexible versions."""
    return f"(T[{n} + 1] if {n} <= {_SHORT_MAX} else uvarint({n} + 1))"


def make_encoder(cls: type[Message], version: int) -> Callable[[Any], list[Any]]:
    """A function that takes a message and returns its parts."""
    short = version in cls.flexible
    encoder = _Encoder(cls, version, short=short)
    if short:
        encoder.scope["encode_any"] = _on_demand(cls, version)
    return _compiled(encoder, cls)


def _on_demand(cls: type[Message], version: int) -> Callable[[Any], list[Any]]:
    """The function for any message, generated when it is first needed."""
    made: list[Callable[[Any], list[Any]]] = []

    def encode_any(message: Any) -> list[Any]:
        if not made:
            made.append(_compiled(_Encoder(cls, version, short=False), cls))
        return made[0](message)

    return encode_any


def _compiled(encoder: _Encoder, cls: type[Message]) -> Callable[[Any], list[Any]]:
    source = encoder.source
    with source.block("def encode(o):"):
        source("parts = []; w = parts.append")
        encoder.struct(cls, "o")
        encoder.flush()
        source("return parts")
    kind = ", short" if encoder.short else ""
    return compile_function(source, encoder.scope, "encode", f"encode {cls.__name__} v{encoder.version}{kind}")
