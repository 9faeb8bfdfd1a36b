"""The metadata tree in memory, with any number of sessions: for tests and simulation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TypeVar

from twisted.internet.defer import Deferred

from txbroker.cluster.tree.interface import Tree, TreeError, WatchEvent, parent_of
from txbroker.cluster.tree.local_session import Operation, Session, Watch
from txbroker.cluster.tree.znodes import ROOT, Node, Overlay

T = TypeVar("T")


class MemoryNodes:
    """Nodes in dictionaries."""

    def __init__(self) -> None:
        self.zxid = 0
        self._nodes: dict[str, Node] = {"/": ROOT}
        self._names: dict[str, set[str]] = {}

    def get(self, path: str) -> Node | None:
        """See `Nodes`."""
        return self._nodes.get(path)

    def names_under(self, path: str) -> list[str]:
        """See `Nodes`."""
        return list(self._names.get(path, ()))

    def ephemerals_of(self, session_id: int) -> list[str]:
        """See `Nodes`."""
        return [path for path, node in self._nodes.items() if node.ephemeral_owner == session_id]

    def write(self, changes: Mapping[str, Node | None], zxid: int) -> None:
        """See `Nodes`."""
        for path, node in changes.items():
            names = self._names.setdefault(parent_of(path), set())
            name = path.rpartition("/")[2]
            if node is None:
                self._nodes.pop(path, None)
                self._names.pop(path, None)
                names.discard(name)
            else:
                self._nodes[path] = node
                if name:
                    names.add(name)
        self.zxid = zxid


class MemoryTrees:
    """One tree and its sessions. Operations take effect when called; results and watches arrive later, in order, by `call_soon`."""

    def __init__(self, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self._call_soon = call_soon
        self._nodes = MemoryNodes()
        self._sessions: dict[int, Session] = {}
        self._last_session_id = 0

    def session(self) -> Tree:
        """A new session."""
        self._last_session_id += 1
        session = Session(self._last_session_id, self)
        self._sessions[session.session_id] = session
        return session

    def expire(self, tree: Tree) -> None:
        """Expire a session, as after its timeout: delete its ephemeral nodes, then notify it."""
        session = self._sessions.pop(tree.session_id)
        session.forget()
        self._end(session)
        self._call_soon(session.expire)

    def submit(self, session: Session, operation: Operation[T], watch: Watch | None = None) -> Deferred[T]:
        """See `Store`."""
        overlay = Overlay(self._nodes)
        result: Deferred[T] = Deferred()
        try:
            value = operation(overlay)
        except (TreeError, ValueError) as error:
            self._call_soon(partial(result.errback, error))
            return result
        self._nodes.write(overlay.changes, overlay.zxid)
        if watch is not None:
            session.add_watch(watch)
        self._call_soon(lambda: result.callback(value))
        self._notify(overlay.events)
        return result

    def end(self, session: Session) -> Deferred[None]:
        """See `Store`."""
        self._sessions.pop(session.session_id, None)
        self._end(session)
        result: Deferred[None] = Deferred()
        self._call_soon(lambda: result.callback(None))
        return result

    def _end(self, session: Session) -> None:
        overlay = Overlay(self._nodes)
        overlay.end_session(session.session_id)
        self._nodes.write(overlay.changes, overlay.zxid)
        self._notify(overlay.events)

    def _notify(self, events: Iterable[WatchEvent]) -> None:
        for event in events:
            for session in self._sessions.values():
                for call in session.triggered(event):
                    self._call_soon(call)
