"""`txbroker acls` beside Kafka's tool, and what `explain` says."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable

import pytest

from tests.cli.commands import run
from tests.support import java
from tests.support.acls import AUTHORIZER, OPEN
from tests.support.cache import KAFKA_NEW
from tests.support.server import Server
from txbroker.cli.acls.acl_flags import Named
from txbroker.cli.acls.explanation import Question, explained
from txbroker.cli.main import main
from txbroker.security.acl_effect import without_effect
from txbroker.security.acl_model import (
    AclBinding,
    AclEntry,
    AclOperation,
    AclPermission,
    AclResource,
    PatternType,
    ResourcePattern,
)

ADDITIONS = [
    ("--allow-principal", "User:alice", "--producer", "--topic", "orders", "--topic", "other", "--transactional-id", "tx", "--idempotent"),
    ("--allow-principal", "User:CN=a,O=b", "--consumer", "--topic", "p-", "--group", "g-", "--resource-pattern-type", "prefixed"),
    ("--allow-principal", "User:bob", "--deny-principal", "User:eve", "--deny-host", "10.0.0.1", "--deny-host", "10.0.0.2",
     "--operation", "Read", "--operation", "DescribeConfigs", "--topic", "*"),
    ("--allow-principal", "User:bob", "--cluster"),
]  # fmt: skip


def listed(text: str) -> set[str]:
    """The entries by resource, in any order."""
    found, resource = set(), ""
    for line in text.splitlines():
        if line.startswith("Current ACLs"):
            resource = line.strip()
        elif line.strip() and not line.startswith("ACLs for principal"):
            found.add(resource + line.strip())
    return found


def test_it_does_what_kafkas_tool_does(start_broker: Callable[..., Server]) -> None:
    server = start_broker({**AUTHORIZER, "super.users": "User:ANONYMOUS"})
    to = ("--bootstrap-server", server.address)
    lists = []
    for tool in (lambda *flags: run("acls", *to, *flags)[0], lambda *flags: java.run("kafka-acls", *to, *flags, release=KAFKA_NEW)):
        for flags in ADDITIONS:
            tool("--add", *flags)
        lists.append((listed(run("acls", *to, "--list")[0]), listed(java.run("kafka-acls", *to, "--list", release=KAFKA_NEW))))
        narrow = ("--list", "--topic", "p-1", "--resource-pattern-type", "match")
        assert listed(tool(*narrow)) == {line for line in lists[-1][0] if "name=p-," in line or "TOPIC, name=*" in line}
        assert listed(tool("--list", "--principal", "User:bob")) == {line for line in lists[-1][0] if "principal=User:bob" in line}
        tool("--remove", "--force", *ADDITIONS[0])
        assert not [line for line in listed(run("acls", *to, "--list")[0]) if "User:alice" in line]
        for name in ("p-", "*"):
            pattern = ("--resource-pattern-type", "prefixed" if name == "p-" else "literal")
            tool("--remove", "--force", "--topic", name, *pattern)
        tool("--remove", "--force", "--group", "g-", "--resource-pattern-type", "prefixed")
        tool("--remove", "--force", "--cluster")
        assert run("acls", *to, "--list")[0] == ""
    assert lists[0][0] == lists[0][1] == lists[1][0] == lists[1][1] and len(lists[0][0]) == 19


def test_removal_asks(start_broker: Callable[..., Server]) -> None:
    server = start_broker(OPEN)
    to = ("--bootstrap-server", server.address)
    run("acls", *to, "--add", "--allow-principal", "User:a", "--operation", "Read", "--topic", "t")
    question, _ = run("acls", *to, "--remove", "--topic", "t", stdin="n\n")
    assert "delete all ACLs for resource filter" in question
    _, complaint = run("acls", *to, "--remove", "--topic", "t", status=1)
    assert "--force" in complaint
    (row,) = [json.loads(line) for line in run("acls", *to, "--list", "--json")[0].splitlines()]
    assert row == {"type": "TOPIC", "pattern": "LITERAL", "name": "t", "principal": "User:a", "host": "*", "operation": "READ",
                   "permission": "ALLOW"}  # fmt: skip
    run("acls", *to, "--remove", "--topic", "t", stdin="y\n")
    assert run("acls", *to, "--list", "--json")[0] == ""


def test_explain(start_broker: Callable[..., Server]) -> None:
    server = start_broker({**OPEN, "super.users": "User:root"})
    to = ("--bootstrap-server", server.address)

    def ask(principal: str, *, topic: str = "t", status: int = 0) -> str:
        return run("acls", *to, "explain", "--principal", principal, "--operation", "Read", "--topic", topic, status=status)[0]

    assert "allow.everyone.if.no.acl.found is true" in ask("User:a")
    run("acls", *to, "--add", "--allow-principal", "User:a", "--operation", "All", "--topic", "t")
    assert re.search(r"User:a may do Read on Topic t: an ACL allows it: User:a has ALLOW permission", ask("User:a"))
    assert "User:root is one of super.users" in ask("User:root")
    _, complaint = run("acls", *to, "--add", "--deny-principal", "User:root", "--deny-principal", "User:eve", "--topic", "t")
    assert complaint == "the ACLs that deny are stored, and User:root may still do everything: remove it from super.users of the brokers\n"
    assert "User:root is one of super.users" in ask("User:root")
    denied = ask("User:b", status=1)
    assert "User:b may not do Read on Topic t: no ACL allows it" in denied
    command = denied.splitlines()[1].removeprefix("To allow it: txbroker ").split()
    run(*command)
    assert "an ACL allows it" in ask("User:b")


def test_explain_that_could_not_ask_has_another_status_than_one_that_denies(start_broker: Callable[..., Server]) -> None:
    server = start_broker(AUTHORIZER)
    question = ("--principal", "User:a", "--operation", "Read", "--topic", "t")
    _, complaint = run("acls", "--bootstrap-server", server.address, "explain", *question, status=2)
    assert "the ACLs cannot be listed" in complaint and "CLUSTER_AUTHORIZATION_FAILED" in complaint
    _, complaint = run("acls", "--bootstrap-server", "127.0.0.1:1", "explain", *question, status=2)
    assert "no connection to 127.0.0.1:1" in complaint
    _, complaint = run("acls", "--bootstrap-server", server.address, "--list", status=1)
    assert "CLUSTER_AUTHORIZATION_FAILED" in complaint


@pytest.mark.parametrize(("flags", "found"), [
    (("--deny-principal", "User:mallory", "--deny-host", "10.0.0.0/8"), "no client has the address '10.0.0.0/8': names and networks are"),
    (("--allow-principal", "user:alice",), "no client has the principal 'user:alice': its type is 'user'; write User:alice"),
])  # fmt: skip
def test_a_rule_without_effect_is_stored_with_a_warning(broker_with_acls: Server, flags: tuple[str, ...], found: str) -> None:
    to = ("--bootstrap-server", broker_with_acls.address)
    _, complaint = run("acls", *to, "--add", *flags, "--operation", "Read", "--topic", "t")
    assert complaint.startswith("the ACL ") and found in complaint
    assert f"principal={flags[1]}" in run("acls", *to, "--list", "--topic", "t")[0]
    _, complaint = run("acls", *to, "--remove", "--force", *flags, "--topic", "t")
    assert "no ACL was removed, as none has these values" in complaint  # the operation is another one
    _, complaint = run("acls", *to, "--remove", "--force", *flags, "--operation", "Read", "--topic", "t")
    assert complaint == ""


@pytest.fixture
def broker_with_acls(start_broker: Callable[..., Server]) -> Server:
    return start_broker(OPEN)


def acl(
    principal: str = "User:a", host: str = "*", kind: AclResource = AclResource.TOPIC, pattern: PatternType = PatternType.LITERAL,
    name: str = "t",
) -> AclBinding:  # fmt: skip
    return AclBinding(ResourcePattern(kind, pattern, name), AclEntry(principal, host, AclOperation.READ, AclPermission.DENY))


PREFIXED = PatternType.PREFIXED


@pytest.mark.parametrize(
    ("binding", "reason"),
    [
        (acl(), None),
        (acl("User:*"), None),
        (acl("User:CN=a,O=b"), None),
        (acl("USER:a"), "its type is 'USER'; write User:a"),
        (acl("Group:a"), "clients have principals of the type User only"),
        (acl("User:"), "it has no name"),
        (acl("User:a,User:b"), "commas do not separate several"),
        (acl("a,User:b"), "commas do not separate several"),
        (acl(host="10.0.0.1"), None),
        (acl(host="0:0:0:0:0:0:0:1"), None),
        (acl(host="::1"), "write 0:0:0:0:0:0:0:1"),
        (acl(host="::ffff:10.0.0.1"), "write 10.0.0.1"),
        (acl(host="client.example.org"), "names and networks are not resolved"),
        (acl(host="10.0.*"), "names and networks are not resolved"),
        (acl(host=""), "no client has the address ''"),
        (acl(name="log-*"), "write the prefix 'log-' with --resource-pattern-type prefixed"),
        (acl(name="ü"), "no topic can have this name"),
        (acl(name="*"), None),
        (acl(pattern=PREFIXED, name="log-"), None),
        (acl(pattern=PREFIXED, name="."), None),
        (acl(pattern=PREFIXED, name="log-*"), "no topic can have this name"),
        (acl(kind=AclResource.GROUP, pattern=PREFIXED, name="*"), "write the literal * for all names"),
        (acl(kind=AclResource.GROUP, name="ü *"), None),
        (acl(kind=AclResource.USER, name="alice"), "no client has the principal 'alice': write User:name"),
        (acl(kind=AclResource.USER, name="User:alice"), None),
        (acl(kind=AclResource.USER, name="*"), None),
    ],
)
def test_which_rules_have_no_effect(binding: AclBinding, reason: str | None) -> None:
    found = without_effect(binding)
    assert found is None if reason is None else found is not None and reason in found


def test_names_in_printed_commands_are_quoted(start_broker: Callable[..., Server]) -> None:
    server = start_broker({**AUTHORIZER, "super.users": "User:ANONYMOUS"})
    question = ("explain", "--principal", "User:a b", "--operation", "Read", "--host", "$(x)")
    for resource in ("--topic=-t", "--group=a b'c", "--transactional-id=$x"):
        operation = ("--operation", "Write") if "id" in resource else ()
        asked = [*question[:3], *(operation or question[3:5]), *question[5:], resource]
        output, _ = run("acls", "--bootstrap-server", server.address, *asked, status=1)
        command = shlex.split(output.splitlines()[1].removeprefix("To allow it: txbroker "))
        run(*command)
        assert "an ACL allows it" in run("acls", "--bootstrap-server", server.address, *asked)[0]


def test_explain_without_an_authorizer(broker: Server) -> None:
    question = ("--principal", "User:a", "--operation", "Read", "--topic", "t")
    output, _ = run("acls", "--bootstrap-server", broker.address, "explain", *question, "--json")
    assert json.loads(output)["allowed"] and "no authorizer" in output


def binding(host: str, permission: AclPermission = AclPermission.ALLOW) -> AclBinding:
    return AclBinding(
        ResourcePattern(AclResource.TOPIC, PatternType.LITERAL, "t"), AclEntry("User:a", host, AclOperation.READ, permission)
    )


@pytest.mark.parametrize(
    ("bindings", "settings", "host", "allowed", "reason"),
    [
        ([], {"super.users": None}, None, False, "no ACL applies to the resource"),
        ([], {}, None, False, "does not show its super.users"),
        ([binding("10.0.0.1")], {"super.users": ""}, None, False, "specify --host"),
        ([binding("10.0.0.1")], {"super.users": ""}, "10.0.0.1", True, "an ACL allows it"),
        ([binding("*"), binding("*", AclPermission.DENY)], {"super.users": ""}, None, False, "an ACL denies it"),
    ],
)
def test_explanations(bindings: list[AclBinding], settings: dict[str, str | None], host: str | None, allowed: bool, reason: str) -> None:
    question = Question("User:a", AclOperation.READ, Named(AclResource.TOPIC, PatternType.LITERAL, "t"), host)
    found = explained(question, bindings, settings)
    assert found.allowed is allowed and reason in found.reason


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (("--add", "--allow-principal", "User:a"), "name a resource"),
        (("--add", "--topic", "t"), "--add needs --allow-principal or --deny-principal"),
        (("--add", "--allow-principal", "User:a", "--topic", "t", "--operation", "ClusterAction"), "--topic has no operation Cluster"),
        (("--add", "--allow-principal", "User:a", "--topic", "t", "--resource-pattern-type", "match"), "use literal or prefixed"),
        (("--add", "--allow-principal", "alice", "--topic", "t"), "is not a principal"),
        (("--add", "--allow-host", "h", "--topic", "t"), "--allow-host needs --allow-principal"),
        (("--add", "--allow-principal", "User:a", "--consumer", "--topic", "t"), "--consumer needs --topic and --group"),
        (("--add", "--allow-principal", "User:a", "--producer", "--topic", "t", "--operation", "Read"), "--operation cannot be"),
        (("--add", "--list", "--topic", "t"), "not allowed with"),
        (("--topic", "t"), "specify one of --list, --add, --remove, explain and suggest"),
        (("--list", "--operation", "Reed"), "must be one of All, Read"),
        (("explain", "--principal", "User:a", "--topic", "t"), "specify --operation once"),
        (("explain", "--principal", "User:a", "--operation", "All", "--topic", "t"), "not All"),
        (("explain", "--principal", "User:a", "--operation", "Read", "--topic", "t", "--topic", "u"), "specify one resource"),
        (("explain", "--principal", "User:a", "--operation", "Read", "--group", ""), "--group must not be empty"),
        (("explain", "--principal", "User:a", "--operation", "Read", "--topic", "t", "--host", ""), "--host must not be empty"),
        (("--add", "--allow-principal", "User:a", "--topic", " "), "--topic must not be empty"),
    ],
)
def test_wrong_usage(flags: tuple[str, ...], problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        status: int | str | None = main(["acls", "--bootstrap-server", "127.0.0.1:1", *flags])
    except SystemExit as ended:  # of the parser
        status = ended.code
    assert status == 2 and problem in capsys.readouterr().err
