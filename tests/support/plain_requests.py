"""Requests from nested dictionaries over a raw socket, in any version, and their responses as text that is easy to compare."""

from __future__ import annotations

import socket
import struct
from importlib import import_module
from types import TracebackType
from typing import Any, Self

from tests.support.waiting import PATIENCE_S
from txbroker.wire.codec import decoder, encode_bytes
from txbroker.wire.fieldkinds import Kind, resolve
from txbroker.wire.headers import request_prefix, response_body_position, response_header_version
from txbroker.wire.schema import MISSING, Request, Response, Struct

_EMPTY: dict[str, Any] = {"array": [], "string": "", "bytes": b"", "uuid": bytes(16), "bool": False}


class PlainConnection:
    """A blocking connection."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), PATIENCE_S)
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._socket.close()

    def call(self, api: str, version: int, **fields: Any) -> Any:
        """Send a request, e.g. `call("DescribeGroups", 5, groups=["g"])`, and return its response."""
        request_class, response_class = _classes(api)
        request = _made(request_class, fields)
        self._correlation_id += 1
        body = encode_bytes(request, version)
        self._socket.sendall(request_prefix(request_class, version, self._correlation_id, "plain", len(body)) + body)
        (size,) = struct.unpack(">i", self._read(4))
        frame = memoryview(self._read(size))
        position = response_body_position(frame, response_header_version(request_class, version))
        return decoder(response_class, version)(frame[position:])

    def _read(self, count: int) -> bytes:
        found = b""
        while len(found) < count:
            more = self._socket.recv(count - len(found))
            if not more:
                raise EOFError("the broker closed the connection")
            found += more
        return found


def _classes(api: str) -> tuple[type[Request], type[Response]]:
    module = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in api).removeprefix("_")
    found = import_module(f"txbroker.wire.messages.{module}")
    return getattr(found, f"{api}Request"), getattr(found, f"{api}Response")


def _made(cls: type[Struct], fields: dict[str, Any]) -> Any:
    """A struct; what is not given is at its default, or else 0, empty or null."""
    known = {field.name: field for field in resolve(cls)}
    values = {name: _value(known[name].kind, value) for name, value in fields.items()}
    for name, field in known.items():
        if name not in values and field.field.default is MISSING and field.field.factory is None:
            values[name] = None if field.kind.nullable else _EMPTY.get(field.kind.name, 0)
    return cls(**values)


def _value(kind: Kind, value: Any) -> Any:
    if kind.name == "array" and value is not None:
        assert kind.element is not None
        return [_value(kind.element, each) for each in value]
    if kind.struct is not None and isinstance(value, dict):
        return _made(kind.struct, value)
    return value
