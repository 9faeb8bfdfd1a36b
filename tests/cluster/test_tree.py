"""The contract of every `Tree`, on each implementation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from simulation.chance import stream
from simulation.ensemble import Ensemble
from simulation.hosts import SimulatedThreads
from simulation.network import Network
from simulation.process import Process
from simulation.scheduler import Scheduler
from simulation.zookeeper_session import SimulatedSession
from tests.cluster.tree_pipe import connected
from tests.support.fakes.turns import Turns
from tests.support.waiting import PATIENCE_S
from tests.support.zookeeper_threads import QueuedThreads
from txbroker.cluster.tree.interface import (
    DATA_SIZE_MAX,
    BadVersion,
    Check,
    Create,
    Delete,
    EventType,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    Op,
    SessionExpired,
    Set,
    Stat,
    TooLarge,
    Tree,
    TreeError,
    WatchEvent,
)
from txbroker.cluster.tree.memory import MemoryTrees
from txbroker.cluster.tree.sqlite import SqliteTrees, open_sqlite_tree
from txbroker.cluster.tree.tree_server import TreeServer
from txbroker.cluster.tree.zookeeper import open_zookeeper_tree


class Harness:
    """A store, and a way to begin a session after the session before it is over."""

    def __init__(self, queued: Turns | QueuedThreads | SimulatedTime, open_session: Callable[[], Deferred[Tree]]) -> None:
        self.result = queued.result
        self._open = open_session
        self.tree = self.result(open_session())

    def settle(self) -> None:
        """Wait until all operations are performed."""
        self.result(self.tree.exists("/"))

    def reopen(self) -> Tree:
        self.result(self.tree.close())
        self.tree = self.result(self._open())
        return self.tree


@pytest.fixture(params=["memory", "sqlite", "served", "simulated", pytest.param("zookeeper", marks=pytest.mark.process)])
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Harness]:
    if request.param == "zookeeper":
        connect = request.getfixturevalue("zookeeper")
        threads = QueuedThreads()
        options: Any = {"session_timeout_ms": 6000, "connection_timeout_ms": int(PATIENCE_S * 1000), "threads": threads}
        opened = Harness(threads, lambda: open_zookeeper_tree(connect, **options))
        yield opened
        opened.reopen()
        opened.result(opened.tree.close())
        return
    if request.param == "simulated":
        yield simulated()
        return
    turns = Turns()
    if request.param == "memory":
        stores = MemoryTrees(turns.call_soon)
        yield Harness(turns, lambda: succeed(stores.session()))
    elif request.param == "served":
        server = TreeServer(SqliteTrees(str(tmp_path / "tree.sqlite"), worker=turns.worker), Clock(), lambda: 0.5)
        yield Harness(turns, lambda: connected(server, turns.call_soon))
    else:
        yield Harness(turns, lambda: succeed(open_sqlite_tree(str(tmp_path / "tree.sqlite"), worker=turns.worker)))


class SimulatedTime:
    """Runs the simulated time until a Deferred fires."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def result(self, deferred: Deferred[Any]) -> Any:
        outcomes: list[Any] = []
        deferred.addBoth(outcomes.append)
        deferred.addBoth(lambda _: self._scheduler.stop())
        if not outcomes:
            self._scheduler.run(self._scheduler.now_s + 60)
        assert outcomes, "it did not fire"
        if isinstance(outcomes[0], Failure):
            outcomes[0].raiseException()
        return outcomes[0]


def simulated() -> Harness:
    """The tree of ZooKeeper on the servers of the simulation."""
    scheduler = Scheduler()
    network = Network(scheduler, stream(1, "network"), latency_s=0.001)
    ensemble = Ensemble(scheduler, network, stream(1, "tree"))
    process = Process(
        "p", "p", scheduler, network, stream(1, "process"), on_step=lambda: None, on_crash=lambda error: pytest.fail(str(error))
    )
    threads: Any = SimulatedThreads(process, lambda job: succeed(job()))

    def open_session() -> Deferred[Any]:
        return open_zookeeper_tree(
            ensemble.connect,
            session_timeout_ms=6000,
            connection_timeout_ms=6000,
            threads=threads,
            open_session=partial(SimulatedSession, process, ensemble),
        )

    return Harness(SimulatedTime(scheduler), open_session)


