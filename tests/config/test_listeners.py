from __future__ import annotations

import pytest

from tests.config.configs import broker_config
from txbroker.config.listeners import Listener, Listeners, connections_per_ip_overrides, parse_listeners
from txbroker.errors import ConfigError


def parse(*lines: str) -> Listeners:
    return parse_listeners(broker_config("\n".join(lines)))


INTERNAL = "listener.security.protocol.map=INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT,PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL"


def test_the_default_is_every_address() -> None:
    listeners = parse()
    assert listeners == Listeners((Listener("PLAINTEXT", "", 9092, "PLAINTEXT"),), {}, "PLAINTEXT")
    assert listeners.bound[0].wildcard


@pytest.mark.parametrize(
    ("text", "host", "port", "wildcard", "printed"),
    [
        ("PLAINTEXT://127.0.0.1:9092", "127.0.0.1", 9092, False, "PLAINTEXT://127.0.0.1:9092"),
        ("plaintext://broker-1.example_net:0", "broker-1.example_net", 0, False, "PLAINTEXT://broker-1.example_net:0"),
        ("PLAINTEXT://0.0.0.0:65535", "0.0.0.0", 65535, True, "PLAINTEXT://0.0.0.0:65535"),
        ("PLAINTEXT://[::]:9092", "::", 9092, True, "PLAINTEXT://[::]:9092"),
        ("PLAINTEXT://[fe80::1%eth0]:9092", "fe80::1%eth0", 9092, False, "PLAINTEXT://[fe80::1%eth0]:9092"),
        ("PLAINTEXT://[::ffff:10.0.0.1]:9092", "::ffff:10.0.0.1", 9092, False, "PLAINTEXT://[::ffff:10.0.0.1]:9092"),
        ("PLAINTEXT://:9092", "", 9092, True, "PLAINTEXT://:9092"),
    ],
)
def test_one_listener(text: str, host: str, port: int, wildcard: bool, printed: str) -> None:
    (listener,) = parse(f"listeners={text}").bound
    assert (listener.name, listener.host, listener.port, listener.protocol) == ("PLAINTEXT", host, port, "PLAINTEXT")
    assert listener.wildcard is wildcard
    assert str(listener) == printed


def test_several_named_and_advertised() -> None:
    listeners = parse(
        "listeners = INTERNAL://:9092 , EXTERNAL://0.0.0.0:19092",
        "advertised.listeners=external://kafka.example.net:443,INTERNAL://10.0.0.1:0",
        INTERNAL,
        "inter.broker.listener.name=internal",
    )
    assert [str(listener) for listener in listeners.bound] == ["INTERNAL://:9092", "EXTERNAL://0.0.0.0:19092"]
    assert {name: str(listener) for name, listener in listeners.advertised.items()} == {
        "EXTERNAL": "EXTERNAL://kafka.example.net:443", "INTERNAL": "INTERNAL://10.0.0.1:0",
    }
    assert listeners.inter_broker == "INTERNAL"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["listeners=EXTERNAL://:1,INTERNAL://:2"], "EXTERNAL"),
        (["listeners=EXTERNAL://:1,PLAINTEXT://:2"], "PLAINTEXT"),
        (["listeners=EXTERNAL://:1,INTERNAL://:2", "advertised.listeners=INTERNAL://a:2"], "INTERNAL"),
        (["listeners=EXTERNAL://:1,INTERNAL://:2", "inter.broker.listener.name=INTERNAL"], "INTERNAL"),
    ],
)
def test_the_inter_broker_listener(lines: list[str], expected: str) -> None:
    assert parse(INTERNAL, *lines).inter_broker == expected


def test_the_advertised_host_may_be_the_one_that_the_client_reached() -> None:
    assert parse("advertised.listeners=PLAINTEXT://:9092").advertised == {"PLAINTEXT": Listener("PLAINTEXT", "", 9092, "PLAINTEXT")}


def test_ports() -> None:
    assert len(parse(INTERNAL, "listeners=INTERNAL://:0,EXTERNAL://:0").bound) == 2
    assert len(parse(INTERNAL, "listeners=INTERNAL://127.0.0.1:9092,EXTERNAL://[::1]:9092").bound) == 2
    parse(INTERNAL, "listeners=INTERNAL://:1,EXTERNAL://:2", "advertised.listeners=INTERNAL://a:443,EXTERNAL://b:443")


def test_kraft_controller_listeners_are_ignored() -> None:
    listeners = parse(
        "process.roles=broker,controller", "controller.listener.names=CONTROLLER", "listeners=PLAINTEXT://:9092,CONTROLLER://:9093",
        "advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093", "inter.broker.listener.name=PLAINTEXT",
    )
    assert [listener.name for listener in listeners.bound] == ["PLAINTEXT"]
    assert list(listeners.advertised) == ["PLAINTEXT"]
    secure = parse("controller.listener.names=SECURE", "listeners=PLAINTEXT://:1,SECURE://:2", INTERNAL)
    assert [listener.name for listener in secure.bound] == ["PLAINTEXT"]


