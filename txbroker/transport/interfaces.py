"""The interface between transport and protocol: frames go up, parts of responses come down."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

from twisted.python.failure import Failure

from txbroker.api.encoded.response_frame import Part
from txbroker.api.request_context import Session
from txbroker.client_quotas.connection_rates import ConnectionRates
from txbroker.transport.limits import Limits

# API key, version and correlation id: no request is shorter.
FRAME_BYTES_MIN = 8

Buffer: TypeAlias = bytes | bytearray | memoryview


class FrameTransport(Protocol):
    """The transport of a connection, as the protocol sees it."""

    session: Session

    disconnecting: bool
    """Whether the broker closes the connection. False when `connectionLost` is called: the client has closed it."""

    def limit_frames(self, high: int | None, low: int = FRAME_BYTES_MIN) -> None:
        """Take frames of `low` to `high` bytes from the next one on; None: those that every connection takes."""

    def expect_login(self, message_bytes_max: int) -> None:
        """The client has to log in: until `logged_in`, frames have at most this size, and the limits of logins hold."""

    def logged_in(self) -> None:
        """The client has logged in, perhaps once more: frames have the size that every connection takes."""

    def flush(self) -> None:
        """Output is ready: take it with `take_output` and send it, at the latest at the end of the poller's turn."""

    def loseConnection(self) -> None:
        """Send the output, then close."""


class FrameProtocol(Protocol):
    """The protocol of a connection, as the transport sees it. Twisted calls the camelCase methods."""

    @property
    def output_bytes(self) -> int:
        """The size of what `take_output` would return."""

    @property
    def full(self) -> bool:
        """Too much is in flight to take more frames. When it becomes false again, the protocol calls `flush`."""

    @property
    def in_flight(self) -> int:
        """Requests without a response yet; while there are any, the connection is not idle."""

    def makeConnection(self, transport: Any) -> None: ...  # a FrameTransport

    def connectionLost(self, reason: Failure) -> None: ...

    def frame_received(self, frame: memoryview, /) -> bool:
        """Take one whole frame without its size: writable, and valid until this returns. Never raises because of its content.

        False: the frame was not taken, and the protocol is `full`. The transport offers it again when `full` becomes false.
        """

    def bad_size(self, size: int, size_max: int) -> None:
        """A frame has an impossible size. Closes the connection; no more frames follow."""

    def input_ended(self) -> None:
        """No more frames follow. Closes the connection when the responses in flight are sent."""

    def take_output(self) -> Sequence[Part]:
        """The parts of all responses that are ready, in order: bytes-like objects and file regions."""


class ListenerTls(Protocol):
    """TLS of a listener."""

    @property
    def context(self) -> ssl.SSLContext:
        """That of new connections."""

    @property
    def refused(self) -> Callable[[Any, str], None]:
        """To be called with the session and the reason of a handshake that has failed."""

    def principal(self, certificate: bytes | None) -> str | None:
        """Kafka's "Type:name" of a client with this certificate, in DER; None: it is not by its certificate. ValueError: it has none."""


class Ports(Protocol):
    """The listening ports of one broker, and their connections. Sockets (`transport/ports.py`), or those of a simulated network."""

    def listen(
        self, name: str, host: str, port: int, build: Callable[[], FrameProtocol], *, backlog: int, tls: ListenerTls | None = None
    ) -> int:
        """Bind the port of a listener; CannotListenError. `build` makes the protocol of a connection. Returns the port, for 0 a free one.

        Connections wait until `accept`.
        """

    def check(self, host: str, port: int) -> None:
        """CannotListenError if the port cannot be bound now. Nothing listens on it afterwards."""

    def accept(self) -> None:
        """Accept connections on all ports."""

    def file_gone(self, report: Callable[[str], None]) -> None:
        """Call `report` with the path of each file whose region cannot be sent."""

    def change(self, limits: Limits) -> None:
        """Apply other limits of connections."""

    def limit_rates(self, rates: ConnectionRates) -> None:
        """Accept connections no faster than these allow."""

    async def close(self) -> None:
        """Close the ports, send the last responses, and close the connections. The second time it does nothing."""
