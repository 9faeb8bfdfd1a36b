"""Responses that differ only in a few fields: encoded once per version, then filled in by one call of `struct`.

A template is made from the encoder's own output, so there is no second description of a message: a response with marks in its variable
fields is encoded, and the bytes around the marks are the fixed bytes of all such responses.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import count
from typing import Any, NamedTuple

from txbroker.wire.codec import encoder
from txbroker.wire.headers import response_header_version, response_prefix
from txbroker.wire.primitives import write_uvarint
from txbroker.wire.schema import Request, response_class

# Values that no response has by itself.
TOPIC_NAME = "a-name-that-marks-the-topic"
TOPIC_ID = bytes.fromhex("51c9e07ab3184d26f8a90c35e91d7e42")
RECORDS = bytes.fromhex("c35a7e91d04b26f8a913")
_NUMBER_BYTES = {"i": 4, "q": 8}
_TOPIC = "topic"
_RECORDS = "records"

_INT32_LENGTH = struct.Struct(">i").pack


def _numbers(code: str) -> Iterator[int]:
    """Values of this size, each another one, that no response has by itself."""
    size = _NUMBER_BYTES[code]
    for number in count():
        yield int.from_bytes(sha256(f"{code} {number}".encode()).digest()[:size]) >> 1


class Layout(NamedTuple):
    """All responses of a template whose topic has the same length: `pack(size, correlation id, fixed[0], field, fixed[1], …)`.

    `size` is what the frame's size field contains, without records. `fixed` has the bytes between the fields.
    """

    pack: Callable[..., bytes]
    size: int
    fixed: tuple[bytes, ...]


class Template:
    """The frames of one version of a response as a function of some fields."""

    def __init__(self, request: type[Request], version: int, fields: Sequence[str], build: Callable[[Sequence[int]], Any]) -> None:
        """`fields` are in the order of the wire: "topic", "records" (the last one, if there), and runs of "i" and "q", the numbers that
        `build` makes the response with; it uses `TOPIC_NAME`, `TOPIC_ID` and `RECORDS` for the others.

        ValueError where this version does not have these fields in this order.
        """
        response = response_class(request)
        self._flexible = version in response.flexible
        self._fields = [field for field in fields if field != _RECORDS]
        numbers = {code: _numbers(code) for code in _NUMBER_BYTES}
        taken = {index: [next(numbers[code]) for code in field] for index, field in enumerate(fields) if field not in (_TOPIC, _RECORDS)}
        body = b"".join(encoder(response, version)(build([mark for marks in taken.values() for mark in marks])))
        self.by_name = TOPIC_ID not in body
        """Whether this version identifies topics by name; otherwise by id."""
        fixed = []
        for index, field in enumerate(fields):
            if field == _TOPIC:
                mark = self._string(TOPIC_NAME.encode()) if self.by_name else TOPIC_ID
            elif field == _RECORDS:
                mark = self.records_length(len(RECORDS)) + RECORDS
            else:
                mark = struct.pack(f">{field}", *taken[index])
            before, found, body = body.partition(mark)
            if not found or mark in body:
                raise ValueError(f"{response.__name__} v{version} does not have {', '.join(fields)} in this order")
            fixed.append(before)
        self._fixed = [response_prefix(response_header_version(request, version), 0, 0)[8:] + fixed[0], *fixed[1:]]
        if _RECORDS in fields:
            self.end = body
        else:
            self._fixed.append(body)
            self.end = b""
        self.layouts: Mapping[int, Layout] = _Layouts(self._make_layout)
        """How to pack responses for a topic, by the length of its id or encoded name; made on first use."""

    def records_length(self, size: int) -> bytes:
        """The length that precedes `size` bytes of records."""
        return write_uvarint(size + 1) if self._flexible else _INT32_LENGTH(size)

    def _make_layout(self, topic_bytes: int) -> Layout:
        fixed = list(self._fixed)
        codes = [f"{topic_bytes}s" if field == _TOPIC else field for field in self._fields]
        if self.by_name:
            fixed[self._fields.index(_TOPIC)] += self._string(bytes(topic_bytes))[:-topic_bytes]
        packed = struct.Struct(">ii" + "".join(f"{len(before)}s{code}" for before, code in zip(fixed, [*codes, ""], strict=False)))
        return Layout(packed.pack, packed.size - 4 + len(self.end), tuple(fixed))

    def _string(self, text: bytes) -> bytes:
        """A string with its length."""
        return (write_uvarint(len(text) + 1) if self._flexible else struct.pack(">h", len(text))) + text


class _Layouts(dict[int, Layout]):
    def __init__(self, make: Callable[[int], Layout]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, topic_bytes: int) -> Layout:
        made = self[topic_bytes] = self._make(topic_bytes)
        return made
