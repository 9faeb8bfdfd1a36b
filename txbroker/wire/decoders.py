"""Generates the function that decodes one message class in one version.

What makes it fast: runs of fixed-size fields, and the length that follows them, are read by one `unpack_from`; unsigned varints of
one or two bytes are inline; objects are created without calling `__init__`; tagged fields are handled apart.
What makes it safe: every length is checked against the frame before it is used, every array count against the smallest size of
its elements and against a limit of elements for the whole message.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from txbroker.errors import ProtocolError
from txbroker.wire.fieldkinds import FIXED, Kind, Resolved, default_source, resolve, size_min
from txbroker.wire.primitives import read_uvarint
from txbroker.wire.schema import Message, Struct
from txbroker.wire.source import Source, compile_function

# As many elements are some 30 MB of Python objects. The largest honest requests (a full Fetch of a broker's every partition)
# have a few thousand; Kafka itself bounds them only by socket.request.max.bytes.
ELEMENTS_MAX = 100_000


STRING_BYTES_MAX = 0x7FFF


def _fail(what: str) -> None:
    raise ProtocolError(f"{what} does not fit into the frame")


def _fail_null(what: str) -> None:
    raise ProtocolError(f"{what} may not be null")


class _Decoder:
    def __init__(self, cls: type[Message], version: int, elements_max: int) -> None:
        self.elements_max = elements_max
        self.version = version
        self.flexible = version in cls.flexible
        self.source = Source()
        self.tag_functions: list[tuple[str, list[Resolved], str]] = []
        self.run: list[tuple[str, str, int]] = []  # (target, struct code, size) not read yet
        self.scope: dict[str, Any] = {
            "new": object.__new__,
            "uvarint": read_uvarint,
            "fail": _fail,
            "fail_null": _fail_null,
            "unpack_from": struct.unpack_from,
            "ProtocolError": ProtocolError,
            "errors": (struct.error, IndexError, UnicodeDecodeError, OverflowError),
        }

    def bind(self, value: Any, name: str) -> str:
        self.scope[name] = value
        return name

    def flush(self) -> None:
        """Read the pending run of fixed fields with one unpack."""
        if not self.run:
            return
        codes = "".join(code for _, code, _ in self.run)
        unpack = self.bind(struct.Struct(">" + codes).unpack_from, f"u_{codes.replace('?', 'o')}")
        targets = ", ".join(target for target, _, _ in self.run)
        self.source(f"{targets}{',' if len(self.run) == 1 else ''} = {unpack}(b, p)")
        self.source(f"p += {sum(size for _, _, size in self.run)}")
        self.run.clear()

    def byte(self, target: str) -> None:
        """Read one unsigned byte into `target`, together with the pending run."""
        if self.run:
            self.run.append((target, "B", 1))
            self.flush()
        else:
            self.source(f"{target} = b[p]; p += 1")

    def length(self, code: str, size: int) -> str:
        """Read the length of a string, array or byte field into a fresh name; null is -1."""
        n = self.source.fresh("n")
        if not self.flexible:
            self.run.append((n, code, size))
            self.flush()
            return n
        self.byte(n)
        with self.source.block(f"if {n} > 127:"):
            with self.source.block("if b[p] < 128:"):  # two bytes: records, usually
                self.source(f"{n} += (b[p] << 7) - 128; p += 1")
            with self.source.block("else:"):
                self.source(f"{n}, p = uvarint(b, p - 1)")
        self.source(f"{n} -= 1")
        return n

    def value(self, kind: Kind, target: str, what: str, nullable: bool) -> None:
        """Decode one value into the assignable expression `target`."""
        if kind.name in FIXED:
            code, size = FIXED[kind.name]
            self.run.append((target, code, size))
        elif kind.name == "struct":
            self.nested(kind, target, nullable)
        elif kind.name == "array":
            self.array(kind, target, what, nullable)
        else:
            n = self.length(*(("h", 2) if kind.name == "string" else ("i", 4)))
            self.null_case(n, target, what, nullable)
            with self.source.block("else:"):
                self.source(f"q = p + {n}")
                # A compact string may be longer than Kafka's limit for all strings, which older versions could not encode.
                too_long = f" or {n} > {STRING_BYTES_MAX}" if kind.name == "string" and self.flexible else ""
                self.source(f"if q > e{too_long}: fail({what!r})")
                read = {"string": 'str(b[p:q], "utf-8")', "bytes": "bytes(b[p:q])", "records": "b[p:q]"}[kind.name]
                self.source(f"{target} = {read}")
                self.source("p = q")

    def tagged_value(self, field: Resolved, owner: str) -> None:
        """Decode a tagged field. There Kafka writes a null struct as 0, not as a negative byte."""
        target, nullable = f"o.{field.name}", field.nullable(self.version)
        if field.kind.struct is None or not nullable:
            self.value(field.kind, target, f"{owner}.{field.name}", nullable)
            self.flush()
            return
        with self.source.block("if b[p] == 0:"):
            self.source(f"{target} = None; p += 1")
        with self.source.block("else:"):
            self.value(field.kind, target, f"{owner}.{field.name}", nullable)
            self.flush()

    def null_case(self, n: str, target: str, what: str, nullable: bool) -> None:
        with self.source.block(f"if {n} < 0:"):
            self.source(f"{target} = None" if nullable else f"fail_null({what!r})")

    def nested(self, kind: Kind, target: str, nullable: bool) -> None:
        assert kind.struct is not None
        self.flush()
        o = self.source.fresh("o")
        if nullable:  # a nullable struct begins with one byte: negative for null
            with self.source.block("if b[p] > 127:"):
                self.source(f"{target} = None; p += 1")
            with self.source.block("else:"):
                self.source("p += 1")
                self.struct(kind.struct, o)
                self.source(f"{target} = {o}")
        else:
            self.struct(kind.struct, o)
            self.source(f"{target} = {o}")

    def array(self, kind: Kind, target: str, what: str, nullable: bool) -> None:
        assert kind.element is not None
        element = kind.element
        n = self.length("i", 4)
        self.null_case(n, target, what, nullable)
        with self.source.block("else:"):
            least = size_min(element, self.version, self.flexible)
            self.source(f"k += {n}")
            self.source(f"if {n}{f' * {least}' if least > 1 else ''} > e - p or k > {self.elements_max}: fail({what!r})")
            if element.name in FIXED and element.name != "uuid":
                code, size = FIXED[element.name]
                self.source(f'{target} = list(unpack_from(">%d{code}" % {n}, b, p)); p += {n} * {size}')
                return
            items, item = self.source.fresh("l"), self.source.fresh("i")
            self.source(f"{items} = []; {target} = {items}; {items}a = {items}.append")
            with self.source.block(f"for _ in range({n}):"):
                if element.name == "struct":
                    assert element.struct is not None
                    self.struct(element.struct, item)
                else:
                    self.value(element, item, what, element.nullable)
                    self.flush()
                self.source(f"{items}a({item})")

    def struct(self, cls: type[Struct], o: str) -> None:
        """Decode the fields of `cls` into a new object named `o`."""
        name = self.bind(cls, f"C_{cls.__name__}")
        self.source(f"{o} = new({name})")
        defaults: dict[str, list[str]] = {}
        tagged = []
        for field in resolve(cls):
            if field.carried(self.version):
                continue
            if field.tagged(self.version):
                tagged.append(field)
            source = default_source(field, self.scope)
            if source == "[]":
                self.source(f"{o}.{field.name} = {source}")
            else:
                defaults.setdefault(source, []).append(f"{o}.{field.name}")
        for source, targets in defaults.items():
            self.source(f"{' = '.join(targets)} = {source}")
        for field in resolve(cls):
            if field.carried(self.version):
                self.value(field.kind, f"{o}.{field.name}", f"{cls.__name__}.{field.name}", field.nullable(self.version))
        if self.flexible:
            self.tags(cls, o, tagged)
        self.flush()

    def tags(self, cls: type[Struct], o: str, tagged: list[Resolved]) -> None:
        function = f"tags_{cls.__name__}" if tagged else "tags_none"
        if all(name != function for name, _, _ in self.tag_functions):
            self.tag_functions.append((function, tagged, cls.__name__))
        if self.run:
            t = self.source.fresh("t")
            self.byte(t)
            self.source(f"if {t}: p = {function}({o}, b, p - 1, e)")
        else:
            self.source(f"if b[p]: p = {function}({o}, b, p, e)")
            self.source("else: p += 1")

    def tag_function(self, function: str, tagged: list[Resolved], owner: str) -> None:
        with self.source.block(f"def {function}(o, b, p, e):"):
            self.source("k = 0")
            self.source("c, p = uvarint(b, p)")
            self.source("if c * 2 > e - p: fail('a tag section')")
            with self.source.block("for _ in range(c):"):
                self.source("t, p = uvarint(b, p)")
                self.source("s, p = uvarint(b, p)")
                self.source("z = p + s")
                self.source("if z > e: fail('a tagged field')")
                for field in tagged:
                    with self.source.block(f"if t == {field.field.tag}:"):
                        self.tagged_value(field, owner)
                        self.source("if p != z: fail('a tagged field')")
                self.source("p = z")
            self.source("return p")


def make_decoder(cls: type[Message], version: int, *, exact: bool, elements_max: int = ELEMENTS_MAX) -> Callable[[memoryview], Any]:
    """A function that takes the whole body as a memoryview and returns the message, or raises ProtocolError.

    `exact`: bytes after the message are an error. `elements_max`: of all arrays together.
    """
    decoder = _Decoder(cls, version, elements_max)
    source = decoder.source
    with source.block("def decode(b):"):
        source("p = k = 0; e = len(b)")
        with source.block("try:"):
            decoder.struct(cls, "o")
        with source.block("except errors as error:"):
            source(f"raise ProtocolError('{cls.__name__} version {version} is incomplete or malformed') from error")
        with source.block("if p != e:" if exact else "if p > e:"):
            source(f"raise ProtocolError('%d bytes too many after {cls.__name__} version {version}' % (e - p))")
        source("return o")
    done = 0
    while done < len(decoder.tag_functions):
        decoder.tag_function(*decoder.tag_functions[done])
        done += 1
    return compile_function(source, decoder.scope, "decode", f"decode {cls.__name__} v{version}")
