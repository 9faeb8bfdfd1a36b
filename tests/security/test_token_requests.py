"""What requests for delegation tokens leave in the audit log of a whole broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.security.in_process import SaslBroker
from txbroker.errors import ErrorCode
from txbroker.security.acl_model import AclOperation, AclPermission, AclResource, PatternType
from txbroker.security.delegation_tokens import RENEWERS_MAX
from txbroker.wire.messages.create_acls import AclCreation, CreateAclsRequest
from txbroker.wire.messages.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from txbroker.wire.messages.describe_delegation_token import DescribeDelegationTokenRequest
from txbroker.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest

FILE = "/data/audit.log"


class Tokens(SaslBroker):
    def __init__(self) -> None:
        super().__init__("delegation.token.secret.key=secret", f"txbroker.audit.file={FILE}")

    def make(self, user: str, renewers: int = 0) -> Any:
        names = [CreatableRenewers(principal_type="User", principal_name=f"r{number}") for number in range(renewers)]
        request = CreateDelegationTokenRequest(owner_principal_type=None, owner_principal_name=None, renewers=names, max_lifetime_ms=-1)
        return self.ask(request, 3, user)

    def seen(self, user: str) -> set[str]:
        return {token.token_id for token in self.ask(DescribeDelegationTokenRequest(owners=None), 3, user).tokens}

    def allow(self, operation: AclOperation, resource: AclResource, name: str, user: str) -> None:
        creation = AclCreation(
            resource_type=resource, resource_name=name, resource_pattern_type=PatternType.LITERAL, principal=f"User:{user}", host="*",
            operation=operation, permission_type=AclPermission.ALLOW,
        )  # fmt: skip
        (result,) = self.ask(CreateAclsRequest(creations=[creation]), 3).results
        assert result.error_code == 0

    def audited(self, user: str, event: str) -> list[dict[str, Any]]:
        self.reactor.advance(1.0)
        lines = (self._broker._environment.disk.read(FILE) or b"").splitlines()
        return [line for line in map(json.loads, lines) if line.get("principal") == f"User:{user}" and line["event"] == event]


@pytest.fixture
def broker() -> Iterator[Tokens]:
    made = Tokens()
    yield made
    made.close()


def test_either_of_two_rights_shows_a_token_without_a_denial(broker: Tokens) -> None:
    token_id = broker.make("alice").token_id
    broker.allow(AclOperation.DESCRIBE_TOKENS, AclResource.USER, "User:alice", "bob")
    broker.allow(AclOperation.DESCRIBE, AclResource.DELEGATION_TOKEN, token_id, "eve")
    assert broker.seen("bob") == broker.seen("eve") == {token_id}
    assert broker.audited("bob", "denial") == broker.audited("eve", "denial") == []


def test_a_token_that_may_not_be_seen_is_a_denial(broker: Tokens) -> None:
    broker.make("alice")
    assert broker.seen("bob") == set()
    (denial,) = broker.audited("bob", "denial")
    assert (denial["operation"], denial["resource_type"], denial["resource"]) == ("DescribeTokens", "User", "User:alice")


def test_another_end_of_a_token_is_recorded(broker: Tokens) -> None:
    made = broker.make("alice")
    assert broker.ask(ExpireDelegationTokenRequest(hmac=made.hmac, expiry_time_period_ms=1000), 2, "alice").error_code == 0
    assert [line["operation"] for line in broker.audited("alice", "change")] == [
        "delegation token created",
        "delegation token expiry changed",
    ]


def test_a_token_with_too_many_renewers_is_refused_with_kafkas_error(broker: Tokens) -> None:
    assert broker.make("alice", RENEWERS_MAX).error_code == 0
    refused = broker.make("alice", RENEWERS_MAX + 1)
    assert (refused.error_code, refused.token_id, refused.hmac) == (ErrorCode.POLICY_VIOLATION, "", b"")
