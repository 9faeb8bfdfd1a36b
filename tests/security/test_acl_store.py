"""The ACLs of brokers that share a metadata tree: what one writes counts on all, also after ended sessions and lost notices."""

from __future__ import annotations

import json
from typing import Any, TypeVar

import pytest
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock

from tests.support.fakes.losing_tree import LosingTree, Loss
from tests.support.fakes.turns import Turns
from txbroker.cluster.change_nodes import CHANGE_KEPT_S
from txbroker.cluster.tree.interface import Refused, Tree
from txbroker.cluster.tree.memory import MemoryTrees
from txbroker.cluster.tree.session_tree import SessionTree
from txbroker.errors import BrokerError, ErrorCode
from txbroker.security.acl_changes import additions, check_binding, removals
from txbroker.security.acl_index import AclIndex
from txbroker.security.acl_model import (
    ANY,
    MATCH,
    AclBinding,
    AclEntry,
    AclFilter,
    ResourcePattern,
)
from txbroker.security.acl_model import AclOperation as Op
from txbroker.security.acl_model import AclPermission as A
from txbroker.security.acl_model import AclResource as R
from txbroker.security.acl_model import PatternType as P
from txbroker.security.acl_nodes import acl_path, decode_acl, decode_acl_change, encode_acl, encode_acl_change
from txbroker.security.acl_store import PATTERNS_MAX, AclStore
from txbroker.security.reported_nodes import RELOAD_S

T = TypeVar("T")


def acl(
    name: str, user: str = "User:a", permission: A = A.ALLOW, operation: Op = Op.READ, *, pattern: P = P.LITERAL, kind: R = R.TOPIC
) -> AclBinding:
    return AclBinding(ResourcePattern(kind, pattern, name), AclEntry(user, "*", operation, permission))


class Brokers:
    """A tree, and any number of brokers with their sessions."""

    def __init__(self) -> None:
        self.turns = Turns()
        self.trees = MemoryTrees(self.turns.call_soon)
        self.tree = self.trees.session()  # of an operator
        self.clock = Clock()

    def result(self, deferred: Deferred[T]) -> T:
        return self.turns.result(deferred)

    def broker(self, tree: Tree | None = None) -> Broker:
        return Broker(self, tree)

    def names(self, path: str) -> list[str]:
        return self.result(self.tree.children(path))

    def data(self, path: str) -> bytes | None:
        return self.result(self.tree.get(path))[0]

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.turns.run()


class Broker:
    def __init__(self, brokers: Brokers, tree: Tree | None) -> None:
        self.brokers = brokers
        self.can_open = True
        self.session = brokers.trees.session()
        self.tree = SessionTree(tree or self.session, self._next, lambda: None, brokers.clock, None, lambda: 0.5)
        self.published: list[AclIndex] = []
        self.store = AclStore(self.tree, self.published.append, brokers.clock, lambda: 0.5, is_shared=True)
        self.tree.on_renewed(self._renewed)
        brokers.result(self.store.start())

    def _next(self) -> Deferred[Tree]:
        if not self.can_open:
            return fail(Refused("/"))
        self.session = self.brokers.trees.session()
        return succeed(self.session)

    async def _renewed(self, _: Tree) -> None:
        self.store.renew()

    def expire(self) -> None:
        self.brokers.trees.expire(self.session)
        self.brokers.turns.run()

    def create(self, *bindings: AclBinding) -> dict[ResourcePattern, BrokerError | None]:
        return self.brokers.result(self.store.change(additions(bindings)))

    def delete(self, *bindings: AclBinding) -> None:
        filters = {n: AclFilter(b.resource.type, b.resource.pattern, b.resource.name, *b.entry) for n, b in enumerate(bindings)}
        assert set(self.brokers.result(self.store.change(removals(self.store.index, filters))).values()) <= {None}

    @property
    def acls(self) -> set[AclBinding]:
        return set(self.store.index.bindings())


@pytest.fixture
def brokers() -> Brokers:
    return Brokers()


