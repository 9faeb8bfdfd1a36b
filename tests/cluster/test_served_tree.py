"""Sessions with the server of the metadata tree: what the contract does not say, because it has one session at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.defer import CancelledError, Deferred, fail
from twisted.internet.error import ConnectionRefusedError
from twisted.internet.task import Clock
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.python.failure import Failure

from tests.cluster.tree_pipe import connected
from tests.support.fakes.turns import Turns
from txbroker.cluster.tree.interface import (
    ConnectionLost,
    Create,
    EventType,
    NodeExists,
    NoSpaceInStore,
    SessionExpired,
    TooLarge,
    Tree,
    WatchEvent,
)
from txbroker.cluster.tree.local_session import Session
from txbroker.cluster.tree.memory import MemoryTrees
from txbroker.cluster.tree.served_messages import FRAME_BYTES_MAX, MessageKind, RequestKind, TreeOp, TreeRequest, frame, framed
from txbroker.cluster.tree.served_tree import RETRY_S as CONNECT_RETRY_S
from txbroker.cluster.tree.served_tree import open_served_tree
from txbroker.cluster.tree.sqlite import SqliteTrees
from txbroker.cluster.tree.tree_server import RETRY_S, TreeServer
from txbroker.errors import StartError


class Served:
    """A server on a file, and its sessions."""

    def __init__(self, path: Path) -> None:
        self.turns = Turns()
        self.clock = Clock()
        self.path = str(path)
        self.trees: Any = SqliteTrees(self.path, worker=self.turns.worker)
        self.server = TreeServer(self.trees, self.clock, lambda: 0.5)

    def session(self) -> Any:
        return self.result(connected(self.server, self.turns.call_soon))

    def result(self, deferred: Deferred[Any]) -> Any:
        return self.turns.result(deferred)

    def lose(self, tree: Any) -> None:
        """The process of this session ends."""
        tree.transport.loseConnection()
        self.turns.run()


@pytest.fixture
def served(tmp_path: Path) -> Served:
    return Served(tmp_path / "tree.sqlite")


def test_a_session_sees_what_another_one_writes(served: Served) -> None:
    one, two = served.session(), served.session()
    assert one.session_id != two.session_id
    events: list[WatchEvent] = []
    served.result(one.create("/a"))
    served.result(one.children("/a", watch=events.append))
    served.result(one.exists("/a/b", watch=events.append))
    served.result(two.create("/a/b", b"2", ephemeral=True))
    assert events == [WatchEvent(EventType.CREATED, "/a/b"), WatchEvent(EventType.CHILDREN_CHANGED, "/a")]
    data, stat = served.result(one.get("/a/b"))
    assert data == b"2" and stat.ephemeral_owner == two.session_id
    with pytest.raises(NodeExists):
        served.result(one.create("/a/b"))


def test_the_end_of_a_process_ends_its_session(served: Served) -> None:
    one, two = served.session(), served.session()
    events: list[WatchEvent] = []
    served.result(two.create("/b", ephemeral=True))
    served.result(two.create("/kept"))
    served.result(one.exists("/b", watch=events.append))
    served.lose(two)
    assert events == [WatchEvent(EventType.DELETED, "/b")]
    assert served.result(one.children("/")) == ["kept"]


def test_a_lost_connection_is_the_end_of_the_session(served: Served) -> None:
    tree = served.session()
    happened: list[object] = []
    served.result(tree.exists("/a", watch=happened.append))
    tree.on_expired(lambda: happened.append("expired"))
    created = tree.create("/a")
    created.addErrback(lambda failure: happened.append(type(failure.value)))
    tree.transport.ended()
    served.turns.run()
    assert happened == ["expired", ConnectionLost]
    for later in (tree.get("/a"), tree.multi([Create("/a")]), tree.sync(), tree.close()):
        with pytest.raises(SessionExpired):
            served.result(later)


def test_the_watches_of_a_closed_session_are_not_called(served: Served) -> None:
    one, two = served.session(), served.session()
    served.result(one.exists("/a", watch=lambda event: pytest.fail("called")))
    closed = one.close()
    served.result(two.create("/a"))
    served.result(closed)


def test_another_opening_of_the_file_removes_what_earlier_sessions_left(tmp_path: Path) -> None:
    before = Served(tmp_path / "tree")
    first = before.session()
    before.result(first.create("/a", ephemeral=True))
    before.result(before.trees.close())
    after = Served(tmp_path / "tree")
    second = after.session()
    assert after.result(second.children("/")) == [] and second.session_id > first.session_id


class FullTrees(MemoryTrees):
    """The first ends of sessions cannot be written."""

    failures = 2

    def end(self, session: Session) -> Deferred[None]:
        if self.failures:
            self.failures -= 1
            return fail(NoSpaceInStore("/", "full"))
        return super().end(session)


def test_the_end_of_a_session_is_tried_until_it_is_written(served: Served) -> None:
    served.server = TreeServer(FullTrees(served.turns.call_soon), served.clock, lambda: 0.5)
    one, two = served.session(), served.session()
    served.result(one.create("/a", ephemeral=True))
    served.lose(one)
    for left in (["a"], ["a"], []):
        assert served.result(two.children("/")) == left
        served.clock.advance(2 * RETRY_S)
        served.turns.run()


@pytest.mark.parametrize("stops_first", [False, True])
def test_a_server_that_stops_on_a_full_disk_waits_for_no_process_that_has_ended(
    served: Served, stops_first: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The next opening of the file removes what they leave."""
    trees = FullTrees(served.turns.call_soon)
    trees.failures = 10**6
    served.server = TreeServer(trees, served.clock, lambda: 0.5)
    one = served.session()
    ended: list[Any] = []
    if not stops_first:
        served.lose(one)
    Deferred.fromCoroutine(served.server.sessions_ended(30)).addCallback(ended.append)
    if stops_first:
        served.clock.advance(1)
        assert not ended
        served.lose(one)
    served.clock.advance(1)
    assert ended and "not stopped" not in caplog.text


