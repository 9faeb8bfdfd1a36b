from __future__ import annotations

import pytest

from tests.support.fakes.turns import Turns
from txbroker.cluster.tree.interface import EventType, SessionExpired, WatchEvent
from txbroker.cluster.tree.memory import MemoryTrees


def test_the_ephemeral_nodes_of_an_expired_session_are_deleted() -> None:
    turns = Turns()
    trees = MemoryTrees(turns.call_soon)
    one, two = trees.session(), trees.session()
    turns.result(one.create("/ids"))
    turns.result(one.create("/ids/1", ephemeral=True))
    turns.result(two.create("/ids/2", ephemeral=True))
    events: list[WatchEvent] = []
    turns.result(two.children("/ids", watch=events.append))
    turns.result(two.exists("/ids/1", watch=events.append))
    own: list[object] = []
    turns.result(one.children("/ids", watch=own.append))
    one.on_expired(lambda: own.append("expired"))
    trees.expire(one)
    turns.run()
    assert events == [(EventType.DELETED, "/ids/1"), (EventType.CHILDREN_CHANGED, "/ids")]
    assert own == ["expired"]
    assert turns.result(two.children("/ids")) == ["2"]
    with pytest.raises(SessionExpired):
        turns.result(one.children("/ids"))


def test_sessions_see_each_others_writes_and_only_their_own_watches() -> None:
    turns = Turns()
    trees = MemoryTrees(turns.call_soon)
    one, two = trees.session(), trees.session()
    events: list[str] = []
    turns.result(one.exists("/a", watch=lambda _: events.append("one")))
    turns.result(two.exists("/a", watch=lambda _: events.append("two")))
    turns.result(two.create("/a", b"x"))
    assert events == ["one", "two"]
    assert turns.result(one.get("/a"))[0] == b"x"
