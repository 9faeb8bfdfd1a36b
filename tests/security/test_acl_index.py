"""Decisions against Kafka's rule, written down once more as it is stated, and the known surprises of it one by one."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import examples
from txbroker.security import acl_authorizer
from txbroker.security.acl_authorizer import AclAuthorizer
from txbroker.security.acl_index import AclIndex
from txbroker.security.acl_model import (
    AclBinding,
    AclEntry,
    ResourcePattern,
)
from txbroker.security.acl_model import AclOperation as Op
from txbroker.security.acl_model import AclPermission as A
from txbroker.security.acl_model import AclResource as R
from txbroker.security.acl_model import PatternType as P
from txbroker.security.principals import java_address, super_users


@dataclass
class Client:
    principal: str
    peer_host: str = "10.0.0.1"


def acl(principal: str, permission: A, operation: Op, name: str, pattern: P = P.LITERAL, kind: R = R.TOPIC, host: str = "*") -> AclBinding:
    return AclBinding(ResourcePattern(kind, pattern, name), AclEntry(principal, host, operation, permission))


def index(*bindings: AclBinding) -> AclIndex:
    found: dict[ResourcePattern, frozenset[AclEntry]] = {}
    for binding in bindings:
        found[binding.resource] = found.get(binding.resource, frozenset()) | {binding.entry}
    return AclIndex(found)


def authorizer(*bindings: AclBinding, allow_everyone: bool = False, users: str = "") -> AclAuthorizer:
    made = AclAuthorizer(super_users(users), allow_everyone=allow_everyone)
    made.publish(index(*bindings))
    return made


def stated(bindings: set[AclBinding], principal: str, host: str, operation: Op, kind: R, name: str, allow_everyone: bool) -> bool:
    """The rule as Kafka's documentation states it: the entries of all patterns that fit, deny over allow, else denied."""
    fitting = [
        b for b in bindings
        if b.resource.type == kind
        and (b.resource.name == name if b.resource.pattern == P.LITERAL and b.resource.name != "*" else
             b.resource.pattern == P.LITERAL or name[: len(b.resource.name)] == b.resource.name)
    ]  # fmt: skip
    if not fitting:
        return allow_everyone
    entries = [b.entry for b in fitting if b.entry.principal in (principal, "User:*") and b.entry.host in (host, "*")]
    if any(e.permission == A.DENY and e.operation in (operation, Op.ALL) for e in entries):
        return False
    implied = {Op.DESCRIBE: (Op.READ, Op.WRITE, Op.DELETE, Op.ALTER), Op.DESCRIBE_CONFIGS: (Op.ALTER_CONFIGS,)}.get(operation, ())
    return any(e.permission == A.ALLOW and e.operation in (operation, Op.ALL, *implied) for e in entries)


NAMES = st.sampled_from(["a", "ab", "abc", "b", "*", "*a", "x"])
PRINCIPALS = st.sampled_from(["User:a", "User:b", "User:*"])
HOSTS = st.sampled_from(["10.0.0.1", "10.0.0.2", "*"])
OPERATIONS = st.sampled_from(Op)
ENTRIES = st.builds(AclEntry, PRINCIPALS, HOSTS, OPERATIONS, st.sampled_from(A))
PATTERNS = st.builds(ResourcePattern, st.sampled_from([R.TOPIC, R.GROUP]), st.sampled_from(P), NAMES)
BINDINGS = st.sets(st.builds(AclBinding, PATTERNS, ENTRIES), max_size=8)
QUESTIONS = st.tuples(
    st.sampled_from(["User:a", "User:b", "User:c"]), st.sampled_from(["10.0.0.1", "10.0.0.2"]), OPERATIONS,
    st.sampled_from([R.TOPIC, R.GROUP]), NAMES,
)  # fmt: skip


