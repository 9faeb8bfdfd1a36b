"""What a transport asks of the protocol above it, and what it offers: frames go up, parts come down."""

from __future__ import annotations

from typing import Any, Protocol

from twisted.python.failure import Failure

from txbroker.api.request_context import Session


class FrameTransport(Protocol):
    """A connection's way out, as the protocol sees it."""

    session: Session

    def flush(self) -> None:
        """Output is ready: fetch it with `take_output` and send it, at the latest when the current reactor event is done."""

    def loseConnection(self) -> None:
        """Send what is queued, then close."""


class FrameProtocol(Protocol):
    """One connection's protocol, as the transport sees it. Twisted calls the camelCase methods."""

    output_bytes: int
    """How much `take_output` would give."""

    full: bool
    """No more frames for now: enough is in flight. When it becomes false again, the protocol calls `flush`."""

    @property
    def in_flight(self) -> int:
        """Requests that wait for an answer; while there are any, the connection is not idle."""

    def makeConnection(self, transport: Any) -> None: ...

    def connectionLost(self, reason: Failure) -> None: ...

    def frame_received(self, frame: memoryview) -> bool:
        """Take one whole frame without its size: writable, and valid until this returns. Never raises for what the peer sent.

        False: it was not taken, and the protocol is `full`. The same frame is to be offered again once that is over.
        """

    def bad_size(self, size: int, size_max: int) -> None:
        """The peer announced a frame of a size that cannot be; nothing more will come up. Closes the connection."""

    def take_output(self) -> list[Any]:
        """The parts of all replies that are due, in order: bytes-like objects and file regions."""