def test_a_created_node_is_read_back(harness: Harness) -> None:
    tree, result = harness.tree, harness.result
    assert result(tree.create("/a", b"1")) == "/a"
    data, stat = result(tree.get("/a"))
    assert data == b"1"
    assert (stat.version, stat.ephemeral_owner, stat.children_count) == (0, 0, 0)
    assert stat.czxid == stat.mzxid > 0


def test_no_data_is_not_empty_data(harness: Harness) -> None:
    tree, result = harness.tree, harness.result
    result(tree.create("/none"))
    result(tree.create("/empty", b""))
    assert result(tree.get("/none"))[0] is None
    assert result(tree.get("/empty"))[0] == b""


def test_many_nodes_are_read_at_once(harness: Harness) -> None:
    tree, result = harness.tree, harness.result
    for path, data in (("/a", b"1"), ("/none", None), ("/empty", b""), ("/long", b"x" * 1000)):
        result(tree.create(path, data))
    result(tree.set("/long", b"y" * 2000))
    wanted = ["/long", "/missing", "/none", "/empty", "/a", "/a"]
    found = result(tree.get_all(wanted))
    assert [None if node is None else node[0] for node in found] == [b"y" * 2000, None, None, b"", b"1", b"1"]
    assert found[1] is None
    assert [found[at] for at in (0, 2, 3, 4)] == [result(tree.get(path)) for path in ("/long", "/none", "/empty", "/a")]


def test_set_counts_versions_and_refuses_another_one(harness: Harness) -> None:
    tree, result = harness.tree, harness.result
    result(tree.create("/a", b"1"))
    created = result(tree.exists("/a"))
    assert created is not None
    stat = result(tree.set("/a", b"2", 0))
    assert stat.version == 1
    assert stat.czxid == created.czxid
    assert stat.mzxid > created.mzxid
    with pytest.raises(BadVersion):
        result(tree.set("/a", b"3", 0))
    assert result(tree.set("/a", b"3")).version == 2
    assert result(tree.get("/a"))[0] == b"3"


def test_operations_on_a_missing_node(harness: Harness) -> None:
    tree, result = harness.tree, harness.result
    operations: list[Deferred[Any]] = [tree.get("/a"), tree.set("/a", b""), tree.delete("/a"), tree.children("/a"), tree.create("/a/b")]
    for operation in operations:
        with pytest.raises(NoNode) as caught:
            result(operation)
        assert caught.value.path in ("/a", "/a/b")
    assert result(tree.exists("/a")) is None


def test_create_twice_and_delete(harness: Harness) -> None:
    tree, result = harness.tree, harness.result
    result(tree.create("/a"))
    with pytest.raises(NodeExists):
        result(tree.create("/a"))
    result(tree.set("/a", b"x"))
    with pytest.raises(BadVersion):
        result(tree.delete("/a", 0))
    result(tree.delete("/a", 1))
    assert result(tree.exists("/a")) is None


def test_children_are_sorted_and_protect_their_parent(harness: Harness) -> None:
    tree, result = harness.tree, harness.result
    for path in ("/p", "/p/b", "/p/a", "/p/a/deep", "/pa"):
        result(tree.create(path))
    assert result(tree.children("/p")) == ["a", "b"]
    assert result(tree.children("/")) == ["p", "pa"]
    assert result(tree.children("/pa")) == []
    with pytest.raises(NotEmpty):
        result(tree.delete("/p"))
    stat = result(tree.exists("/p"))
    assert stat is not None and stat.children_count == 2
    for path in ("/p/a/deep", "/p/a", "/p/b", "/p"):
        result(tree.delete(path))
    assert result(tree.children("/")) == ["pa"]


def test_sequential_names_count_up_even_after_deletions(harness: Harness) -> None:
    tree, result = harness.tree, harness.result
    result(tree.create("/q"))
    assert result(tree.create("/q/n_", sequential=True)) == "/q/n_0000000000"
    result(tree.delete("/q/n_0000000000"))
    assert result(tree.create("/q/n_", b"x", sequential=True)) == "/q/n_0000000001"
    tree = harness.reopen()
    assert harness.result(tree.create("/q/n_", sequential=True)) == "/q/n_0000000002"


@pytest.mark.parametrize("path", ["", "a", "/a/", "//a", "/a//b", "/./a", "/a/..", "/a\0"])
def test_invalid_paths_are_refused(harness: Harness, path: str) -> None:
    harness.result(harness.tree.create("/a"))
    with pytest.raises((ValueError, NoNode)):
        harness.result(harness.tree.create(path))
    assert harness.result(harness.tree.children("/")) == ["a"]


