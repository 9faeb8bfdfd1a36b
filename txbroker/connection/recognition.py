"""What a connection remembers of its earlier requests, since the next one usually differs little: its header, and its unchanged bytes."""

from __future__ import annotations

from collections.abc import Sequence

from txbroker.api.registry import Route
from txbroker.wire.headers import read_client_id
from txbroker.wire.known_requests import Holder, Known, KnownRequest
from txbroker.wire.schema import Request

# Longer headers are parsed each time instead of kept.
HEADER_KEPT_MAX = 256

# The changing field of known requests is at a few positions in those of one connection: it depends on the length of the topic's name.
POSITIONS_MAX = 4


class Recognition:
    """Of one connection. `client_id`: of its last request."""

    __slots__ = ("_header", "_header_client_id", "_header_end", "_header_version", "_positions", "client_id")

    def __init__(self) -> None:
        self.client_id: str | None = None
        # The last request's header after its first eight bytes: usually the next one has the same.
        self._header = b""
        self._header_end = 8
        self._header_version = 0
        self._header_client_id: str | None = None
        # Where the changing field was in earlier requests (wire/known_requests.py), the latest position first.
        self._positions: tuple[int, ...] = ()

    def find(self, frame: memoryview, requests: Known) -> KnownRequest | None:
        """What a frame repeats, if it does; sets the client id."""
        for position in self._positions:
            known = requests.find(frame, position)
            if known is not None:
                self.client_id = known.client_id
                return known
        return None

    def decode(self, frame: memoryview, route: Route) -> tuple[Request, Sequence[Holder]]:
        """Decode a request that may be repeated, and remember it; the structs that have records."""
        body = self.read_header(frame, route.request_header)
        request = route.decode(frame[body:])
        assert route.known is not None
        position = route.known.remember(frame, body, self.client_id, request)
        if position is not None and position not in self._positions:
            self._positions = (position, *self._positions[: POSITIONS_MAX - 1])
        return request, () if route.record_holders is None else route.record_holders(request)

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
