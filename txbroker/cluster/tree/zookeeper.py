"""The metadata tree on ZooKeeper, in one session: implements `Tree`.

Differences from the other stores, which the interface allows:

- Watches survive a lost connection. ZooKeeper's client forgets them, so that after a reconnection every watched node is read again, and
  a change since the watch was set is reported as an event.
- What happens to operations when the connection is lost, and when the session is over: `zookeeper_session.py`.

Paths are below the chroot of `zookeeper.connect`, which is created if it does not exist, as Kafka does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from kazoo import exceptions
from kazoo.protocol import serialization
from kazoo.protocol.states import EventType as KazooEvent
from kazoo.protocol.states import WatchedEvent
from twisted.internet.defer import Deferred, fail
from twisted.python.failure import Failure

from txbroker.cluster.tree.interface import (
    ANY_VERSION,
    Check,
    ConnectionLost,
    Create,
    Delete,
    EventType,
    NodeExists,
    NoNode,
    Op,
    OpResult,
    SessionExpired,
    Set,
    Stat,
    TooLarge,
    TreeError,
    Watcher,
    WatchEvent,
    check_path,
    check_size,
)
from txbroker.cluster.tree.kazoo_session import Credentials, KazooSession
from txbroker.cluster.tree.multi_read import MultiRead
from txbroker.cluster.tree.node_acls import acls_of
from txbroker.cluster.tree.operations import found
from txbroker.cluster.tree.session_tree import SessionCounts
from txbroker.cluster.tree.watches import Watches, WatchKind, call_watcher
from txbroker.cluster.tree.zookeeper_session import OpenSession, Threads, Unsupported, ZooKeeperSession, tree_error
from txbroker.errors import StartError

T = TypeVar("T")

_EPHEMERAL, _SEQUENTIAL = 1, 2
_REQUEST_SIZE_MAX = 1024 * 1024 - 1  # jute.maxbuffer: ZooKeeper closes the connection of a larger request
_EVENTS = {
    KazooEvent.CREATED: EventType.CREATED,
    KazooEvent.DELETED: EventType.DELETED,
    KazooEvent.CHANGED: EventType.DATA_CHANGED,
    KazooEvent.CHILD: EventType.CHILDREN_CHANGED,
}
_ROLLED_BACK = (exceptions.RolledBackError, exceptions.RuntimeInconsistency)  # operations of a multi in which another one failed


def open_zookeeper_tree(
    connect: str, *, session_timeout_ms: int, connection_timeout_ms: int, threads: Threads, counts: SessionCounts | None = None,
    open_session: OpenSession = KazooSession, has_acls: bool = False,
) -> Deferred[ZooKeeperTree]:  # fmt: skip
    """A new session with the ZooKeeper of `zookeeper.connect` (`host:port,host:port/chroot`); StartError if no server answers in time.

    With `has_acls` nodes are created with Kafka's access control lists, for which the session must be authenticated.
    """
    servers, slash, chroot = connect.partition("/")
    session = ZooKeeperSession(servers, session_timeout_ms, threads, counts or SessionCounts(), open_session)
    return ZooKeeperTree(session, slash + chroot if chroot else "", has_acls=has_acls).open(connection_timeout_ms / 1000)


class ZooKeeperTree:
    """See `Tree`. Every method is called in the reactor's thread, and every result arrives there."""

    def __init__(self, session: ZooKeeperSession, chroot: str, *, has_acls: bool = False) -> None:
        self._session = session
        self._has_acls = has_acls
        self._chroot = chroot
        self._reads_many = True  # the servers know MultiRead
        self._watches = Watches()
        self._watched: dict[tuple[WatchKind, str], object] = {}  # what a watched node was like when the watch was set
        session.reconnected = self._watch_again
        session.on_expired(self._watches.clear)

    def open(self, timeout_s: float) -> Deferred[ZooKeeperTree]:
        """Connect, and create the chroot; StartError. Nothing of the session remains when this fails."""
        if self._chroot:
            check_path(self._chroot)
        made = self._session.open(timeout_s).addCallback(lambda _: Deferred.fromCoroutine(self._make_chroot()))
        return made.addCallbacks(lambda _: self, self._not_opened)

    @property
    def session_id(self) -> int:
        """See `Tree`."""
        return self._session.credentials[0]

    @property
    def credentials(self) -> Credentials:
        """With them another process can end the session (`end_session`) when this one is gone."""
        return self._session.credentials

    def on_expired(self, callback: Callable[[], None]) -> None:
        """See `Tree`."""
        self._session.on_expired(callback)

    def close(self) -> Deferred[None]:
        """See `Tree`. Operations that were called before it are performed."""
        self._watches.clear()
        return self._session.close()

    async def _make_chroot(self) -> None:
        chroot = self._chroot
        try:
            if chroot and not await self._session.submit(chroot, serialization.Exists(chroot, None), lambda result: result is not None):
                parts = chroot.split("/")[1:]
                for count in range(len(parts)):
                    path = "/" + "/".join(parts[: count + 1])
                    await self._session.submit(path, self._create(path, None, 0), lambda _: None).addErrback(_ignore(NodeExists))
        except SessionExpired as error:
            raise self._session.refusal() from error
        except TreeError as error:
            problem = f"The chroot {chroot} cannot be created in ZooKeeper ({error})"
            raise StartError(f"{problem}: create it, or correct zookeeper.connect.") from error
        self._session.chroot = chroot

    def _not_opened(self, failure: Failure) -> Failure:
        self._session.abort()
        return failure

    # Operations

    def create(self, path: str, data: bytes | None = None, *, ephemeral: bool = False, sequential: bool = False) -> Deferred[str]:
        """See `Tree`."""
        return self._write(Create(path, data, ephemeral, sequential))

    def get(self, path: str, *, watch: Watcher | None = None) -> Deferred[tuple[bytes | None, Stat]]:
        """See `Tree`."""

        def found(result: tuple[bytes | None, Any]) -> tuple[bytes | None, Stat]:
            self._watch(WatchKind.NODE, path, watch, _identity(result[1]))
            return result[0], _stat(result[1])

        return self._submit(path, serialization.GetData(self._full(path), self._watcher(watch)), found, repeat=True)

    def get_all(self, paths: Sequence[str]) -> Deferred[list[tuple[bytes | None, Stat] | None]]:
        """See `Tree`."""
        wanted = tuple(paths)

        def nodes(results: list[Any]) -> list[tuple[bytes | None, Stat] | None]:
            for path, one in zip(wanted, results, strict=True):
                if isinstance(one, Exception):
                    raise tree_error(one, path, chroot=self._chroot)
            return [None if one is None else (one[0], _stat(one[1])) for one in results]

        def one_by_one(failure: Failure) -> Deferred[list[tuple[bytes | None, Stat] | None]]:
            failure.trap(Unsupported)  # by a server older than 3.6, which also closes the connection
            self._reads_many = False
            return found([self.get(path) for path in wanted])

        if not self._reads_many:
            return found([self.get(path) for path in wanted])
        return self._submit("/", MultiRead(tuple(map(self._full, wanted))), nodes, repeat=True).addErrback(one_by_one)

    def set(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> Deferred[Stat]:
        """See `Tree`."""
        return self._write(Set(path, data, version))

    def delete(self, path: str, version: int = ANY_VERSION) -> Deferred[None]:
        """See `Tree`."""
        return self._write(Delete(path, version))

    def children(self, path: str, *, watch: Watcher | None = None) -> Deferred[list[str]]:
        """See `Tree`."""

        def found(result: tuple[list[str], Any]) -> list[str]:
            self._watch(WatchKind.CHILDREN, path, watch, result[1].pzxid)
            return sorted(result[0])

        return self._submit(path, serialization.GetChildren2(self._full(path), self._watcher(watch)), found, repeat=True)

    def exists(self, path: str, *, watch: Watcher | None = None) -> Deferred[Stat | None]:
        """See `Tree`."""

        def found(result: Any) -> Stat | None:
            self._watch(WatchKind.NODE, path, watch, _identity(result))
            return None if result is None else _stat(result)

        return self._submit(path, serialization.Exists(self._full(path), self._watcher(watch)), found, repeat=True)

    def multi(self, ops: Sequence[Op]) -> Deferred[list[OpResult]]:
        """See `Tree`. TooLarge if the request exceeds ZooKeeper's jute.maxbuffer."""
        performed = tuple(ops)
        try:
            request = serialization.Transaction([self._request(op) for op in performed])
        except TooLarge:
            return fail(Failure())

        def results(found: list[Any]) -> list[OpResult]:
            for index, (op, one) in enumerate(zip(performed, found, strict=False)):
                if isinstance(one, Exception) and not isinstance(one, _ROLLED_BACK):
                    raise tree_error(one, op.path, index, self._chroot)
            if len(found) != len(performed) or any(isinstance(one, Exception) for one in found):
                raise ConnectionLost("/")  # no answer that ZooKeeper gives: whether it took effect is unknown
            return [self._result(op, one) for op, one in zip(performed, found, strict=True)]

        size = len(request.serialize())
        if size > _REQUEST_SIZE_MAX - 8:
            problem = f"a multi of {len(performed)} operations has {size} bytes, more than ZooKeeper's jute.maxbuffer; split it"
            return fail(TooLarge("/", None, problem))
        return self._submit("/", request, results)

    def protect(self, path: str) -> Deferred[None]:
        """Give a node the access control list with which it would be created now, if it exists. Refused."""
        request = serialization.SetACL(self._full(path), acls_of(path, are_set=self._has_acls), ANY_VERSION)
        return self._submit(path, request, lambda _: None, repeat=True).addErrback(_ignore(NoNode))

    def sync(self) -> Deferred[None]:
        """See `Tree`: a server of ZooKeeper may be behind others."""
        return self._submit("/", serialization.Sync(self._full("/")), lambda _: None, repeat=True)

    def _write(self, op: Op) -> Deferred[Any]:
        try:
            request = self._request(op)
        except TooLarge:
            return fail(Failure())
        return self._submit(op.path, request, lambda result: self._result(op, result))

    def _result(self, op: Op, result: Any) -> OpResult:
        if isinstance(op, Create):
            made: str = result
            return made[len(self._chroot) :]
        return _stat(result) if isinstance(op, Set) else None

    def _request(self, op: Op) -> Any:
        check_path(op.path)
        match op:
            case Create(path, data, ephemeral, sequential):
                check_size(path, data)
                return self._create(self._full(path), data, _EPHEMERAL * ephemeral | _SEQUENTIAL * sequential)
            case Set(path, data, version):
                check_size(path, data)
                return serialization.SetData(self._full(path), data, version)
            case Delete(path, version):
                return serialization.Delete(self._full(path), version)
            case Check(path, version):
                return serialization.CheckVersion(self._full(path), version)

    def _create(self, full_path: str, data: bytes | None, flags: int) -> Any:
        return serialization.Create(full_path, data, acls_of(full_path[len(self._chroot) :], are_set=self._has_acls), flags)

    def _full(self, path: str) -> str:
        check_path(path)
        return (self._chroot + path).rstrip("/") or "/"

    def _submit(self, path: str, request: Any, convert: Callable[[Any], T], *, repeat: bool = False) -> Deferred[T]:
        return self._session.submit(path, request, convert, repeat=repeat)

    # Watches

    def _watcher(self, watch: Watcher | None) -> Callable[[WatchedEvent], None] | None:
        """One watcher for all, so that kazoo calls it once for a node."""
        return None if watch is None else self._event

    def _watch(self, kind: WatchKind, path: str, watch: Watcher | None, state: object) -> None:
        if watch is not None and not self._session.over:
            self._watches.add(kind, path, watch)
            self._watched[kind, path] = state

    def _event(self, event: WatchedEvent) -> None:
        if event.type in _EVENTS:  # not NONE, with which kazoo reports that it has forgotten the watch
            path: str = event.path[len(self._chroot) :] or "/"
            self._trigger(WatchEvent(_EVENTS[event.type], path))

    def _trigger(self, event: WatchEvent) -> None:
        if self._session.over:
            return
        for watcher in self._watches.trigger(event):
            call_watcher(watcher, event)

    def _watch_again(self) -> None:
        for kind, path in self._watches.watched():
            self._read_again(kind, path)

    def _read_again(self, kind: WatchKind, path: str) -> None:
        """Set the watch of a node again after a reconnection, or report what has changed."""
        before = self._watched[kind, path]

        def compare(now: object) -> None:
            if now != before:
                self._trigger(WatchEvent(_change(kind, before, now), path))

        if kind is WatchKind.NODE:
            read = self._submit(path, serialization.Exists(self._full(path), self._event), _identity)
        else:
            read = self._submit(path, serialization.GetChildren2(self._full(path), self._event), lambda result: result[1].pzxid)
            read.addErrback(_ignore(NoNode))
        # After another loss of the connection everything is read again, and after the end of the session nothing is.
        read.addCallbacks(compare, _ignore(ConnectionLost, SessionExpired))


def _stat(found: Any) -> Stat:
    return Stat(found.czxid, found.mzxid, found.version, found.ephemeralOwner, found.numChildren)


def _identity(found: Any) -> object:
    """What changes whenever a watched node does; None if there is no node."""
    return None if found is None else (found.czxid, found.mzxid)


def _change(kind: WatchKind, before: object, now: object) -> EventType:
    if now is None:
        return EventType.DELETED
    if kind is WatchKind.CHILDREN:
        return EventType.CHILDREN_CHANGED
    return EventType.CREATED if before is None else EventType.DATA_CHANGED


def _ignore(*errors: type[Exception]) -> Callable[[Failure], None]:
    def ignore(failure: Failure) -> None:
        failure.trap(*errors)

    return ignore