def request(kind: int, *ops: TreeOp) -> bytes:
    return framed(TreeRequest(kind=kind, path="/", watch=False, ops=list(ops)))


def op(kind: int, path: str = "/x", data: bytes | None = None) -> TreeOp:
    return TreeOp(kind=kind, path=path, data=data, version=-1, ephemeral=False, sequential=False)


BAD = [
    b"\0\0\0\1x",
    b"\0\0\0\0",
    (FRAME_BYTES_MAX + 1).to_bytes(4, "big"),
    b"\xff" * 8,
    request(99),
    request(RequestKind.ONE),
    request(RequestKind.ONE, op(1), op(1)),
    request(RequestKind.ONE, op(77)),
    request(RequestKind.ONE, op(1, "no path")),
]


@pytest.mark.parametrize("sent", BAD)
def test_a_process_that_sends_no_request_is_disconnected(served: Served, sent: bytes) -> None:
    good, bad = served.session(), served.session()
    served.result(bad.create("/b", ephemeral=True))
    bad.transport.write(sent)
    with pytest.raises((ConnectionLost, SessionExpired)):
        served.result(bad.get("/"))
    assert served.result(good.children("/")) == []


def test_an_error_of_the_store_reaches_the_process_with_its_text(served: Served) -> None:
    """The sessions of the processes check the size, too: these bytes come from another one."""
    session = served.session()
    result: Deferred[Any] = session._send(TreeRequest(kind=RequestKind.ONE, path="/x", watch=False, ops=[op(1, data=bytes(2 << 20))]), "/",
                                          lambda received: received)  # fmt: skip
    with pytest.raises(TooLarge, match=r"2097152 bytes exceed the maximum size of a node .*, /x"):
        served.result(result)


