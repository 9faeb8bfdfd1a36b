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
        self._losing: list[bytes] = []
        self._listener = socket.create_server((HOST, 0))
        self._port: int = self._listener.getsockname()[1]
        self.address = f"{HOST}:{self._port}"
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

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

    def refuse(self) -> None:
        """Close all connections, and refuse new ones until `accept`, as a firewall can."""
        _close(self._listener)
        self.cut()

    def accept(self) -> None:
        """Accept connections again, at the same address."""
        self._listener = socket.create_server((HOST, self._port))
        self.restore()
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def hold_answers(self, hold: bool) -> None:
        """Drop what the server sends, as if the answers were lost on the way."""
        self._silent = hold

    def lose_answers(self, *requests: bytes) -> None:
        """For each of these, once: forward the next request that contains it, and close the connection when the server answers."""
        self._losing.extend(requests)

    @property
    def losing(self) -> list[bytes]:
        """Those of `lose_answers` that have not come yet."""
        return list(self._losing)

    def send_to_client(self, data: bytes) -> None:
        """Send bytes that the server did not send."""
        for client, _ in self._pairs:
            client.sendall(data)

    def close(self) -> None:
        """End the proxy."""
        _close(self._listener)
        self.cut()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
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
            lost = threading.Event()
            threading.Thread(target=self._forward_requests, args=(client, server, lost), daemon=True).start()
            threading.Thread(target=self._forward_answers, args=(server, client, lost), daemon=True).start()

    def _forward_requests(self, client: socket.socket, server: socket.socket, lost: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                for request in self.losing:
                    if request in data:
                        self._losing.remove(request)
                        lost.set()
                server.sendall(data)
        _close(client, server)

    def _forward_answers(self, server: socket.socket, client: socket.socket, lost: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while (data := server.recv(65536)) and not lost.is_set():
                if not self._silent:
                    client.sendall(data)
        _close(server, client)


def _close(*sockets: socket.socket) -> None:
    for one in sockets:
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
        one.close()