NOT_A_LISTENER = "which is not name://host:port"


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["listeners="], "server.properties:1: listeners has no listener for clients"),
        (["listeners=9092"], f"server.properties:1: listeners has '9092', {NOT_A_LISTENER}"),
        (["listeners=PLAINTEXT://localhost"], f"server.properties:1: listeners has 'PLAINTEXT://localhost', {NOT_A_LISTENER}"),
        (["listeners=PLAINTEXT://a b:1"], f"server.properties:1: listeners has 'PLAINTEXT://a b:1', {NOT_A_LISTENER}"),
        (["listeners=PLAINTEXT://:-1"], f"server.properties:1: listeners has 'PLAINTEXT://:-1', {NOT_A_LISTENER}"),
        (["listeners=PLAINTEXT://[1:2]:1"],
         "server.properties:1: listeners has 'PLAINTEXT://[1:2]:1', in which 1:2 is not an IPv6 address"),
        (["advertised.listeners="],
         "server.properties:1: advertised.listeners has no listener for clients; name one, or remove the key"),
        (["listeners=PLAINTEXT://:65536"], "server.properties:1: listeners has 'PLAINTEXT://:65536', whose port is above 65535"),
        (["listeners=PLAINTEXT://:1,plaintext://:2"], "server.properties:1: listeners has two listeners named PLAINTEXT"),
        ([INTERNAL, "listeners=INTERNAL://:1,EXTERNAL://a:1"],
         "server.properties:2: listeners has INTERNAL://:1 and EXTERNAL://a:1 on the same port"),
        ([INTERNAL, "listeners=INTERNAL://1.2.3.4:1,EXTERNAL://[::1]:1,PLAINTEXT://a:1"],
         "server.properties:2: listeners has INTERNAL://1.2.3.4:1 and PLAINTEXT://a:1 on the same port"),
        (["listeners=OTHER://:1"],
         "server.properties:1: listeners has the listener OTHER, which has no protocol in listener.security.protocol.map"),
        (["listeners=SSL://:1"],
         "server.properties:1: security.inter.broker.protocol is PLAINTEXT, but no advertised listener has this protocol"),
        (["controller.listener.names=PLAINTEXT"], "listeners has no listener for clients"),
        (["listener.security.protocol.map=A"], "server.properties:1: listener.security.protocol.map has 'A', which is not name:protocol"),
        (["listener.security.protocol.map=A:TLS"],
         "server.properties:1: listener.security.protocol.map gives A the protocol TLS, "
         "which is not one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        (["advertised.listeners=PLAINTEXT://0.0.0.0:9092"],
         "server.properties:1: advertised.listeners has PLAINTEXT://0.0.0.0:9092, to which no client can connect; use a host name"),
        (["advertised.listeners=PLAINTEXT://[::]:9092"],
         "server.properties:1: advertised.listeners has PLAINTEXT://[::]:9092, to which no client can connect; use a host name"),
        (["advertised.listeners=SSL://a:1"], "server.properties:1: advertised.listeners has SSL://a:1, but listeners has no SSL"),
        (["advertised.listeners=PLAINTEXT://a"], f"server.properties:1: advertised.listeners has 'PLAINTEXT://a', {NOT_A_LISTENER}"),
        (["advertised.listeners=PLAINTEXT://a:1,PLAINTEXT://b:2"],
         "server.properties:1: advertised.listeners has two listeners named PLAINTEXT"),
        (["inter.broker.listener.name=INTERNAL"],
         "server.properties:1: inter.broker.listener.name is INTERNAL, which is not among the advertised listeners (PLAINTEXT)"),
        ([INTERNAL, "listeners=INTERNAL://:1,EXTERNAL://:2", "advertised.listeners=EXTERNAL://a:2", "inter.broker.listener.name=INTERNAL"],
         "server.properties:4: inter.broker.listener.name is INTERNAL, which is not among the advertised listeners (EXTERNAL)"),
        (["inter.broker.listener.name=PLAINTEXT", "security.inter.broker.protocol=PLAINTEXT"],
         "server.properties:1: inter.broker.listener.name and security.inter.broker.protocol are both set; remove one of them"),
        (["security.inter.broker.protocol=SSL"],
         "server.properties:1: security.inter.broker.protocol is SSL, but no advertised listener has this protocol"),
    ],
)
def test_invalid_listeners_are_refused(lines: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(*lines)
    assert str(caught.value) == message


def test_connection_limits_of_single_addresses() -> None:
    config = broker_config("max.connections.per.ip.overrides=127.0.0.1:3, [::1]:4 ,a.example:0")
    assert connections_per_ip_overrides(config) == {"127.0.0.1": 3, "::1": 4, "a.example": 0}
    assert connections_per_ip_overrides(broker_config()) == {}
