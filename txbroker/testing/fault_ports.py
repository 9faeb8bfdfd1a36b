"""The listeners of a broker with rules and a journal: each connection gets a protocol between the transport and the broker's own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from txbroker.connection.protocol import Connection
from txbroker.testing.fault_protocol import FaultProtocol
from txbroker.testing.faults import Faults
from txbroker.transport.interfaces import FrameProtocol, ListenerTls
from txbroker.transport.ports import SocketPorts


class FaultPorts(SocketPorts):
    """`faults`: shared by all connections."""

    def __init__(self, faults: Faults, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._faults = faults

    def listen(
        self, name: str, host: str, port: int, build: Callable[[], FrameProtocol], *, backlog: int, tls: ListenerTls | None = None
    ) -> int:
        """See `Ports`."""
        return super().listen(name, host, port, partial(self._wrapped, build), backlog=backlog, tls=tls)

    def _wrapped(self, build: Callable[[], FrameProtocol]) -> FrameProtocol:
        connection = build()
        assert isinstance(connection, Connection)
        return FaultProtocol(connection, self._faults)