def test_data_has_a_limit(harness: Harness) -> None:
    tree, result = harness.tree, harness.result
    result(tree.create("/a", bytes(DATA_SIZE_MAX)))
    with pytest.raises(TooLarge, match=r"exceed the maximum size of a node \(\d+\), /a"):
        result(tree.set("/a", bytes(DATA_SIZE_MAX + 1)))


def test_multi_does_all(harness: Harness) -> None:
    tree, result = harness.tree, harness.result
    result(tree.create("/a", b"1"))
    result(tree.create("/old"))
    ops: list[Op] = [Check("/a", 0), Create("/a/b"), Create("/a/b/c", b"x"), Set("/a", b"2", 0), Delete("/old")]
    ops.append(Create("/a/s", sequential=True))
    results = result(tree.multi(ops))
    assert results[:3] == [None, "/a/b", "/a/b/c"]
    assert isinstance(results[3], Stat) and results[3].version == 1
    assert results[4:] == [None, "/a/s0000000001"]
    assert result(tree.get("/a"))[0] == b"2"
    assert result(tree.exists("/old")) is None
    inner = result(tree.exists("/a/b"))
    outer = result(tree.get("/a"))[1]
    assert inner is not None and inner.czxid == outer.mzxid  # one transaction


def test_a_failed_operation_undoes_its_multi(harness: Harness) -> None:
    tree, result = harness.tree, harness.result
    result(tree.create("/a", b"1"))
    events: list[WatchEvent] = []
    result(tree.children("/", watch=events.append))
    cases: list[tuple[Op, type[TreeError]]] = [
        (Check("/a", 7), BadVersion),
        (Check("/nothing"), NoNode),
        (Create("/a"), NodeExists),
        (Delete("/b"), NotEmpty),
        (Set("/a", b"", 9), BadVersion),
    ]
    for failing, error in cases:
        with pytest.raises(error) as caught:
            result(tree.multi([Create("/b"), Create("/b/c"), failing, Set("/a", b"2")]))
        assert caught.value.index == 2
    assert result(tree.children("/")) == ["a"]
    assert result(tree.get("/a"))[0] == b"1"
    assert events == []
    assert result(tree.multi([])) == []


def test_a_node_watch_fires_once(harness: Harness) -> None:
    tree, result = harness.tree, harness.result
    result(tree.create("/a"))
    events: list[WatchEvent] = []
    result(tree.get("/a", watch=events.append))
    result(tree.set("/a", b"1"))
    result(tree.set("/a", b"2"))
    assert events == [(EventType.DATA_CHANGED, "/a")]


def test_watches_on_creation_and_deletion(harness: Harness) -> None:
    tree, result = harness.tree, harness.result
    events: list[WatchEvent] = []
    result(tree.exists("/a", watch=events.append))
    result(tree.create("/a"))
    result(tree.exists("/a", watch=events.append))
    result(tree.children("/a", watch=events.append))
    result(tree.delete("/a"))
    assert events == [(EventType.CREATED, "/a"), (EventType.DELETED, "/a")]  # one watcher is called once for the deletion


def test_a_failed_get_sets_no_watch(harness: Harness) -> None:
    tree, result = harness.tree, harness.result
    events: list[WatchEvent] = []
    operations: list[Deferred[Any]] = [tree.get("/a", watch=events.append), tree.children("/a", watch=events.append)]
    for operation in operations:
        with pytest.raises(NoNode):
            result(operation)
    result(tree.create("/a"))
    result(tree.create("/a/b"))
    assert events == []


def test_a_children_watch_fires_for_children_only(harness: Harness) -> None:
    tree, result = harness.tree, harness.result
    result(tree.create("/p"))
    events: list[WatchEvent] = []
    result(tree.children("/p", watch=events.append))
    result(tree.set("/p", b"x"))
    assert events == []
    result(tree.create("/p/a"))
    result(tree.create("/p/b"))
    assert events == [(EventType.CHILDREN_CHANGED, "/p")]
    result(tree.children("/p", watch=events.append))
    result(tree.set("/p/a", b"x"))
    result(tree.create("/p/a/deep"))
    assert len(events) == 1
    result(tree.delete("/p/b"))
    assert len(events) == 2