@pytest.mark.parametrize("sent", [b"\0\0\0\1x", frame(MessageKind.EVENT, 99, "/"), frame(MessageKind.RESULT), b"\xff" * 8])
def test_a_server_that_sends_no_answer_is_left(served: Served, sent: bytes) -> None:
    tree = served.session()
    expired: list[bool] = []
    tree.on_expired(lambda: expired.append(True))
    tree.transport.other.write(sent)
    served.turns.run()
    assert expired == [True]


@given(st.binary(max_size=60))
def test_any_bytes_leave_the_server_serving(sent: bytes) -> None:
    turns = Turns()
    server = TreeServer(MemoryTrees(turns.call_soon), Clock(), lambda: 0.5)
    good: Tree = turns.result(connected(server, turns.call_soon))
    bad: Any = turns.result(connected(server, turns.call_soon))
    bad.transport.write(len(sent).to_bytes(4, "big") + sent)
    turns.run()
    assert turns.result(good.exists("/")) is not None


def test_the_server_waits_for_the_end_of_all_sessions(served: Served) -> None:
    one, two = served.session(), served.session()
    served.result(one.create("/one", ephemeral=True))
    ended: list[Any] = []
    Deferred.fromCoroutine(served.server.sessions_ended(30)).addCallback(ended.append)
    served.result(one.close())
    served.turns.run()
    served.clock.advance(1)
    assert served.result(two.children("/")) == []
    assert not ended
    served.lose(two)
    served.clock.advance(1)
    assert ended


def test_the_server_waits_no_longer_than_this(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    served.session()
    ended: list[Any] = []
    Deferred.fromCoroutine(served.server.sessions_ended(30)).addCallback(ended.append)
    served.clock.pump([1] * 31)
    assert ended and "1 broker not stopped after 30 s" in caplog.text


def refuse(reactor: Any) -> None:
    """The last connection is refused."""
    reactor.unixClients[-1][1].clientConnectionFailed(None, Failure(ConnectionRefusedError()))


def test_a_session_is_opened_when_the_server_runs_again() -> None:
    reactor: Any = MemoryReactorClock()
    opened = open_served_tree("/socket", reactor, lambda: 0.5, timeout_s=10)
    refuse(reactor)
    reactor.advance(CONNECT_RETRY_S)
    lost = reactor.unixClients[-1][1].buildProtocol(None)
    lost.makeConnection(StringTransport())
    lost.connectionLost(Failure(ConnectionRefusedError()))
    reactor.advance(2 * CONNECT_RETRY_S)
    session = reactor.unixClients[-1][1].buildProtocol(None)
    session.makeConnection(StringTransport())
    session.dataReceived(frame(MessageKind.SESSION, 7))
    assert len(reactor.unixClients) == 3
    tree: list[Any] = []
    opened.addCallback(tree.append)
    assert tree[0].session_id == 7
    assert not reactor.getDelayedCalls()


def test_opening_a_session_can_be_cancelled() -> None:
    reactor: Any = MemoryReactorClock()
    for between_attempts in (False, True):
        opened = open_served_tree("/socket", reactor, lambda: 0.5, timeout_s=10)
        if between_attempts:
            refuse(reactor)
        failed: list[Failure] = []
        opened.addErrback(failed.append)
        opened.cancel()
        assert failed[0].check(CancelledError)
        assert not reactor.getDelayedCalls()


def test_a_server_that_does_not_run_again_in_time_is_an_error() -> None:
    reactor: Any = MemoryReactorClock()
    failed: list[Failure] = []
    open_served_tree("/socket", reactor, lambda: 0.5, timeout_s=10).addErrback(failed.append)
    while not failed:
        refuse(reactor)
        reactor.advance(CONNECT_RETRY_S)
    assert failed[0].check(StartError) and "does not answer at /socket" in failed[0].getErrorMessage()
    assert 10 - CONNECT_RETRY_S <= reactor.seconds() <= 10 + CONNECT_RETRY_S
