"""What differs on ZooKeeper from other stores: lost connections, expiry, order over threads, sessions of other processes."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient
from twisted.internet.defer import Deferred

from tests.support.cut_proxy import CutProxy
from tests.support.kafka import ZooKeeperProcess
from tests.support.server import HOST, free_port
from tests.support.waiting import PATIENCE_S, until
from tests.support.zookeeper_threads import QueuedThreads
from txbroker.cluster.tree.interface import ConnectionLost, Create, EventType, NoNode, SessionExpired, TooLarge, TreeError, WatchEvent
from txbroker.cluster.tree.multi_read import MultiRead
from txbroker.cluster.tree.zookeeper import ZooKeeperTree, open_zookeeper_tree
from txbroker.cluster.tree.zookeeper_session import end_session
from txbroker.errors import StartError

pytestmark = pytest.mark.process
SESSION_MS = 4000  # the longest that ZooKeeper allows with the tests' tick is 10 s
LONG_MS = int(PATIENCE_S * 1000)
Opening = Callable[..., ZooKeeperTree]


@pytest.fixture
def threads() -> QueuedThreads:
    return QueuedThreads()


@pytest.fixture
def opening(threads: QueuedThreads) -> Iterator[Opening]:
    """Opens sessions and closes them at the end."""
    opened: list[ZooKeeperTree] = []

    def opening(connect: str, **options: Any) -> ZooKeeperTree:
        options = {"session_timeout_ms": SESSION_MS, "connection_timeout_ms": LONG_MS, "threads": threads, **options}
        opened.append(threads.result(open_zookeeper_tree(connect, **options)))
        return opened[-1]

    yield opening
    for tree in opened:
        threads.result(tree.close().addErrback(lambda failure: failure.trap(SessionExpired)))


@pytest.fixture
def proxy(zookeeper_process: ZooKeeperProcess) -> Iterator[CutProxy]:
    forwarding = CutProxy(zookeeper_process.address)
    yield forwarding
    forwarding.close()


def through(proxy: CutProxy, connect: str) -> str:
    """The same chroot, reached by the proxy."""
    return proxy.address + connect[connect.index("/") :]


def failed(threads: QueuedThreads, deferred: Deferred[Any]) -> type[TreeError]:
    with pytest.raises(TreeError) as caught:
        threads.result(deferred)
    return type(caught.value)


def test_an_event_comes_before_the_data_that_caused_it(threads: QueuedThreads, opening: Opening, zookeeper: str) -> None:
    """Another session writes; each read that shows a new version must come after the event of the watch that the read before it set."""
    reader, writer = opening(zookeeper), opening(zookeeper)
    threads.result(writer.create("/n", b"0"))
    seen: list[int] = []
    armed = False
    problems: list[str] = []

    def event(_: WatchEvent) -> None:
        nonlocal armed
        armed = False

    def read(found: tuple[bytes | None, Any]) -> None:
        nonlocal armed
        version = found[1].version
        if armed and seen and version != seen[-1]:
            problems.append(f"version {version} before the event of the watch on {seen[-1]}")
        seen.append(version)
        armed = True

    for _ in range(300):
        writer.set("/n", b"x")
        for _ in range(3):
            reader.get("/n", watch=event).addCallback(read)
    threads.run_until(lambda: len(seen) == 900)
    assert not problems and seen == sorted(seen) and len(set(seen)) > 10


def test_a_server_that_cannot_read_many_nodes_at_once_is_asked_for_each(
    threads: QueuedThreads, opening: Opening, zookeeper: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one older than 3.6, which also closes the connection after such a request."""
    tree = opening(zookeeper)
    threads.result(tree.create("/a", b"1"))
    monkeypatch.setattr(MultiRead, "type", 9999)
    for _ in range(2):
        found = threads.result(tree.get_all(["/a", "/missing"]))
        assert [None if node is None else node[0] for node in found] == [b"1", None]
    assert threads.result(tree.set("/a", b"2")).version == 1


