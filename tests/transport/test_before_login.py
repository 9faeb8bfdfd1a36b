"""Connections whose clients have not logged in: a deadline, and limits of their number and of their bytes."""

from __future__ import annotations

import logging
import os
import socket
import ssl
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from twisted.internet.epollreactor import EPollReactor
from twisted.internet.threads import deferToThreadPool
from twisted.python.threadpool import ThreadPool

from tests.support.certificates import Authority
from tests.transport.harness import Client, ListenerHarness, frame
from tests.transport.test_connection import Heartbeats, generation
from txbroker.api.api_versions import ApiVersionsHandler
from txbroker.api.registry import Registry
from txbroker.api.sasl_authenticate import SaslAuthenticateHandler
from txbroker.api.sasl_handshake import SaslHandshakeHandler
from txbroker.connection.sasl import SaslConnection
from txbroker.security.failed_logins import FailedLogins
from txbroker.security.sasl_login import SaslServer
from txbroker.security.sasl_plain import PlainExchange
from txbroker.tls.listener_tls import ListenerTls
from txbroker.tls.settings import read_settings
from txbroker.transport.before_login import PARTS_MAX
from txbroker.transport.inbox import SIZE
from txbroker.transport.receive import OWNED_BYTES_MIN
from txbroker.wire.codec import encode_bytes
from txbroker.wire.headers import request_prefix
from txbroker.wire.messages.heartbeat import HeartbeatRequest
from txbroker.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from txbroker.wire.messages.sasl_handshake import SaslHandshakeRequest
from txbroker.wire.schema import Request

Make = Callable[..., ListenerHarness]

MESSAGE_BYTES_MAX = 524_288
UNKNOWN_VERSION = frame(struct.pack(">hhih", 18, 99, 7, -1))  # of ApiVersions: it is answered, and may be repeated
NEVER_MS = 10**9


@pytest.fixture
def sasl(start: Make) -> Make:
    """A listener with PLAIN; the arguments are those of the harness and limits."""

    def make(*, message_bytes_max: int = MESSAGE_BYTES_MAX, **options: Any) -> ListenerHarness:
        harness = start(**{"login_ms_max": NEVER_MS, **options})
        server = SaslServer(
            "TEST", {"PLAIN": partial(PlainExchange, {"alice": "secret"})}, {}, harness.reactor, FailedLogins(harness.reactor),
            failure_delay_s=0.0, message_bytes_max=message_bytes_max,
        )  # fmt: skip
        registry = Registry([Heartbeats(generation), SaslHandshakeHandler(), SaslAuthenticateHandler()])
        registry.register(ApiVersionsHandler(registry.ranges))
        harness.build = partial(SaslConnection, registry, server)
        return harness

    return make


@pytest.fixture
def workers() -> Iterator[ThreadPool]:
    pool = ThreadPool(0, 2)
    pool.start()
    yield pool
    pool.stop()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def sasl_ssl(sasl: Make, authority: Authority, workers: ThreadPool) -> Make:
    def make(**options: Any) -> ListenerHarness:
        values = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(authority.issue("server").pem())}
        reactor: Any = EPollReactor()
        tls = ListenerTls(read_settings(values.get), "DEFAULT", names_clients=False)
        return sasl(reactor=reactor, tls=tls, worker=partial(deferToThreadPool, reactor, workers), **options)

    return make


def request(message: Request, version: int) -> bytes:
    body = encode_bytes(message, version)
    return bytes(request_prefix(type(message), version, 7, "c", len(body))) + body


