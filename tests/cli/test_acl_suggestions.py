"""`txbroker acls suggest`: rules that allow what was done, none of which can be left out, and what its output says."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.api.test_acls import STRANGER, creation
from tests.cli.commands import run
from tests.fuzz import frames
from tests.security.test_audit_events import EVERYTHING, FILE, Audited
from tests.support.acls import AUTHORIZER
from tests.support.server import Server
from txbroker.cli.acls.suggested_rules import SuggestedRule, Use, common_prefixes, suggested
from txbroker.cli.main import main
from txbroker.security.acl_authorizer import AclAuthorizer
from txbroker.security.acl_index import AclIndex
from txbroker.security.acl_model import (
    SUPPORTED_OPERATIONS,
    AclBinding,
    AclEntry,
    AclOperation,
    AclPermission,
    AclResource,
    PatternType,
    ResourcePattern,
)
from txbroker.security.audit_trail import CUT
from txbroker.testing import Kafka
from txbroker.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest

Op, R, P = AclOperation, AclResource, PatternType
ALICE, HOST = "User:alice", "10.0.0.7"


def use(operation: Op, name: str, *, kind: R = R.TOPIC, who: str = ALICE, host: str = HOST) -> Use:
    return Use(who, host, operation, kind, name)


def bindings(rules: Iterable[SuggestedRule]) -> list[AclBinding]:
    return [
        AclBinding(ResourcePattern(rule.resource, rule.pattern, name), AclEntry(rule.principal, rule.host, operation, AclPermission.ALLOW))
        for rule in rules
        for name, operation in product(rule.names, rule.operations)
    ]


def allows(made: Iterable[AclBinding], each: Use) -> bool:
    entries: dict[ResourcePattern, set[AclEntry]] = {}
    for binding in made:
        entries.setdefault(binding.resource, set()).add(binding.entry)
    authorizer = AclAuthorizer((), allow_everyone=False)
    authorizer.publish(AclIndex({pattern: frozenset(found) for pattern, found in entries.items()}))

    class Client:
        principal, peer_host = each.principal, each.host

    if authorizer.authorize(Client(), each.operation, each.resource, each.name):
        return True
    return each.operation is Op.IDEMPOTENT_WRITE and authorizer.authorize_any(Client(), Op.WRITE, R.TOPIC)


RESOURCES = st.sampled_from([(kind, name) for kind in (R.TOPIC, R.GROUP) for name in ("a", "a-b", "a-c", "a-b.x", "b_1", "b_2")]
                            + [(R.CLUSTER, "kafka-cluster")])  # fmt: skip
USES = st.lists(
    RESOURCES.flatmap(
        lambda each: st.builds(
            Use, st.sampled_from([ALICE, "User:bob"]), st.sampled_from([HOST, "10.0.0.8"]), st.sampled_from(SUPPORTED_OPERATIONS[each[0]]),
            st.just(each[0]), st.just(each[1]),
        )
    ),
    max_size=12,
)  # fmt: skip


@given(USES, st.booleans(), st.booleans())
def test_the_rules_allow_everything_and_none_can_be_left_out(uses: list[Use], prefixed: bool, by_host: bool) -> None:
    found = suggested(uses, lambda each: None, prefixed=prefixed, by_host=by_host)
    made = bindings(found.rules)
    assert not found.covered and all(allows(made, each) for each in uses)
    for left_out in made if not prefixed else ():
        assert not all(allows([each for each in made if each != left_out], each) for each in uses)


def test_what_other_rules_imply_is_left_out() -> None:
    uses = [use(Op.WRITE, "t"), use(Op.DESCRIBE, "t"), use(Op.IDEMPOTENT_WRITE, "kafka-cluster", kind=R.CLUSTER),
            use(Op.DESCRIBE_CONFIGS, "t"), use(Op.ALTER_CONFIGS, "t")]  # fmt: skip
    (rule,) = suggested(uses, lambda each: None, prefixed=False, by_host=False).rules
    assert rule == SuggestedRule(ALICE, "*", R.TOPIC, P.LITERAL, ("t",), (Op.WRITE, Op.ALTER_CONFIGS))


@pytest.mark.parametrize(("names", "prefixes"), [
    (["orders-eu", "orders-us"], ("orders-",)),
    (["app-1.changelog", "app-1.repartition", "app-2"], ("app-",)),
    (["app.a.x", "app.a.y"], ("app.a.",)),
    (["a-b", "a-b-c"], ("a-",)),
    (["orders", "orders2", "payments"], ()),
    (["a-x", "b-x"], ()),
    ([], ()),
])  # fmt: skip
def test_prefixes(names: list[str], prefixes: tuple[str, ...]) -> None:
    assert common_prefixes(names) == prefixes


def test_a_prefix_is_used_only_if_it_is_requested() -> None:
    uses = [use(Op.READ, name) for name in ("orders-eu", "orders-us", "payments")]
    assert [rule.names for rule in suggested(uses, lambda each: None, prefixed=False, by_host=False).rules] == [
        ("orders-eu", "orders-us", "payments")
    ]
    shared = suggested(uses, lambda each: None, prefixed=True, by_host=False).rules
    assert [(rule.pattern, rule.names) for rule in shared] == [(P.LITERAL, ("payments",)), (P.PREFIXED, ("orders-",))]


def line(operation: str = "Read", name: str = "orders", kind: str = "Topic", **fields: Any) -> str:
    made = {"event": "use", "principal": ALICE, "host": HOST, "operation": operation, "resource_type": kind, "resource": name,
            "decided_by": "super.users", "acl": None, **fields}  # fmt: skip
    return json.dumps(made) + "\n"


def suggest(capsys: pytest.CaptureFixture[str], *flags: str, status: int = 0) -> tuple[str, str]:
    assert main(["acls", "suggest", *flags]) == status
    return tuple(capsys.readouterr())


def test_commands_of_both_tools(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "audit"
    path.write_text(line() + line("Describe") + line("Read", "a group", "Group") + line("Create", "kafka-cluster", "Cluster")
                    + line("Read", "other", principal="User:CN=a,O=b c", decided_by="allow.everyone.if.no.acl.found")
                    + line("Read", "old", event="denial") + '{"event": "login"}\n')  # fmt: skip
    output, errors = suggest(capsys, "--audit", str(path))
    assert errors == "" and output.splitlines() == [
        "# User:CN=a,O=b c used 1 right, 0 covered by ACLs",
        "#   allow.everyone.if.no.acl.found allowed some: the first ACL of a resource ends that, so add the rules of all principals of it",
        "txbroker acls --bootstrap-server HOST:PORT --add --allow-principal 'User:CN=a,O=b c' --operation Read --topic other",
        "# User:alice used 4 rights, 0 covered by ACLs",
        "#   it is in super.users; with these rules it need not be",
        "txbroker acls --bootstrap-server HOST:PORT --add --allow-principal User:alice --operation Read --topic orders",
        "txbroker acls --bootstrap-server HOST:PORT --add --allow-principal User:alice --operation Read --group 'a group'",
        "txbroker acls --bootstrap-server HOST:PORT --add --allow-principal User:alice --operation Create --cluster",
    ]
    output, _ = suggest(capsys, "--audit", str(path), "--kafka-acls", "--by-host", "--denied", "--principal", ALICE)
    (command,) = [text for text in output.splitlines() if "topic" in text]
    assert command.startswith("kafka-acls --bootstrap-server HOST:PORT --add --allow-principal User:alice --allow-host 10.0.0.7 ")
    assert command.endswith(" --operation Read --topic old --topic orders")
    output, _ = suggest(capsys, "--audit", str(path), "--json", "--principal", ALICE)
    assert [json.loads(text)["operations"] for text in output.splitlines()] == [["READ"], ["READ"], ["CREATE"]]


def test_what_an_acl_decided_is_covered_by_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "audit"
    path.write_text(line(decided_by="ACL", acl="the entry") + line("Write", decided_by="ACL", acl="another") + line("Write"))
    assert suggest(capsys, "--audit", str(path))[0].splitlines()[2:] == [
        "#   Read on Topic orders from 10.0.0.7: the entry",
        "txbroker acls --bootstrap-server HOST:PORT --add --allow-principal User:alice --operation Write --topic orders",
    ]


def test_damaged_lines_are_skipped_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "audit"
    bad = ['{"ev\n', "[1]\n", "1\n", line(operation="Fly"), line(name="x" + CUT), line(host=None), '{"event": "use"}\n', "\xff\n"]
    path.write_text("".join(bad) + line())
    output, errors = suggest(capsys, "--audit", str(path))
    assert output.endswith("--operation Read --topic orders\n")
    assert [text.split(":")[0] for text in errors.splitlines()] == [f"{path}, line {n}" for n in (1, 4, 5, 6, 8)]


@pytest.mark.parametrize(("text", "flags", "status", "complaint"), [
    (None, (), 1, "cannot read"),
    ("", (), 1, "add use to txbroker.audit.events"),
    (line(event="denial"), (), 1, "add use to txbroker.audit.events"),
    (line(), ("--principal", "User:bob"), 1, "User:bob did nothing in"),
    (line(), ("--list",), 2, "specify one of --list, --add, --remove, explain and suggest"),
])  # fmt: skip
def test_what_cannot_be_suggested(
    text: str | None, flags: tuple[str, ...], status: int, complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "audit"
    if text is not None:
        path.write_text(text)
    assert complaint in suggest(capsys, "--audit", str(path), *flags, status=status)[1]


@pytest.mark.parametrize(("flags", "complaint"), [
    (("suggest",), "suggest needs --audit"),
    (("suggest", "--topic", "audit"), "suggest needs --bootstrap-server for --topic"),
    (("--list",), "--bootstrap-server is required"),
    (("explain",), "--bootstrap-server is required"),
])  # fmt: skip
def test_flags_that_are_missing(flags: tuple[str, ...], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["acls", *flags]) == 2
    assert complaint in capsys.readouterr().err


def test_a_broker_with_the_suggested_rules_allows_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What a client does by allow.everyone.if.no.acl.found, it may do by the rules."""
    topic = CreatableTopic(name="own", num_partitions=1, replication_factor=1, assignments=[], configs=[])
    create = CreateTopicsRequest(topics=[topic], timeout_ms=1000, validate_only=True)
    open_broker = Audited(EVERYTHING, "allow.everyone.if.no.acl.found=true")
    try:
        assert open_broker.topics(STRANGER, *frames.TOPICS[:2]) == dict.fromkeys(frames.TOPICS[:2], 0)
        assert open_broker.ask(create, 7, STRANGER).topics[0].error_code == 0
        open_broker.lines()
        (tmp_path / "audit").write_bytes(open_broker._broker._environment.disk.read(FILE) or b"")
    finally:
        open_broker.close()
    output, _ = suggest(capsys, "--audit", str(tmp_path / "audit"), "--principal", STRANGER, "--json")
    rules = [json.loads(text) for text in output.splitlines()]
    assert [(rule["operations"], rule["names"]) for rule in rules] == [(["CREATE"], ["own"]), (["DESCRIBE"], sorted(frames.TOPICS[:2]))]
    guarded = Audited(EVERYTHING)
    try:
        assert guarded.ask(create, 7, STRANGER).topics[0].error_code == 29
        for rule in rules:
            guarded.create(*(creation(name, Op[operation], STRANGER, kind=R[rule["resource"]], pattern=P[rule["pattern"]])
                             for name in rule["names"] for operation in rule["operations"]))  # fmt: skip
        assert guarded.topics(STRANGER, *frames.TOPICS[:2]) == dict.fromkeys(frames.TOPICS[:2], 0)
        assert guarded.ask(create, 7, STRANGER).topics[0].error_code == 0
    finally:
        guarded.close()


