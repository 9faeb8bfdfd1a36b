"""Produce requests that differ from an earlier one in their records only: recognised by comparison instead of decoded.

A producer sends the same bytes for the same partition again and again, except for the correlation id, the length of the records and the
records, which are at the end, before empty tag sections only. Comparing costs a third of decoding.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Protocol

from txbroker.errors import ProtocolError
from txbroker.wire.primitives import read_uvarint, write_uvarint
from txbroker.wire.schema import Records, Request

# API key and version; then the correlation id, which differs.
_ROUTE_END = 4
_BEGIN = 8
_LENGTH = struct.Struct(">i")

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
    """A message, the client id of its header, and the struct in it that has the records, as a list.

    The message is that of the first request, with the records of the current one: a handler may keep the message, but must not look into
    the records once it has returned.
    """

    __slots__ = ("client_id", "generation", "holders", "key", "message")

    def __init__(self, key: bytes, message: Request, client_id: str | None, holders: Sequence[Holder]) -> None:
        self.key = key
        self.message = message
        self.client_id = client_id
        self.holders = holders
        self.generation = 0  # in which it was last moved to the newer ones


def owner_prefix(principal: str) -> bytes:
    """What the keys of the requests of a principal begin with: what one principal has sent is not recognised in what another one sends."""
    name = principal.encode()
    return _LENGTH.pack(len(name)) + name


class KnownRequests:
    """The pool of all known requests of a broker, by principal and unchanging bytes.

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

    def find(self, prefix: bytes, frame: memoryview, positions: Sequence[int], *, flexible: bool) -> KnownRequest | None:
        """What a frame repeats, if it does, with the frame's records. `positions`: where the length of the records may be."""
        for position in positions:
            key = prefix + frame[:_ROUTE_END] + frame[_BEGIN:position]
            found = self._newer.get(key) or self._older.get(key)
            if found is None:
                continue
            if found.generation != self._generation:
                self._older.pop(key, None)
                self._keep(found)
            try:
                if flexible:
                    length, begin, end = frame[position], position + 1, len(frame) - len(NO_TAGS)
                    if length > 127:
                        length, begin = length - 128 + (frame[begin] << 7), begin + 1
                        if length >> 14:  # more than the usual two bytes
                            length, begin = read_uvarint(frame, position)
                    length -= 1
                else:
                    (length,), begin, end = _LENGTH.unpack_from(frame, position), position + 4, len(frame)
            except (IndexError, struct.error, ProtocolError):
                return None
            if length < 0 or begin + length != end or (flexible and frame[end:] != NO_TAGS):
                return None
            found.holders[0].records = frame[begin:end]
            return found
        return None

    def remember(
        self, prefix: bytes, frame: memoryview, client_id: str | None, message: Request, holders: Sequence[Holder], *, flexible: bool
    ) -> int | None:
        """Keep a decoded request with one struct that has records. The position of their length; None if it is not kept."""
        size = len(holders[0].records or b"")
        length, tail = (write_uvarint(size + 1), NO_TAGS) if flexible else (_LENGTH.pack(size), b"")
        begin = len(frame) - len(tail) - size
        position = begin - len(length)
        if not _BEGIN < position <= BYTES_MAX or frame[position:begin] != length or frame[begin + size :] != tail:
            return None
        self._keep(KnownRequest(prefix + frame[:_ROUTE_END] + frame[_BEGIN:position], message, client_id, holders))
        return position

    def _keep(self, known: KnownRequest) -> None:
        """Keep a request; the oldest ones make room."""
        if len(self._newer) >= self._newer_max:
            self._older, self._newer = self._newer, {}
            self._generation += 1
        known.generation = self._generation
        self._newer[known.key] = known
