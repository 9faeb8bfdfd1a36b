"""The metadata tree: ZooKeeper's data model as an interface, independent of the store.

A node has a path (`/brokers/ids/1`), data (bytes, or None), a version that each write of its data increments, and children. A `Tree`
object is one session: its ephemeral nodes are deleted when it is closed or expires. After that every operation fails with
`SessionExpired`, and the caller has to open a new session.

Every operation returns a Deferred, which may have fired already or may fire later: callers must handle both. Operations of one session
take effect, and their results arrive, in the order of the calls.

A watch is set by the read that it is passed to, and is called once, for the first change after that read:

- `get` and `exists`: the node's creation, change of data, or deletion (`get` sets none when it fails);
- `children`: a child's creation or deletion, and the deletion of the node itself.

A watcher is called after the result of the operation that set it, in the order of the changes. A callable set twice on the same node and
kind is called once. A session that ends drops its watches; `on_expired` reports an expiry.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

from twisted.internet.defer import Deferred

from txbroker.lazy_dataclass import lazy_dataclass

ANY_VERSION = -1
DATA_SIZE_MAX = 1020 * 1024  # a request with a path fits into ZooKeeper's jute.maxbuffer of 1 MB; all implementations enforce it
MULTI_OPS_MAX = 1000  # callers split longer lists: at some 300 bytes an operation, a multi stays below jute.maxbuffer


class TreeError(Exception):
    """An operation on the tree failed. `path` is the node; `index` the position of the operation in a `multi`.

    `problem`: a sentence for an operator, instead of the name of the error and the path.
    """

    def __init__(self, path: str, index: int | None = None, problem: str = "") -> None:
        position = "" if index is None else f" (operation {index})"
        super().__init__(problem or f"{type(self).__name__} at {path}{position}")
        self.path = path
        self.index = index
        self.problem = problem

    def of_one_operation(self) -> TreeError:
        """The same error of an operation that is not part of a `multi`."""
        return type(self)(self.path, None, self.problem)


class NoNode(TreeError):
    """The node, or the parent of the node to be created, does not exist."""


class NodeExists(TreeError):
    """The node to be created exists."""


class BadVersion(TreeError):
    """The node's version is not the expected one."""


class NotEmpty(TreeError):
    """The node to be deleted has children."""


class NoChildrenForEphemerals(TreeError):
    """An ephemeral node cannot have children."""


class SessionExpired(TreeError):
    """The session has been closed or has expired."""


class Refused(TreeError):
    """The store does not permit the operation: access control lists, quota, size. It did not take effect, and repeating it is useless."""


class TooLarge(Refused):
    """The data of the node would exceed DATA_SIZE_MAX."""

    def __init__(self, path: str, index: int | None = None, problem: str = "", *, size: int = 0) -> None:
        super().__init__(path, index, problem or f"{size} bytes exceed the maximum size of a node ({DATA_SIZE_MAX}), {path}")


class ConnectionLost(TreeError):
    """The store could not be reached or written: it is unknown whether the operation took effect."""


class NoSpaceInStore(ConnectionLost):
    """The store's disk is full: the operation did not take effect. The text names the file."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(path, None, problem)

    def of_one_operation(self) -> TreeError:
        """See `TreeError`."""
        return self


class Stat(NamedTuple):
    """A node's metadata."""

    czxid: int  # the transaction that created the node; increases over the life of the store, across restarts
    mzxid: int  # the transaction that last wrote its data
    version: int  # 0 when created, one more with each write
    ephemeral_owner: int  # the session whose end deletes the node, 0 for a persistent node
    children_count: int


class EventType(Enum):
    """The kind of change of a watched node."""

    CREATED = "created"
    DELETED = "deleted"
    DATA_CHANGED = "data changed"
    CHILDREN_CHANGED = "children changed"


class WatchEvent(NamedTuple):
    """One change, as passed to a watcher."""

    type: EventType
    path: str


Watcher = Callable[[WatchEvent], None]