LOGIN = request(SaslHandshakeRequest(mechanism="PLAIN"), 1), request(SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret"), 0)
BEAT = request(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 3)


def log_in(client: Client) -> None:
    for message in LOGIN:
        client.send(message)
        client.answer()


def is_closed(client: Client) -> bool:
    return client.receive_some() is None


def expire_soon(harness: ListenerHarness) -> None:
    """From now on, connections have a short time for their logins."""
    harness.hub.logins.limits = replace(harness.hub.limits, login_ms_max=50)


def test_a_connection_that_does_not_log_in_is_closed(sasl: Make, caplog: pytest.LogCaptureFixture) -> None:
    harness = sasl()
    member = harness.connect()
    log_in(member)
    assert len(harness.hub.logins) == 0
    expire_soon(harness)
    half = [harness.connect() for _ in range(3)]
    half[0].send(LOGIN[0])
    half[1].send(b"\0\0")
    half[2].send(UNKNOWN_VERSION)
    harness.until(lambda: all(map(is_closed, half)))
    harness.until(lambda: harness.hub.connections == 1)
    assert (harness.hub.closed_for["login_timeout"], len(harness.hub.logins)) == (3, 0)
    (line,) = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert "to listener TEST://127.0.0.1:" in line and line.endswith(": its client has not logged in within 50 ms")
    member.send(BEAT)
    assert member.answer()


def test_a_connection_that_sends_nothing_is_closed_as_an_idle_one(sasl: Make, caplog: pytest.LogCaptureFixture) -> None:
    harness = sasl()
    expire_soon(harness)
    silent = harness.connect()
    harness.until(lambda: is_closed(silent))
    assert (harness.hub.closed_for["idle"], harness.hub.closed_for["login_timeout"]) == (1, 0)
    assert not caplog.records


def test_a_client_may_send_so_much_before_it_has_logged_in(sasl: Make) -> None:
    harness = sasl(message_bytes_max=1000)
    client = harness.connect()
    client.send(UNKNOWN_VERSION * (PARTS_MAX * 1000 // len(UNKNOWN_VERSION)))
    client.answer()
    assert not harness.hub.closed_for
    client.send(UNKNOWN_VERSION)
    harness.until(lambda: harness.hub.closed_for["login_too_large"])
    harness.until(lambda: is_closed(client))
    member = harness.connect()
    log_in(member)
    member.send(BEAT * 100)
    assert [len(member.answer()) for _ in range(100)], "no limit holds after the login"


def test_an_address_may_have_so_many_connections_that_have_not_logged_in(sasl: Make, caplog: pytest.LogCaptureFixture) -> None:
    harness = sasl(logins_per_ip_max=3)
    members = [harness.connect() for _ in range(2)]
    for member in members:
        log_in(member)
    half = [harness.connect() for _ in range(3)]
    harness.until(lambda: len(harness.hub.logins) == 3)
    refused = [harness.connect() for _ in range(4)]
    harness.until(lambda: all(map(is_closed, refused)))
    assert harness.hub.closed_for["login_connections"] == 4
    assert len([record for record in caplog.records if "have not logged in (txbroker.login.connections.per.ip)" in record.message]) == 1
    log_in(half[0])
    last = harness.connect()
    log_in(last)
    for member in (*members, half[0], last):
        member.send(BEAT)
        assert member.answer()
    half[1].socket.close()
    harness.until(lambda: len(harness.hub.logins) == 1)


def test_listeners_without_logins_have_no_such_limits(start: Make) -> None:
    harness = start(logins_per_ip_max=1, login_ms_max=1)
    clients = [harness.connect() for _ in range(5)]
    harness.until(lambda: harness.hub.connections == 5)
    for client in clients:
        client.send(frame(b"hello there"))
        assert client.answer() == b"hello there"
    assert len(harness.hub.logins) == 0


def handshake(harness: ListenerHarness, authority: Authority) -> ssl.SSLSocket:
    made = socket.create_connection(("127.0.0.1", harness.listener.getHost().port))
    made.setblocking(False)
    context = ssl.create_default_context(cadata=authority.text())
    client = context.wrap_socket(made, server_hostname="localhost", do_handshake_on_connect=False)
    harness.clients.append(client)

    def is_done() -> bool:
        try:
            client.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    harness.until(is_done)
    return client


def test_the_handshake_and_the_login_have_one_deadline(sasl_ssl: Make, authority: Authority) -> None:
    harness = sasl_ssl()
    client = handshake(harness, authority)
    harness.until(lambda: harness.hub.handshakes.count)
    (login,) = harness.hub.logins._open
    deadline = login._call
    client.send(LOGIN[0])
    harness.turns()
    assert list(harness.hub.logins._open) == [login] and login._call is deadline and deadline.active()
    deadline.reset(0)
    harness.until(lambda: harness.hub.connections == 0)
    assert (harness.hub.closed_for["login_timeout"], len(harness.hub.logins)) == (1, 0)


def test_a_handshake_that_stops_and_one_that_does_not_begin(sasl_ssl: Make, authority: Authority) -> None:
    harness = sasl_ssl()
    expire_soon(harness)
    silent, half = harness.connect(), harness.connect()
    half.send(b"\x16\x03\x01\x02\x00\x01\x00")
    harness.until(lambda: is_closed(silent) and is_closed(half))
    assert (harness.hub.closed_for["idle"], harness.hub.closed_for["tls_handshake_timeout"]) == (1, 1)


def test_too_many_handshakes_of_an_address_are_refused(sasl_ssl: Make, authority: Authority) -> None:
    harness = sasl_ssl(logins_per_ip_max=2)
    half = [harness.connect() for _ in range(2)]
    harness.until(lambda: len(harness.hub.logins) == 2)
    refused = [harness.connect() for _ in range(3)]
    harness.until(lambda: all(map(is_closed, refused)))
    assert harness.hub.closed_for["login_connections"] == 3
    half[0].socket.close()
    harness.until(lambda: len(harness.hub.logins) == 1)
    handshake(harness, authority)


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("is_tls", [False, True])
def test_the_memory_of_connections_that_announce_much_is_that_of_what_they_send(sasl: Make, sasl_ssl: Make, is_tls: bool) -> None:
    """CVE-2022-34917. With TLS, connections that have sent nothing have no state of OpenSSL, of 20 KB and more."""
    harness = (sasl_ssl if is_tls else sasl)(logins_per_ip_max=2000)
    count = min(1000, harness.hub.quotas.room // 3)
    assert count >= 100, "raise the limit of open files"
    before = resident_bytes()
    clients = [harness.connect() for _ in range(count)]
    if not is_tls:
        for client in clients:
            client.send(SIZE.pack(MESSAGE_BYTES_MAX) + bytes(100))
    harness.until(lambda: harness.hub.connections == count)
    harness.turns()
    grown = resident_bytes() - before
    assert grown < count * 16_384, f"{grown} bytes for {count} connections, which announce {MESSAGE_BYTES_MAX}"
    assert harness.hub.buffers.reserved <= count * OWNED_BYTES_MIN
    if not is_tls:
        member = harness.connect()
        log_in(member)
