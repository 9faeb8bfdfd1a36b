"""A proxy between clients and a broker that records the requests of each connection."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from typing import NamedTuple

from tests.support.server import HOST


class Asked(NamedTuple):
    """The head of a request."""

    api_key: int
    version: int


class RecordingProxy:
    """Listens on `address`, and forwards each connection to `target`, which must be set before clients connect.

    `connections` has the requests of each connection, in order. The target must advertise the proxy's address.
    """

    def __init__(self) -> None:
        self.target: tuple[str, int] | None = None
        self.connections: list[list[Asked]] = []
        self._listener = socket.create_server((HOST, 0))
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        """host:port for a client."""
        return f"{HOST}:{self._listener.getsockname()[1]}"

    def close(self) -> None:
        """Stop accepting connections."""
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.target is None:
                client.close()
                continue
            broker = socket.create_connection(self.target)
            asked: list[Asked] = []
            self.connections.append(asked)
            threading.Thread(target=_pass_on_requests, args=(client, broker, asked), daemon=True).start()
            threading.Thread(target=_pass_on, args=(broker, client), daemon=True).start()


def _pass_on_requests(client: socket.socket, broker: socket.socket, asked: list[Asked]) -> None:
    with contextlib.suppress(OSError, EOFError):
        while True:
            size = _exactly(client, 4)
            frame = _exactly(client, struct.unpack(">i", size)[0])
            asked.append(Asked(*struct.unpack_from(">hh", frame)))
            broker.sendall(size + frame)
    _end(client, broker)


def _pass_on(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)
    _end(source, sink)


def _exactly(source: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = source.recv(size - len(data))
        if not part:
            raise EOFError
        data += part
    return bytes(data)


def _end(*sockets: socket.socket) -> None:
    for one in sockets:
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
        one.close()