def test_nodes_are_those_of_kafka(brokers: Brokers) -> None:
    one = brokers.broker()
    dn = "User:CN=a,OU=x\\,y"
    odd = "t%1 ü:*"
    one.create(acl(odd, dn), acl("pre-", "User:b", A.DENY, Op.DESCRIBE_CONFIGS, pattern=P.PREFIXED), acl("User:bob", kind=R.USER),
               acl("x", kind=R.TRANSACTIONAL_ID, operation=Op.WRITE))  # fmt: skip
    expected = b'{"acls":[{"principal":"User:CN=a,OU=x\\\\,y","permissionType":"Allow","host":"*","operation":"Read"}],"version":1}'
    assert brokers.data(f"/kafka-acl/Topic/{odd}") == expected
    assert json.loads(brokers.data("/kafka-acl-extended/prefixed/Topic/pre-") or b"") == {
        "acls": [{"principal": "User:b", "permissionType": "Deny", "host": "*", "operation": "DescribeConfigs"}], "version": 1}  # fmt: skip
    changes = [brokers.data(f"/kafka-acl-changes/{name}") for name in brokers.names("/kafka-acl-changes")]
    assert {*changes} == {f"TOPIC:{odd}".encode(), b"TRANSACTIONAL_ID:x", b"USER:User:bob"}
    assert brokers.data("/kafka-acl-extended-changes/acl_changes_0000000000") == (
        b'{"version":1,"resourceType":"TOPIC","name":"pre-","patternType":"PREFIXED"}'
    )
    assert set(brokers.names("/kafka-acl")) == set(brokers.names("/kafka-acl-extended/prefixed")) == {
        "Topic", "Group", "Cluster", "TransactionalId", "DelegationToken", "User"}  # fmt: skip


def test_changes_count_on_every_broker_and_after_a_restart(brokers: Brokers) -> None:
    one, two = brokers.broker(), brokers.broker()
    three = [acl("t", "User:a"), acl("t", "User:b"), acl("t", "User:c")]
    assert one.create(*three) == {three[0].resource: None}
    assert one.acls == two.acls == set(three), "on this broker before the answer"
    two.delete(three[1])
    assert one.acls == two.acls == brokers.broker().acls == {three[0], three[2]}
    one.delete(three[0], three[2])
    assert one.acls == two.acls == set()
    assert brokers.names("/kafka-acl/Topic") == [], "the node goes with its last entry"
    published = len(two.published)
    assert one.create(three[0]) == one.create(three[0]) == {three[0].resource: None}
    assert len(two.published) == published + 1, "the second time nothing changes"


def test_two_brokers_create_the_first_acls_of_a_resource_at_the_same_time(brokers: Brokers) -> None:
    found = [brokers.broker() for _ in range(3)]
    bindings = [acl("t", f"User:{number}") for number in range(12)]
    changes = [found[n % 3].store.change(additions([binding])) for n, binding in enumerate(bindings)]
    for change in changes:
        assert brokers.result(change) == {bindings[0].resource: None}
    for broker in found:
        assert broker.acls == set(bindings)
    removed = [found[n % 3].store.change(removals(found[n % 3].store.index, {0: AclFilter(ANY, ANY, None, f"User:{n}", None, ANY, ANY)}))
               for n in range(12)]  # fmt: skip
    for change in removed:
        brokers.result(change)
    assert [broker.acls for broker in found] == [set()] * 3


def test_a_request_with_several_patterns_is_never_seen_in_part(brokers: Brokers) -> None:
    one, two = brokers.broker(), brokers.broker()
    whole = {acl("t-1", "User:*"), acl("t-", "User:a", A.DENY, pattern=P.PREFIXED), acl("*", "User:a", A.DENY, Op.WRITE)}
    one.create(*whole)
    for broker in (one, two):
        assert [set(index.bindings()) for index in broker.published] == [whole]
    one.delete(*whole)
    assert [set(index.bindings()) for index in two.published] == [whole, set()]


def test_a_large_request_is_written_in_parts(brokers: Brokers) -> None:
    one, two = brokers.broker(), brokers.broker()
    bindings = [acl(f"t{number}") for number in range(PATTERNS_MAX * 2 + 1)]
    assert set(one.create(*bindings).values()) == {None}
    assert one.acls == two.acls == set(bindings)


def test_a_session_that_was_gone_for_longer_than_changes_are_kept(brokers: Brokers) -> None:
    one, two = brokers.broker(), brokers.broker()
    one.create(acl("t"), acl("kept"))
    two.can_open = False
    two.expire()
    one.delete(acl("t"))
    brokers.advance(CHANGE_KEPT_S + 1)
    one.create(acl("new"))
    brokers.advance(1)
    assert len(brokers.names("/kafka-acl-changes")) == 1, "the notice of the deletion is gone"
    assert acl("t") in two.acls
    two.can_open = True
    brokers.advance(60)
    assert two.acls == {acl("kept"), acl("new")}
    one.create(acl("after"))
    assert acl("after") in two.acls, "it watches in the new session"


def test_a_change_without_a_notice_is_found_by_the_next_complete_reading(brokers: Brokers) -> None:
    """A broker of Kafka that ends between its two writes leaves the others without one."""
    one = brokers.broker()
    one.create(acl("t"))
    brokers.result(brokers.tree.delete("/kafka-acl/Topic/t"))
    brokers.result(brokers.tree.create("/kafka-acl/Topic/other", encode_acl([acl("t").entry])))
    brokers.turns.run()
    assert one.acls == {acl("t")}
    brokers.advance(RELOAD_S)
    assert one.acls == {acl("other")}
    one.store.stop()
    assert not brokers.clock.getDelayedCalls()