def test_watches_survive_a_lost_connection(threads: QueuedThreads, opening: Opening, proxy: CutProxy, zookeeper: str) -> None:
    other = opening(zookeeper)
    for path in ("/changed", "/deleted", "/kept", "/parent", "/quiet", "/gone"):
        threads.result(other.create(path))
    tree = opening(through(proxy, zookeeper))
    session = tree.session_id
    events: list[WatchEvent] = []
    for path in ("/changed", "/deleted", "/kept", "/made"):
        threads.result(tree.exists(path, watch=events.append))
    for path in ("/parent", "/quiet", "/gone"):
        threads.result(tree.children(path, watch=events.append))
    proxy.cut()
    threads.result(other.set("/changed", b"1"))
    threads.result(other.delete("/deleted"))
    threads.result(other.delete("/gone"))
    threads.result(other.create("/made"))
    threads.result(other.create("/parent/child"))
    assert events == []
    proxy.restore()
    threads.run_until(lambda: len(events) == 5)
    assert set(events) == {
        (EventType.DATA_CHANGED, "/changed"),
        (EventType.DELETED, "/deleted"),
        (EventType.CREATED, "/made"),
        (EventType.CHILDREN_CHANGED, "/parent"),
        (EventType.DELETED, "/gone"),
    }
    assert tree.session_id == session
    events.clear()
    threads.result(other.set("/kept", b"2"))
    threads.result(other.create("/quiet/child"))
    threads.run_until(lambda: len(events) == 2)
    assert events == [(EventType.DATA_CHANGED, "/kept"), (EventType.CHILDREN_CHANGED, "/quiet")]


def test_an_operation_whose_answer_is_lost(threads: QueuedThreads, opening: Opening, proxy: CutProxy, zookeeper: str) -> None:
    """It fails with ConnectionLost although it took effect; one that is called meanwhile waits, and is performed in the same session."""
    tree, other = opening(through(proxy, zookeeper)), opening(zookeeper)
    made: list[WatchEvent] = []
    threads.result(other.exists("/a", watch=made.append))
    proxy.hold_answers(True)
    lost = tree.create("/a", b"1", ephemeral=True)
    threads.run_until(lambda: bool(made))
    proxy.cut()
    assert failed(threads, lost) is ConnectionLost
    waiting = tree.create("/b", ephemeral=True)
    proxy.hold_answers(False)
    proxy.restore()
    assert threads.result(waiting) == "/b"
    assert threads.result(other.get("/a"))[0] == b"1"
    for path in ("/a", "/b"):
        stat = threads.result(other.exists(path))
        assert stat is not None and stat.ephemeral_owner == tree.session_id


def test_a_session_that_expires(threads: QueuedThreads, opening: Opening, proxy: CutProxy, zookeeper: str) -> None:
    """All that waits fails, the owner is notified once, and nothing is performed in a later session."""
    tree, other = opening(through(proxy, zookeeper)), opening(zookeeper)
    threads.result(tree.create("/mine", ephemeral=True))
    expired: list[str] = []
    tree.on_expired(lambda: expired.append("expired"))
    events: list[WatchEvent] = []
    threads.result(tree.exists("/mine", watch=events.append))
    proxy.cut()
    assert threads.result(end_session(zookeeper, tree.credentials, timeout_ms=LONG_MS, threads=threads))
    waiting = [tree.create("/before")]
    proxy.restore()

    def has_stopped() -> bool:
        """Whether kazoo's thread has ended. The tree does not know of the expiry yet, since the test does not run its calls."""
        waiting.append(tree.create(f"/late{len(waiting)}"))
        stopped: bool = tree._session._client._client._connection.connection_stopped.is_set()
        return stopped

    until(has_stopped, "kazoo stops at the expiry", timeout_s=20)
    assert {failed(threads, one) for one in waiting} <= {SessionExpired, ConnectionLost}
    threads.run_until(lambda: bool(expired))
    assert failed(threads, tree.create("/later")) is SessionExpired
    assert threads.result(other.children("/")) == []
    assert expired == ["expired"] and events == []


def test_a_session_without_a_connection_for_its_timeout(
    threads: QueuedThreads, opening: Opening, proxy: CutProxy, zookeeper: str
) -> None:
    """ZooKeeper cannot report that it ended the session, so the session's owner must find out by itself."""
    tree = opening(through(proxy, zookeeper), session_timeout_ms=1000)
    expired: list[bool] = []
    tree.on_expired(lambda: expired.append(True))
    proxy.cut()
    waiting = tree.exists("/")
    threads.run_until(lambda: bool(expired))
    assert failed(threads, waiting) in (SessionExpired, ConnectionLost)


def test_an_answer_that_cannot_be_understood_ends_the_session(
    threads: QueuedThreads, opening: Opening, proxy: CutProxy, zookeeper: str
) -> None:
    """kazoo's thread ends with an exception and never reconnects."""
    tree = opening(through(proxy, zookeeper))
    expired: list[bool] = []
    tree.on_expired(lambda: expired.append(True))
    proxy.hold_answers(True)
    waiting = tree.get("/")
    proxy.send_to_client(struct.pack(">iiqi", 16, 12345, 1, 0))
    threads.run_until(lambda: bool(expired))
    assert failed(threads, waiting) in (SessionExpired, ConnectionLost)


