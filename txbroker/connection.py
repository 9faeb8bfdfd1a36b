"""One client connection's protocol: frames in, replies out in the order of the requests.

A value machine: no socket and no clock. The transport above the socket hands over whole frames and takes the output; a Deferred that
fires later makes the machine call `transport.flush()`.
"""

from __future__ import annotations

from typing import Any

from twisted.python.failure import Failure

from txbroker.api.registry import Registry
from txbroker.transport.interfaces import FrameTransport


class Connection:
    """Decodes each request, calls its handler, and keeps the answers in order. Satisfies `FrameProtocol`."""

    def __init__(self, registry: Registry, *, requests_in_flight_max: int = 100, output_bytes_max: int = 1 << 20) -> None: ...

    def makeConnection(self, transport: FrameTransport) -> None: ...

    def connectionLost(self, reason: Failure) -> None: ...

    def frame_received(self, frame: memoryview) -> None: ...

    def bad_size(self, size: int, size_max: int) -> None: ...

    def take_output(self) -> list[Any]: ...
