"""Accepting connections: limits, addresses, idle times."""

from __future__ import annotations

import errno
import gc
import os
import socket
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest
from twisted.internet.error import CannotListenError

from tests.transport.harness import ListenerHarness, frame
from txbroker.transport import congestion
from txbroker.transport.limits import Limits
from txbroker.transport.listener import Listener
from txbroker.transport.quotas import ConnectionQuotas, Descriptors
from txbroker.transport.server import plain_host

Make = Callable[..., ListenerHarness]


def test_beyond_max_connections_the_next_one_waits(start: Make) -> None:
    harness = start(connections_max=2)
    first, second, third = (harness.connect() for _ in range(3))
    for client in (first, second, third):
        client.send(frame(b"anybody here?"))
    assert first.answer() == second.answer() == b"anybody here?"
    harness.turns()
    assert harness.hub.connections == 2
    assert third.receive_some() is False
    second.socket.close()
    assert third.answer() == b"anybody here?"
    assert harness.hub.connections == 2


def test_beyond_the_limit_of_an_address_connections_are_closed(start: Make, caplog: pytest.LogCaptureFixture) -> None:
    harness = start(connections_per_ip_max=2, idle_ms_max=400)
    clients = [harness.connect() for _ in range(5)]
    harness.until(lambda: all(client.at_end() for client in clients[2:]))
    clients[0].send(frame(b"still here"))
    assert clients[0].answer() == b"still here"
    clients[0].socket.close()
    harness.until(lambda: harness.hub.connections == 1)
    again = harness.connect()
    again.send(frame(b"and me too"))
    assert again.answer() == b"and me too"
    harness.until(lambda: caplog.records)
    assert [record.message for record in caplog.records] == [
        "refused 3 connections from 127.0.0.1: the limit is max.connections.per.ip"
    ]


@pytest.fixture
def no_gaps() -> Iterator[None]:
    """Fills gaps between open descriptors, which earlier tests may have left."""
    gc.collect()
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    fillers = [os.open(os.devnull, os.O_RDONLY)]
    while fillers[-1] <= highest:
        fillers.append(os.open(os.devnull, os.O_RDONLY))
    yield
    for filler in fillers:
        os.close(filler)


@pytest.mark.usefixtures("no_gaps")
def test_some_descriptors_are_kept_for_files(start: Make, caplog: pytest.LogCaptureFixture) -> None:
    limit = next(limit for limit in count(2) if Descriptors(limit).room() >= 10)
    harness = start(descriptors_max=limit, idle_ms_max=400)
    clients = [harness.connect() for _ in range(20)]  # the test's sockets count, because they are in this process
    harness.until(lambda: harness.hub.connections == 0 and caplog.records)
    assert "no more connections are accepted: 0 are open" in caplog.text
    for client in clients[:15]:
        client.socket.close()
    clients[-1].send(frame(b"my turn?"))
    assert clients[-1].answer() == b"my turn?"


@pytest.mark.parametrize(("limit", "kept"), [(20_000, 5_000), (1_000, 256), (200, 100)])
def test_how_many_descriptors_are_kept(limit: int, kept: int) -> None:
    taken = 2**20 - 2**18 - Descriptors(2**20).room()
    assert Descriptors(limit).room() == max(limit - kept - taken, 0)


def limits(connections: int, per_ip: int, overrides: dict[str, int]) -> Limits:
    return Limits(connections_max=connections, connections_per_ip_max=per_ip, connections_per_ip_overrides=overrides)


def test_a_connection_limit_for_one_address() -> None:
    quotas = ConnectionQuotas(limits(10, 1, {"10.0.0.1": 2, "10.0.0.2": 0}))
    for ip, expected in (("10.0.0.3", True), ("10.0.0.3", False), ("10.0.0.1", True), ("10.0.0.1", True), ("10.0.0.1", False)):
        assert quotas.allows(ip) is expected
        if expected:
            quotas.add(ip)
    assert not quotas.allows("10.0.0.2")
    quotas.remove("10.0.0.3")
    assert quotas.allows("10.0.0.3")
    assert quotas.count == 2


def test_limits_change_while_connections_wait() -> None:
    quotas = ConnectionQuotas(limits(1, 1, {}))
    quotas.add("10.0.0.1")
    woken: list[bool] = []
    quotas.when_room(lambda: woken.append(True))
    quotas.change(limits(1, 2, {"10.0.0.2": 0}))
    assert not woken and quotas.allows("10.0.0.1") and not quotas.allows("10.0.0.2")
    quotas.change(limits(2, 1, {}))
    assert woken and quotas.room == 1 and not quotas.allows("10.0.0.1") and quotas.allows("10.0.0.2")


def test_a_flood_of_connections(start: Make) -> None:
    harness = start()
    for _ in range(5):
        clients = [harness.connect() for _ in range(100)]
        for client in clients:
            client.send_some(frame(b"one of many"))
        for client in clients[::2]:
            client.reset()
        for client in clients[1::2]:
            assert client.answer() == b"one of many"
            client.socket.close()
    harness.until(lambda: not harness.hub.connections)
    assert all(protocol.lost == 1 for protocol in harness.protocols)


