"""A connection on which nothing is sent, to sockets that listen, close and refuse."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from tests.client.test_twisted_connection import Turning
from txbroker.peers.sentinel import Sentinel

HOST = "127.0.0.1"


class Peer:
    """The listener of another broker, and what a sentinel of it reports."""

    def __init__(self, turning: Turning) -> None:
        self.turning = turning
        self.reported: list[str] = []
        self.port = 0
        self.listen()
        self.sentinel: Sentinel | None = None

    def listen(self) -> None:
        """Accept connections, as the system does for a process that does nothing."""
        self.listener = socket.create_server((HOST, self.port))
        self.port = self.listener.getsockname()[1]
        self.listener.settimeout(0)

    def watch(self) -> None:
        refused, reached = (lambda: self.reported.append("refused")), (lambda: self.reported.append("reached"))
        self.sentinel = Sentinel(HOST, self.port, self.turning.reactor, refused, reached)

    def accepted(self) -> socket.socket:
        """The next connection."""
        found: list[socket.socket] = []

        def accept() -> bool:
            try:
                found.append(self.listener.accept()[0])
            except BlockingIOError:
                return False
            return True

        self.turning.until(accept, "the sentinel connects")
        return found[0]

    def until_reported(self, *what: str) -> None:
        self.turning.until(lambda: self.reported == list(what), f"{what} are reported")


@pytest.fixture
def peer(turning: Turning) -> Iterator[Peer]:
    made = Peer(turning)
    yield made
    if made.sentinel is not None:
        made.sentinel.stop()
    made.listener.close()


def test_a_connection_that_is_lost_and_refused_twice_is_reported_until_there_is_one_again(peer: Peer) -> None:
    peer.watch()
    connection = peer.accepted()
    for reports in (1, 2):
        peer.listener.close()
        connection.close()
        peer.until_reported(*["refused", "reached"] * (reports - 1), "refused")
        peer.listen()
        connection = peer.accepted()
        peer.until_reported(*["refused", "reached"] * reports)
    connection.close()


def test_a_connection_that_is_closed_and_accepted_again_is_not_reported(peer: Peer) -> None:
    """As for a connection that was idle for too long."""
    peer.watch()
    for _ in range(3):
        peer.accepted().close()
    peer.accepted().close()
    assert peer.reported == []


def test_a_broker_that_never_had_a_connection_is_not_reported(peer: Peer) -> None:
    """It starts: its listener opens later than others know it."""
    peer.listener.close()
    peer.watch()
    assert peer.sentinel is not None
    peer.turning.until(lambda: peer.sentinel and peer.sentinel._timer, "it was refused")
    peer.listen()
    peer.accepted().close()
    assert peer.reported == []


def test_a_stopped_sentinel_reports_nothing(peer: Peer) -> None:
    peer.watch()
    connection = peer.accepted()
    assert peer.sentinel is not None
    peer.turning.until(lambda: peer.sentinel and peer.sentinel._connection, "it has noticed the connection")
    peer.sentinel.stop()
    peer.turning.until(lambda: _ended(connection), "the connection is closed")
    connection.close()
    assert peer.reported == [] and peer.turning.reactor.getDelayedCalls() == []


def _ended(connection: socket.socket) -> bool:
    connection.settimeout(0)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True
