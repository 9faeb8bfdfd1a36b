"""Requests that differ from an earlier one only in their records are recognised by comparison, not decoded.

The requests of a producer for one partition are the same bytes except for the correlation id, the length of the records and the
records, which are at the end, followed only by empty tag sections. Comparing takes a third of the time of decoding.
"""

from __future__ import annotations

import struct
from typing import Any, Protocol

from txbroker.errors import ProtocolError
from txbroker.wire.primitives import read_uvarint, write_uvarint

# API key, version and correlation id: the route knows the first two, and the third differs.
_BEGIN = 8
_LENGTH = struct.Struct(">i")

# A flexible request ends with the empty tag sections of the partition, the topic and the request.
_NO_TAGS = bytes(3)

# How many requests are remembered for a connection, and their largest size: librdkafka sends one request per partition.
REPEATS_MAX = 64
BYTES_MAX = 512


class Holder(Protocol):
    """The struct of a request that contains the records."""

    records: Any


class Repeated:
    """A message, the struct in it that contains the records, and the client id of its header."""

    __slots__ = ("client_id", "holder", "holders", "message")

    def __init__(self, message: Any, holder: Holder, client_id: str | None) -> None:
        self.message = message
        self.holder = holder
        self.holders = (holder,)
        self.client_id = client_id


class Repeats:
    """The requests of one connection in one version of one API. A repeated request gets the message of the first one, with the new
    records: a handler may keep the message, but must not use its records once it has returned."""

    __slots__ = ("_flexible", "_length_at", "_messages", "_tail")

    def __init__(self, *, flexible: bool) -> None:
        self._flexible = flexible
        self._tail = _NO_TAGS if flexible else b""
        self._length_at = 0  # position of the records' length, the same in all remembered requests
        self._messages: dict[bytes, Repeated] = {}

    def find(self, frame: memoryview) -> Repeated | None:
        """The request that the frame repeats, if there is one; its message has the frame's records now."""
        at = self._length_at
        found = self._messages.get(bytes(frame[_BEGIN:at]))
        if found is None:
            return None
        try:
            if self._flexible:
                length = frame[at]
                at += 1
                if length > 127:
                    length, at = read_uvarint(frame, at - 1)
                length -= 1
            else:
                (length,) = _LENGTH.unpack_from(frame, at)
                at += 4
        except (IndexError, struct.error, ProtocolError):
            return None
        end = at + length
        tail = self._tail
        if length < 0 or end + len(tail) != len(frame) or frame[end:] != tail:
            return None
        found.holder.records = frame[at:end]
        return found

    def remember(self, frame: memoryview, client_id: str | None, message: Any, holder: Holder) -> None:
        """Keep `message`, the content of `frame`, whose only records are `holder.records`, unless its layout differs from the kept ones."""
        size = len(holder.records or b"")
        tail = self._tail
        length = write_uvarint(size + 1) if self._flexible else _LENGTH.pack(size)
        begin = len(frame) - len(tail) - size
        at = begin - len(length)
        if not self._messages:
            self._length_at = at
        if (
            at == self._length_at
            and _BEGIN < at <= BYTES_MAX
            and len(self._messages) < REPEATS_MAX
            and frame[at:begin] == length
            and frame[begin + size :] == tail
        ):
            self._messages[bytes(frame[_BEGIN:at])] = Repeated(message, holder, client_id)
