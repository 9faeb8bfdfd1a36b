"""A broker whose TLS cannot be used does not start, and says which key of which line is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from twisted.internet.defer import maybeDeferred
from twisted.internet.task import Clock

from tests.config.configs import broker_config
from tests.support.certificates import Authority
from txbroker.broker.tls_listeners import TlsListeners
from txbroker.config.advice import advice
from txbroker.config.listeners import parse_listeners
from txbroker.config.resolve import BrokerConfig
from txbroker.errors import StartError


def opened(config: BrokerConfig) -> TlsListeners:
    tls = TlsListeners(config, parse_listeners(config), Clock(), maybeDeferred, lambda: 0)
    tls.open(1)
    return tls


MAP = "listener.security.protocol.map=INSIDE:PLAINTEXT,OUTSIDE:SSL\ninter.broker.listener.name=INSIDE\n"
LISTENERS = "listeners=INSIDE://127.0.0.1:1,OUTSIDE://:2\n"


def refusal(text: str) -> str:
    config = broker_config(MAP + LISTENERS + text)
    with pytest.raises(StartError) as caught:
        opened(config)
    return str(caught.value)


def test_the_message_has_file_line_key_and_listener(tmp_path: Path) -> None:
    assert refusal("") == (
        "ssl.keystore.location must be set, or ssl.keystore.key and ssl.keystore.certificate.chain: a listener with TLS needs a "
        "certificate and its key (listener OUTSIDE)"
    )
    assert refusal("ssl.keystore.type=PEM\nlistener.name.outside.ssl.keystore.location=/none\nssl.keystore.location=/other\n") == (
        "server.properties:5: listener.name.outside.ssl.keystore.location is /none, which cannot be read: No such file or directory "
        "(listener OUTSIDE)"
    )
    good = f"ssl.keystore.type=PEM\nssl.keystore.location={Authority(tmp_path).issue('server').pem()}\n"
    assert refusal(good + "ssl.principal.mapping.rules=CN\n") == (
        "server.properties:6: ssl.principal.mapping.rules is not valid: 'CN' is not DEFAULT or RULE:pattern/replacement/ with L or U at "
        "the end (listener OUTSIDE)"
    )
    assert refusal(good + "listener.name.outside.ssl.client.auth=required\n").startswith(
        "server.properties:6: listener.name.outside.ssl.client.auth is required, so ssl.truststore.location must be set: "
    )


def test_each_listener_has_its_own_keys(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    config = broker_config(
        "listener.security.protocol.map=A:SSL,B:SSL,P:PLAINTEXT\ninter.broker.listener.name=P\n"
        "listeners=A://127.0.0.1:1,B://127.0.0.1:2,P://127.0.0.1:3\n"
        f"ssl.keystore.type=PEM\nssl.keystore.location={authority.issue('one').pem()}\n"
        f"listener.name.b.ssl.keystore.location={authority.issue('other').pem()}\n"
    )
    subjects = {name: tls.loaded.server.own.subject for name, tls in opened(config).by_name.items()}
    assert subjects == {"A": "CN=one,O=Test", "B": "CN=other,O=Test"}


def test_only_listeners_without_tls_on_all_addresses_give_a_warning() -> None:
    config = broker_config(MAP + LISTENERS)
    assert list(advice(config, parse_listeners(config))) == []
