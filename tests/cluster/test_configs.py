from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar, cast

import pytest
from twisted.internet.defer import Deferred, fail
from twisted.internet.task import Clock

from tests.support.fakes.losing_tree import LosingTree, Loss
from tests.support.fakes.turns import Turns
from txbroker.cluster import node_paths
from txbroker.cluster.broker_ids import create_structure
from txbroker.cluster.change_nodes import CHANGE_KEPT_S
from txbroker.cluster.config_store import RETRY_S, RETRY_S_MAX, ConfigAdmin, ConfigObserver, ConfigWatcher
from txbroker.cluster.node_paths import ALL_BROKERS, Entity, broker_entity, topic_entity
from txbroker.cluster.tree import operations
from txbroker.cluster.tree.interface import ConnectionLost, Refused, Tree
from txbroker.cluster.tree.memory import MemoryTrees
from txbroker.errors import BrokerError, ErrorCode

T = TypeVar("T")


class ConfigHarness:
    def __init__(self) -> None:
        self.turns = Turns()
        self.trees = MemoryTrees(self.turns.call_soon)
        self.tree = self.trees.session()
        self.result(create_structure(self.tree))
        self.admin = ConfigAdmin(self.tree)
        self.clock = Clock()
        self.received: list[tuple[Entity, dict[str, str]]] = []

    def result(self, deferred: Deferred[T]) -> T:
        return self.turns.result(deferred)

    def watcher(self, broker_id: int = 1) -> ConfigWatcher:
        def observe(entity: Entity, properties: Mapping[str, str]) -> None:
            self.received.append((entity, dict(properties)))

        return self.watcher_on(self.trees.session(), broker_id, observe)

    def watcher_on(self, tree: Tree, broker_id: int, observe: ConfigObserver) -> ConfigWatcher:
        return ConfigWatcher(tree, broker_id, observe, self.clock, lambda: 0.5)

    def set(self, entity: Entity, **properties: str) -> None:
        self.result(self.admin.change(entity, lambda before: {**before, **properties}))

    def changes(self) -> list[str]:
        return self.result(self.tree.children(node_paths.CONFIG_CHANGES))


@pytest.fixture
def harness() -> ConfigHarness:
    return ConfigHarness()


TOPIC = topic_entity("t")


def test_change_and_read(harness: ConfigHarness) -> None:
    assert harness.result(harness.admin.read(TOPIC)) == {}
    assert harness.result(harness.admin.change(TOPIC, lambda before: {**before, "a": "1"})) == {"a": "1"}
    harness.set(TOPIC, b="2")
    assert harness.result(harness.admin.read(TOPIC)) == {"a": "1", "b": "2"}
    assert harness.result(harness.tree.get("/config/topics/t"))[0] == b'{"version":1,"config":{"a":"1","b":"2"}}'
    assert harness.changes() == ["config_change_0000000000", "config_change_0000000001"]
    change = harness.result(harness.tree.get("/config/changes/config_change_0000000001"))[0]
    assert change == b'{"version":2,"entity_path":"topics/t"}'
    harness.set(ALL_BROKERS, c="3")
    assert harness.result(harness.tree.get("/config/brokers/<default>"))[0] == b'{"version":1,"config":{"c":"3"}}'


def test_two_changes_at_once_both_count(harness: ConfigHarness) -> None:
    changes = [harness.admin.change(TOPIC, lambda before, i=i: {**before, str(i): "x"}) for i in range(5)]  # type: ignore[misc]
    for change in changes:
        harness.result(change)
    assert harness.result(harness.admin.read(TOPIC)) == dict.fromkeys("01234", "x")


def test_a_refused_change_changes_nothing(harness: ConfigHarness) -> None:
    def refuse(_: Mapping[str, str]) -> dict[str, str]:
        raise BrokerError(ErrorCode.INVALID_CONFIG, "no")

    for compute in (refuse, lambda _: {"a": "x" * 2_000_000}):
        with pytest.raises(BrokerError) as caught:
            harness.result(harness.admin.change(TOPIC, compute))
        assert caught.value.code == ErrorCode.INVALID_CONFIG
    assert harness.result(harness.admin.read(TOPIC)) == {}
    assert harness.changes() == []


