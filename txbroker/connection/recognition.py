"""What a connection remembers of its earlier requests, since the next one usually differs little: its header, and its unchanged bytes."""

from __future__ import annotations

from collections.abc import Sequence

from txbroker.api.registry import Route
from txbroker.api.request_context import Session
from txbroker.wire.headers import read_client_id
from txbroker.wire.known_requests import Holder, KnownRequests, owner_prefix
from txbroker.wire.schema import Request

# Longer headers are parsed each time instead of kept.
HEADER_KEPT_MAX = 256

# The records of known requests begin at a few positions in those of one connection: it depends on the length of the topic's name.
POSITIONS_MAX = 4


class Recognition:
    """Of one connection. `client_id`: of its last request."""

    __slots__ = ("_header", "_header_client_id", "_header_end", "_header_version", "_known", "_owner", "_positions", "_prefix", "_session",
                 "client_id")  # fmt: skip

    def __init__(self, known: KnownRequests, session: Session) -> None:
        self.client_id: str | None = None
        self._known = known
        self._session = session
        self._owner = session.principal
        self._prefix = owner_prefix(self._owner)
        # The last request's header after its first eight bytes: usually the next one has the same.
        self._header = b""
        self._header_end = 8
        self._header_version = 0
        self._header_client_id: str | None = None
        # Where the length of the records was in earlier requests (wire/known_requests.py), the latest position first.
        self._positions: tuple[int, ...] = ()

    def read(self, frame: memoryview, route: Route) -> tuple[Request, Sequence[Holder]]:
        """The request in a frame, and its structs that have records. A request that is known is not decoded. ProtocolError."""
        if route.record_holders is None:
            return route.decode(frame[self.read_header(frame, route.request_header) :]), ()
        if self._session.principal is not self._owner:
            self._owner = self._session.principal
            self._prefix = owner_prefix(self._owner)
        known = self._known.find(self._prefix, frame, self._positions, flexible=route.flexible)
        if known is not None:
            self.client_id = known.client_id  # as in the header, which is part of what is known
            return known.message, known.holders
        body = self.read_header(frame, route.request_header)
        request = route.decode(frame[body:])
        holders = route.record_holders(request)
        if len(holders) == 1:
            position = self._known.remember(self._prefix, frame, self.client_id, request, holders, flexible=route.flexible)
            if position and position not in self._positions:
                self._positions = (position, *self._positions[: POSITIONS_MAX - 1])
        return request, holders

    def read_header(self, frame: memoryview, version: int) -> int:
        """The position of the body; sets the client id."""
        if version == self._header_version and frame[8 : self._header_end] == self._header:
            self.client_id = self._header_client_id  # a known request may have had another one
            return self._header_end
        self.client_id, position = read_client_id(frame, version)
        if position <= HEADER_KEPT_MAX:
            self._header, self._header_end, self._header_version = bytes(frame[8:position]), position, version
            self._header_client_id = self.client_id
        return position
