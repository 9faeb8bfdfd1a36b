"""How messages are declared: typed classes whose fields have the versions in which they exist.

    class FetchPartition(Struct):
        partition: Int32
        current_leader_epoch: Int32 = v("9+", default=-1, ignorable=True)

    class FetchRequest(Request, key=1, versions="0-18", flexible="12+"):
        max_wait_ms: Int32
        topics: list[FetchTopic]

Decoders and encoders are generated from these declarations, per class and version, on first use (`txbroker.wire.codec`).
A decoded message has the fields of the newest version: a field that its version lacks has its default. `T | None` is nullable (in all
versions, unless `nullable=` narrows them). The grammar of the bytes is Kafka's protocol guide with KIP-482 (flexible versions).
"""

from __future__ import annotations

from collections.abc import Callable, Sized
from typing import Annotated, Any, ClassVar, NamedTuple, TypeVar, dataclass_transform, get_type_hints

Bool = Annotated[bool, "bool"]
Int8 = Annotated[int, "int8"]
Int16 = Annotated[int, "int16"]
Uint16 = Annotated[int, "uint16"]
Int32 = Annotated[int, "int32"]
Uint32 = Annotated[int, "uint32"]
Int64 = Annotated[int, "int64"]
Float64 = Annotated[float, "float64"]
Uuid = Annotated[bytes, "uuid"]
String = Annotated[str, "string"]
Bytes = Annotated[bytes, "bytes"]
# Decoded: a memoryview into the frame, valid until the handler returns. Encoded: anything with a length that the
# transport can send (bytes, a memoryview, a file region).
Records = Annotated[Sized, "records"]

LATEST = 32767  # "no upper bound" in a version range


class VersionRange(NamedTuple):
    """An inclusive range of versions; empty when `low > high`."""

    low: int
    high: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.low <= version <= self.high

    def __str__(self) -> str:
        if self.low > self.high:
            return "none"
        if self.high == LATEST:
            return f"{self.low}+"
        return str(self.low) if self.low == self.high else f"{self.low}-{self.high}"


NO_VERSIONS = VersionRange(0, -1)
ALL_VERSIONS = VersionRange(0, LATEST)


def parse_versions(text: str) -> VersionRange:
    """`"3+"`, `"0-12"`, `"4"` or `"none"` as a range."""
    if text == "none":
        return NO_VERSIONS
    if text.endswith("+"):
        return VersionRange(int(text[:-1]), LATEST)
    low, _, high = text.partition("-")
    return VersionRange(int(low), int(high or low))


class Missing:
    """No default was declared."""

    def __repr__(self) -> str:
        return "MISSING"


MISSING = Missing()


class Field(NamedTuple):
    """The declaration of a field, apart from its type."""

    versions: VersionRange
    default: Any
    factory: Callable[[], Any] | None
    nullable: VersionRange | None
    tag: int | None
    tagged: VersionRange
    ignorable: bool


def v(
    versions: str = "0+",
    *,
    default: Any = MISSING,
    factory: Callable[[], Any] | None = None,
    nullable: str | None = None,
    tag: int | None = None,
    tagged: str | None = None,
    ignorable: bool = False,
) -> Any:
    """Declare a field: the versions that carry it, its default where absent, and its tag (KIP-482).

    `ignorable`: encoding for a version without this field drops its value instead of failing.
    `factory` creates the default of lists and nested structs. The default of a nested struct is one shared object (creating one
    for every partition of a response costs more than encoding it): replace it, never change it.
    """
    carried = parse_versions(versions)
    tagged_versions = NO_VERSIONS if tag is None else (parse_versions(tagged) if tagged else carried)
    return Field(carried, default, factory, parse_versions(nullable) if nullable else None, tag, tagged_versions, ignorable)


_PLAIN = Field(ALL_VERSIONS, MISSING, None, None, None, NO_VERSIONS, False)