def test_the_watcher_starts_with_the_current_configurations(harness: ConfigHarness) -> None:
    harness.set(broker_entity(1), a="1")
    harness.set(broker_entity(2), a="2")
    harness.set(ALL_BROKERS, d="3")
    harness.set(TOPIC, t="4")
    watcher = harness.watcher()
    harness.result(watcher.start())
    assert harness.received == [(broker_entity(1), {"a": "1"}), (ALL_BROKERS, {"d": "3"})]
    assert watcher.topic("t") == {}
    harness.result(watcher.load_topics(["t", "none"]))
    assert (watcher.topic("t"), watcher.topic("none")) == ({"t": "4"}, {})


@pytest.mark.parametrize("is_new_session", [False, True])
def test_a_change_while_the_configurations_of_topics_are_read_is_not_lost(harness: ConfigHarness, is_new_session: bool) -> None:
    """The first topic of many has been read when it changes, and the last one has not."""
    tree = HeldReads(harness.trees.session(), "/config/topics/last")
    watcher = harness.watcher_on(tree.as_tree, 1, lambda entity, properties: harness.received.append((entity, dict(properties))))
    harness.result(watcher.start())
    loaded = watcher.load_topics(["t", "last"])
    harness.turns.run()
    if is_new_session:
        tree.held_watches = True
    harness.set(TOPIC, a="1")
    if is_new_session:
        watcher.renew()
        harness.turns.run()
    tree.release()
    harness.result(loaded)
    assert watcher.topic("t") == {"a": "1"} and (TOPIC, {"a": "1"}) in harness.received
    assert watcher.topic("last") == {}


def test_a_topic_is_loaded_while_all_configurations_are_read_again(harness: ConfigHarness) -> None:
    tree = HeldReads(harness.trees.session(), "/config/users")
    tree.release()
    watcher = harness.watcher_on(tree.as_tree, 1, lambda entity, properties: harness.received.append((entity, dict(properties))))
    harness.result(watcher.start())
    harness.result(watcher.load_topics(["t"]))
    tree.hold()
    watcher.renew()
    harness.turns.run()
    harness.result(watcher.load_topics(["new"]))
    harness.received.clear()
    tree.release()
    harness.turns.run()
    assert [entity for entity, _ in harness.received if entity.type == "topics"] == [topic_entity("new"), TOPIC]
    assert not harness.clock.getDelayedCalls()


class HeldReads:
    """A session of the tree that keeps back the answers to reads of one path, and events, until they are released."""

    def __init__(self, tree: Tree, path: str) -> None:
        self._tree, self._path = tree, path
        self._held: list[Deferred[None]] | None = []
        self.held_watches = False

    @property
    def as_tree(self) -> Tree:
        return cast(Tree, self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tree, name)

    def hold(self) -> None:
        self._held = []

    def release(self) -> None:
        held, self._held = self._held or [], None
        for each in held:
            each.callback(None)

    def get(self, path: str, **options: Any) -> Deferred[Any]:
        return self._read(self._tree.get, path, options)

    def children(self, path: str, **options: Any) -> Deferred[Any]:
        watch = options.pop("watch", None)
        if watch is not None:
            options["watch"] = lambda event: None if self.held_watches else watch(event)
        return self._read(self._tree.children, path, options)

    def _read(self, read: Callable[..., Deferred[Any]], path: str, options: Any) -> Deferred[Any]:
        if path != self._path or self._held is None:
            return read(path, **options)
        held: Deferred[None] = Deferred()
        self._held.append(held)
        return held.addCallback(lambda _: read(path, **options))


def test_the_watcher_reports_changes_that_concern_its_broker(harness: ConfigHarness) -> None:
    watcher = harness.watcher()
    harness.result(watcher.start())
    harness.result(watcher.load_topics(["t"]))
    harness.received.clear()
    harness.set(TOPIC, a="1")
    harness.set(topic_entity("other"), a="1")
    harness.set(broker_entity(2), a="1")
    harness.set(broker_entity(1), b="2")
    harness.set(ALL_BROKERS, c="3")
    harness.set(TOPIC, a="2")
    assert harness.received == [
        (TOPIC, {"a": "1"}),
        (broker_entity(1), {"b": "2"}),
        (ALL_BROKERS, {"c": "3"}),
        (TOPIC, {"a": "2"}),
    ]
    assert watcher.topic("t") == {"a": "2"}
    watcher.forget_topic("t")
    harness.set(TOPIC, a="3")
    assert len(harness.received) == 4
    assert watcher.topic("t") == {}