def test_a_change_of_kafka_is_read(brokers: Brokers) -> None:
    one = brokers.broker()
    data = b'{"version":1,"acls":[{"principal":"User:k","host":"h","permissionType":"Deny","operation":"All","x":1}]}'
    brokers.result(brokers.tree.create("/kafka-acl/Group/g:1", data))
    brokers.result(brokers.tree.create("/kafka-acl-changes/acl_changes_", b"GROUP:g:1", sequential=True))
    brokers.turns.run()
    assert one.acls == {AclBinding(ResourcePattern(R.GROUP, P.LITERAL, "g:1"), AclEntry("User:k", "h", Op.ALL, A.DENY))}


def test_old_notices_are_deleted(brokers: Brokers) -> None:
    one = brokers.broker()
    one.create(acl("a"), acl("p", pattern=P.PREFIXED))
    brokers.advance(CHANGE_KEPT_S)
    one.create(acl("b"))
    brokers.turns.run()
    assert brokers.names("/kafka-acl-changes") == ["acl_changes_0000000001"]
    assert brokers.names("/kafka-acl-extended-changes") == []


@pytest.mark.parametrize("loss", Loss)
def test_a_write_whose_connection_is_lost_is_read_again(brokers: Brokers, loss: Loss) -> None:
    losing = LosingTree(brokers.trees.session())
    one = brokers.broker(losing)
    losing.next_loss = loss
    change = one.store.change(additions([acl("t")]))
    if loss is Loss.ANSWER:
        assert brokers.result(change) == {acl("t").resource: None}
        assert one.acls == {acl("t")}
    else:
        with pytest.raises(BrokerError) as caught:
            brokers.result(change)
        assert caught.value.code == ErrorCode.NOT_CONTROLLER
        assert one.acls == set()
    assert one.create(acl("u")) == {acl("u").resource: None}


def test_what_cannot_be_stored_fails_alone(brokers: Brokers) -> None:
    one = brokers.broker()
    huge = [acl("huge", "User:" + "x" * 30_000 + str(number)) for number in range(40)]
    results = one.create(acl("t"), *huge, acl("u"))
    assert [r is None for r in results.values()] == [True, False, True]
    error = results[huge[0].resource]
    assert error is not None and error.code == ErrorCode.POLICY_VIOLATION
    assert one.acls == {acl("t"), acl("u")}


DAMAGED = [
    (b"no json", {("User:*", "*", Op.ALL)}),
    (b"[]", {("User:*", "*", Op.ALL)}),
    (b'{"version":2,"acls":[]}', {("User:*", "*", Op.ALL)}),
    (b'{"version":1,"acls":[7]}', {("User:*", "*", Op.ALL)}),
    (b'{"version":1,"acls":[{"principal":"a","host":"*","permissionType":"Allow","operation":"Read"}]}', {("User:*", "*", Op.READ)}),
    (b'{"version":1,"acls":[{"principal":"User:a","host":"*","permissionType":"Allow","operation":"X"}]}', {("User:a", "*", Op.ALL)}),
    (b'{"version":1,"acls":[{"principal":"User:a","host":"h","permissionType":"Maybe","operation":"Read"}]}', {("User:a", "h", Op.READ)}),
    (b'{"version":1,"acls":[{"principal":"User:a","host":null,"permissionType":"Allow","operation":"Read"}]}', {("User:a", "*", Op.READ)}),
    (b'{"version":1,"acls":[' + b"[" * 100_000, {("User:*", "*", Op.ALL)}),
]


@pytest.mark.parametrize(("data", "denied"), DAMAGED, ids=lambda value: str(value)[:60])
def test_what_cannot_be_read_denies(
    brokers: Brokers, caplog: pytest.LogCaptureFixture, data: bytes, denied: set[tuple[str, str, Op]]
) -> None:
    one = brokers.broker()
    one.create(acl("other"))
    brokers.result(brokers.tree.create("/kafka-acl/Topic/t", data))
    two = brokers.broker()
    entries = two.store.index.entries[ResourcePattern(R.TOPIC, P.LITERAL, "t")]
    assert {(e.principal, e.host, e.operation) for e in entries if e.permission is A.DENY} == denied
    assert acl("other") in two.acls, "the others count"
    assert "denies access until it is repaired or deleted" in caplog.text and "/kafka-acl/Topic/t" in caplog.text
    refused = two.create(acl("t"), acl("fine"))
    error = refused[acl("t").resource]
    assert error is not None and error.code == ErrorCode.UNKNOWN_SERVER_ERROR and refused[acl("fine").resource] is None
    assert brokers.data("/kafka-acl/Topic/t") == data, "nothing of it is lost"
    brokers.result(brokers.tree.set("/kafka-acl/Topic/t", encode_acl([acl("t").entry])))
    brokers.advance(RELOAD_S)
    assert acl("t") in two.acls