@dataclass_transform(kw_only_default=True, field_specifiers=(v,))
class StructMeta(type):
    """Turns annotations into slots and keeps their declarations in `__fields__`, in wire order."""

    __fields__: dict[str, Field]

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **keywords: Any) -> StructMeta:
        """Create the class; keywords (`key`, `versions`, `flexible`) go to `__init_subclass__`."""
        annotations: dict[str, str] = namespace.get("__annotations__", {})
        names = [n for n, text in annotations.items() if not str(text).startswith("ClassVar")]
        fields = {n: namespace.pop(n, _PLAIN) for n in names}
        namespace["__slots__"] = tuple(fields)
        namespace["__fields__"] = fields
        return super().__new__(mcs, name, bases, namespace, **keywords)


class Struct(metaclass=StructMeta):
    """A group of fields. Constructed by keyword; fields without a default are required."""

    def __init__(self, **values: Any) -> None:
        cls = type(self)
        cls.__init__ = _compile_init(cls)  # type: ignore[method-assign]
        cls.__init__(self, **values)

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(getattr(self, n) == getattr(other, n) for n in type(self).__fields__)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        inside = ", ".join(f"{n}={getattr(self, n, MISSING)!r}" for n in type(self).__fields__)
        return f"{type(self).__name__}({inside})"


def _compile_init(cls: type[Struct]) -> Callable[..., None]:
    """A keyword-only `__init__` of straight assignments: several times faster than a loop over keywords."""
    required, optional, body = [], [], []
    scope: dict[str, Any] = {"_missing": MISSING}
    for name, field in cls.__fields__.items():
        if isinstance(field.factory, StructMeta):
            scope[f"_default_{name}"] = shared_default(field.factory)
            optional.append(f"{name}=_default_{name}")
            body.append(f" self.{name} = {name}")
        elif field.factory is not None:
            scope[f"_make_{name}"] = field.factory
            optional.append(f"{name}=_missing")
            body.append(f" self.{name} = _make_{name}() if {name} is _missing else {name}")
        elif field.default is not MISSING:
            scope[f"_default_{name}"] = field.default
            optional.append(f"{name}=_default_{name}")
            body.append(f" self.{name} = {name}")
        else:
            required.append(name)
            body.append(f" self.{name} = {name}")
    arguments = ["self"] + (["*"] if required or optional else []) + required + optional
    exec(f"def __init__({', '.join(arguments)}):\n" + ("\n".join(body) or " pass"), scope)
    made: Callable[..., None] = scope["__init__"]
    return made


_shared: dict[StructMeta, Any] = {}


def shared_default(cls: StructMeta) -> Any:
    """The shared object that is the default of nested structs of this class."""
    if cls not in _shared:
        _shared[cls] = cls()
    return _shared[cls]


class Message(Struct):
    """A top-level struct, with its versions and the first flexible one."""

    versions: ClassVar[VersionRange] = NO_VERSIONS
    flexible: ClassVar[VersionRange] = NO_VERSIONS

    def __init_subclass__(cls, *, versions: str = "none", flexible: str = "none") -> None:
        super().__init_subclass__()
        cls.versions = parse_versions(versions)
        cls.flexible = parse_versions(flexible)


class Data(Message):
    """A message that is kept rather than sent: a record of an internal topic, a file's content."""


class Request(Message):
    """A request of the API `key`."""

    api_key: ClassVar[int] = -1

    def __init_subclass__(cls, *, key: int, versions: str, flexible: str = "none") -> None:
        super().__init_subclass__(versions=versions, flexible=flexible)
        cls.api_key = key


class Response(Message):
    """The response to the request of the same `key`; declared in the same module, with the same versions."""

    api_key: ClassVar[int] = -1

    def __init_subclass__(cls, *, key: int, versions: str, flexible: str = "none") -> None:
        super().__init_subclass__(versions=versions, flexible=flexible)
        cls.api_key = key
        _responses[key] = cls


_responses: dict[int, type[Response]] = {}
_M = TypeVar("_M", bound=Struct)


def response_class(request: type[Request]) -> type[Response]:
    """The response class of `request`."""
    return _responses[request.api_key]


def field_types(cls: type[Struct]) -> dict[str, Any]:
    """Each field's resolved annotation, `Annotated` metadata kept."""
    hints = get_type_hints(cls, include_extras=True)
    return {name: hints[name] for name in cls.__fields__}
