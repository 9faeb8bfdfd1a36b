"""Decode and encode messages, by functions that are generated for each class and version on first use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sized
from typing import Any, TypeVar

from txbroker.wire.schema import Message

M = TypeVar("M", bound=Message)

_decoders: dict[tuple[type[Message], int, bool, int | None], Callable[[memoryview], Any]] = {}
_encoders: dict[tuple[type[Message], int], Callable[[Any], list[Any]]] = {}


def decoder(
    cls: type[M], version: int, *, exact: bool = True, elements_max: int | None = None
) -> Callable[[memoryview], M]:
    """The compiled decoder of one version: takes one body, raises ProtocolError. ValueError for a version it lacks.

    With `exact=False` it ignores bytes after the message, as Kafka does for requests: librdkafka 2.16 sends three too many with
    a Metadata v13 for all topics. `elements_max`: of all arrays of one message, None for the limit of clients' requests.
    """
    made = _decoders.get((cls, version, exact, elements_max))
    if made is None:
        from txbroker.wire.decoders import ELEMENTS_MAX, make_decoder

        _check(cls, version)
        made = make_decoder(cls, version, exact=exact, elements_max=elements_max or ELEMENTS_MAX)
        _decoders[cls, version, exact, elements_max] = made
    return made


def encoder(cls: type[M], version: int) -> Callable[[M], list[Any]]:
    """The compiled encoder of one version: returns parts, with `Records` values as they are."""
    made = _encoders.get((cls, version))
    if made is None:
        from txbroker.wire.encoders import make_encoder

        _check(cls, version)
        made = _encoders[cls, version] = make_encoder(cls, version)
    return made


def _check(cls: type[Message], version: int) -> None:
    if version not in cls.versions:
        raise ValueError(f"{cls.__name__} has versions {cls.versions}, not {version}")


def decode(cls: type[M], version: int, buffer: bytes | bytearray | memoryview) -> M:
    """The message in `buffer`; ProtocolError unless it fills the buffer exactly."""
    return decoder(cls, version)(memoryview(buffer))


def encode(message: Message, version: int) -> list[Any]:
    """The message's parts: bytes, and its `Records` values as they are. ValueError if the version has no field for a value."""
    return encoder(type(message), version)(message)


def encode_bytes(message: Message, version: int) -> bytes:
    """The message joined to bytes; for messages whose records, if any, are bytes."""
    return b"".join(encode(message, version))


def size_of(parts: Iterable[Sized]) -> int:
    """The bytes that parts take on the wire."""
    return sum(map(len, parts))
