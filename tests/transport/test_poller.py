"""The poller: an error of one connection does not affect the others."""

from __future__ import annotations

from collections.abc import Callable
from socket import socketpair
from threading import Thread
from typing import Any

import pytest
from twisted.internet.epollreactor import EPollReactor
from twisted.internet.selectreactor import SelectReactor
from twisted.internet.task import Clock

from tests.transport.harness import Answering, Client, ListenerHarness, frame
from txbroker.transport.epoll_poller import EpollPoller


class Unending(Answering):
    """Raises when its connection is lost."""

    def connectionLost(self, reason: Any) -> None:
        super().connectionLost(reason)
        raise RuntimeError("a bug")


def ask(client: Client, body: bytes) -> None:
    client.send(frame(body))
    assert client.answer() == body


def test_it_serves_connections_in_a_reactor_without_epoll(start: Callable[..., ListenerHarness]) -> None:
    harness = start(reactor=SelectReactor())
    for _ in range(3):
        client = harness.connect()
        ask(client, b"the first request")
        ask(client, b"the second request")


def test_two_hubs_serve_their_connections_in_one_reactor(start: Callable[..., ListenerHarness]) -> None:
    reactor = EPollReactor()
    first, second = start(reactor=reactor), ListenerHarness(reactor=reactor)
    one, other = first.connect(), second.connect()
    for number in range(3):
        ask(one, b"request %d" % number)
        ask(other, b"another request %d" % number)
    stopped: list[None] = []
    second.listener.stopListening()
    second.hub.stop().addCallback(stopped.append)
    first.until(lambda: stopped)
    other.socket.close()
    ask(one, b"the other hub has stopped")


def test_timers_and_calls_from_threads_run_while_connections_wait(start: Callable[..., ListenerHarness]) -> None:
    harness = start()
    ask(harness.connect(), b"something")
    ran: list[str] = []
    harness.reactor.callLater(0.01, ran.append, "timer")
    Thread(target=harness.reactor.callFromThread, args=(ran.append, "thread")).start()
    harness.until(lambda: sorted(ran) == ["thread", "timer"])


class Reads:
    """A member of the poller that notes when it is read."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.reads = 0

    def fileno(self) -> int:
        return self.fd

    def doRead(self) -> None:
        self.reads += 1

    def doWrite(self) -> None:
        raise AssertionError

    def connectionLost(self, reason: Any) -> None:
        raise AssertionError


def test_a_member_is_read_again_only_if_it_still_wants_to_read() -> None:
    clock = Clock()
    poller = EpollPoller(clock, lambda: None, lambda: None)
    ours, theirs = socketpair()
    with ours, theirs:
        first, stopped, later = Reads(ours.fileno()), Reads(theirs.fileno()), Reads(theirs.fileno())
        for member in (first, stopped):
            poller.set_interest(member, read=True)
            poller.read_again(member)
        poller.set_interest(stopped, read=False)
        poller.set_interest(later, read=True)  # another connection has the descriptor of one that was closed
        clock.advance(0)
        assert (first.reads, stopped.reads, later.reads) == (1, 0, 0)
        poller.read_again(later)
        poller.set_interest(later, read=False, write=True)
        clock.advance(0)
        assert later.reads == 0


def test_an_error_when_a_connection_ends_does_not_affect_others(
    start: Callable[..., ListenerHarness], caplog: pytest.LogCaptureFixture
) -> None:
    harness = start()
    other = harness.connect()
    ask(other, b"before it")
    harness.build = lambda: Unending(lambda received: [])
    failing = harness.connect()
    failing.send(frame(b"something"))
    harness.until(lambda: len(harness.protocols) == 2 and harness.protocols[1].frames)
    failing.socket.close()
    harness.until(lambda: harness.protocols[1].lost)
    ask(other, b"after it")
    assert "internal error while a connection was closed" in caplog.text