@settings(max_examples=examples(400))
@given(BINDINGS, BINDINGS, st.lists(QUESTIONS, min_size=1, max_size=12), st.booleans())
def test_decisions_are_those_of_the_rule_also_after_a_change(
    before: set[AclBinding], after: set[AclBinding], questions: list[tuple[str, str, Op, R, str]], allow_everyone: bool
) -> None:
    made = AclAuthorizer((), allow_everyone=allow_everyone)
    first, second = index(*before), index(*after)
    changed = first.replaced({pattern: second.entries.get(pattern, frozenset()) for pattern in {*first.entries, *second.entries}})
    for bindings, current in ((before, first), (after, changed)):
        made.publish(current)
        assert list(current.bindings()) == sorted(bindings)
        for _ in range(2):  # the second time from the decisions that are kept
            for principal, host, operation, kind, name in questions:
                allowed = made.authorize(Client(principal, host), operation, kind, name)
                assert allowed == stated(bindings, principal, host, operation, kind, name, allow_everyone)


@settings(max_examples=examples(300))
@given(BINDINGS, st.sampled_from(["User:a", "User:c"]))
def test_any_topic_is_one_that_can_be_written(bindings: set[AclBinding], principal: str) -> None:
    """Beside the names of the ACLs there are enough others to find one. `*` is no name of a topic, and may be taken for all of them."""
    found = index(*bindings).decide_any(principal, "10.0.0.1", Op.WRITE, R.TOPIC)
    names = [name + end for name in ("", "a", "ab", "abc", "b", "x", "*a", "*") for end in ("", "1", "2")]
    possible = any(stated(bindings, principal, "10.0.0.1", Op.WRITE, R.TOPIC, name, False) for name in names if name and name != "*")
    if possible:
        assert found
    elif found:
        assert any(b.resource[1:] in ((P.LITERAL, "*"), (P.LITERAL, "*a"), (P.PREFIXED, "*")) for b in bindings)


def test_deny_wins_whatever_its_pattern() -> None:
    made = authorizer(acl("User:a", A.ALLOW, Op.READ, "abc"), acl("User:a", A.DENY, Op.READ, "ab", P.PREFIXED))
    assert not made.authorize(Client("User:a"), Op.READ, R.TOPIC, "abc")
    decision = made.decide("User:a", "h", Op.READ, R.TOPIC, "abc")
    assert decision.by == acl("User:a", A.DENY, Op.READ, "ab", P.PREFIXED)
    assert not made.decide("User:a", "h", Op.WRITE, R.TOPIC, "abc").allowed


def test_denying_an_operation_does_not_deny_what_it_implies() -> None:
    made = authorizer(acl("User:a", A.DENY, Op.READ, "t"), acl("User:a", A.ALLOW, Op.WRITE, "t"))
    assert made.authorize(Client("User:a"), Op.DESCRIBE, R.TOPIC, "t")
    assert not made.authorize(Client("User:a"), Op.READ, R.TOPIC, "t")


def test_an_acl_of_another_user_ends_allow_everyone() -> None:
    made = authorizer(acl("User:b", A.ALLOW, Op.READ, "t"), allow_everyone=True)
    assert not made.authorize(Client("User:a"), Op.READ, R.TOPIC, "t")
    assert made.authorize(Client("User:a"), Op.READ, R.TOPIC, "other")
    assert made.authorize(Client("User:a"), Op.READ, R.GROUP, "t")


def test_a_prefixed_star_is_the_letter() -> None:
    made = authorizer(acl("User:a", A.ALLOW, Op.READ, "*", P.PREFIXED))
    assert made.authorize(Client("User:a"), Op.READ, R.TOPIC, "*x")
    assert not made.authorize(Client("User:a"), Op.READ, R.TOPIC, "x")


def test_a_super_user_may_do_what_is_denied() -> None:
    made = authorizer(acl("User:*", A.DENY, Op.ALL, "t"), users=" User:CN=a,O=b; ;User:root ")
    for name in ("User:root", "User:CN=a,O=b"):
        assert made.authorize(Client(name), Op.READ, R.TOPIC, "t") and made.authorize_any(Client(name), Op.WRITE, R.TOPIC)
    assert not made.authorize(Client("User:Root"), Op.READ, R.TOPIC, "t")
    with pytest.raises(ValueError, match="'root' is not a principal"):
        super_users("User:a;root")


