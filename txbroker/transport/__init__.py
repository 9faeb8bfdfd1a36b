"""The sockets: large shared receive buffers; whole frames in, bytes and file regions out.

    hub = Hub(reactor, limits, run_in_worker, actions)           what all connections of one reactor share; hub.start(), hub.stop()
    listener = Listener(hub, "PLAINTEXT", host, port, build)
    listener.startListening() … listener.stopListening()         (a twisted.internet.tcp.Port)

`build()` returns a `Connection` (txbroker.connection), or any other `FrameProtocol`.
"""

from __future__ import annotations

from txbroker.transport.hub import Hub
from txbroker.transport.interfaces import FrameProtocol, FrameTransport
from txbroker.transport.limits import Limits
from txbroker.transport.listener import Listener

__all__ = ["FrameProtocol", "FrameTransport", "Hub", "Limits", "Listener"]
