"""Kafka's own tools, unchanged, over SASL_SSL and mutual TLS: users, rights and the console clients."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from compat.security import cases
from compat.security.brokers import ADMIN, SecuredBroker, secured_broker
from tests.support import java
from tests.support.acls import listed_acls
from tests.support.cache import KAFKA_NEW, KAFKA_OLD
from tests.support.raw_admin import create_topic
from tests.support.sasl import properties_file
from tests.support.waiting import until

pytestmark = [pytest.mark.process, pytest.mark.extended]

USER, MECHANISM = "carol", cases.SCRAM_512


@pytest.fixture(scope="module")
def secured(request: pytest.FixtureRequest, server_directory: Path) -> Iterator[SecuredBroker]:
    with secured_broker(server_directory / "tools", request.config.getoption("--broker")) as broker:
        yield broker
        assert "Traceback (most recent call last)" not in broker.server.log()


@pytest.mark.parametrize("release", [KAFKA_OLD, KAFKA_NEW])
def test_a_user_with_rights_is_made_and_removed(secured: SecuredBroker, tmp_path: Path, name: str, release: str) -> None:
    create_topic(secured.server, name)
    user = f"{USER}-{name}"
    place = ("--bootstrap-server", secured.addresses[cases.LOGIN])
    admin = (*place, "--command-config", properties_file(tmp_path / "admin", secured.java(cases.PLAIN, ADMIN)))
    own = properties_file(tmp_path / "own", secured.java(MECHANISM, user))
    entity = ("--entity-type", "users", "--entity-name", user)
    rights = ("--allow-principal", f"User:{user}", "--producer", "--consumer", "--topic", name, "--group", name)

    def consume() -> str:
        options = ("--topic", name, "--group", name, "--from-beginning", "--max-messages", "1")
        return java.run("kafka-console-consumer", *place, *options, "--consumer.config", own, release=release).splitlines()[-1]

    def has_rights() -> bool:
        return any(acl.principal == f"User:{user}" for acl in listed_acls(secured.server.address))

    java.run("kafka-configs", *admin, *entity, "--alter", "--add-config", f"{MECHANISM}=[password={cases.PASSWORD}]", release=release)
    until(lambda: secured.may_log_in(MECHANISM, user), "the user can log in")
    assert f"{MECHANISM}=iterations=4096" in java.run("kafka-configs", *admin, *entity, "--describe", release=release)
    with pytest.raises(java.ToolFailed, match="TopicAuthorizationException"):
        java.run("kafka-topics", *place, "--create", "--topic", name, "--command-config", own, release=release)
    java.run("kafka-acls", *admin, "--add", *rights, release=release)
    until(has_rights, "the broker has the ACLs")
    assert f"principal=User:{user}" in java.run("kafka-acls", *admin, "--list", "--topic", name, release=release)
    java.run("kafka-console-producer", *place, "--topic", name, "--producer.config", own, stdin="over SASL_SSL\n", release=release)
    assert consume() == "over SASL_SSL"
    java.run("kafka-acls", *admin, "--remove", "--force", *rights, release=release)
    until(lambda: not has_rights(), "the broker has the ACLs no more")
    assert user not in java.run("kafka-acls", *admin, "--list", release=release)
    java.run("kafka-configs", *admin, *entity, "--alter", "--delete-config", MECHANISM, release=release)
    until(lambda: not secured.may_log_in(MECHANISM, user), "the user cannot log in any more")
    with pytest.raises(java.ToolFailed, match=f"SaslAuthenticationException: Authentication failed .* SASL mechanism {MECHANISM}"):
        java.run("kafka-topics", *place, "--list", "--command-config", own, release=release)


def test_a_tool_with_a_certificate(secured: SecuredBroker, tmp_path: Path) -> None:
    """The name of the certificate has ACLs of its own: it may not list the ACLs."""
    settings = {
        "security.protocol": "SSL", "ssl.truststore.type": "PEM", "ssl.truststore.location": str(secured.authorities[True]),
        "ssl.keystore.type": "PEM", "ssl.keystore.location": str(secured.own[cases.OWN].pem()),
    }  # fmt: skip
    flags = ("--bootstrap-server", secured.addresses[cases.MUTUAL], "--command-config", properties_file(tmp_path / "own", settings))
    assert "secured" in java.run("kafka-topics", *flags, "--list").splitlines()
    with pytest.raises(java.ToolFailed, match="ClusterAuthorizationException"):
        java.run("kafka-acls", *flags, "--list")
