"""Delegation tokens at a real broker, by the bytes of the protocol and by Kafka's tools, the same as at Apache Kafka (--broker)."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.security.test_sasl_brokers import LOGIN_FAILED, address, log_in, set_password
from tests.support import java
from tests.support.acls import ALLOW, LITERAL, Acl, create_acls
from tests.support.broker import BrokerProcess
from tests.support.raw import ConnectionEnded, RawConnection
from tests.support.raw_admin import create_topic
from tests.support.sasl import MODULES, PASSWORDS, client_properties, properties_file, quoted, sasl_server
from tests.support.server import Server
from tests.support.tokens import ask, token_log_in
from tests.support.waiting import until
from txbroker.wire.messages.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from txbroker.wire.messages.describe_delegation_token import DescribeDelegationTokenOwner, DescribeDelegationTokenRequest
from txbroker.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from txbroker.wire.messages.renew_delegation_token import RenewDelegationTokenRequest

pytestmark = [pytest.mark.process, pytest.mark.extended]

UNKNOWN = -1
NOT_FOUND, MISMATCH, NOT_ALLOWED, UNAUTHORIZED, EXPIRED, INVALID_TYPE = 62, 63, 64, 65, 66, 67
DELEGATION_TOKEN, USER = 6, 7
DESCRIBE, CREATE_TOKENS = 8, 13
DAY_MS = 86_400_000
SECRET = "a secret of all brokers"
SUPER = "User:ANONYMOUS"
hmacs: list[str] = []  # of tokens that these tests have made


@pytest.fixture(scope="module")
def secured(request: pytest.FixtureRequest, server_directory: Path) -> Iterator[Server]:
    kind = request.config.getoption("--broker")
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer" if kind == "kafka" else "kafka.security.authorizer.AclAuthorizer"
    overrides = {"delegation.token.secret.key": SECRET, "authorizer.class.name": authorizer, "super.users": SUPER}
    server, _ = sasl_server(kind, server_directory / "tokens", overrides)
    server.start()
    try:
        for user, password in PASSWORDS.items():
            set_password(server.address, user, password)
            until(partial(can_log_in, server, user, password), f"{user} can log in")
        create_topic(server, "secured")
        yield server
        if kind == BrokerProcess.kind:
            log = server.log()
            assert "Traceback (most recent call last)" not in log and SECRET not in log
            assert not [hmac for hmac in hmacs if hmac in log], "passwords of tokens are not logged"
    finally:
        server.close()


def logged_in(server: Server, user: str, password: str) -> Any:
    with RawConnection(address(server)) as connection:
        return log_in(connection, "SCRAM-SHA-512", user, password)


def can_log_in(server: Server, user: str, password: str) -> bool:
    return not logged_in(server, user, password).error_code


class Client(RawConnection):
    """A connection of a user."""

    def __init__(self, server: Server, user: str = "alice") -> None:
        super().__init__(address(server))
        assert log_in(self, "SCRAM-SHA-512", user, PASSWORDS[user]).error_code == 0

    def create(self, *renewers: str, lifetime_ms: int = -1, owner: str | None = None, renewer_type: str = "User", version: int = 3) -> Any:
        made = ask(self, CreateDelegationTokenRequest(
            owner_principal_type=None if owner is None else "User", owner_principal_name=owner, max_lifetime_ms=lifetime_ms,
            renewers=[CreatableRenewers(principal_type=renewer_type, principal_name=name) for name in renewers],
        ), version)  # fmt: skip
        if made.hmac:
            hmacs.extend((base64.b64encode(made.hmac).decode(), bytes(made.hmac).hex()))
        return made

    def renew(self, hmac: bytes, period_ms: int = -1) -> Any:
        return ask(self, RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms), 2)

    def expire(self, hmac: bytes, period_ms: int = -1) -> Any:
        return ask(self, ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms), 2)

    def described(self, *owners: str) -> dict[str, Any]:
        named = [DescribeDelegationTokenOwner(principal_type="User", principal_name=owner) for owner in owners]
        answer = ask(self, DescribeDelegationTokenRequest(owners=named or None), 3)
        assert answer.error_code == 0
        return {token.token_id: token for token in answer.tokens}


def may_log_in(server: Server, token_id: str, hmac: bytes) -> bool:
    """Whether the login succeeds, and the session has not ended with it."""
    with RawConnection(address(server)) as connection:
        if token_log_in(connection, token_id, hmac).error_code:
            return False
        with suppress(ConnectionEnded):
            return bool(ask(connection, DescribeDelegationTokenRequest(owners=None), 3))
    return False


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_token_is_made_and_used(secured: Server, mechanism: str) -> None:
    with Client(secured) as alice:
        made = alice.create("bob")
        assert (made.error_code, made.principal_name, made.token_requester_principal_name) == (0, "alice", "alice")
        assert (
            made.expiry_timestamp_ms - made.issue_timestamp_ms == DAY_MS and made.max_timestamp_ms - made.issue_timestamp_ms == 7 * DAY_MS
        )
        assert len(made.hmac) == 64 and len(made.token_id) == 22
        until(lambda: made.token_id in alice.described(), "the token is known")
        seen = alice.described("alice")[made.token_id]
        assert (seen.principal_name, seen.hmac, [each.principal_name for each in seen.renewers]) == ("alice", made.hmac, ["bob"])
    until(lambda: may_log_in(secured, made.token_id, made.hmac), "the token can be used")
    with RawConnection(address(secured)) as connection:
        answer = token_log_in(connection, made.token_id, made.hmac, mechanism)
        assert answer.error_code == 0 and 0 < answer.session_lifetime_ms <= DAY_MS
        request = CreateDelegationTokenRequest(owner_principal_type=None, owner_principal_name=None, renewers=[], max_lifetime_ms=-1)
        assert ask(connection, request, 3).error_code == NOT_ALLOWED
        assert ask(connection, DescribeDelegationTokenRequest(owners=None), 3).error_code == NOT_ALLOWED
        assert ask(connection, RenewDelegationTokenRequest(hmac=made.hmac, renew_period_ms=-1), 2).error_code == NOT_ALLOWED
    for token_id, hmac in ((made.token_id, b"guess"), ("ghost", made.hmac)):
        with RawConnection(address(secured)) as connection:
            assert token_log_in(connection, token_id, hmac, mechanism).error_code == LOGIN_FAILED
    with RawConnection(address(secured)) as connection:
        password = base64.b64encode(made.hmac).decode()
        assert log_in(connection, mechanism, made.token_id, password).error_code == LOGIN_FAILED, "without tokenauth it is a user"


def test_every_version(secured: Server) -> None:
    with Client(secured) as alice:
        versions = range(1, 4)  # Kafka 4 does not have 0, which has the same fields as 1
        made = [ask(alice, CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1), version) for version in versions]
        assert [(token.error_code, token.principal_name) for token in made] == [(0, "alice")] * 3
        assert [token.token_requester_principal_name for token in made] == ["", "", "alice"]
        ids = {token.token_id for token in made}
        until(lambda: ids <= alice.described().keys(), "the tokens are known")
        for version in versions:
            answer = ask(alice, DescribeDelegationTokenRequest(owners=None), version)
            assert answer.error_code == 0 and ids <= {token.token_id for token in answer.tokens}
            assert {token.token_requester_principal_name for token in answer.tokens} == {"alice" if version == 3 else ""}
        for version, token in zip((1, 2), made, strict=False):
            assert ask(alice, RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=-1), version).error_code == 0
            assert ask(alice, ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=-1), version).error_code == 0


def test_lifetimes_and_who_may_change_them(secured: Server) -> None:
    with Client(secured) as alice, Client(secured, "bob") as bob:
        made = alice.create("bob", lifetime_ms=3_600_000)
        assert made.max_timestamp_ms - made.issue_timestamp_ms == 3_600_000 == made.expiry_timestamp_ms - made.issue_timestamp_ms
        until(lambda: made.token_id in alice.described(), "the token is known")
        assert bob.expire(made.hmac, 60_000).expiry_timestamp_ms < made.max_timestamp_ms
        assert bob.renew(made.hmac).expiry_timestamp_ms == made.max_timestamp_ms, "a renewer, up to the maximum"
        own = alice.create()
        until(lambda: own.token_id in alice.described(), "the token is known")
        assert own.token_id not in bob.described() and made.token_id in bob.described()
        assert (bob.renew(own.hmac).error_code, bob.expire(own.hmac).error_code) == (MISMATCH, MISMATCH)
        assert (alice.renew(b"guess").error_code, alice.expire(b"").error_code) == (NOT_FOUND, NOT_FOUND)
        assert alice.expire(own.hmac, 0).error_code == 0
        until(lambda: time.time() * 1000 > own.issue_timestamp_ms + 1000, "it has expired")
        assert (alice.renew(own.hmac).error_code, alice.expire(own.hmac, 60_000).error_code) == (EXPIRED, EXPIRED)
        assert not may_log_in(secured, own.token_id, own.hmac), "it has ended"
        assert alice.expire(own.hmac).error_code == 0, "it can be removed"
        assert alice.expire(made.hmac).error_code == 0
        until(lambda: made.token_id not in alice.described(), "it is gone")
        until(lambda: not may_log_in(secured, made.token_id, made.hmac), "and cannot be used")
        assert alice.renew(made.hmac).error_code == NOT_FOUND


def test_rights(secured: Server) -> None:
    with Client(secured) as alice, Client(secured, "bob") as bob:
        assert alice.create(renewer_type="Group", owner=None).error_code == 0, "there is none"
        assert alice.create("x", renewer_type="Group").error_code == INVALID_TYPE
        refused = alice.create(owner="bob")
        assert (refused.error_code, refused.principal_name, refused.issue_timestamp_ms, refused.hmac) == (UNAUTHORIZED, "bob", -1, b"")
        for kind, code in ((None, UNKNOWN), ("", UNAUTHORIZED), ("Group", UNAUTHORIZED)):
            of_bob = CreateDelegationTokenRequest(owner_principal_type=kind, owner_principal_name="bob", renewers=[], max_lifetime_ms=-1)
            assert ask(alice, of_bob, 3).error_code == code, f"an owner of type {kind} is not the client itself"
        create_acls(secured.address, [Acl(USER, "User:bob", LITERAL, "User:alice", "*", CREATE_TOKENS, ALLOW)])
        made = until(lambda: (answer := alice.create(owner="bob")).error_code == 0 and answer, "alice may make tokens of bob")
        assert (made.principal_name, made.token_requester_principal_name) == ("bob", "alice")
        until(lambda: made.token_id in bob.described("bob"), "bob is the owner")
        assert made.token_id in alice.described(), "she has asked for it"
        other = bob.create()
        until(lambda: other.token_id in bob.described(), "the token is known")
        assert other.token_id not in alice.described()
        create_acls(secured.address, [Acl(DELEGATION_TOKEN, other.token_id, LITERAL, "User:alice", "*", DESCRIBE, ALLOW)])
        until(lambda: other.token_id in alice.described(), "she may see it")
    with RawConnection(secured.address) as anonymous:
        request = DescribeDelegationTokenRequest(owners=None)
        assert ask(anonymous, request, 3).error_code == NOT_ALLOWED, "without a login, also for a super user"


def test_kafkas_tool_and_console_clients(secured: Server, tmp_path: Path, name: str) -> None:
    alice = properties_file(tmp_path / "alice", client_properties("SCRAM-SHA-512", "alice", PASSWORDS["alice"]))
    place = ("--bootstrap-server", address(secured))
    tool = ("kafka-delegation-tokens", *place, "--command-config", alice)
    made = java.run(*tool, "--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob")
    token_id, password = made.strip().splitlines()[-1].split()[:2]
    until(lambda: token_id in java.run(*tool, "--describe", "--owner-principal", "User:alice"), "the tool lists it")
    login = f'{MODULES["SCRAM-SHA-256"]} required username={quoted(token_id)} password={quoted(password)} tokenauth="true";'
    token = properties_file(tmp_path / "token", {
        "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": login,
    })  # fmt: skip
    create_topic(secured, name)
    create_acls(secured.address, [Acl(2, name, LITERAL, "User:alice", "*", 2, ALLOW)])
    java.run("kafka-console-producer", *place, "--topic", name, "--producer.config", token, stdin="by a token\n")
    assert "Completed renew" in java.run(*tool, "--renew", "--renew-time-period", "-1", "--hmac", password)
    assert "Completed expire" in java.run(*tool, "--expire", "--expiry-time-period", "-1", "--hmac", password)


def test_kafkas_tools_let_a_user_make_tokens_of_another(secured: Server, tmp_path: Path) -> None:
    """KIP-373: rights on users, and the owner of a token."""
    bob = properties_file(tmp_path / "bob", client_properties("SCRAM-SHA-512", "bob", PASSWORDS["bob"]))
    create = ("kafka-delegation-tokens", "--bootstrap-server", address(secured), "--command-config", str(bob), "--create",
              "--max-life-time-period", "-1", "--owner-principal", "User:alice")  # fmt: skip
    with pytest.raises(java.ToolFailed, match="DelegationTokenAuthorizationException"):
        java.run(*create)
    acls = ("kafka-acls", "--bootstrap-server", secured.address)
    right = ("--user-principal", "User:alice", "--operation", "CreateTokens")
    java.run(*acls, "--add", *right, "--allow-principal", "User:bob")
    entry = "(principal=User:bob, host=*, operation=CREATE_TOKENS, permissionType=ALLOW)"

    def listed() -> bool:
        found = java.run(*acls, "--list", "--user-principal", "User:alice")
        return "resourceType=USER, name=User:alice" in found and entry in found

    until(listed, "the rule is listed")
    made = str(until(lambda: made_by(create), "bob may make tokens of alice"))
    assert "User:alice" in made and "User:bob" in made
    java.run(*acls, "--remove", "--force", *right, "--allow-principal", "User:bob")


def made_by(create: tuple[str, ...]) -> str | None:
    """The line of the new token; None as long as the broker refuses."""
    try:
        return java.run(*create).strip().splitlines()[-1]
    except java.ToolFailed:
        return None
