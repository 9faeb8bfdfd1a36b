from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import pytest
from twisted.internet.defer import Deferred, fail
from twisted.internet.task import Clock

from tests.cluster.turns import Turns
from txbroker.cluster import node_paths
from txbroker.cluster.broker_ids import create_structure
from txbroker.cluster.config_store import CHANGE_KEPT_S, RETRY_S, ConfigAdmin, ConfigObserver, ConfigWatcher
from txbroker.cluster.node_paths import ALL_BROKERS, Entity, broker_entity, topic_entity
from txbroker.cluster.tree.interface import ConnectionLost, Tree
from txbroker.cluster.tree.memory import MemoryTrees
from txbroker.errors import BrokerError, ErrorCode

T = TypeVar("T")


class World:
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
        return ConfigWatcher(tree, broker_id, observe, self.clock)

    def set(self, entity: Entity, **properties: str) -> None:
        self.result(self.admin.change(entity, lambda before: {**before, **properties}))

    def changes(self) -> list[str]:
        return self.result(self.tree.children(node_paths.CONFIG_CHANGES))


@pytest.fixture
def world() -> World:
    return World()


TOPIC = topic_entity("t")


def test_change_and_read(world: World) -> None:
    assert world.result(world.admin.read(TOPIC)) == {}
    assert world.result(world.admin.change(TOPIC, lambda before: {**before, "a": "1"})) == {"a": "1"}
    world.set(TOPIC, b="2")
    assert world.result(world.admin.read(TOPIC)) == {"a": "1", "b": "2"}
    assert world.result(world.tree.get("/config/topics/t"))[0] == b'{"version":1,"config":{"a":"1","b":"2"}}'
    assert world.changes() == ["config_change_0000000000", "config_change_0000000001"]
    change = world.result(world.tree.get("/config/changes/config_change_0000000001"))[0]
    assert change == b'{"version":2,"entity_path":"topics/t"}'
    world.set(ALL_BROKERS, c="3")
    assert world.result(world.tree.get("/config/brokers/<default>"))[0] == b'{"version":1,"config":{"c":"3"}}'


def test_two_changes_at_once_both_count(world: World) -> None:
    changes = [world.admin.change(TOPIC, lambda before, i=i: {**before, str(i): "x"}) for i in range(5)]  # type: ignore[misc]
    for change in changes:
        world.result(change)
    assert world.result(world.admin.read(TOPIC)) == dict.fromkeys("01234", "x")


def test_a_refused_change_changes_nothing(world: World) -> None:
    def refuse(_: Mapping[str, str]) -> dict[str, str]:
        raise BrokerError(ErrorCode.INVALID_CONFIG, "no")

    for compute in (refuse, lambda _: {"a": "x" * 2_000_000}):
        with pytest.raises(BrokerError) as caught:
            world.result(world.admin.change(TOPIC, compute))
        assert caught.value.code == ErrorCode.INVALID_CONFIG
    assert world.result(world.admin.read(TOPIC)) == {}
    assert world.changes() == []


def test_the_watcher_starts_with_the_current_configurations(world: World) -> None:
    world.set(broker_entity(1), a="1")
    world.set(broker_entity(2), a="2")
    world.set(ALL_BROKERS, d="3")
    world.set(TOPIC, t="4")
    watcher = world.watcher()
    world.result(watcher.start())
    assert world.received == [(broker_entity(1), {"a": "1"}), (ALL_BROKERS, {"d": "3"})]
    assert watcher.topic("t") == {}
    world.result(watcher.load_topics(["t", "none"]))
    assert (watcher.topic("t"), watcher.topic("none")) == ({"t": "4"}, {})


def test_the_watcher_reports_changes_that_concern_its_broker(world: World) -> None:
    watcher = world.watcher()
    world.result(watcher.start())
    world.result(watcher.load_topics(["t"]))
    world.received.clear()
    world.set(TOPIC, a="1")
    world.set(topic_entity("other"), a="1")
    world.set(broker_entity(2), a="1")
    world.set(broker_entity(1), b="2")
    world.set(ALL_BROKERS, c="3")
    world.set(TOPIC, a="2")
    assert world.received == [
        (TOPIC, {"a": "1"}),
        (broker_entity(1), {"b": "2"}),
        (ALL_BROKERS, {"c": "3"}),
        (TOPIC, {"a": "2"}),
    ]
    assert watcher.topic("t") == {"a": "2"}
    watcher.forget_topic("t")
    world.set(TOPIC, a="3")
    assert len(world.received) == 4
    assert watcher.topic("t") == {}