@pytest.mark.parametrize(
    ("bindings", "expected"),
    [
        ([acl("User:a", A.ALLOW, Op.WRITE, "pre-", P.PREFIXED)], True),
        ([acl("User:a", A.ALLOW, Op.WRITE, "t")], True),
        ([acl("User:b", A.ALLOW, Op.WRITE, "t")], False),
        ([acl("User:a", A.ALLOW, Op.READ, "t")], False),
        ([acl("User:a", A.ALLOW, Op.WRITE, "t"), acl("User:a", A.DENY, Op.WRITE, "*")], False),
        ([acl("User:a", A.ALLOW, Op.WRITE, "t"), acl("User:a", A.DENY, Op.WRITE, "t")], False),
        ([acl("User:a", A.ALLOW, Op.WRITE, "*"), acl("User:a", A.DENY, Op.WRITE, "t")], True),
        ([acl("User:a", A.ALLOW, Op.WRITE, "t1"), acl("User:a", A.DENY, Op.WRITE, "t", P.PREFIXED)], False),
        ([acl("User:a", A.ALLOW, Op.WRITE, "ab", P.PREFIXED), acl("User:a", A.DENY, Op.ALL, "a", P.PREFIXED)], False),
        ([acl("User:a", A.ALLOW, Op.WRITE, "a", P.PREFIXED), acl("User:a", A.DENY, Op.ALL, "ab", P.PREFIXED)], True),
        ([acl("User:a", A.ALLOW, Op.WRITE, "t", kind=R.GROUP)], False),
        ([acl("User:a", A.ALLOW, Op.WRITE, "t", host="10.0.0.2")], False),
        ([acl("User:*", A.ALLOW, Op.ALL, "t")], True),
    ],
)
def test_writing_to_any_topic(bindings: list[AclBinding], expected: bool) -> None:
    made = authorizer(*bindings)
    assert made.authorize_any(Client("User:a"), Op.WRITE, R.TOPIC) is expected
    assert made.authorize_any(Client("User:a"), Op.WRITE, R.TOPIC) is expected, "kept"


def test_under_allow_everyone_any_topic_exists_unless_all_are_denied() -> None:
    assert authorizer(acl("User:b", A.ALLOW, Op.WRITE, "t"), allow_everyone=True).authorize_any(Client("User:a"), Op.WRITE, R.TOPIC)
    denied = authorizer(acl("User:a", A.DENY, Op.WRITE, "*"), allow_everyone=True)
    assert not denied.authorize_any(Client("User:a"), Op.WRITE, R.TOPIC)


@pytest.mark.parametrize(
    ("socket", "java"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("2001:db8::ff", "2001:db8:0:0:0:0:0:ff"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("fe80::1%eth0", "fe80:0:0:0:0:0:0:1%eth0"),
        ("a name", "a name"),
    ],
)
def test_hosts_are_compared_as_java_prints_them(socket: str, java: str) -> None:
    assert java_address(socket) == java
    made = authorizer(acl("User:a", A.ALLOW, Op.READ, "t", host=java))
    assert made.authorize(Client("User:a", socket), Op.READ, R.TOPIC, "t")
    assert not made.authorize(Client("User:a", "10.0.0.9"), Op.READ, R.TOPIC, "t")


def test_decisions_that_are_kept_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acl_authorizer, "DECISIONS_MAX", 10)
    made = authorizer(acl("User:a", A.ALLOW, Op.READ, "t", P.PREFIXED))
    for number in range(100):
        assert made.authorize(Client("User:a", f"10.0.0.{number}"), Op.READ, R.TOPIC, f"t{number}")
        assert not made.authorize(Client("User:a"), Op.READ, R.TOPIC, "x" * 1000)
        assert sum(map(len, made._decisions.values())) <= 10
