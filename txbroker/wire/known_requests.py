"""Requests that differ from an earlier one in one field only: recognised by comparison instead of decoded.

A producer sends the same bytes for the same partition again and again, except for the correlation id, the length of the records and the
records, which are at the end, before empty tag sections only (`KnownProduces`). A consumer of one partition without a session sends the
same bytes except for the correlation id and the fetch offset (`KnownFetches`). Comparing costs a quarter to a third of decoding.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from txbroker.errors import ProtocolError
from txbroker.wire.codec import encode_bytes
from txbroker.wire.primitives import read_uvarint, write_uvarint
from txbroker.wire.schema import Records, Request

# API key and version; then the correlation id, which differs.
_ROUTE_END = 4
_BEGIN = 8
_LENGTH = struct.Struct(">i")
_OFFSET = struct.Struct(">q")

# A flexible request ends with the empty tag sections of the partition, the topic and the request.
NO_TAGS = bytes(3)

# A request with more bytes than this, without records, is not kept.
BYTES_MAX = 512

# The requests of all connections that are kept, some 1.2 KB each. A producer sends one request per partition that it writes to, so this
# is for as many pairs of client and partition.
REQUESTS_MAX = 8192


class Holder(Protocol):
    """The struct of a request that has the records."""

    records: Records | None


class KnownRequest:
    """A message, the client id of its header, the structs in it that have records, and the struct with the field that differs.

    `key`: its bytes that do not change. `position`: where the changing field is between them.
    """

    __slots__ = ("changing", "client_id", "generation", "holders", "key", "message", "position")

    def __init__(
        self, key: bytes, position: int, message: Request, client_id: str | None, changing: Any, holders: Sequence[Holder] = ()
    ) -> None:
        self.key = key
        self.position = position
        self.message = message
        self.client_id = client_id
        self.changing = changing
        self.holders = holders
        self.generation = 0  # in which it was last moved to the newer ones


class Known(Protocol):
    """The known requests of one version of one API.

    The message of a known request is that of the first one, with the changing field of the current one: a handler may keep the message, but
    must not look into that field once it has returned.
    """

    def find(self, frame: memoryview, position: int) -> KnownRequest | None:
        """What the frame repeats, if it does. `position`: where the changing field was in an earlier request of the connection."""

    def remember(self, frame: memoryview, body: int, client_id: str | None, message: Request) -> int | None:
        """Keep a decoded request, whose body begins at `body`. The position of its changing field; None if it is not kept."""


class KnownRequests:
    """The pool of all known requests of a broker, by their unchanging bytes.

    They are in two generations. A request that is found in the older one moves to the newer one; when that is full, it becomes the older
    one, whose requests are forgotten. So what is in use stays, and finding it costs one look-up.
    """

    def __init__(self, requests_max: int = REQUESTS_MAX) -> None:
        self._newer_max = requests_max // 2
        self._generation = 1
        self._newer: dict[bytes, KnownRequest] = {}
        self._older: dict[bytes, KnownRequest] = {}

    def __len__(self) -> int:
        return len(self._newer) + len(self._older)

    def get(self, key: bytes) -> KnownRequest | None:
        """The request with these bytes."""
        found = self._newer.get(key) or self._older.get(key)
        if found is not None and found.generation != self._generation:
            self._older.pop(key, None)
            self.keep(found)
        return found

    def keep(self, known: KnownRequest) -> None:
        """Keep a request; the oldest ones make room."""
        if len(self._newer) >= self._newer_max:
            self._older, self._newer = self._newer, {}
            self._generation += 1
        known.generation = self._generation
        self._newer[known.key] = known


class KnownProduces:
    """Requests that differ in their records."""

    def __init__(self, pool: KnownRequests, holders: Callable[[Any], Sequence[Holder]], *, flexible: bool) -> None:
        """`holders` returns the structs of a message that have records; a request is kept if there is exactly one."""
        self._pool = pool
        self._holders = holders
        self._flexible = flexible

    def find(self, frame: memoryview, position: int) -> KnownRequest | None:
        found = self._pool.get(bytes(frame[:_ROUTE_END]) + frame[_BEGIN:position])
        if found is None:
            return None
        size = len(frame)
        try:
            if self._flexible:
                length = frame[position]
                begin = position + 1
                if length > 127:
                    more = frame[begin]
                    begin += 1
                    if more > 127:
                        length, begin = read_uvarint(frame, position)
                    else:
                        length += (more - 1) << 7
                end = size - 3
                if begin + length - 1 != end or not length or frame[end:] != NO_TAGS:
                    return None
            else:
                (length,) = _LENGTH.unpack_from(frame, position)
                begin, end = position + 4, size
                if begin + length != end or length < 0:
                    return None
        except (IndexError, struct.error, ProtocolError):
            return None
        found.changing.records = frame[begin:end]
        return found

    def remember(self, frame: memoryview, body: int, client_id: str | None, message: Request) -> int | None:
        holders = self._holders(message)
        if len(holders) != 1:
            return None
        size = len(holders[0].records or b"")
        tail = NO_TAGS if self._flexible else b""
        length = write_uvarint(size + 1) if self._flexible else _LENGTH.pack(size)
        begin = len(frame) - len(tail) - size
        position = begin - len(length)
        if not _BEGIN < position <= BYTES_MAX or frame[position:begin] != length or frame[begin + size :] != tail:
            return None
        key = bytes(frame[:_ROUTE_END]) + frame[_BEGIN:position]
        self._pool.keep(KnownRequest(key, position, message, client_id, holders[0], holders))
        return position


class OffsetHolder(Protocol):
    """The struct of a request that has the fetch offset."""

    fetch_offset: int


class KnownFetches:
    """Requests that differ in one fetch offset."""

    def __init__(self, pool: KnownRequests, offset_holder: Callable[[Any], OffsetHolder | None], version: int) -> None:
        """`offset_holder` returns the struct of a message that has its only changing field; None if there are others."""
        self._pool = pool
        self._offset_holder = offset_holder
        self._version = version

    def find(self, frame: memoryview, position: int) -> KnownRequest | None:
        end = position + 8
        if len(frame) < end:
            return None
        found = self._pool.get(bytes(frame[:_ROUTE_END]) + frame[_BEGIN:position] + frame[end:])
        # The offset may be beside bytes of the same value as its own: then two positions leave the same key.
        if found is None or found.position != position:
            return None
        (found.changing.fetch_offset,) = _OFFSET.unpack_from(frame, position)
        return found

    def remember(self, frame: memoryview, body: int, client_id: str | None, message: Request) -> int | None:
        holder = self._offset_holder(message)
        if holder is None or len(frame) > BYTES_MAX:
            return None
        encoded = encode_bytes(message, self._version)
        if encoded != frame[body:]:
            return None  # it has bytes that are not in the message, such as unknown tags
        # All bytes of the offset differ when its bits are inverted: that is where it is.
        holder.fetch_offset = ~holder.fetch_offset
        inverted = encode_bytes(message, self._version)
        holder.fetch_offset = ~holder.fetch_offset
        position = body + next(at for at, (one, other) in enumerate(zip(encoded, inverted, strict=True)) if one != other)
        key = bytes(frame[:_ROUTE_END]) + frame[_BEGIN:position] + frame[position + 8 :]
        self._pool.keep(KnownRequest(key, position, message, client_id, holder))
        return position