def test_a_burst_of_changes_is_reported_with_the_last_value(world: World) -> None:
    watcher = world.watcher()
    world.result(watcher.start())
    world.received.clear()
    changes = [world.admin.change(ALL_BROKERS, lambda _, i=i: {"a": str(i)}) for i in range(20)]  # type: ignore[misc]
    for change in changes:
        world.result(change)
    assert world.received[-1] == (ALL_BROKERS, world.result(world.admin.read(ALL_BROKERS)))


def test_old_change_nodes_are_deleted(world: World) -> None:
    one, two = world.watcher(1), world.watcher(2)
    world.result(one.start())
    world.result(two.start())
    world.set(TOPIC, a="1")
    world.clock.advance(CHANGE_KEPT_S - 1)
    world.set(TOPIC, a="2")
    assert len(world.changes()) == 2
    world.clock.advance(1)
    world.set(TOPIC, a="3")
    assert world.changes() == ["config_change_0000000001", "config_change_0000000002"]


def test_malformed_changes_are_skipped(world: World, caplog: pytest.LogCaptureFixture) -> None:
    watcher = world.watcher()
    world.result(watcher.start())
    world.received.clear()
    world.result(world.tree.create(node_paths.CONFIG_CHANGE_PREFIX, b"?", sequential=True))
    world.result(world.tree.create(ALL_BROKERS.path, b"?"))
    world.result(world.tree.create(node_paths.CONFIG_CHANGE_PREFIX, b'{"version":2,"entity_path":"brokers/<default>"}', sequential=True))
    world.set(broker_entity(1), a="1")
    assert world.received == [(ALL_BROKERS, {}), (broker_entity(1), {"a": "1"})]
    assert "skipping /config/changes/config_change_0000000000" in caplog.text
    assert "as empty" in caplog.text


def test_a_session_that_ends_while_changes_are_read_is_no_error(world: World, caplog: pytest.LogCaptureFixture) -> None:
    session = world.trees.session()
    watcher = world.watcher_on(session, 1, lambda *_: None)
    world.result(watcher.start())
    world.admin.change(ALL_BROKERS, lambda _: {"a": "1"})
    while not world.turns.result(world.tree.children(node_paths.CONFIG_CHANGES)):
        world.turns.step()
    world.trees.expire(session)
    world.turns.run()
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_an_unavailable_tree_fails_requests_with_a_retriable_error(world: World) -> None:
    world.trees.expire(world.tree)
    for refused in (world.admin.read(TOPIC), world.admin.change(TOPIC, lambda before: before)):
        with pytest.raises(BrokerError) as caught:
            world.result(refused)
        assert caught.value.code == ErrorCode.NOT_CONTROLLER


@pytest.mark.parametrize("operation", ["children", "get"])
def test_a_read_that_fails_is_tried_again_and_no_change_is_lost(world: World, monkeypatch: pytest.MonkeyPatch, operation: str) -> None:
    watcher = world.watcher()
    world.result(watcher.start())
    world.received.clear()

    def lost(path: str, **_: Any) -> Deferred[Any]:
        return fail(ConnectionLost(path))

    with monkeypatch.context() as patch:
        patch.setattr(watcher._tree, operation, lost)
        world.set(ALL_BROKERS, a="1")
    assert world.received == []
    world.set(broker_entity(1), b="2")
    while world.clock.getDelayedCalls():
        world.clock.advance(RETRY_S)
        world.turns.run()
    assert sorted(world.received) == [(broker_entity(1), {"b": "2"}), (ALL_BROKERS, {"a": "1"})]
    world.set(ALL_BROKERS, a="3")
    assert world.received[2:] == [(ALL_BROKERS, {"a": "3"})]