def test_a_node_that_the_store_does_not_permit_to_be_read_denies(brokers: Brokers) -> None:
    brokers.broker().create(acl("secret"), acl("t"))

    class Closed:
        """ZooKeeper with an ACL on one node."""

        def __init__(self, tree: Tree) -> None:
            self._tree = tree

        def __getattr__(self, name: str) -> Any:
            return getattr(self._tree, name)

        def get(self, path: str, **more: Any) -> Deferred[Any]:
            return fail(Refused(path)) if path.endswith("/secret") else self._tree.get(path, **more)

        def get_all(self, paths: list[str]) -> Deferred[Any]:
            refused = [path for path in paths if path.endswith("/secret")]
            return fail(Refused(refused[0])) if refused else self._tree.get_all(paths)

    two = brokers.broker(Closed(brokers.trees.session()))  # type: ignore[arg-type]
    assert two.acls == {acl("t"), AclBinding(acl("secret").resource, AclEntry("User:*", "*", Op.ALL, A.DENY))}


def test_a_notice_that_cannot_be_read_makes_the_broker_read_everything(brokers: Brokers) -> None:
    one = brokers.broker()
    brokers.result(brokers.tree.create("/kafka-acl/Topic/t", encode_acl([acl("t").entry])))
    brokers.result(brokers.tree.create("/kafka-acl-changes/acl_changes_", b"nonsense", sequential=True))
    brokers.turns.run()
    assert one.acls == {acl("t")}


@pytest.mark.parametrize("pattern", P)
@pytest.mark.parametrize("kind", R)
def test_nodes_are_read_as_they_are_written(kind: R, pattern: P) -> None:
    for name in ("t", "*", "a:b", "ü %2F", "x" * 300):
        resource = ResourcePattern(kind, pattern, name)
        assert decode_acl_change(encode_acl_change(resource), pattern) == resource
        assert acl_path(resource).endswith(f"/{name}")
    entries = frozenset(AclEntry("User:a", host, o, a) for o in Op for a in A for host in ("*", "1"))
    assert decode_acl(encode_acl(entries)) == (entries, "")


@pytest.mark.parametrize(
    ("wanted", "matched"),
    [
        (AclFilter(ANY, ANY, None, None, None, ANY, ANY), {"t", "t-", "*", "g"}),
        (AclFilter(R.TOPIC, MATCH, "t-1", None, None, ANY, ANY), {"t-", "*"}),
        (AclFilter(R.TOPIC, MATCH, "t", None, None, ANY, ANY), {"t", "*"}),
        (AclFilter(R.TOPIC, ANY, "t-", None, None, ANY, ANY), {"t-"}),
        (AclFilter(R.TOPIC, P.LITERAL, "*", None, None, ANY, ANY), {"*"}),
        (AclFilter(R.TOPIC, P.PREFIXED, None, None, None, ANY, ANY), {"t-"}),
        (AclFilter(ANY, ANY, None, "User:b", None, ANY, ANY), {"g"}),
        (AclFilter(ANY, ANY, None, None, "h", ANY, ANY), set()),
        (AclFilter(ANY, ANY, None, None, None, Op.WRITE, ANY), {"*"}),
        (AclFilter(ANY, ANY, None, None, None, ANY, A.DENY), {"t-"}),
    ],
)
def test_filters(wanted: AclFilter, matched: set[str]) -> None:
    bindings = [acl("t"), acl("t-", permission=A.DENY, pattern=P.PREFIXED), acl("*", operation=Op.WRITE), acl("g", "User:b", kind=R.GROUP)]
    index = AclIndex({b.resource: frozenset({b.entry}) for b in bindings})
    assert {pattern.name for pattern in removals(index, {0: wanted})} == matched


@pytest.mark.parametrize("name", ["", "a/b", ".", "..", "a\0b"])
def test_names_that_no_node_can_have(name: str) -> None:
    with pytest.raises(BrokerError) as caught:
        check_binding(acl(name))
    assert caught.value.code == ErrorCode.INVALID_REQUEST


def test_what_is_stored_though_it_never_matches() -> None:
    for binding in (acl("illegal topic!"), acl("x" * 300), acl("t", "Group:x"), acl("t", "user:a"), acl("t", "User:")):
        check_binding(binding)
    check_binding(acl("kafka-cluster", kind=R.CLUSTER))
    for binding in (acl("cluster", kind=R.CLUSTER), acl("t", "alice")):
        with pytest.raises(BrokerError):
            check_binding(binding)