@lazy_dataclass(frozen=True, slots=True)
class Check:
    """Operation: fail unless the node exists at this version (ANY_VERSION: at any version)."""

    path: str
    version: int = ANY_VERSION


@lazy_dataclass(frozen=True, slots=True)
class Create:
    """Operation: create a node."""

    path: str
    data: bytes | None = None
    ephemeral: bool = False
    sequential: bool = False


@lazy_dataclass(frozen=True, slots=True)
class Set:
    """Operation: write a node's data if it has this version (ANY_VERSION: any version)."""

    path: str
    data: bytes | None
    version: int = ANY_VERSION


@lazy_dataclass(frozen=True, slots=True)
class Delete:
    """Operation: delete a node without children if it has this version (ANY_VERSION: any version)."""

    path: str
    version: int = ANY_VERSION


Op = Check | Create | Set | Delete
OpResult = str | Stat | None  # the path of a Create, the Stat of a Set, None for Check and Delete


class Tree(Protocol):
    """One session with the metadata tree. Each Deferred may also fail with SessionExpired or ConnectionLost."""

    @property
    def session_id(self) -> int:
        """The `Stat.ephemeral_owner` of this session's ephemeral nodes; never 0."""

    def create(self, path: str, data: bytes | None = None, *, ephemeral: bool = False, sequential: bool = False) -> Deferred[str]:
        """Create a node; returns its path. `sequential` appends a ten-digit counter. NoNode, NodeExists, NoChildrenForEphemerals."""

    def get(self, path: str, *, watch: Watcher | None = None) -> Deferred[tuple[bytes | None, Stat]]:
        """A node's data and stat. NoNode (and then no watch is set)."""

    def get_all(self, paths: Sequence[str]) -> Deferred[list[tuple[bytes | None, Stat] | None]]:
        """Data and stat of each of these nodes, None of those that do not exist; at most MULTI_OPS_MAX nodes."""

    def set(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> Deferred[Stat]:
        """Write a node's data. NoNode, BadVersion."""

    def delete(self, path: str, version: int = ANY_VERSION) -> Deferred[None]:
        """Delete a node. NoNode, BadVersion, NotEmpty."""

    def children(self, path: str, *, watch: Watcher | None = None) -> Deferred[list[str]]:
        """The names (not paths) of a node's children, sorted. NoNode (and then no watch is set)."""

    def exists(self, path: str, *, watch: Watcher | None = None) -> Deferred[Stat | None]:
        """A node's stat, None when it does not exist; the watch is set in both cases."""

    def multi(self, ops: Sequence[Op]) -> Deferred[list[OpResult]]:
        """Perform all of the operations or none. Fails with the error of the first that fails, its position in `index`."""

    def sync(self) -> Deferred[None]:
        """Let later reads of this session find what other sessions have written before this call."""

    def on_expired(self, callback: Callable[[], None]) -> None:
        """Call back once when the session expires without having been closed. Its watches are not called then."""

    def close(self) -> Deferred[None]:
        """End the session and delete its ephemeral nodes."""


def parent_of(path: str) -> str:
    """The path of a node's parent; `/` for a node at the top."""
    return path.rpartition("/")[0] or "/"


def parents_of(path: str) -> list[str]:
    """The paths above a node, the highest first, without `/`."""
    names = path.split("/")
    return ["/".join(names[:count]) for count in range(2, len(names))]


def check_path(path: str) -> None:
    """ValueError unless this is a valid ZooKeeper path: absolute, no empty, `.` or `..` name, no NUL, no slash at the end."""
    if path == "/":
        return
    names = path.split("/")
    if names[0] or len(names) < 2 or any(name in ("", ".", "..") for name in names[1:]) or "\0" in path:
        raise ValueError(f"{path!r} is not a path of a node")


def check_size(path: str, data: bytes | None) -> None:
    """TooLarge if this is more than a node can have."""
    if data is not None and len(data) > DATA_SIZE_MAX:
        raise TooLarge(path, size=len(data))