def test_the_session_of_a_process_that_is_gone(threads: QueuedThreads, opening: Opening, proxy: CutProxy, zookeeper: str) -> None:
    tree, other = opening(through(proxy, zookeeper), session_timeout_ms=10_000), opening(zookeeper)
    threads.result(tree.create("/id", ephemeral=True))
    credentials = tree.credentials
    proxy.cut()
    events: list[WatchEvent] = []
    threads.result(other.exists("/id", watch=events.append))
    assert threads.result(end_session(zookeeper, credentials, timeout_ms=LONG_MS, threads=threads)) is True
    threads.run_until(lambda: bool(events))
    assert threads.result(end_session(zookeeper, credentials, timeout_ms=LONG_MS, threads=threads)) is False


def test_chroots(threads: QueuedThreads, opening: Opening, zookeeper: str, zookeeper_process: ZooKeeperProcess) -> None:
    nested = opening(f"{zookeeper}/deep/er")
    threads.result(nested.create("/a"))
    outer = opening(zookeeper)
    assert threads.result(outer.children("/deep/er")) == ["a"]
    root = opening(zookeeper_process.address)
    assert "zookeeper" in threads.result(root.children("/"))
    with pytest.raises(ValueError, match="is not a path"):
        open_zookeeper_tree(f"{zookeeper}/", session_timeout_ms=SESSION_MS, connection_timeout_ms=LONG_MS, threads=threads)


def test_a_session_ends_while_the_reactor_hangs(threads: QueuedThreads, opening: Opening, zookeeper: str) -> None:
    """kazoo's thread runs on, and would keep the session of a broker that serves no client. After a short hang the session continues."""
    tree = opening(zookeeper, session_timeout_ms=6000)
    threads.result(tree.create("/mine", ephemeral=True))
    other = KazooClient(zookeeper)
    other.start(timeout=PATIENCE_S)
    client = tree._session._client._client
    until(lambda: client._has_skipped, "a ping is skipped")
    threads.run_until(lambda: client._is_reached)
    threads.result(tree.exists("/mine"))
    assert other.exists("/mine").ephemeralOwner == tree.session_id
    until(lambda: other.exists("/mine") is None, "the session has ended")
    threads.run_until(lambda: tree._session.over)
    other.stop()
    other.close()


def test_a_server_that_does_not_answer_leaves_time_for_the_next(
    threads: QueuedThreads, opening: Opening, proxy: CutProxy, zookeeper: str
) -> None:
    """A session outlives losses of its connection. kazoo mostly tries the other server next."""
    with socket.create_server((HOST, 0), backlog=0) as silent, socket.socket() as first, socket.socket() as second:
        for filler in (first, second):  # the queue of connections is full: the next one gets no answer
            filler.setblocking(False)
            filler.connect_ex(silent.getsockname())
        tree = opening(f"{HOST}:{silent.getsockname()[1]},{through(proxy, zookeeper)}", session_timeout_ms=3000)
        session = tree.session_id
        for count in range(1, 5):
            proxy.cut()
            threads.run_until(lambda count=count: tree._session._counts.disconnects == count)
            proxy.restore()
            assert threads.result(tree.exists("/")) is not None
        assert tree.session_id == session


def test_a_list_of_many_long_names(threads: QueuedThreads, opening: Opening, zookeeper: str) -> None:
    """The answer has 4 MB: ZooKeeper limits requests and nodes, but no list of children."""
    tree = opening(zookeeper)
    names = [f"{'x' * 200}{number:06}" for number in range(20_000)]
    for start in range(0, len(names), 2000):
        threads.result(tree.multi([Create(f"/{name}") for name in names[start : start + 2000]]))
    assert threads.result(tree.children("/")) == names


def test_requests_that_are_too_large(threads: QueuedThreads, opening: Opening, zookeeper: str) -> None:
    """ZooKeeper closes the connection of such a request, again with each retry."""
    tree = opening(zookeeper)
    with pytest.raises(TooLarge, match=r"has 1\d+ bytes, more than ZooKeeper's jute.maxbuffer; split it"):
        threads.result(tree.multi([Create(f"/n{index}", bytes(300_000)) for index in range(4)]))
    threads.result(tree.multi([Create(f"/n{index}", bytes(300_000)) for index in range(3)]))
    assert failed(threads, tree.get("/n3")) is NoNode


def test_no_server(threads: QueuedThreads) -> None:
    address = f"127.0.0.1:{free_port()}"
    with pytest.raises(StartError, match=f"No ZooKeeper answers at {address}: start it, or correct zookeeper.connect"):
        threads.result(open_zookeeper_tree(address, session_timeout_ms=SESSION_MS, connection_timeout_ms=300, threads=threads))
    with pytest.raises(StartError, match="No ZooKeeper answers"):
        threads.result(end_session(address, (1, b"x" * 16), timeout_ms=300, threads=threads))