def test_a_burst_of_changes_is_reported_with_the_last_value(harness: ConfigHarness) -> None:
    watcher = harness.watcher()
    harness.result(watcher.start())
    harness.received.clear()
    changes = [harness.admin.change(ALL_BROKERS, lambda _, i=i: {"a": str(i)}) for i in range(20)]  # type: ignore[misc]
    for change in changes:
        harness.result(change)
    assert harness.received[-1] == (ALL_BROKERS, harness.result(harness.admin.read(ALL_BROKERS)))


def test_old_change_nodes_are_deleted(harness: ConfigHarness) -> None:
    one, two = harness.watcher(1), harness.watcher(2)
    harness.result(one.start())
    harness.result(two.start())
    harness.set(TOPIC, a="1")
    harness.clock.advance(CHANGE_KEPT_S - 1)
    harness.set(TOPIC, a="2")
    assert len(harness.changes()) == 2
    harness.clock.advance(1)
    harness.set(TOPIC, a="3")
    assert harness.changes() == ["config_change_0000000001", "config_change_0000000002"]
    harness.received.clear()
    harness.set(ALL_BROKERS, b="4")  # the deletion has fired a watch
    assert harness.received == [(ALL_BROKERS, {"b": "4"})] * 2


CLIENT, USER, USERS_CLIENT = Entity("clients", "<default>"), Entity("users", "u"), Entity("users", "u/clients/c")


def test_the_watcher_reports_the_quotas_of_all_clients(harness: ConfigHarness) -> None:
    harness.set(USERS_CLIENT, a="1")
    watcher = harness.watcher()
    harness.result(watcher.start())
    assert (USERS_CLIENT, {"a": "1"}) in harness.received and harness.received[-2][0] == USER, "which has no data"
    harness.received.clear()
    harness.set(CLIENT, a="1")
    harness.set(USER, a="2")
    harness.result(harness.admin.change(USER, lambda _: {}))
    harness.result(harness.admin.change(USERS_CLIENT, lambda _: {}))
    expected = [(CLIENT, {"a": "1"}), (USER, {"a": "2"}), (USER, {}), (USERS_CLIENT, {})]
    assert harness.received == expected
    assert harness.changes() == [f"config_change_{number:010}" for number in range(5)]
    change = harness.result(harness.tree.get("/config/changes/config_change_0000000004"))[0]
    assert change == b'{"version":2,"entity_path":"users/u/clients/c"}'
    assert harness.result(harness.admin.clients()) == {CLIENT: {"a": "1"}, USER: {}}
    assert harness.result(harness.tree.children("/config/users/u/clients")) == []


@pytest.mark.parametrize("path", ["c", "u/clients/c"])
def test_the_removal_of_quotas_that_do_not_exist_writes_nothing(harness: ConfigHarness, path: str) -> None:
    entity = Entity("users" if "/" in path else "clients", path)
    assert harness.result(harness.admin.change(entity, lambda _: {})) == {}
    assert harness.result(harness.admin.clients()) == {} and harness.changes() == []


def test_quotas_that_were_removed_meanwhile_are_reported_in_the_next_session(harness: ConfigHarness) -> None:
    harness.set(CLIENT, a="1")
    watcher = harness.watcher()
    harness.result(watcher.start())
    harness.result(harness.tree.delete(CLIENT.path))  # without a change node: it has been deleted since
    harness.set(USERS_CLIENT, b="2")
    for name in harness.changes():
        harness.result(harness.tree.delete(f"{node_paths.CONFIG_CHANGES}/{name}"))
    harness.received.clear()
    watcher.renew()
    harness.turns.run()
    assert [entry for entry in harness.received if entry[0] in (CLIENT, USERS_CLIENT)] == [(CLIENT, {}), (USERS_CLIENT, {"b": "2"})]


def test_malformed_changes_are_skipped(harness: ConfigHarness, caplog: pytest.LogCaptureFixture) -> None:
    watcher = harness.watcher()
    harness.result(watcher.start())
    harness.received.clear()
    harness.result(harness.tree.create(node_paths.CONFIG_CHANGE_PREFIX, b"?", sequential=True))
    harness.result(harness.tree.create(ALL_BROKERS.path, b"?"))
    change = b'{"version":2,"entity_path":"brokers/<default>"}'
    harness.result(harness.tree.create(node_paths.CONFIG_CHANGE_PREFIX, change, sequential=True))
    harness.set(broker_entity(1), a="1")
    assert harness.received == [(ALL_BROKERS, {}), (broker_entity(1), {"a": "1"})]
    assert "skipping /config/changes/config_change_0000000000" in caplog.text
    assert "as empty" in caplog.text
    assert harness.result(harness.admin.read(ALL_BROKERS)) == {}
    harness.set(ALL_BROKERS, b="2")  # repairs it
    assert harness.received[-1] == (ALL_BROKERS, {"b": "2"})


