"""SASL of a listener, checked before the broker starts."""

from __future__ import annotations

import pytest

from tests.config.configs import broker_config
from txbroker.config.resolve import BrokerConfig
from txbroker.config.sasl import sasl_settings
from txbroker.errors import ConfigError

LISTENERS = "listeners=PLAINTEXT://:1,SASL_PLAINTEXT://:2"
PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="a;b" user_=x;'
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
PREFIX = "listener.name.sasl_plaintext"


def loaded(*lines: str) -> BrokerConfig:
    return broker_config("\n".join((LISTENERS, *lines)))


def test_mechanisms_and_users_of_a_listener() -> None:
    config = loaded(
        "sasl.enabled.mechanisms=GSSAPI", f"{PREFIX}.sasl.enabled.mechanisms=SCRAM-SHA-512,PLAIN",
        f"{PREFIX}.plain.sasl.jaas.config={PLAIN}",
        f"{PREFIX}.scram-sha-512.sasl.jaas.config={SCRAM}", "connections.max.reauth.ms=5000", f"{PREFIX}.plain.connections.max.reauth.ms=1",
        f"{PREFIX}.sasl.server.max.receive.size=99",
    )  # fmt: skip
    found = sasl_settings(config, "SASL_PLAINTEXT")
    assert list(found.mechanisms) == ["SCRAM-SHA-512", "PLAIN"], "in the order that clients see"
    assert found.mechanisms["PLAIN"] == ({"user_alice": "a;b", "user_": "x"}, 1)
    assert found.mechanisms["SCRAM-SHA-512"] == ({}, 5000)
    assert found.message_bytes_max == 99


def test_scram_needs_no_login_configuration() -> None:
    assert list(sasl_settings(loaded("sasl.enabled.mechanisms=SCRAM-SHA-256"), "SASL_PLAINTEXT").mechanisms) == ["SCRAM-SHA-256"]


@pytest.mark.parametrize(("lines", "message"), [
    ([], "sasl.enabled.mechanisms of listener SASL_PLAINTEXT has GSSAPI, which is not supported; "
         "use PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
    (["sasl.enabled.mechanisms=SCRAM-SHA-256,OAUTHBEARER"],
     "server.properties:2: sasl.enabled.mechanisms of listener SASL_PLAINTEXT has OAUTHBEARER, which is not supported"),
    (["sasl.enabled.mechanisms="], "sasl.enabled.mechanisms is empty, so that no client could log in on listener SASL_PLAINTEXT"),
    (["sasl.enabled.mechanisms=PLAIN"], f"{PREFIX}.plain.sasl.jaas.config is not set, so that no user could log in with PLAIN"),
    (["sasl.enabled.mechanisms=PLAIN", f"sasl.jaas.config={PLAIN}"], f"{PREFIX}.plain.sasl.jaas.config is not set"),
    (["sasl.enabled.mechanisms=PLAIN", f"{PREFIX}.plain.sasl.jaas.config=x"],
     f"server.properties:3: {PREFIX}.plain.sasl.jaas.config has no control flag after the login module"),
    (["sasl.enabled.mechanisms=PLAIN", f"{PREFIX}.plain.sasl.jaas.config={SCRAM}"],
     "has the login module org.apache.kafka.common.security.scram.ScramLoginModule; with PLAIN only org.apache"),
    (["sasl.enabled.mechanisms=SCRAM-SHA-256", f"{PREFIX}.scram-sha-256.sasl.jaas.config=com.sun.security.auth.module.JndiLoginModule "
      "required user.provider.url=\"ldap://x\";"], "has the login module com.sun.security.auth.module.JndiLoginModule"),
    (["sasl.enabled.mechanisms=SCRAM-SHA-256", f"{PREFIX}.scram-sha-256.sasl.server.callback.handler.class=a.B"],
     "server.properties:3: sasl.server.callback.handler.class names code of Java, which this broker cannot run"),
    (["sasl.enabled.mechanisms=SCRAM-SHA-256", "sasl.login.class=a.B"], "sasl.login.class names code of Java"),
    (["sasl.enabled.mechanisms=SCRAM-SHA-256", "connection.failed.authentication.delay.ms=600000"],
     "connection.failed.authentication.delay.ms is 600000; it must be below connections.max.idle.ms (600000)"),
])  # fmt: skip
def test_what_is_refused(lines: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        loaded(*lines)
    assert message in str(refused.value)
    assert "user.provider.url" not in str(refused.value), "no part of a login configuration"


def test_a_listener_without_sasl_needs_nothing() -> None:
    broker_config("listeners=PLAINTEXT://:1\nsasl.enabled.mechanisms=GSSAPI")
