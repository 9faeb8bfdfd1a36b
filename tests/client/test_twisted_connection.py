"""The brokers' own connections, on a reactor that the test turns by hand: with a real broker, and with servers that are no good ones."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.epollreactor import EPollReactor
from twisted.python.failure import Failure

from tests.client.peer import HEARTBEAT, heartbeat_response, requests_in, versions_response
from tests.client.test_connections import host_and_port
from tests.support.certificates import Authority
from tests.support.server import Server, free_port
from txbroker.client.client_errors import Closed, ConnectionFailed, NotKafka, Silent, TooManyRequests, TooOld, Unreachable
from txbroker.client.client_machine import ClientSettings
from txbroker.client.twisted_connection import WAITING_MAX, TwistedConnection
from txbroker.tls.contexts import client_context
from txbroker.tls.settings import StoreSettings, TlsSettings
from txbroker.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from txbroker.wire.messages.heartbeat import HeartbeatRequest
from txbroker.wire.messages.metadata import MetadataRequest
from txbroker.wire.messages.produce import ProduceRequest

PATIENCE_S = 30.0


class Turning:
    """The reactor, and what to do with Deferreds."""

    def __init__(self, patience_s: float = PATIENCE_S) -> None:
        self._patience_s = patience_s
        self.reactor: Any = EPollReactor()
        self.reactor.seconds = time.monotonic
        self.reactor.getThreadPool().start()  # it resolves names

    def until(self, condition: Callable[[], Any], what: str) -> None:
        deadline_s = time.monotonic() + self._patience_s
        while not condition():
            assert time.monotonic() < deadline_s, f"still not: {what}"
            self.reactor.runUntilCurrent()
            self.reactor.doIteration(0.005)

    def outcome(self, deferred: Deferred[Any]) -> Any:
        """What a Deferred fires with, or the exception that it fails with."""
        outcomes: list[Any] = []
        deferred.addBoth(outcomes.append)
        self.until(lambda: outcomes, "the Deferred fires")
        return outcomes[0].value if isinstance(outcomes[0], Failure) else outcomes[0]

    def close(self) -> None:
        self.reactor.getThreadPool().stop()
        self.reactor.removeAll()
        self.reactor._poller.close()


@pytest.fixture
def turning() -> Iterator[Turning]:
    made = Turning()
    yield made
    made.until(lambda: not made.reactor.getDelayedCalls(), "no timer is left")
    made.close()


class Peer:
    """A server whose one connection the test reads and writes by hand."""

    def __init__(self, turning: Turning, **settings: Any) -> None:
        self.turning = turning
        self.lost: list[ConnectionFailed] = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.setblocking(False)
        self.connection = TwistedConnection(
            *self.listener.getsockname(), turning.reactor, lambda: 0.5, ClientSettings("c", **settings), self.lost.append
        )
        self.socket: socket.socket | None = None

    def accept(self) -> None:
        def accepted() -> bool:
            try:
                self.socket = self.listener.accept()[0]
            except BlockingIOError:
                return False
            return True

        self.turning.until(accepted, "a connection")

    def requests(self, count: int) -> list[Any]:
        assert self.socket is not None
        self.socket.setblocking(False)
        data = b""

        def complete() -> bool:
            nonlocal data
            assert self.socket is not None
            try:
                data += self.socket.recv(1 << 20)
            except BlockingIOError:
                return False
            try:
                return len(requests_in(data)) >= count
            except Exception:  # cut in the middle of a request
                return False

        self.turning.until(complete, f"{count} requests")
        return requests_in(data)

    def send(self, data: bytes) -> None:
        assert self.socket is not None
        self.socket.setblocking(True)
        self.socket.sendall(data)

    def connect(self) -> None:
        connected = self.connection.connect()
        self.accept()
        (sent,) = self.requests(1)
        assert not connected.called
        self.send(versions_response(sent))
        assert self.turning.outcome(connected) is None and self.connection.ready

    def close(self) -> None:
        self.connection.close()
        self.listener.close()
        if self.socket is not None:
            self.socket.close()


@pytest.fixture
def peer(turning: Turning) -> Iterator[Peer]:
    made = Peer(turning, in_flight_max=2)
    yield made
    made.close()


def test_requests_to_a_real_broker(turning: Turning, broker: Server, name: str) -> None:
    connection = TwistedConnection("localhost", broker.port, turning.reactor, lambda: 0.5)
    assert turning.outcome(connection.connect()) is None
    topic = CreatableTopic(name=name, num_partitions=3, replication_factor=1, assignments=[], configs=[])
    created = connection.send(CreateTopicsRequest(topics=[topic], timeout_ms=30_000))
    assert [result.error_code for result in turning.outcome(created).topics] == [0]
    metadata = [connection.send(MetadataRequest(topics=None)) for _ in range(20)]
    assert all(name in [found.name for found in turning.outcome(each).topics] for each in metadata)
    connection.close()
    assert isinstance(turning.outcome(connection.send(MetadataRequest(topics=None))), Closed)


def test_a_broker_that_dies_and_comes_back(turning: Turning, start_broker: Callable[..., Server]) -> None:
    server = start_broker()
    lost: list[ConnectionFailed] = []
    connection = TwistedConnection(*host_and_port(server), turning.reactor, lambda: 0.5, lost=lost.append)
    turning.outcome(connection.connect())
    assert len(turning.outcome(connection.send(MetadataRequest(topics=[]))).brokers) == 1
    server.kill()
    turning.until(lambda: lost, "the loss is reported")
    assert len(lost) == 1 and isinstance(lost[0], Closed) and not connection.ready
    assert isinstance(turning.outcome(connection.connect()), Unreachable)
    server.start()
    assert turning.outcome(connection.connect()) is None
    assert len(turning.outcome(connection.send(MetadataRequest(topics=[]))).brokers) == 1
    assert len(lost) == 1
    connection.close()


def test_requests_beyond_in_flight_max_wait_for_their_turn(turning: Turning, peer: Peer) -> None:
    peer.connect()
    responses = [peer.connection.send(HEARTBEAT) for _ in range(5)]
    first, second = peer.requests(2)
    peer.send(heartbeat_response(first, 1))
    (third,) = peer.requests(1)
    peer.send(heartbeat_response(second, 2) + heartbeat_response(third, 3))
    for number, sent in enumerate(peer.requests(2), 4):
        peer.send(heartbeat_response(sent, number))
    assert [turning.outcome(each).error_code for each in responses] == [1, 2, 3, 4, 5]
    waiting = [peer.connection.send(HEARTBEAT) for _ in range(WAITING_MAX + 2)]
    assert isinstance(turning.outcome(peer.connection.send(HEARTBEAT)), TooManyRequests)
    peer.connection.close()
    assert all(isinstance(turning.outcome(each), Closed) for each in waiting)
    assert peer.lost == [], "closing it is not a loss"


def test_a_late_response_ends_the_connection_and_fails_all_requests(turning: Turning) -> None:
    peer = Peer(turning, in_flight_max=2, request_timeout_s=60)
    peer.connect()
    responses = [peer.connection.send(HEARTBEAT, timeout_s=60), peer.connection.send(HEARTBEAT, timeout_s=0.05)]
    responses.append(peer.connection.send(HEARTBEAT))
    failures = [turning.outcome(each) for each in responses]
    assert isinstance(failures[0], Silent) and failures == [failures[0]] * 3
    assert peer.lost == [failures[0]]
    peer.connect()
    assert peer.connection.ready
    peer.close()


def test_a_peer_that_never_negotiates(turning: Turning) -> None:
    peer = Peer(turning, request_timeout_s=0.05)
    outcome = turning.outcome(peer.connection.connect())
    assert isinstance(outcome, Silent)
    assert peer.lost == [], "a connection that was not ready is not lost"
    peer.close()


def test_what_is_not_kafka(turning: Turning, peer: Peer) -> None:
    peer.connect()
    responses = [peer.connection.send(HEARTBEAT) for _ in range(3)]
    (first, _) = peer.requests(2)
    peer.send(heartbeat_response(first, 5) + b"HTTP/1.1 200 OK\r\n")
    outcomes = [turning.outcome(each) for each in responses]
    assert outcomes[0].error_code == 5 and isinstance(outcomes[1], NotKafka) and outcomes[2] is outcomes[1]
    assert peer.lost == [outcomes[1]]


def test_a_malformed_body_fails_its_request_and_the_rest(turning: Turning, peer: Peer) -> None:
    peer.connect()
    responses = [peer.connection.send(HEARTBEAT) for _ in range(2)]
    (first, _) = peer.requests(2)
    good = heartbeat_response(first)
    peer.send(good[:3] + bytes([good[3] + 1]) + good[4:] + b"\0")
    outcomes = [turning.outcome(each) for each in responses]
    assert isinstance(outcomes[0], NotKafka) and outcomes[1] is outcomes[0] and not peer.connection.ready


def test_a_version_that_the_broker_lacks_fails_one_request(turning: Turning, peer: Peer) -> None:
    peer.connect()
    assert isinstance(turning.outcome(peer.connection.send(ProduceRequest(acks=1, timeout_ms=0, topic_data=[]))), TooOld)
    response = peer.connection.send(HEARTBEAT)
    (sent,) = peer.requests(1)
    assert sent.api_key == HeartbeatRequest.api_key
    peer.send(heartbeat_response(sent))
    assert turning.outcome(response).error_code == 0


def test_cancelled_requests(turning: Turning, peer: Peer) -> None:
    peer.connect()
    responses = [peer.connection.send(HEARTBEAT) for _ in range(4)]
    responses[0].cancel()
    responses[2].cancel()
    sent = peer.requests(2)
    peer.send(b"".join(map(heartbeat_response, sent)))
    (fourth,) = peer.requests(1)
    peer.send(heartbeat_response(fourth, 4))
    outcomes = [turning.outcome(each) for each in responses]
    assert [type(outcome) is CancelledError for outcome in outcomes] == [True, False, True, False]
    assert outcomes[3].error_code == 4


def test_a_callback_may_close_and_connect_again(turning: Turning, peer: Peer) -> None:
    peer.connect()
    again: list[Deferred[None]] = []

    def close_and_connect(_: Any) -> None:
        peer.connection.close()
        again.append(peer.connection.connect())

    responses = [peer.connection.send(HEARTBEAT) for _ in range(3)]
    responses[0].addCallback(close_and_connect)
    sent = peer.requests(2)
    peer.send(heartbeat_response(sent[0]) + heartbeat_response(sent[1], 6))
    assert turning.outcome(responses[1]).error_code == 6, "its response was there"
    assert isinstance(turning.outcome(responses[2]), Closed)
    peer.accept()
    (negotiation,) = peer.requests(1)
    peer.send(versions_response(negotiation))
    assert turning.outcome(again[0]) is None and peer.connection.ready


def test_close_ends_an_attempt(turning: Turning, peer: Peer) -> None:
    for _ in range(2):  # the second one waits for its back-off
        connecting = peer.connection.connect()
        peer.connection.close()
        assert isinstance(turning.outcome(connecting), Closed)
    peer.connect()


def test_a_name_that_does_not_resolve(turning: Turning) -> None:
    connection = TwistedConnection("no-such-host.invalid", 9092, turning.reactor, lambda: 0.5)
    outcome = turning.outcome(connection.connect())
    assert isinstance(outcome, Unreachable) and "no-such-host.invalid:9092" in str(outcome)


def test_requests_to_a_real_broker_with_tls(turning: Turning, start_broker: Callable[..., Server], tmp_path: Path) -> None:
    """The host name is checked, and an authority that is not trusted is an error."""
    authority, port = Authority(tmp_path), free_port()
    start_broker(
        {
            "listeners": f"PLAINTEXT://127.0.0.1:{free_port()},SSL://127.0.0.1:{port}",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(authority.issue("broker", ["localhost"]).pem()),
        }
    )
    settings = TlsSettings(None, StoreSettings("truststore", "PEM", str(authority.pem()), None, None), None)
    foreign = StoreSettings("truststore", "PEM", str(Authority(tmp_path, "foreign").pem()), None, None)

    def connect(host: str, settings: TlsSettings) -> TwistedConnection:
        context = client_context(settings)
        return TwistedConnection(host, port, turning.reactor, lambda: 0.5, tls=lambda: context)

    connection = connect("localhost", settings)
    assert turning.outcome(connection.connect()) is None
    for _ in range(3):
        assert len(turning.outcome(connection.send(MetadataRequest(topics=[]))).brokers) == 1
    connection.close()
    untrusted = settings._replace(truststore=foreign)
    for host, used, problem in (("127.0.0.1", settings, "IP address mismatch"), ("localhost", untrusted, "issuer")):
        failed = turning.outcome(connect(host, used).connect())
        assert isinstance(failed, ConnectionFailed)
        assert f"the certificate of {host}:{port} is not accepted: " in str(failed) and problem in str(failed)
        assert ("set advertised.listeners to one" if used is settings else "add the certificate of its issuer") in str(failed)
