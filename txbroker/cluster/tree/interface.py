"""The metadata tree: ZooKeeper's data model as an interface, whatever keeps the nodes.

A node has a path (`/brokers/ids/1`), data (bytes, or None for none at all), a version that each write of its data raises, and
children. A `Tree` object is one session: the ephemeral nodes that it made vanish when it is closed or expires, and after that every
operation fails with `SessionExpired`; whoever wants to go on opens another one.

Every operation returns a Deferred, which may have fired already or may fire later: code must be right with both. Operations of
one session take effect, and their results arrive, in the order of the calls.

A watch is set by the read that it is passed to, and is told once, of the first change after that read:

- `get` and `exists`: the node's creation, change of data, or deletion (`get` sets none when it fails);
- `children`: a child's creation or deletion, and the deletion of the node itself.

A watcher is told after the result of the operation that set it, in the order of the changes; one callable set twice on the same node
and kind is told once. A session that ends forgets its watches; `on_expired` tells of an expiry.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol

from twisted.internet.defer import Deferred

ANY_VERSION = -1
DATA_SIZE_MAX = 1024 * 1024 - 1  # ZooKeeper's jute.maxbuffer: what it would refuse is refused here too
MULTI_OPS_MAX = 1000  # callers cut longer lists: at some 300 bytes an operation a multi stays well below jute.maxbuffer


class TreeError(Exception):
    """An operation on the tree failed. `path` is the node; `index` its place when it was part of a `multi`."""

    def __init__(self, path: str, index: int | None = None) -> None:
        super().__init__(path if index is None else f"{path} (operation {index})")
        self.path = path
        self.index = index


class NoNode(TreeError):
    """The node, or the parent of the node to be created, does not exist."""


class NodeExists(TreeError):
    """The node to be created exists."""


class BadVersion(TreeError):
    """The node's version is not the one that was asked for."""


class NotEmpty(TreeError):
    """The node to be deleted has children."""


class NoChildrenForEphemerals(TreeError):
    """An ephemeral node cannot have children."""


class SessionExpired(TreeError):
    """The session is over: closed, or expired."""


class ConnectionLost(TreeError):
    """The store could not be reached or written: whether the operation took effect is unknown."""


class Stat(NamedTuple):
    """What is known of a node beside its data."""

    czxid: int  # the transaction that created the node: grows over the life of the whole store, restarts included
    mzxid: int  # the transaction that last wrote its data
    version: int  # 0 when created, one more with each write
    ephemeral_owner: int  # the session whose end removes the node, 0 for a persistent node
    children_count: int


class EventType(Enum):
    """What happened to a watched node."""

    CREATED = "created"
    DELETED = "deleted"
    DATA_CHANGED = "data changed"
    CHILDREN_CHANGED = "children changed"


class WatchEvent(NamedTuple):
    """One change, as a watcher is told of it."""

    type: EventType
    path: str


Watcher = Callable[[WatchEvent], None]


@dataclass(frozen=True, slots=True)
class Check:
    """Part of a multi: go on only if the node exists at this version (ANY_VERSION: at any)."""

    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Create:
    """Part of a multi: create a node."""

    path: str
    data: bytes | None = None
    ephemeral: bool = False
    sequential: bool = False


@dataclass(frozen=True, slots=True)
class Set:
    """Part of a multi: write a node's data if its version is this one (ANY_VERSION: whatever it is)."""

    path: str
    data: bytes | None
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    """Part of a multi: delete a node without children if its version is this one (ANY_VERSION: whatever it is)."""

    path: str
    version: int = ANY_VERSION


Op = Check | Create | Set | Delete
OpResult = str | Stat | None  # the path of a Create, the Stat of a Set, None for Check and Delete


class Tree(Protocol):
    """One session with the metadata tree. Each Deferred may also fail with SessionExpired or ConnectionLost."""

    @property
    def session_id(self) -> int:
        """What `Stat.ephemeral_owner` says of nodes made by this session; never 0."""

    def create(self, path: str, data: bytes | None = None, *, ephemeral: bool = False, sequential: bool = False) -> Deferred[str]:
        """Create a node; its path, to which `sequential` adds ten digits that count up. NoNode, NodeExists, NoChildrenForEphemerals."""

    def get(self, path: str, *, watch: Watcher | None = None) -> Deferred[tuple[bytes | None, Stat]]:
        """A node's data and stat. NoNode (and then no watch is set)."""

    def set(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> Deferred[Stat]:
        """Write a node's data. NoNode, BadVersion."""

    def delete(self, path: str, version: int = ANY_VERSION) -> Deferred[None]:
        """Delete a node. NoNode, BadVersion, NotEmpty."""

    def children(self, path: str, *, watch: Watcher | None = None) -> Deferred[list[str]]:
        """The names (not paths) of a node's children, sorted. NoNode (and then no watch is set)."""

    def exists(self, path: str, *, watch: Watcher | None = None) -> Deferred[Stat | None]:
        """A node's stat, None when there is no such node; the watch is set in both cases."""

    def multi(self, ops: Sequence[Op]) -> Deferred[list[OpResult]]:
        """All of the operations or none. Fails with the error of the first that cannot be done, its place in `index`."""

    def on_expired(self, callback: Callable[[], None]) -> None:
        """Call back once when the session expires without having been closed; watches that were set are never told then."""

    def close(self) -> Deferred[None]:
        """End the session: its ephemeral nodes vanish at once."""


def parent_of(path: str) -> str:
    """The path of a node's parent; `/` for a node at the top."""
    return path.rpartition("/")[0] or "/"


def check_path(path: str) -> None:
    """ValueError unless this is an absolute path as ZooKeeper takes it: no empty, `.` or `..` name in it, no NUL, no slash at the end."""
    if path == "/":
        return
    names = path.split("/")
    if names[0] or len(names) < 2 or any(name in ("", ".", "..") for name in names[1:]) or "\0" in path:
        raise ValueError(f"{path!r} is not a path of a node")
