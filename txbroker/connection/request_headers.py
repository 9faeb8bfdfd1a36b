"""The headers of a connection's requests: usually each one has the client id of the one before."""

from __future__ import annotations

from txbroker.wire.headers import read_client_id

# Longer headers are parsed each time instead of kept.
HEADER_KEPT_MAX = 256


class RequestHeaders:
    """Of one connection. `client_id`: of its last request."""

    __slots__ = ("_end", "_header", "_version", "client_id")

    def __init__(self) -> None:
        self.client_id: str | None = None
        # The last request's header after its first eight bytes.
        self._header = b""
        self._end = 0
        self._version = 0

    def read(self, frame: memoryview, version: int) -> int:
        """The position of the body; sets the client id. ProtocolError."""
        if version == self._version and self._end and frame[8 : self._end] == self._header:
            return self._end
        self.client_id, position = read_client_id(frame, version)
        self._header, self._end, self._version = b"", 0, version
        if position <= HEADER_KEPT_MAX:
            self._header, self._end = bytes(frame[8:position]), position
        return position