def test_a_session_that_ends_while_changes_are_read_is_no_error(harness: ConfigHarness, caplog: pytest.LogCaptureFixture) -> None:
    session = harness.trees.session()
    watcher = harness.watcher_on(session, 1, lambda *_: None)
    harness.result(watcher.start())
    harness.admin.change(ALL_BROKERS, lambda _: {"a": "1"})
    while not harness.turns.result(harness.tree.children(node_paths.CONFIG_CHANGES)):
        harness.turns.step()
    harness.trees.expire(session)
    harness.turns.run()
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_an_unavailable_tree_fails_requests_with_a_retriable_error(harness: ConfigHarness) -> None:
    harness.trees.expire(harness.tree)
    for refused in (harness.admin.read(TOPIC), harness.admin.change(TOPIC, lambda before: before)):
        with pytest.raises(BrokerError) as caught:
            harness.result(refused)
        assert caught.value.code == ErrorCode.NOT_CONTROLLER


@pytest.mark.parametrize("operation", ["children", "get"])
def test_a_failed_read_is_retried_and_no_change_is_lost(harness: ConfigHarness, monkeypatch: pytest.MonkeyPatch, operation: str) -> None:
    watcher = harness.watcher()
    harness.result(watcher.start())
    harness.received.clear()

    def lost(path: str, **_: Any) -> Deferred[Any]:
        return fail(ConnectionLost(path))

    with monkeypatch.context() as patch:
        patch.setattr(watcher._tree, operation, lost)
        harness.set(ALL_BROKERS, a="1")
    assert harness.received == []
    harness.set(broker_entity(1), b="2")
    while harness.clock.getDelayedCalls():
        harness.clock.advance(RETRY_S)
        harness.turns.run()
    assert sorted(harness.received) == [(broker_entity(1), {"b": "2"}), (ALL_BROKERS, {"a": "1"})]
    harness.set(ALL_BROKERS, a="3")
    assert harness.received[2:] == [(ALL_BROKERS, {"a": "3"})]


@pytest.mark.parametrize("loss", Loss)
@pytest.mark.parametrize("removed", [False, True])
def test_a_change_whose_write_is_lost(harness: ConfigHarness, loss: Loss, removed: bool) -> None:
    client = Entity("clients", "c")
    after = {} if removed else {"request_percentage": "5"}
    if removed:
        harness.set(client, request_percentage="5")
    before, changes = harness.result(harness.admin.read(client)), len(harness.changes())
    tree = LosingTree(harness.tree)
    tree.next_loss = loss
    changed = ConfigAdmin(cast(Tree, tree)).change(client, lambda _: after)
    if loss is Loss.ANSWER:
        assert harness.result(changed) == after
    else:
        with pytest.raises(BrokerError) as error:
            harness.result(changed)
        assert error.value.code == ErrorCode.NOT_CONTROLLER
    assert harness.result(harness.admin.read(client)) == (after if loss is Loss.ANSWER else before)
    assert len(harness.changes()) == changes + (loss is Loss.ANSWER)


def let_pass(harness: ConfigHarness, seconds: float) -> None:
    harness.clock.advance(seconds)
    harness.turns.run()


def test_a_change_whose_observer_fails_is_reported_again(harness: ConfigHarness, caplog: pytest.LogCaptureFixture) -> None:
    failures = [KeyError("one"), KeyError("two"), KeyError("three")]

    def observe(entity: Entity, properties: Mapping[str, str]) -> None:
        if entity == TOPIC and failures:
            raise failures.pop()
        harness.received.append((entity, dict(properties)))

    watcher = harness.watcher_on(harness.trees.session(), 1, observe)
    harness.result(watcher.start())
    harness.result(watcher.load_topics(["t"]))
    harness.received.clear()
    harness.set(TOPIC, a="1")
    harness.set(broker_entity(1), b="2")
    assert harness.received == [(broker_entity(1), {"b": "2"})], "the changes that follow take effect at once"
    assert "the configuration at /config/topics/t cannot be applied, retrying: internal error: KeyError('three')" in caplog.text
    let_pass(harness, RETRY_S)
    harness.set(TOPIC, a="3")
    let_pass(harness, RETRY_S_MAX)
    assert harness.received[-1] == (TOPIC, {"a": "3"})
    harness.received.clear()
    let_pass(harness, RETRY_S_MAX)
    assert harness.received == [] and not harness.clock.getDelayedCalls()