def test_the_commands_work_and_then_nothing_is_missing(start_broker: Callable[..., Server], tmp_path: Path, name: str) -> None:
    audit = tmp_path / "audit.log"
    settings = {**AUTHORIZER, "super.users": "User:ANONYMOUS", "txbroker.audit.file": str(audit), "txbroker.audit.events": "use"}
    server = start_broker(settings)
    to = ("--bootstrap-server", server.address)
    run("topics", *to, "--create", "--topic", name)
    run("produce", *to, "--topic", name, stdin="x\n")
    server.stop()
    server.start()
    output, _ = run("acls", "suggest", *to, "--audit", str(audit))
    commands = [text for text in output.splitlines() if not text.startswith("#")]
    assert any("--operation Write" in command and f"--topic {name}" in command for command in commands)
    for command in commands:
        words = shlex.split(command)
        assert words[:2] == ["txbroker", "acls"]
        run(*words[1:])
    output, _ = run("acls", "suggest", *to, "--audit", str(audit))
    left = [text for text in output.splitlines() if not text.startswith("#")]
    assert all("--cluster" in command for command in left), "rights of the administrator who has added the rules"
    assert f"Topic:LITERAL:{name}" in output


def test_the_topic_of_the_audit_log_is_read_up_to_its_end(start_broker: Callable[..., Server], name: str) -> None:
    server = start_broker({**AUTHORIZER, "super.users": "User:ANONYMOUS"})
    to = ("--bootstrap-server", server.address)
    run("topics", *to, "--create", "--topic", name, "--partitions", "3")
    other = "User:bob"
    lines = line() + line("Write") + line("Read", "reports", principal=other) + "damaged\n" + line("Write", "x", event="denial")
    run("produce", *to, "--topic", name, stdin=lines)
    output, errors = run("acls", "suggest", *to, "--topic", name, "--principal", ALICE, "--principal", other)
    assert re.fullmatch(rf"{name}-[0-2], offset \d+: skipped, it is no line of an audit log\n", errors)
    commands = [text.partition(" --allow-principal ")[2] for text in output.splitlines() if not text.startswith("#")]
    assert commands == [f"{ALICE} --operation Read --operation Write --topic orders", f"{other} --operation Read --topic reports"]
    assert "topic ghost" in run("acls", "suggest", *to, "--topic", "ghost", status=1)[1].lower()
    empty = f"{name}-empty"
    run("topics", *to, "--create", "--topic", empty)
    assert f"no use of a right is in topic {empty}: " in run("acls", "suggest", *to, "--topic", empty, status=1)[1]


def test_a_topic_that_cannot_be_read_to_its_end(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("txbroker.cli.acls.audit_lines.STALLED_S", 0.5)
    with Kafka(topics={name: 1}) as kafka:
        kafka.produce(name, line())
        with kafka.when("Fetch", topic=name).always().error("UNKNOWN_TOPIC_OR_PARTITION"):
            _, errors = run("acls", "suggest", "--bootstrap-server", kafka.bootstrap_servers, "--topic", name, status=1)
    assert f"topic {name} cannot be read to its end: no record came for 0.5 s" in errors
