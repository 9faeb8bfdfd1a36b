"""A TCP proxy whose connections a test can cut, refuse and add bytes to."""

from __future__ import annotations

import contextlib
import socket
import threading

from tests.support.server import HOST


class CutProxy:
    """Forwards connections to `host:port` until `cut`."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._lock = threading.Lock()
        self._forwarding = True
        self._silent = False
        self._listener = socket.create_server((HOST, 0))
        self.address = f"{HOST}:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Close all connections, and each new one, until `restore`."""
        with self._lock:
            self._forwarding = False
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            _close(*pair)

    def restore(self) -> None:
        """Forward new connections again."""
        self._forwarding = True

    def hold_answers(self, hold: bool) -> None:
        """Drop what the server sends, as if the answers were lost on the way."""
        self._silent = hold

    def send_to_client(self, data: bytes) -> None:
        """Send bytes that the server did not send."""
        for client, _ in self._pairs:
            client.sendall(data)

    def close(self) -> None:
        """End the proxy."""
        _close(self._listener)
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if not self._forwarding:
                client.close()
                continue
            try:
                server = socket.create_connection(self._target)
            except OSError:
                client.close()
                continue
            with self._lock:
                self._pairs.append((client, server))
            threading.Thread(target=self._forward, args=(client, server, False), daemon=True).start()
            threading.Thread(target=self._forward, args=(server, client, True), daemon=True).start()

    def _forward(self, source: socket.socket, sink: socket.socket, answers: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if not (answers and self._silent):
                    sink.sendall(data)
        _close(source, sink)


def _close(*sockets: socket.socket) -> None:
    for one in sockets:
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
        one.close()
