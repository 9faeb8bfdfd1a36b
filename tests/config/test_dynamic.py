"""Dynamic configurations reach the parts of the broker that use them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from types import SimpleNamespace
from typing import Any

import pytest
from twisted.internet.task import Clock

from tests.api.lone_broker import no_client_quotas
from tests.config.configs import broker_config
from txbroker.action_queue import ActionQueue
from txbroker.broker.dynamic import DynamicConfigs
from txbroker.broker.listening import Listening
from txbroker.client_quotas.connection_rates import ConnectionRates
from txbroker.cluster.node_paths import ALL_BROKERS, Entity, broker_entity, topic_entity
from txbroker.config.alter import Change, alter_broker_configs
from txbroker.config.listeners import parse_listeners
from txbroker.errors import BrokerError
from txbroker.security.scram_credentials import ScramCredentials


def test_which_parts_are_notified_of_which_changes() -> None:
    config = broker_config()
    quotas = no_client_quotas()
    dynamic = DynamicConfigs(config, quotas, ConnectionRates(lambda: 0.0), ScramCredentials())
    dynamic(ALL_BROKERS, {"max.connections": "5"})
    reported: list[str | None] = []
    dynamic.opening_logs()
    dynamic.wire(all_of(reported), lambda: reported.append(f"connections {config.int('max.connections')}"))
    assert reported == ["connections 5"], "the listeners were made with the settings of the file; the logs have those of now"
    reported.clear()
    dynamic(broker_entity(1), {"max.connections": "7"})
    assert reported == ["connections 7", None]
    reported.clear()
    dynamic(Entity("clients", "<default>"), {"producer_byte_rate": "1"})
    assert quotas.active and reported == []
    dynamic(topic_entity("u"), {})
    assert reported == ["u"]


def all_of(reported: list[str | None]) -> Callable[[Collection[str] | None], None]:
    """A list of the topics whose logs get their settings; None: all."""
    return lambda topics: reported.extend([None] if topics is None else sorted(topics))


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ([topic_entity("t"), topic_entity("u"), topic_entity("t")], ["t", "u"]),
        ([topic_entity("t"), ALL_BROKERS, topic_entity("u")], [None]),
    ],
)
def test_what_changes_while_logs_are_opened_reaches_them(changed: list[Entity], expected: list[str | None]) -> None:
    dynamic = DynamicConfigs(broker_config(), no_client_quotas(), ConnectionRates(lambda: 0.0), ScramCredentials())
    dynamic(topic_entity("before"), {})
    dynamic.opening_logs()
    for entity in changed:
        dynamic(entity, {"retention.ms": "1"} if entity.name != "<default>" else {"log.retention.ms": "1"})
    reported: list[str | None] = []
    dynamic.wire(all_of(reported), lambda: None)
    assert reported == expected


def test_connection_limits_follow_the_configuration() -> None:
    config = broker_config("max.connections=5\nmax.connections.per.ip=1")
    environment: Any = SimpleNamespace(reactor=Clock(), in_worker=None, ports=None, now_ms=None)
    listening = Listening(config, environment, ActionQueue(lambda delay_s, call: None), parse_listeners(config))
    ports: Any = listening.ports
    quotas = ports.hub.quotas
    quotas.add("10.0.0.1")
    config.set_dynamic({"max.connections": "3", "max.connections.per.ip.overrides": "10.0.0.1:2"}, {})
    assert (quotas.room, quotas.allows("10.0.0.1")) == (4, False)
    listening.reconfigure()
    assert (quotas.room, quotas.allows("10.0.0.1")) == (2, True)


def test_rates_of_connections_follow_the_configuration() -> None:
    key = "max.connection.creation.rate"
    config = broker_config(f"listeners=A://:1,B://:2\nlistener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT\n"
                           f"inter.broker.listener.name=B\nlistener.name.b.{key}=7")  # fmt: skip
    environment: Any = SimpleNamespace(reactor=Clock(), in_worker=None, ports=None, now_ms=None)
    listening = Listening(config, environment, ActionQueue(lambda delay_s, call: None), parse_listeners(config))
    rates = listening.rates
    ports: Any = listening.ports
    assert ports.hub.quotas.rates is rates
    assert (rates.is_limited("A"), rates.is_limited("B")) == (False, True)
    for per_broker, changes in ((False, {f"listener.name.a.{key}": "1"}), (True, {key: "0", f"listener.name.b.{key}": "100"})):
        altered = alter_broker_configs(config, {}, [Change(name, 0, value) for name, value in changes.items()], per_broker=per_broker)
        assert altered == changes
        config.set_dynamic(*((altered, {}) if per_broker else ({}, altered)))
        listening.reconfigure()
        assert (rates.accepting("A") > 0, rates.accepting("B") > 0) == (per_broker, False)
    with pytest.raises(BrokerError, match=f"listener.name.a.{key} is '-1'"):
        alter_broker_configs(config, {}, [Change(f"listener.name.a.{key}", 0, "-1")], per_broker=True)


def test_quotas_of_addresses_reach_the_listeners() -> None:
    rates = ConnectionRates(lambda: 0.0)
    dynamic = DynamicConfigs(broker_config(), no_client_quotas(), rates, ScramCredentials())
    dynamic(Entity("ips", "10.0.0.1"), {"connection_creation_rate": "0"})
    assert rates.accepted("10.0.0.1") > 0 == rates.accepted("10.0.0.2")
