"""SASL of a listener, checked before the broker starts."""

from __future__ import annotations

import pytest

from tests.config.configs import broker_config
from txbroker.config.oauthbearer import OauthSettings, file_of
from txbroker.config.resolve import BrokerConfig
from txbroker.config.sasl import own_credentials, sasl_settings
from txbroker.errors import ConfigError

LISTENERS = "listeners=PLAINTEXT://:1,SASL_PLAINTEXT://:2"
PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="a;b" user_=x;'
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
JWKS = "sasl.oauthbearer.jwks.endpoint.url"
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
    assert found.mechanisms["PLAIN"] == ({"user_alice": "a;b", "user_": "x"}, 1, None)
    assert found.mechanisms["SCRAM-SHA-512"] == ({}, 5000, None)
    assert found.message_bytes_max == 99


def test_scram_needs_no_login_configuration() -> None:
    assert list(sasl_settings(loaded("sasl.enabled.mechanisms=SCRAM-SHA-256"), "SASL_PLAINTEXT").mechanisms) == ["SCRAM-SHA-256"]


def test_settings_of_tokens_are_those_of_listener_and_mechanism() -> None:
    config = loaded(
        "sasl.enabled.mechanisms=OAUTHBEARER", f"{JWKS}=https://idp.example/common", f"{PREFIX}.{JWKS}=http://idp.example/listener",
        f"{PREFIX}.oauthbearer.{JWKS}=file:///etc/keys.json", f"{PREFIX}.oauthbearer.sasl.oauthbearer.expected.audience=a, b",
        f"{PREFIX}.oauthbearer.sasl.server.callback.handler.class={HANDLER}",
        f"{PREFIX}.oauthbearer.sasl.jaas.config={OAUTH} required;", "sasl.oauthbearer.expected.issuer=me",
        f"{PREFIX}.oauthbearer.connections.max.reauth.ms=7",
    )  # fmt: skip
    expected = OauthSettings("file:///etc/keys.json", "me", ("a", "b"), 30, "scope", "sub", 3_600_000, 100, 10_000)
    assert sasl_settings(config, "SASL_PLAINTEXT").mechanisms["OAUTHBEARER"] == ({}, 7, expected)


@pytest.mark.parametrize(("url", "path"), [
    ("https://idp.example:8443/keys", None), ("http://[::1]/keys", None), ("file:///etc/a%20b", "/etc/a b"), ("file:/etc/a", "/etc/a"),
    ("file://localhost/etc/a", "/etc/a"),
])  # fmt: skip
def test_urls(url: str, path: str | None) -> None:
    assert file_of(url) == path


@pytest.mark.parametrize(("lines", "result"), [
    (["sasl.oauthbearer.token.endpoint.url=file:///run/token"], "/run/token"),
    (["sasl.oauthbearer.token.endpoint.url=https://idp.example/token"], "is a URL of the web; only a file: URL is supported here"),
    ([], "with whose token this broker logs in at other brokers, is not set"),
])  # fmt: skip
def test_the_token_of_brokers(lines: list[str], result: str) -> None:
    settings = ("zookeeper.connect=z:1", "security.inter.broker.protocol=SASL_PLAINTEXT", f"{JWKS}=file:///keys",
                "sasl.enabled.mechanisms=OAUTHBEARER", "sasl.mechanism.inter.broker.protocol=OAUTHBEARER", *lines)  # fmt: skip
    if result.startswith("/"):
        assert own_credentials(loaded(*settings), "SASL_PLAINTEXT") == ("OAUTHBEARER", "", "", result)
    else:
        with pytest.raises(ConfigError, match=result):
            loaded(*settings)


@pytest.mark.parametrize(("lines", "message"), [
    ([], "sasl.enabled.mechanisms of listener SASL_PLAINTEXT has GSSAPI, which is not supported; "
         "use PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER"),
    (["sasl.enabled.mechanisms=SCRAM-SHA-256,GSSAPI"],
     "server.properties:2: sasl.enabled.mechanisms of listener SASL_PLAINTEXT has GSSAPI, which is not supported"),
    (["sasl.enabled.mechanisms=SCRAM-SHA-256,OAUTHBEARER"],
     "sasl.oauthbearer.jwks.endpoint.url is not set, so that no token could be verified on listener SASL_PLAINTEXT: set it to"),
    (["sasl.enabled.mechanisms=OAUTHBEARER", f"{PREFIX}.oauthbearer.{JWKS}=ftp://idp.example/keys"],
     f"server.properties:3: {JWKS} must be an http: or https: URL with a host, or a file: URL with an absolute path"),
    (["sasl.enabled.mechanisms=OAUTHBEARER", f"{JWKS}=https://"], "must be an http: or https: URL with a host"),
    (["sasl.enabled.mechanisms=OAUTHBEARER", f"{JWKS}=file:keys.json"], "must be an http: or https: URL with a host"),
    (["sasl.enabled.mechanisms=OAUTHBEARER", f"{JWKS}=https://[::1/keys"], f"{JWKS} is not a URL"),
    (["sasl.enabled.mechanisms=OAUTHBEARER", f"{JWKS}=https://me:secret@idp.example/keys"], "has a user or a password in its URL"),
    (["sasl.enabled.mechanisms=OAUTHBEARER", f"{JWKS}=file:///keys", f"{PREFIX}.oauthbearer.sasl.server.callback.handler.class=a.B"],
     "sasl.server.callback.handler.class names code of Java, which this broker cannot run; set it to org.apache.kafka.common.security."),
    (["sasl.enabled.mechanisms=SCRAM-SHA-256", f"{PREFIX}.scram-sha-256.sasl.server.callback.handler.class={HANDLER}"],
     "sasl.server.callback.handler.class names code of Java, which this broker cannot run; remove it"),
    (["sasl.enabled.mechanisms=OAUTHBEARER", f"{JWKS}=file:///keys",
      f'{PREFIX}.oauthbearer.sasl.jaas.config={OAUTH} required unsecuredLoginStringClaim_sub="admin";'],
     "has the option unsecuredLoginStringClaim_sub; tokens without a signature are not supported"),
    (["sasl.enabled.mechanisms=OAUTHBEARER", f"{JWKS}=file:///keys", f"{PREFIX}.oauthbearer.sasl.jaas.config={SCRAM}"],
     "with OAUTHBEARER only org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule is supported"),
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
