"""Connections that are made too fast: those of one address, and those of a listener."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.transport.harness import ListenerHarness, frame
from txbroker.client_quotas.connection_rates import IP_RATE, NO_LIMIT, ConnectionRates
from txbroker.cluster.node_paths import Entity
from txbroker.transport import throttled

Make = Callable[..., ListenerHarness]


def limited(start: Make, **limits: int) -> tuple[ListenerHarness, ConnectionRates]:
    """A listener whose rates are averaged over three tenths of a second."""
    harness = start()
    rates = harness.hub.quotas.rates = ConnectionRates(harness.reactor.seconds, sample_count=4, sample_s=0.1)
    if "ip" in limits:
        rates.configure(Entity("ips", "127.0.0.1"), {IP_RATE: str(limits["ip"])})
    rates.limit(limits.get("broker", NO_LIMIT), {}, None)
    return harness, rates


def test_the_connections_of_a_fast_address_are_silent_and_then_closed(start: Make) -> None:
    harness, rates = limited(start, ip=0)
    clients = [harness.connect() for _ in range(3)]
    for client in clients:
        client.send(frame(b"anybody here?"))
    harness.until(lambda: rates.throttled == 3)
    assert harness.hub.connections == 0 and len(harness.hub.throttled) == 3
    assert not any(client.receive_some() for client in clients), "not closed yet, or without a byte"
    harness.until(lambda: all(client.receive_some() is None for client in clients))
    assert len(harness.hub.throttled) == 0 and harness.hub.quotas.accepted == 0 and not harness.protocols
    rates.configure(Entity("ips", "127.0.0.1"), {})
    client = harness.connect()
    client.send(frame(b"and now?"))
    assert client.answer() == b"and now?"


def test_no_more_than_some_connections_are_kept_silent(start: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttled, "THROTTLED_MAX", 2)
    harness, rates = limited(start, ip=0)
    rates._sample_s = 1000.0  # how long they are kept
    clients = [harness.connect() for _ in range(5)]
    harness.until(lambda: rates.throttled == 5)
    assert len(harness.hub.throttled) == 2
    harness.until(lambda: sum(client.receive_some() is None for client in clients) == 3)
    harness.hub.throttled.stop()
    harness.until(lambda: all(client.receive_some() is None for client in clients))


def test_the_next_connection_of_a_listener_is_accepted_later(start: Make) -> None:
    harness, rates = limited(start, broker=10)
    clients = [harness.connect() for _ in range(8)]
    for client in clients:
        client.send(frame(b"one of many"))
    harness.until(lambda: rates.delayed)
    accepted = harness.hub.quotas.accepted
    assert accepted < 8, "the others wait in the backlog"
    assert [client.answer() for client in clients] == [b"one of many"] * 8
    assert harness.hub.quotas.accepted == 8
    assert 1 <= rates.delayed <= 8 - accepted, "each waits once"


def test_a_listener_that_waits_can_be_closed(start: Make) -> None:
    harness, rates = limited(start, broker=1)
    for _ in range(8):
        harness.connect()
    harness.until(lambda: rates.delayed)


def test_what_an_address_is_refused_for_does_not_count_for_the_listener(start: Make) -> None:
    harness, rates = limited(start, ip=0, broker=1000)
    clients = [harness.connect() for _ in range(5)]
    harness.until(lambda: rates.throttled == 5)
    assert rates._broker.measure(harness.reactor.seconds())[0] == 0
    assert clients
