"""How fast connections may be made: from an address, at a listener, and at the broker."""

from __future__ import annotations

import logging

import pytest
from twisted.internet.task import Clock

from txbroker.client_quotas.connection_rates import IP_RATE, NO_LIMIT, RATES_MAX, ConnectionRates
from txbroker.cluster.node_paths import Entity

IP = "10.0.0.1"


def made(**limits: str) -> tuple[ConnectionRates, Clock]:
    clock = Clock()
    rates = ConnectionRates(clock.seconds, sample_count=11, sample_s=1)
    for name, limit in limits.items():
        configure(rates, {"default": "<default>", "one": IP}[name], limit)
    return rates, clock


def configure(rates: ConnectionRates, name: str, limit: str | None) -> None:
    rates.configure(Entity("ips", name), {} if limit is None else {IP_RATE: limit})


def test_an_address_that_is_too_fast_is_delayed_and_not_counted() -> None:
    rates, clock = made(one="2")
    # A window of 11 samples, of which 10 are full, as in Kafka.
    assert [rates.accepted(IP) for _ in range(20)] == [0.0] * 20
    assert [rates.accepted(IP) for _ in range(3)] == [0.5] * 3, "what is refused does not count"
    assert rates.throttled == 3
    assert rates.accepted("10.0.0.2") == 0.0
    clock.advance(11)
    assert rates.accepted(IP) == 0.0


def test_a_delay_is_one_sample_at_most() -> None:
    rates, _ = made(one="0", default="1")
    assert rates.accepted(IP) == 1.0
    for _ in range(10):
        assert rates.accepted("10.0.0.2") == 0.0
    assert rates.accepted("10.0.0.2") == 1.0
    assert rates.accepted("10.0.0.3") == 0.0, "each address has the default alone"


def test_limits_of_addresses_are_changed_and_removed() -> None:
    rates, _ = made(default="0")
    configure(rates, IP, str(NO_LIMIT))
    assert rates.accepted(IP) == 0.0 and rates.accepted("10.0.0.2") == 1.0
    configure(rates, IP, None)
    assert rates.accepted(IP) == 1.0
    configure(rates, "<default>", None)
    assert rates.accepted(IP) == 0.0


@pytest.mark.parametrize(
    ("node", "ip"),
    [("0%3A0%3A0%3A0%3A0%3A0%3A0%3A1", "::1"), ("%3A%3Affff%3A10.1.2.3", "10.1.2.3"), ("2001%3ADB8%3A%3A1", "2001:db8::1")],
)
def test_an_address_has_one_form(node: str, ip: str) -> None:
    rates, _ = made()
    configure(rates, node, "0")
    assert rates.accepted(ip) == 1.0


@pytest.mark.parametrize(("node", "limit"), [(IP, "-1"), (IP, "x"), (IP, "1.5"), ("<default>", "9999999999"), ("example.org", "1")])
def test_what_is_not_valid_is_logged_and_ignored(node: str, limit: str, caplog: pytest.LogCaptureFixture) -> None:
    rates, _ = made()
    configure(rates, node, limit)
    assert [rates.accepted(IP) for _ in range(100)] == [0.0] * 100
    assert len(caplog.records) == 1 and caplog.records[0].levelno == logging.ERROR and f"ips/{node}" in caplog.text


def test_the_next_connection_waits_at_a_listener_or_broker_that_is_too_fast() -> None:
    rates, clock = made()
    rates.limit(10, {"SLOW": 1}, "BROKERS")
    assert all(map(rates.is_limited, ("SLOW", "FAST", "BROKERS")))
    assert [rates.accepting("SLOW") for _ in range(11)] == [0.0] * 10 + [1.0]
    assert [rates.accepting("FAST") for _ in range(90)] == [0.0] * 89 + [pytest.approx(0.1)], "the broker's limit is for both together"
    assert [rates.accepting("BROKERS") for _ in range(200)] == [0.0] * 200, "the listener between brokers is exempt"
    assert rates.delayed == 2
    clock.advance(11)
    assert rates.accepting("SLOW") == 0.0
    rates.limit(NO_LIMIT, {}, None)
    assert not rates.is_limited("SLOW")


def test_the_listener_between_brokers_can_have_a_limit_of_its_own() -> None:
    rates, _ = made()
    rates.limit(0, {"BROKERS": 1}, "BROKERS")
    assert [rates.accepting("BROKERS") for _ in range(11)] == [0.0] * 10 + [1.0]


def test_what_is_not_accepted_does_not_count() -> None:
    rates, _ = made()
    rates.limit(1, {"L": 1}, None)
    for _ in range(100):
        assert rates.accepting("L") == 0.0
        rates.not_accepted("L")


def test_the_rates_are_those_of_the_last_addresses() -> None:
    rates, _ = made(default="1")
    for _ in range(10):
        rates.accepted(IP)
    assert rates.accepted(IP)
    for number in range(RATES_MAX):
        rates.accepted(f"10.1.{number >> 8}.{number & 255}")
    assert rates.accepted(IP) == 0.0
