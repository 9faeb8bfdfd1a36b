"""The poller: an error of one connection does not affect the others."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread
from typing import Any

import pytest
from twisted.internet.epollreactor import EPollReactor
from twisted.internet.selectreactor import SelectReactor

from tests.transport.harness import Answering, Client, ListenerHarness, frame


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