def test_a_watcher_set_twice_is_called_once(harness: Harness) -> None:
    tree, result = harness.tree, harness.result
    events: list[WatchEvent] = []
    watcher = events.append
    result(tree.exists("/a", watch=watcher))
    result(tree.exists("/a", watch=watcher))
    other: list[WatchEvent] = []
    result(tree.exists("/a", watch=other.append))
    result(tree.create("/a"))
    assert len(events) == len(other) == 1


def test_results_come_before_watches_and_in_the_order_of_calls(harness: Harness) -> None:
    tree = harness.tree
    order: list[str] = []
    tree.exists("/a", watch=lambda event: order.append(f"watch {event.path}")).addCallback(lambda _: order.append("exists"))
    tree.create("/a").addCallback(lambda path: order.append(f"created {path}"))
    tree.get("/a").addCallback(lambda found: order.append(f"got {found[0]!r}"))
    tree.set("/a", b"1").addCallback(lambda _: order.append("set"))
    tree.get("/a").addCallback(lambda found: order.append(f"got {found[0]!r}"))
    assert order in ([], ["exists", "created /a", "got None", "set", "got b'1'"])
    harness.settle()
    assert [line for line in order if line != "watch /a"] == ["exists", "created /a", "got None", "set", "got b'1'"]
    assert order.index("watch /a") > order.index("exists")


def test_a_failing_watcher_does_not_affect_the_others(harness: Harness, caplog: pytest.LogCaptureFixture) -> None:
    tree, result = harness.tree, harness.result
    events: list[WatchEvent] = []

    def broken(event: WatchEvent) -> None:
        raise RuntimeError("no")

    result(tree.exists("/a", watch=broken))
    result(tree.exists("/a", watch=events.append))
    assert result(tree.create("/a")) == "/a"
    assert len(events) == 1
    assert "internal error: the watcher of /a for event CREATED failed" in caplog.text


def test_ephemeral_nodes(harness: Harness) -> None:
    tree, result = harness.tree, harness.result
    result(tree.create("/ids"))
    result(tree.create("/ids/1", b"x", ephemeral=True))
    stat = result(tree.exists("/ids/1"))
    assert stat is not None and stat.ephemeral_owner == tree.session_id != 0
    with pytest.raises(NoChildrenForEphemerals):
        result(tree.create("/ids/1/a"))
    tree = harness.reopen()
    assert harness.result(tree.children("/ids")) == []
    assert tree.session_id != stat.ephemeral_owner
    harness.result(tree.create("/ids/1", ephemeral=True))
    again = harness.result(tree.exists("/ids/1"))
    assert again is not None and again.czxid > stat.czxid  # the broker epoch grows over restarts


def test_persistent_nodes_outlive_the_session(harness: Harness) -> None:
    tree, result = harness.tree, harness.result
    result(tree.create("/a", b"\x00\xff"))
    result(tree.create("/a/b", "ü".encode()))
    result(tree.set("/a/b", None))
    before = result(tree.get("/a/b"))
    tree = harness.reopen()
    assert harness.result(tree.get("/a"))[0] == b"\x00\xff"
    assert harness.result(tree.get("/a/b")) == before
    assert harness.result(tree.create("/c")) == "/c"
    stat = harness.result(tree.exists("/c"))
    assert stat is not None and stat.czxid > before[1].mzxid


def test_operations_of_a_closed_session_fail(harness: Harness) -> None:
    tree = harness.tree
    events: list[WatchEvent] = []
    expired: list[bool] = []
    tree.on_expired(lambda: expired.append(True))
    harness.result(tree.exists("/a", watch=events.append))
    tree2 = harness.reopen()
    harness.result(tree2.create("/a"))
    operations: list[Deferred[Any]] = [tree.get("/a"), tree.create("/b"), tree.multi([]), tree.close()]
    for operation in operations:
        with pytest.raises(SessionExpired):
            harness.result(operation)
    assert events == [] and expired == []


def test_many_operations_at_once(harness: Harness) -> None:
    """Operations are performed in the order of the calls, in any batches; one failure does not affect the others."""
    tree = harness.tree
    outcomes: list[str] = []
    for i in range(200):
        tree.create(f"/n{i % 150}").addCallbacks(outcomes.append, lambda failure: outcomes.append(failure.type.__name__))
    harness.settle()
    assert outcomes == [f"/n{i}" for i in range(150)] + ["NodeExists"] * 50
    assert len(harness.result(tree.children("/"))) == 150