def test_an_error_of_the_callback_after_changes_does_not_lose_the_call(harness: ConfigHarness) -> None:
    watcher = harness.watcher()
    harness.result(watcher.start())
    calls: list[int] = []

    def changed() -> None:
        calls.append(len(calls))
        if len(calls) == 1:
            raise KeyError

    watcher.on_changes(changed)
    harness.set(ALL_BROKERS, a="1")
    assert calls == [0] and harness.received[-1] == (ALL_BROKERS, {"a": "1"})
    let_pass(harness, RETRY_S)
    assert calls == [0, 1]
    let_pass(harness, RETRY_S_MAX)
    assert calls == [0, 1] and not harness.clock.getDelayedCalls()


@pytest.mark.parametrize("refused", ["/config/topics/t", "/config/changes/config_change_0000000000", "/config/changes"])
def test_a_read_that_the_store_refuses_is_repeated(harness: ConfigHarness, monkeypatch: pytest.MonkeyPatch, refused: str) -> None:
    watcher = harness.watcher()
    harness.result(watcher.start())
    harness.result(watcher.load_topics(["t"]))
    harness.received.clear()
    session = watcher._tree
    get, children = session.get, session.children

    def or_refused(read: Any) -> Any:
        return lambda path, **options: fail(Refused(path)) if path == refused else read(path, **options)

    with monkeypatch.context() as patch:
        patch.setattr(session, "get", or_refused(get))
        patch.setattr(session, "children", or_refused(children))
        harness.set(TOPIC, a="1")
        harness.set(ALL_BROKERS, b="2")
        let_pass(harness, RETRY_S)
        assert (TOPIC, {"a": "1"}) not in harness.received
        assert harness.received == ([(ALL_BROKERS, {"b": "2"})] if refused == TOPIC.path else [])
    let_pass(harness, RETRY_S_MAX)
    assert sorted(harness.received) == [(ALL_BROKERS, {"b": "2"}), (TOPIC, {"a": "1"})]


def test_the_configurations_of_topics_that_cannot_be_read_are_named(harness: ConfigHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    watcher = harness.watcher()
    harness.set(TOPIC, a="1")
    get = watcher._tree.get
    monkeypatch.setattr(watcher._tree, "get", lambda path: fail(Refused(path)) if path.endswith("/other") else get(path))
    refused = harness.result(watcher.load_topics(["other", "t"]))
    assert refused.keys() == {"other"} and watcher.topic("t") == {"a": "1"}


def test_the_configurations_of_many_users_are_read_at_the_same_time(harness: ConfigHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the start, and again in the next session; but not of all users at once, of whom there may be very many."""
    monkeypatch.setattr(operations, "MULTI_OPS_MAX", 20)
    users = [Entity("users", f"user-{number}") for number in range(50)]
    for user in users:
        harness.set(user, producer_byte_rate="1")
    tree = harness.trees.session()
    counts = {"waiting": 0, "most": 0}

    def counted(read: Callable[..., Deferred[Any]], path: str, **options: Any) -> Deferred[Any]:
        def answered(result: T) -> T:
            counts["waiting"] -= 1
            return result

        counts["waiting"] += 1
        counts["most"] = max(counts["most"], counts["waiting"])
        return read(path, **options).addBoth(answered)

    for name in ("get", "children"):
        monkeypatch.setattr(tree, name, partial(counted, getattr(tree, name)))
    watcher = harness.watcher_on(tree, 1, lambda entity, properties: harness.received.append((entity, dict(properties))))
    for begin in (lambda: harness.result(watcher.start()), watcher.renew):
        harness.received.clear()
        counts["most"] = 0
        begin()
        harness.turns.run()
        assert counts["most"] == 20
        assert {entity for entity, properties in harness.received if properties == {"producer_byte_rate": "1"}} == set(users)
    counts["most"] = 0
    assert harness.result(ConfigAdmin(tree).clients()).keys() == set(users) and counts["most"] == 20
    counts["most"] = 0
    harness.result(watcher.load_topics([f"topic-{number}" for number in range(50)]))
    assert counts["most"] == 20
