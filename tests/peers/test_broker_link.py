"""Requests to a broker that accepts connections, and answers nothing."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from twisted.internet.defer import Deferred

from tests.client.test_twisted_connection import Turning
from txbroker.client.client_errors import ConnectionFailed
from txbroker.client.client_machine import ClientSettings
from txbroker.client.twisted_connection import TwistedConnection
from txbroker.peers.broker_link import BrokerLink
from txbroker.wire.messages.metadata import MetadataRequest


class Silent:
    """`accepted`: the connections that were made."""

    def __init__(self, turning: Turning) -> None:
        self._turning = turning
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setblocking(False)
        self.accepted: list[socket.socket] = []
        host, port = self._listener.getsockname()
        connection = TwistedConnection(host, port, turning.reactor, lambda: 0.5, ClientSettings("c", in_flight_max=1))
        self.link = BrokerLink(connection, 30.0)

    def connections(self) -> int:
        try:
            while True:
                self.accepted.append(self._listener.accept()[0])
        except BlockingIOError:
            return len(self.accepted)

    def close(self) -> None:
        self.link.close()
        for each in (*self.accepted, self._listener):
            each.close()


@pytest.fixture
def silent(turning: Turning) -> Iterator[Silent]:
    made = Silent(turning)
    yield made
    made.close()


def send(silent: Silent) -> Deferred[object]:
    return silent.link.send(MetadataRequest(topics=[]))


def test_a_closed_link_makes_no_other_connection(turning: Turning, silent: Silent) -> None:
    first, second = send(silent), send(silent)
    turning.until(silent.connections, "the first request has a connection")
    silent.link.close()
    for each in (first, second, send(silent)):
        assert isinstance(turning.outcome(each), ConnectionFailed)
    turning.until(lambda: not turning.reactor.getDelayedCalls(), "nothing is to be done")
    assert silent.connections() == 1


def test_the_next_request_after_a_disconnection_makes_another_connection(turning: Turning, silent: Silent) -> None:
    first, second = send(silent), send(silent)
    turning.until(silent.connections, "the first request has a connection")
    silent.link.disconnect()
    assert isinstance(turning.outcome(first), ConnectionFailed)
    turning.until(lambda: silent.connections() == 2, "the second request has another one")
    silent.link.close()
    assert isinstance(turning.outcome(second), ConnectionFailed)
