"""Many raw connections at once from one thread: the bytes received, and which connections the broker closed."""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from tests.support.server import Server
from tests.support.waiting import PATIENCE_S


@dataclass
class Peer:
    """One connection. `received`: bytes so far; `closed`: by the broker."""

    socket: socket.socket
    port: int
    unsent: memoryview
    received: bytearray = field(default_factory=bytearray)
    closed: bool = False

    def frames(self) -> int:
        """The number of complete frames received."""
        count = position = 0
        while position + 4 <= len(self.received):
            position += 4 + int.from_bytes(self.received[position : position + 4], "big")
            count += position <= len(self.received)
        return count


def connect(server: Server, *, timeout_s: float = PATIENCE_S) -> socket.socket:
    host, _, port = server.address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout_s)


def send_all(server: Server, each: Sequence[bytes], settled: Callable[[], None], *, quiet_s: float = 0.3) -> list[Peer]:
    """Send each of these over its own connection, all at once; the peers, when the broker has nothing more to send.

    `settled` must exchange a request over another connection, which shows that the broker is not just slow. Then this side of each
    connection is closed, and `send_all` waits until the broker closed the other. `Peer.closed`: the broker closed it before.
    """
    peers = []
    with selectors.DefaultSelector() as selector:
        for data in each:
            opened = connect(server)
            opened.setblocking(False)
            peer = Peer(opened, opened.getsockname()[1], memoryview(data))
            peers.append(peer)
            selector.register(opened, selectors.EVENT_READ | selectors.EVENT_WRITE, peer)
        deadline = time.monotonic() + PATIENCE_S
        _serve_until_quiet(selector, quiet_s, deadline)
        settled()
        _serve_until_quiet(selector, quiet_s, deadline)
        still_open = [peer for peer in peers if not peer.closed]
        for peer in still_open:
            with suppress(OSError):
                peer.socket.shutdown(socket.SHUT_WR)
        while selector.get_map():
            assert time.monotonic() < deadline, "the broker has not closed its side of the connections"
            for key, events in selector.select(1):
                _serve(key.data, events, selector)
    for peer in peers:
        peer.socket.close()
    for peer in still_open:
        peer.closed = False
    return peers


def _serve_until_quiet(selector: selectors.BaseSelector, quiet_s: float, deadline: float) -> None:
    while selector.get_map() and time.monotonic() < deadline:
        ready = selector.select(quiet_s)
        if not ready:
            return
        for key, events in ready:
            _serve(key.data, events, selector)


def _serve(peer: Peer, events: int, selector: selectors.BaseSelector) -> None:
    try:
        if events & selectors.EVENT_WRITE:
            peer.unsent = peer.unsent[peer.socket.send(peer.unsent[: 1 << 18]) :]
            if not peer.unsent:
                selector.modify(peer.socket, selectors.EVENT_READ, peer)
        if events & selectors.EVENT_READ:
            data = peer.socket.recv(1 << 18)
            peer.received += data
            peer.closed = not data
    except BlockingIOError:
        return
    except OSError:
        peer.closed = True
    if peer.closed:
        with suppress(KeyError):
            selector.unregister(peer.socket)
