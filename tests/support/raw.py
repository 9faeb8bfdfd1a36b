"""One connection that sends requests and returns responses, and does nothing by itself.

Messages are kafka-python's (`kafka.protocol`), an implementation independent of `txbroker.wire`.
"""

from __future__ import annotations

import socket
import struct
from types import TracebackType
from typing import Any, Self

from kafka.protocol.api_header import ResponseClassRegistry

from tests.support.waiting import PATIENCE_S


class ConnectionEnded(OSError):
    """The peer closed the connection before, or in the middle of, a frame."""


def frame_of(request: Any, version: int, correlation_id: int = 1, client_id: str | None = "raw") -> bytes:
    """The bytes of a request in `version`, for `RawConnection.send_bytes`."""
    request.API_VERSION = version
    request.with_header(correlation_id=correlation_id, client_id=client_id)
    return bytes(request.encode(version=version, header=True, framed=True))


class RawConnection:
    """A blocking socket to a broker, with frames and correlation ids."""

    def __init__(self, address: str, *, client_id: str | None = "raw", timeout_s: float = PATIENCE_S, host: str | None = None) -> None:
        """`host`: the address of this end; None: the system chooses it."""
        server, _, port = address.rpartition(":")
        self._socket = socket.create_connection((server, int(port)), timeout_s, None if host is None else (host, 0))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._client_id = client_id
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def send(self, request: Any, version: int) -> int:
        """Send a request in `version`; its correlation id."""
        self._correlation_id += 1
        self.send_bytes(frame_of(request, version, self._correlation_id, self._client_id))
        return self._correlation_id

    def send_bytes(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._socket.sendall(data)

    def end_input(self) -> None:
        """Announce that no more requests follow."""
        self._socket.shutdown(socket.SHUT_WR)

    def receive_frame(self) -> bytes:
        """The next frame without its length: header and body. ConnectionEnded when there is none."""
        (size,) = struct.unpack(">i", self._receive(4))
        return self._receive(size)

    def receive(self, request: Any) -> Any:
        """The response to `request`, the oldest request without a response; checks its correlation id."""
        return self.decode(request, self.receive_frame())

    def decode(self, request: Any, frame: bytes) -> Any:
        """The response to `request` in a frame."""
        response_class: Any = ResponseClassRegistry.get_response_class(request.header)
        response = response_class.decode(frame, header=True)
        assert response.header.correlation_id == request.header.correlation_id
        return response

    def call(self, request: Any, version: int) -> Any:
        """Send a request and wait for its response."""
        self.send(request, version)
        return self.receive(request)

    def is_ended(self) -> bool:
        """Whether the peer closed the connection; waits until it does or sends bytes."""
        try:
            return self._socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def _receive(self, size: int) -> bytes:
        parts = []
        while size:
            part = self._socket.recv(min(size, 1 << 20))
            if not part:
                raise ConnectionEnded("the broker closed the connection")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)
