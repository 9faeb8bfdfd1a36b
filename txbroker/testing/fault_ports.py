"""The listeners of a broker with rules and a journal: each connection gets a protocol between the transport and the broker's own."""

from __future__ import annotations

import socket
from collections.abc import Callable
from functools import partial
from typing import Any

from txbroker.connection.protocol import Connection
from txbroker.testing.fault_protocol import FaultProtocol
from txbroker.testing.faults import Faults
from txbroker.testing.settings import INTERNAL
from txbroker.transport.interfaces import FrameProtocol, ListenerTls
from txbroker.transport.listener import Listener
from txbroker.transport.ports import SocketPorts


class FaultPorts(SocketPorts):
    """`faults`: shared by all connections of clients. The listener for other brokers and the test kit is as in any broker."""

    def __init__(self, faults: Faults, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._faults = faults
        self._of_clients: list[tuple[Listener, int]] = []
        self.refuses = False
        faults.ports = self

    def listen(
        self, name: str, host: str, port: int, build: Callable[[], FrameProtocol], *, backlog: int, tls: ListenerTls | None = None
    ) -> int:
        """See `Ports`."""
        is_internal = name == INTERNAL
        bound = super().listen(name, host, port, build if is_internal else partial(self._wrapped, build), backlog=backlog, tls=tls)
        if not is_internal:
            self._of_clients.append((self._listeners[-1], backlog))
        return bound

    def refuse_clients(self) -> None:
        """Close the connections of clients, and refuse new ones (ECONNREFUSED), until `accept_clients`. The port stays this broker's."""
        if not self.refuses:
            self.refuses = True
            for listener, _ in self._of_clients:
                listener.stopReading()  # type: ignore[no-untyped-call]
                address = listener.socket.getsockname()
                listener.socket.shutdown(socket.SHUT_RDWR)  # it listens no more
                if not listener.port:  # the system has chosen the port, and has taken it back
                    listener.socket.bind(address)
        self._faults.close_connections()

    def accept_clients(self) -> None:
        """Take connections again."""
        if self.refuses:
            self.refuses = False
            for listener, backlog in self._of_clients:
                listener.socket.listen(backlog)
                listener.startReading()  # type: ignore[no-untyped-call]

    def _wrapped(self, build: Callable[[], FrameProtocol]) -> FrameProtocol:
        connection = build()
        assert isinstance(connection, Connection)
        return FaultProtocol(connection, self._faults)
