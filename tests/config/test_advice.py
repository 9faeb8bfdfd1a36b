"""Warnings at the start about settings that protect less than they seem to."""

from __future__ import annotations

import pytest

from tests.config.configs import broker_config
from txbroker.config.advice import advice
from txbroker.config.listeners import parse_listeners

ACLS = "authorizer.class.name=kafka.security.authorizer.AclAuthorizer"
LOGINS = "inter.broker.listener.name=A\nlistener.security.protocol.map=A:{}"
JAAS = "listener.name.a.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required;"
PLAIN = f"sasl.enabled.mechanisms=PLAIN\n{JAAS}"
SCRAM = "sasl.enabled.mechanisms=SCRAM-SHA-256"
OWN_PLAIN = f"listener.name.a.{PLAIN}"
OPEN, CLOSED = LOGINS.format("SASL_PLAINTEXT"), LOGINS.format("SASL_SSL")

NO_ACLS = ("1: super.users has no effect without authorizer.class.name: every client may do everything; set it to "
           "kafka.security.authorizer.AclAuthorizer")  # fmt: skip
ONLY_ADDRESSES = ("2: PLAINTEXT://:1 is on all addresses, without TLS and SASL: ACLs distinguish the clients only by their addresses; name "
                  "one address in listeners, or restrict the port by a firewall")  # fmt: skip
NO_CLIENT = "1: {}, which no client is: {}; principals are separated by semicolons"
READABLE = "{} has logins by PLAIN without TLS: every host on the way can read the passwords; use SASL_SSL, or a SCRAM mechanism"
NO_CERTIFICATES = ("1: ssl.client.auth has no effect on A://:1, where clients log in: set listener.name.a.ssl.client.auth to require "
                   "certificates, too")  # fmt: skip


@pytest.mark.parametrize(("lines", "expected"), [
    (("super.users=User:a", "listeners=PLAINTEXT://localhost:1"), NO_ACLS),
    (("super.users=User:a;User:CN=b,O=c;", ACLS, "listeners=PLAINTEXT://localhost:1"), None),
    (("super.users=admin,User:bob", ACLS, "listeners=PLAINTEXT://localhost:1"),
     NO_CLIENT.format("super.users has 'admin,User:bob'",
                      "it is a single principal, commas do not separate several; write each as User:name on its own")),
    (("super.users=User:admin;user:bob", ACLS, "listeners=PLAINTEXT://localhost:1"),
     NO_CLIENT.format("super.users has 'user:bob'", "its type is 'user'; write User:bob")),
    (("txbroker.audit.excluded.principals=User:", ACLS, "listeners=PLAINTEXT://localhost:1"),
     NO_CLIENT.format("txbroker.audit.excluded.principals has 'User:'", "it has no name; write User:name")),
    ((ACLS, "listeners=PLAINTEXT://:1"), ONLY_ADDRESSES),
    ((PLAIN, OPEN, "listeners=A://10.0.0.1:1"), READABLE.format("1: A://10.0.0.1:1")),
    ((PLAIN, OPEN, "listeners=A://:1"), READABLE.format("1: A://:1")),
    ((PLAIN, OPEN, "listeners=A://127.0.0.2:1"), None),
    ((PLAIN, OPEN, "listeners=A://localhost:1"), None),
    ((PLAIN, OPEN, "listeners=A://[::1]:1"), None),
    ((PLAIN, CLOSED, "listeners=A://:1"), None),
    ((SCRAM, OPEN, "listeners=A://:1"), None),
    ((SCRAM, OWN_PLAIN, OPEN, "listeners=A://127.example.org:1"), READABLE.format("2: A://127.example.org:1")),
    (("ssl.client.auth=required", PLAIN, CLOSED, "listeners=A://:1"), NO_CERTIFICATES),
    (("ssl.client.auth=required", "listener.name.a.ssl.client.auth=none", PLAIN, CLOSED, "listeners=A://:1"), None),
])  # fmt: skip
def test_warnings(lines: tuple[str, ...], expected: str | None) -> None:
    config = broker_config("\n".join(lines))
    found = [text.removeprefix("server.properties:") for text in advice(config, parse_listeners(config))]
    assert found == ([] if expected is None else [expected])