class _Starved:
    """A listening socket whose accept fails `times` times for lack of descriptors."""

    def __init__(self, real: socket.socket, times: int) -> None:
        self._real = real
        self.times = times

    def accept(self) -> Any:
        if self.times:
            self.times -= 1
            raise OSError(errno.ENFILE, "too many open files")
        return self._real.accept()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def test_a_failed_accept_does_not_stop_the_listener(start: Make) -> None:
    harness = start()
    harness.listener.socket = _Starved(harness.listener.socket, 3)
    client = harness.connect()
    client.send(frame(b"hello there"))
    assert client.answer() == b"hello there"
    assert harness.listener.socket.times == 0


def test_idle_connections_without_requests_in_flight_are_closed(start: Make) -> None:
    harness = start(idle_ms_max=150)
    idle, waiting, busy = (harness.connect() for _ in range(3))
    harness.until(lambda: len(harness.protocols) == 3)
    harness.protocols[1].in_flight = 1

    def be_busy() -> None:
        if busy.receive_some():
            busy.send(frame(b"still busy"))

    def keep_busy() -> bool:
        be_busy()
        return idle.at_end()

    def keep_busy_for_ten_ticks() -> bool:
        be_busy()
        return harness.hub.tick > tick + 10

    busy.send(frame(b"open for business"))
    harness.until(keep_busy)
    tick = harness.hub.tick
    harness.until(keep_busy_for_ten_ticks)
    assert harness.hub.connections == 2
    harness.protocols[1].in_flight = 0
    harness.until(waiting.at_end)


def test_a_connection_that_does_not_read_responses_is_closed(start: Make, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    harness = start(lambda received: [bytes(5_000_000)], idle_ms_max=150)
    client = harness.connect(receive_buffer=10_000)
    client.send(frame(b"something large"))
    harness.until(lambda: harness.protocols and harness.protocols[0].lost)
    assert [record.message for record in caplog.records][-1].endswith("the client does not read responses")


def test_stopping_sends_the_last_responses(start: Make) -> None:
    harness = start(lambda received: [bytes(3_000_000)])
    client = harness.connect(receive_buffer=10_000)
    client.send(frame(b"something large"))
    harness.until(lambda: harness.protocols and harness.protocols[0].frames)
    stopped: list[Any] = []
    harness.hub.stop().addCallback(stopped.append)
    assert client.receive(3_000_000) == bytes(3_000_000)
    harness.until(lambda: stopped)


def test_a_port_in_use_cannot_be_listened_on(start: Make) -> None:
    harness = start()
    second = Listener(harness.hub, "SECOND", "127.0.0.1", harness.listener.getHost().port, harness._build)
    with pytest.raises(CannotListenError):
        second.startListening()


def test_sockets_have_their_options(start: Make) -> None:
    harness = start(send_buffer_bytes=50_000, receive_buffer_bytes=60_000)
    client = harness.connect()
    harness.until(lambda: harness.hub.connections)
    accepted = harness.protocols[0].transport._stream._socket
    assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == 100_000
    assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 120_000
    assert client.port == harness.protocols[0].transport.session.peer_port


def _algorithm(connected: socket.socket) -> bytes:
    return connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0")


@pytest.mark.usefixtures("linux")
def test_connections_within_one_machine_are_not_paced(start: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever algorithm the system has: here it counts as one that paces. A peer with another address has the system's."""
    with socket.socket() as unbound:
        default = _algorithm(unbound)
    monkeypatch.setattr(congestion, "_PACED", {default})
    harness = start()
    for source, algorithm in (("127.0.0.1", b"reno"), ("127.0.0.2", default)):
        with socket.create_connection(("127.0.0.1", harness.listener.getHost().port), source_address=(source, 0)):
            harness.until(lambda: harness.hub.connections)
            assert _algorithm(harness.protocols[-1].transport._stream._socket) == algorithm
        harness.until(lambda: not harness.hub.connections)


def test_an_algorithm_that_does_not_pace_is_left_alone(start: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as unbound:
        default = _algorithm(unbound)
    monkeypatch.setattr(congestion, "_PACED", set())
    harness = start()
    with socket.create_connection(("127.0.0.1", harness.listener.getHost().port)):
        harness.until(lambda: harness.hub.connections)
        assert _algorithm(harness.protocols[-1].transport._stream._socket) == default


def test_a_session_has_both_addresses(start: Make) -> None:
    harness = start()
    wildcard: Any = Listener(harness.hub, "WILD", "", 0, harness._build)
    wildcard.startListening()
    port = wildcard.getHost().port
    hosts = ["127.0.0.1", "::1"] if socket.has_dualstack_ipv6() else ["127.0.0.1"]
    for host in hosts:
        made = socket.create_connection((host, port))
        harness.until(lambda: harness.hub.connections)
        session = harness.protocols[-1].transport.session
        assert (session.local_host, session.local_port, session.peer_host) == (host, port, host)
        assert session.peer_port == made.getsockname()[1]
        assert session.listener == "WILD"
        assert session.principal == "User:ANONYMOUS"
        assert session.connection_id == f"{host}:{port}-{host}:{session.peer_port}-{session.number}"
        made.close()
        harness.until(lambda: not harness.hub.connections)
    wildcard.stopListening()
    harness.turns()


@pytest.mark.parametrize(("host", "plain"), [("::ffff:10.1.2.3", "10.1.2.3"), ("10.1.2.3", "10.1.2.3"), ("::1", "::1")])
def test_mapped_ipv4_addresses_are_converted(host: str, plain: str) -> None:
    assert plain_host(host) == plain
