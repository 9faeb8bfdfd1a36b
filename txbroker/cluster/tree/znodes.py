"""ZooKeeper's rules for operations on nodes, over any store.

`Nodes` is a store. An `Overlay` is a store too: it buffers changes to the store under it until they are written together, so that a
`multi` (and a batch of operations that share one commit) is applied completely or not at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from txbroker.cluster.tree.interface import (
    ANY_VERSION,
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
    OpResult,
    Set,
    Stat,
    TreeError,
    WatchEvent,
    check_path,
    check_size,
    parent_of,
)


class Node(NamedTuple):
    """A node as it is stored."""

    data: bytes | None
    version: int
    czxid: int
    mzxid: int
    ephemeral_owner: int
    children_created: int  # number of children ever created: the counter of sequential nodes
    children_count: int  # current number of children

    @property
    def stat(self) -> Stat:
        """The node's stat."""
        return Stat(self.czxid, self.mzxid, self.version, self.ephemeral_owner, self.children_count)


ROOT = Node(None, 0, 0, 0, 0, 0, 0)


class Nodes(Protocol):
    """A store of nodes. It always holds `/`."""

    @property
    def zxid(self) -> int:
        """The last transaction written."""

    def get(self, path: str) -> Node | None:
        """The node at `path`."""

    def names_under(self, path: str) -> list[str]:
        """The names of the children of `path`, in any order."""

    def ephemerals_of(self, session_id: int) -> list[str]:
        """The paths of the nodes that this session owns."""

    def write(self, changes: Mapping[str, Node | None], zxid: int) -> None:
        """Store all changes (None: the node is gone) and the number of the last transaction, or nothing."""


class Overlay:
    """Buffered changes to a store, with the watch events that they cause."""

    def __init__(self, base: Nodes) -> None:
        self._base = base
        self.changes: dict[str, Node | None] = {}
        self.events: list[WatchEvent] = []
        self.zxid = base.zxid
        self._names_changed: dict[str, dict[str, bool]] = {}  # by parent: child names, and whether the child exists now

    def get(self, path: str) -> Node | None:
        """The node at `path`, with buffered changes."""
        return self.changes[path] if path in self.changes else self._base.get(path)

    def names_under(self, path: str) -> list[str]:
        """The names of the children of `path`, with buffered changes."""
        names = self._base.names_under(path)
        changed = self._names_changed.get(path)
        if not changed:
            return names
        return [name for name in names if name not in changed] + [name for name, there in changed.items() if there]

    def ephemerals_of(self, session_id: int) -> list[str]:
        """The paths of the session's ephemeral nodes, with buffered changes."""
        kept = [path for path in self._base.ephemerals_of(session_id) if path not in self.changes]
        return kept + [path for path, node in self.changes.items() if node is not None and node.ephemeral_owner == session_id]

    def write(self, changes: Mapping[str, Node | None], zxid: int) -> None:
        """Apply the changes of another overlay above this one."""
        for path, node in changes.items():
            self._put(path, node)
        self.zxid = zxid

    def perform(self, ops: Sequence[Op], session_id: int) -> list[OpResult]:
        """Perform these operations in one transaction: all of them, or TreeError with the index of the first that fails."""
        inner = Overlay(self)
        inner.zxid = self.zxid + 1
        results: list[OpResult] = []
        for index, op in enumerate(ops):
            try:
                results.append(inner._perform_one(op, session_id))
            except TreeError as error:
                raise type(error)(error.path, index, error.problem) from None
        if inner.changes:
            self.write(inner.changes, inner.zxid)
            self.events += inner.events
        return results

    def end_session(self, session_id: int) -> None:
        """Delete the session's ephemeral nodes in one transaction."""
        self.perform([Delete(path) for path in sorted(self.ephemerals_of(session_id))], session_id)

    def data(self, path: str) -> tuple[bytes | None, Stat]:
        """A node's data and stat; NoNode."""
        node = self._existing(path)
        return node.data, node.stat

    def children(self, path: str) -> list[str]:
        """The names of a node's children, sorted; NoNode."""
        self._existing(path)
        return sorted(self.names_under(path))

    def stat(self, path: str) -> Stat | None:
        """A node's stat, None when it does not exist."""
        node = self.get(path)
        return None if node is None else node.stat

    def _perform_one(self, op: Op, session_id: int) -> OpResult:
        match op:
            case Create():
                return self._create(op, session_id)
            case Set():
                return self._set(op)
            case Delete():
                self._delete(op)
            case Check():
                self._at_version(op.path, op.version)
        return None

    def _create(self, op: Create, session_id: int) -> str:
        parent_path = parent_of(op.path)
        parent = self.get(parent_path)
        if parent is None:
            raise NoNode(op.path)
        if parent.ephemeral_owner:
            raise NoChildrenForEphemerals(op.path)
        path = f"{op.path}{parent.children_created:010}" if op.sequential else op.path
        check_path(path)
        if self.get(path) is not None:
            raise NodeExists(path)
        check_size(op.path, op.data)
        self._put(parent_path, _with_children(parent, created=1, change=1))
        self._put(path, Node(op.data, 0, self.zxid, self.zxid, session_id if op.ephemeral else 0, 0, 0))
        self._record((EventType.CREATED, path), (EventType.CHILDREN_CHANGED, parent_path))
        return path

    def _set(self, op: Set) -> Stat:
        node = self._at_version(op.path, op.version)
        check_size(op.path, op.data)
        node = node._replace(data=op.data, version=node.version + 1, mzxid=self.zxid)
        self._put(op.path, node)
        self._record((EventType.DATA_CHANGED, op.path))
        return node.stat

    def _delete(self, op: Delete) -> None:
        node = self._at_version(op.path, op.version)
        if op.path == "/" or node.children_count:
            raise NotEmpty(op.path)
        parent_path = parent_of(op.path)
        parent = self._existing(parent_path)
        self._put(parent_path, _with_children(parent, created=0, change=-1))
        self._put(op.path, None)
        self._record((EventType.DELETED, op.path), (EventType.CHILDREN_CHANGED, parent_path))

    def _existing(self, path: str) -> Node:
        node = self.get(path)
        if node is None:
            raise NoNode(path)
        return node

    def _at_version(self, path: str, version: int) -> Node:
        node = self._existing(path)
        if version not in (ANY_VERSION, node.version):
            raise BadVersion(path)
        return node

    def _put(self, path: str, node: Node | None) -> None:
        self.changes[path] = node
        if path != "/":
            parent, _, name = path.rpartition("/")
            self._names_changed.setdefault(parent or "/", {})[name] = node is not None

    def _record(self, *events: tuple[EventType, str]) -> None:
        self.events += [WatchEvent(*event) for event in events]


def _with_children(node: Node, *, created: int, change: int) -> Node:
    return node._replace(children_created=node.children_created + created, children_count=node.children_count + change)
