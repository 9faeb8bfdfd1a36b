"""The listening socket of the control port. The HTTP server is loaded with the first connection: a broker starts faster without it."""

from __future__ import annotations

from typing import Any

from twisted.internet.protocol import Factory

from txbroker.testing.operations import Operations
from txbroker.testing.served_broker import Served
from txbroker.testing.settings import HOST


class _Lazy(Factory):
    noisy = False

    def __init__(self, reactor: Any, served: Served, operations: Operations) -> None:
        self._reactor = reactor
        self._served = served
        self._operations = operations
        self._made: Any = None

    def buildProtocol(self, addr: Any) -> Any:
        if self._made is None:
            from txbroker.testing.control_server import ControlFactory
            from txbroker.testing.member_control import MemberControl

            self._made = ControlFactory(self._reactor, MemberControl(self._served, self._operations))
            self._made.doStart()
        return self._made.buildProtocol(addr)


def open_control(reactor: Any, served: Served, operations: Operations) -> str:
    """Listen on a free port; its URL."""
    port = reactor.listenTCP(0, _Lazy(reactor, served, operations), interface=HOST)
    return f"http://{HOST}:{port.getHost().port}"
