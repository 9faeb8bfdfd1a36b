"""TLS, logins and ACLs together on one broker: real clients, each of which may do what its user may."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    KafkaAdminClient,
    NewTopic,
    ResourcePattern,
    ResourceType,
    UserScramCredentialUpsertion,
)
from kafka.errors import KafkaError, TopicAuthorizationFailedError

from tests.support.certificates import Authority
from tests.support.sasl import MODULES
from tests.support.server import HOST, Server, free_port
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.process

MECHANISM = "SCRAM-SHA-512"
PASSWORDS = {"admin": "admin-secret", "writer": "writer-secret", "reader": "reader-secret"}


class Secured:
    """A broker with one listener, SASL_SSL, on which only the user `admin` may do everything."""

    def __init__(self, start: Callable[[dict[str, str]], Server], folder: Path) -> None:
        authority = Authority(folder)
        self.address = f"localhost:{free_port()}"
        self.plain = f"{HOST}:{free_port()}"
        self._authority = str(authority.pem())
        self.server = start(
            {
                "listeners": f"SASL_SSL://{self.address},PLAINTEXT://{self.plain}",
                "advertised.listeners": f"SASL_SSL://{self.address},PLAINTEXT://{self.plain}",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(authority.issue("server", ("localhost",)).pem()),
                "sasl.enabled.mechanisms": f"PLAIN,{MECHANISM}",
                "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{MODULES["PLAIN"]} required user_admin="{PASSWORDS["admin"]}";',
                f"listener.name.sasl_ssl.{MECHANISM.lower()}.sasl.jaas.config": f"{MODULES[MECHANISM]} required;",
                "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
                "super.users": "User:admin",
            }
        )

    def settings(self, user: str, password: str | None = None) -> dict[str, Any]:
        """Those of kafka-python."""
        return {
            "bootstrap_servers": self.address, "security_protocol": "SASL_SSL", "ssl_cafile": self._authority,
            "sasl_mechanism": "PLAIN" if user == "admin" else MECHANISM,
            "sasl_plain_username": user, "sasl_plain_password": password or PASSWORDS[user],
        }  # fmt: skip

    def librdkafka(self, user: str) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.address, "security.protocol": "SASL_SSL", "ssl.ca.location": self._authority,
            "sasl.mechanism": MECHANISM, "sasl.username": user, "sasl.password": PASSWORDS[user],
        }  # fmt: skip


@pytest.fixture
def secured(start_broker: Callable[[dict[str, str]], Server], tmp_path: Path, name: str) -> Secured:
    """With two users who may do one thing each with the topic `name`."""
    found = Secured(start_broker, tmp_path)
    admin = KafkaAdminClient(**found.settings("admin"))
    admin.create_topics([NewTopic(name, 1, 1)])
    admin.alter_user_scram_credentials([
        UserScramCredentialUpsertion(user, MECHANISM, PASSWORDS[user].encode(), iterations=4096) for user in ("writer", "reader")
    ])  # fmt: skip
    allowed = [("writer", ACLOperation.WRITE, ResourceType.TOPIC), ("reader", ACLOperation.READ, ResourceType.TOPIC),
               ("reader", ACLOperation.READ, ResourceType.GROUP)]  # fmt: skip
    for user, does, kind in allowed:
        admin.create_acls([ACL(f"User:{user}", "*", does, ACLPermissionType.ALLOW, ResourcePattern(kind, name))])
    admin.close()
    return found


def test_each_user_does_what_it_may(secured: Secured, name: str) -> None:
    producer = confluent_kafka.Producer({**secured.librdkafka("writer"), "enable.idempotence": True})
    for number in range(100):
        producer.produce(name, b"%d" % number)
    assert producer.flush(PATIENCE_S) == 0
    consumer = KafkaConsumer(name, **secured.settings("reader"), group_id=name, auto_offset_reset="earliest")
    assert [next(consumer).value for _ in range(100)] == [b"%d" % number for number in range(100)]
    consumer.close()


def test_no_user_does_what_another_one_may(secured: Secured, name: str) -> None:
    producer = KafkaProducer(**secured.settings("reader"), acks="all", enable_idempotence=False)
    with pytest.raises(TopicAuthorizationFailedError):
        producer.send(name, b"by the reader").get(PATIENCE_S)
    producer.close()
    consumer = KafkaConsumer(**secured.settings("writer"), group_id=None)
    consumer.assign([TopicPartition(name, 0)])
    consumer.seek(TopicPartition(name, 0), 0)
    with pytest.raises(TopicAuthorizationFailedError):
        while True:
            consumer.poll(timeout_ms=200)
    consumer.close()


def test_nobody_without_a_login(secured: Secured, name: str) -> None:
    """ANONYMOUS has no ACL, and a wrong password is no login."""
    with pytest.raises(KafkaError):
        KafkaProducer(bootstrap_servers=secured.plain, enable_idempotence=False, max_block_ms=2000).send(name, b"anonymous").get(PATIENCE_S)
    with pytest.raises(KafkaError):
        KafkaAdminClient(**secured.settings("writer", "a guess"))
    log = secured.server.log_path.read_text()
    assert "as 'writer' with SCRAM-SHA-512" in log
    assert [secret for secret in (*PASSWORDS.values(), "a guess") if secret in log] == []
