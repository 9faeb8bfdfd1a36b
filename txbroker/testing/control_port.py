"""The listening socket of the control port. The HTTP server is loaded with the first connection: a broker starts faster without it."""

from __future__ import annotations

from typing import Any

from twisted.internet.protocol import Factory

from txbroker.testing.faults import Faults
from txbroker.testing.operations import Operations
from txbroker.testing.settings import HOST


class _Lazy(Factory):
    noisy = False

    def __init__(self, reactor: Any, faults: Faults, operations: Operations) -> None:
        self._reactor = reactor
        self._faults = faults
        self._operations = operations
        self._made: Any = None

    def buildProtocol(self, addr: Any) -> Any:
        if self._made is None:
            from txbroker.testing.control_server import Control, ControlFactory

            self._made = ControlFactory(self._reactor, Control(self._faults, self._operations))
            self._made.doStart()
        return self._made.buildProtocol(addr)


def open_control(reactor: Any, faults: Faults, operations: Operations) -> str:
    """Listen on a free port; its URL."""
    port = reactor.listenTCP(0, _Lazy(reactor, faults, operations), interface=HOST)
    return f"http://{HOST}:{port.getHost().port}"
