"""AlterUserScramCredentials and DescribeUserScramCredentials, without sockets: what is logged, and what is next to a user's quotas."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from twisted.internet.defer import Deferred, succeed

from txbroker.api.alter_scram_credentials import AlterUserScramCredentialsHandler
from txbroker.api.request_context import RequestContext, Session
from txbroker.api.scram_credentials import DescribeUserScramCredentialsHandler
from txbroker.cluster.node_paths import Entity
from txbroker.errors import BrokerError, ErrorCode
from txbroker.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from txbroker.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest

SESSION = Session(peer_host="10.0.0.9", peer_port=1, local_host="10.0.0.1", local_port=2, listener="L", number=1)
CONTEXT = RequestContext(51, 0, 1, "me", SESSION)


class Admin:
    """Configurations in memory."""

    def __init__(self) -> None:
        self.configs: dict[Entity, dict[str, str]] = {}

    def change(self, entity: Entity, compute: Callable[[Mapping[str, str]], Mapping[str, str]]) -> Deferred[dict[str, str]]:
        self.configs[entity] = dict(compute(self.configs.get(entity, {})))
        return succeed(self.configs[entity])

    def clients(self) -> Deferred[dict[Entity, dict[str, str]]]:
        return succeed(self.configs)


def upsertion(name: str, mechanism: int = 1) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(name=name, mechanism=mechanism, iterations=4096, salt=b"the salt", salted_password=b"the secret")


def altered(handler: AlterUserScramCredentialsHandler, *upsertions: ScramCredentialUpsertion, deletions: tuple[Any, ...] = ()) -> Any:
    answers: list[Any] = []
    handler(AlterUserScramCredentialsRequest(deletions=list(deletions), upsertions=list(upsertions)), CONTEXT).addCallback(answers.append)
    return {result.user: result.error_code for result in answers[0].results}


def test_credentials_are_beside_quotas_and_not_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    admin, read = Admin(), list[Entity]()

    def note(entity: Entity) -> Deferred[None]:
        read.append(entity)
        return succeed(None)

    node = Entity("users", "a%2Fb")
    admin.configs[node] = {"producer_byte_rate": "100"}
    handler = AlterUserScramCredentialsHandler(admin, lambda: None, note, frozenset())  # type: ignore[arg-type]
    assert altered(handler, upsertion("a/b"), upsertion("a/b", 2)) == {"a/b": 0}
    assert admin.configs[node].keys() == {"producer_byte_rate", "SCRAM-SHA-256", "SCRAM-SHA-512"} and read == [node]
    stored = admin.configs[node]["SCRAM-SHA-256"]
    assert stored.startswith("salt=dGhlIHNhbHQ=,stored_key=") and stored.endswith(",iterations=4096")
    (line,) = caplog.messages
    assert "configuration of users a%2Fb changed by User:ANONYMOUS" in line and "SCRAM-SHA-256: (not set) -> [hidden]" in line
    for secret in ("dGhl", "the salt", stored.split(",")[1]):
        assert secret not in line
    assert altered(handler, deletions=(ScramCredentialDeletion(name="a/b", mechanism=1),)) == {"a/b": 0}
    assert admin.configs[node].keys() == {"producer_byte_rate", "SCRAM-SHA-512"}
    assert altered(handler, upsertion("a/b"), deletions=(ScramCredentialDeletion(name="a/b", mechanism=1),)) == {
        "a/b": ErrorCode.DUPLICATE_RESOURCE
    }
    assert altered(handler, upsertion("."), upsertion("..")) == {".": 93, "..": 93}, "no node can have these names"


def test_a_change_of_a_super_user_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    handler = AlterUserScramCredentialsHandler(
        Admin(), lambda: None, lambda entity: succeed(None), frozenset({"User:root"})  # type: ignore[arg-type]
    )
    altered(handler, upsertion("root"), upsertion("other"))
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warnings == ["the password of User:root, which is in super.users, was changed by User:ANONYMOUS (client id 'me', 10.0.0.9)"]


def test_only_the_controller_alters() -> None:
    def refuse() -> None:
        raise BrokerError(ErrorCode.NOT_CONTROLLER)

    handler = AlterUserScramCredentialsHandler(Admin(), refuse, lambda entity: succeed(None), frozenset())  # type: ignore[arg-type]
    request = AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion("a"), upsertion("a", 2), upsertion("b")])
    with pytest.raises(BrokerError) as refused:
        handler(request, CONTEXT)
    failed = handler.failed(request, CONTEXT, refused.value)
    assert [(result.user, result.error_code) for result in failed.results] == [("a", 41), ("b", 41)]


@pytest.mark.parametrize("users", [None, []])
def test_all_users_are_described(users: list[Any] | None) -> None:
    admin = Admin()
    admin.configs = {
        Entity("users", "a%20b"): {"SCRAM-SHA-512": "salt=,stored_key=,server_key=,iterations=8192"},
        Entity("users", "quotas"): {"producer_byte_rate": "1"}, Entity("users", "<default>"): {"producer_byte_rate": "1"},
    }  # fmt: skip
    handler = DescribeUserScramCredentialsHandler(admin)  # type: ignore[arg-type]
    request = DescribeUserScramCredentialsRequest(users=users)
    answers: list[Any] = []
    handler(request, CONTEXT).addCallback(answers.append)
    (result,) = answers[0].results
    assert (result.user, result.error_code) == ("a b", 0)
    assert [(each.mechanism, each.iterations) for each in result.credential_infos] == [(2, 8192)]
    denied = handler.failed(request, CONTEXT, BrokerError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    assert (denied.error_code, denied.results) == (31, []), "it can be sent, unlike Kafka's"
