"""Requests that differ from an earlier one in their records only: recognised by comparison instead of decoded.

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
_NO_TAGS = bytes(3)

# A request with more bytes than this before its records is not kept.
BYTES_MAX = 512

# The requests of all connections that are kept, some 1.2 KB each. Producers send one request per partition that they write to, so this
# is for as many pairs of client and partition.
REQUESTS_MAX = 8192


class Holder(Protocol):
    """The struct of a request that has the records."""

    records: Records | None


class KnownRequest:
    """A message, the struct in it that has the records, and the client id of its header."""

    __slots__ = ("client_id", "generation", "holders", "message")

    def __init__(self, message: Request, holder: Holder, client_id: str | None) -> None:
        self.message = message
        self.holders: Sequence[Holder] = (holder,)
        self.client_id = client_id
        self.generation = 0  # in which it was last moved to the newer ones


class KnownRequests:
    """The requests that were seen last; all connections share them. The message of a known request is that of the first one, with the
    records of the current one: a handler may keep the message, but must not look into its records once it has returned.

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

    def find(self, frame: memoryview, length_at: int, *, flexible: bool) -> KnownRequest | None:
        """What the frame repeats, if it does; the message then has the frame's records.

        `length_at`: the position where the length of the records would be, from an earlier request. `flexible`: the version is.
        """
        key = bytes(frame[:_ROUTE_END]) + frame[_BEGIN:length_at]
        found = self._newer.get(key) or self._older.get(key)
        if found is None:
            return None
        size = len(frame)
        try:
            if flexible:
                length = frame[length_at]
                begin = length_at + 1
                if length > 127:
                    more = frame[begin]
                    begin += 1
                    if more > 127:
                        length, begin = read_uvarint(frame, length_at)
                    else:
                        length += (more - 1) << 7
                end = size - 3
                if begin + length - 1 != end or not length or frame[end:] != _NO_TAGS:
                    return None
            else:
                (length,) = _LENGTH.unpack_from(frame, length_at)
                begin, end = length_at + 4, size
                if begin + length != end or length < 0:
                    return None
        except (IndexError, struct.error, ProtocolError):
            return None
        if found.generation != self._generation:
            self._older.pop(key, None)
            self._keep(key, found)
        found.holders[0].records = frame[begin:end]
        return found

    def remember(self, frame: memoryview, client_id: str | None, message: Request, holder: Holder, *, flexible: bool) -> int | None:
        """Keep `message`, which `frame` contains and whose only records are `holder.records`.

        Returns the position of the records' length, for `find`; None if the request is not of the usual form and is not kept.
        """
        size = len(holder.records or b"")
        tail = _NO_TAGS if flexible else b""
        length = write_uvarint(size + 1) if flexible else _LENGTH.pack(size)
        begin = len(frame) - len(tail) - size
        at = begin - len(length)
        if not _BEGIN < at <= BYTES_MAX or frame[at:begin] != length or frame[begin + size :] != tail:
            return None
        self._keep(bytes(frame[:_ROUTE_END]) + frame[_BEGIN:at], KnownRequest(message, holder, client_id))
        return at

    def _keep(self, key: bytes, known: KnownRequest) -> None:
        if len(self._newer) >= self._newer_max:
            self._older, self._newer = self._newer, {}
            self._generation += 1
        known.generation = self._generation
        self._newer[key] = known
