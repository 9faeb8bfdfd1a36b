"""The metadata tree on ZooKeeper: one session, which implements `Tree`.

Differences from the other stores, which the interface allows:

- Watches survive a lost connection. ZooKeeper's client forgets them, so that after a reconnection every watched node is read again, and
  a change since the watch was set is reported as an event.
- A write that was under way when the connection was lost fails with ConnectionLost: it may have taken effect. A read is repeated.
- A session is over when ZooKeeper says so, or when there was no connection for the session's timeout: ZooKeeper, if it is there, has
  then ended it.

Paths are below the chroot of `zookeeper.connect`, which is created if it does not exist, as Kafka does.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from kazoo import exceptions
from kazoo.protocol import serialization
from kazoo.protocol.states import EventType as KazooEvent
from kazoo.protocol.states import WatchedEvent
from kazoo.security import OPEN_ACL_UNSAFE
from twisted.internet.defer import Deferred, fail
from twisted.python.failure import Failure

from txbroker.cluster.tree.interface import (
    ANY_VERSION,
    BadVersion,
    Check,
    ConnectionLost,
    Create,
    Delete,
    EventType,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    Op,
    OpResult,
    Refused,
    SessionExpired,
    Set,
    Stat,
    TreeError,
    Watcher,
    WatchEvent,
    check_path,
    check_size,
)
from txbroker.cluster.tree.kazoo_session import Credentials, KazooSession, SessionState
from txbroker.cluster.tree.multi_read import MultiRead
from txbroker.cluster.tree.operations import found
from txbroker.cluster.tree.session_tree import SessionCounts
from txbroker.cluster.tree.watches import Watches, WatchKind
from txbroker.errors import StartError

T = TypeVar("T")
log = logging.getLogger("txbroker.zookeeper")

_EPHEMERAL, _SEQUENTIAL = 1, 2
_REQUEST_SIZE_MAX = 1024 * 1024 - 1  # jute.maxbuffer: ZooKeeper closes the connection of a larger request
_EVENTS = {
    KazooEvent.CREATED: EventType.CREATED,
    KazooEvent.DELETED: EventType.DELETED,
    KazooEvent.CHANGED: EventType.DATA_CHANGED,
    KazooEvent.CHILD: EventType.CHILDREN_CHANGED,
}
_ERRORS: dict[type[Exception], type[TreeError]] = {
    exceptions.NoNodeError: NoNode,
    exceptions.NodeExistsError: NodeExists,
    exceptions.BadVersionError: BadVersion,
    exceptions.NotEmptyError: NotEmpty,
    exceptions.NoChildrenForEphemeralsError: NoChildrenForEphemerals,
    exceptions.SessionExpiredError: SessionExpired,
    exceptions.ConnectionClosedError: SessionExpired,
    exceptions.NoAuthError: Refused,
    exceptions.InvalidACLError: Refused,
    exceptions.BadArgumentsError: Refused,
    exceptions.QuotaExceededError: Refused,
    exceptions.UnimplementedError: Refused,
}
_INNOCENT = (exceptions.RolledBackError, exceptions.RuntimeInconsistency)  # operations of a multi in which another one failed


class Threads(Protocol):
    """The reactor, as far as this module needs it."""

    def call_from_thread(self, call: Callable[..., object], *arguments: object) -> object:
        """Call in the reactor's thread, in the order of these calls."""

    def worker(self, job: Callable[[], T]) -> Deferred[T]:
        """The result of a job that may block."""

    def seconds(self) -> float:
        """The monotonic clock."""

    def call_later(self, delay_s: float, call: Callable[[], object]) -> Callable[[], object]:
        """Call after a time, by the monotonic clock; returns a function that cancels it, and does nothing after the call."""


class ClientSession(Protocol):
    """One session of a client of ZooKeeper: see `KazooSession`, the real one."""

    @property
    def credentials(self) -> Credentials: ...
    @property
    def negotiated_ms(self) -> int: ...
    @property
    def problem(self) -> str: ...

    def start(self) -> None: ...

    def submit(self, request: Any, done: Callable[[Any], None]) -> None: ...

    def stop(self) -> None: ...


class OpenSession(Protocol):
    """Makes a session, which connects when it is started: the arguments of `KazooSession`."""

    def __call__(
        self,
        servers: str,
        timeout_ms: int,
        *,
        call_from_thread: Callable[..., object],
        on_state: Callable[[SessionState], None],
        credentials: Credentials | None = None,
    ) -> ClientSession: ...


def open_zookeeper_tree(
    connect: str, *, session_timeout_ms: int, connection_timeout_ms: int, threads: Threads, counts: SessionCounts | None = None,
    open_session: OpenSession = KazooSession,
) -> Deferred[ZooKeeperTree]:  # fmt: skip
    """A new session with the ZooKeeper of `zookeeper.connect` (`host:port,host:port/chroot`); StartError if no server answers in time."""
    servers, slash, chroot = connect.partition("/")
    tree = ZooKeeperTree(servers, slash + chroot if chroot else "", session_timeout_ms, threads, counts or SessionCounts(), open_session)
    return tree.open(connection_timeout_ms / 1000)


class ZooKeeperTree:
    """See `Tree`. Every method is called in the reactor's thread, and every result arrives there."""

    def __init__(
        self, servers: str, chroot: str, timeout_ms: int, threads: Threads, counts: SessionCounts, open_session: OpenSession
    ) -> None:
        self._servers = servers
        self._chroot = chroot
        self._threads = threads
        self._counts = counts
        self._session = open_session(servers, timeout_ms, call_from_thread=threads.call_from_thread, on_state=self._state_changed)
        self._over = False
        self._reads_many = True  # the servers know MultiRead
        self._opening: Deferred[ZooKeeperTree] | None = None
        self._cancel_timer: Callable[[], object] | None = None
        self._waiting: dict[Deferred[Any], str] = {}  # with their paths, in the order of the calls
        self._watches = Watches()
        self._watched: dict[tuple[WatchKind, str], object] = {}  # what a watched node was like when the watch was set
        self._expired_callbacks: list[Callable[[], None]] = []

    # The session

    def open(self, timeout_s: float) -> Deferred[ZooKeeperTree]:
        """Connect, and create the chroot; StartError."""
        if self._chroot:
            check_path(self._chroot)
        opening: Deferred[ZooKeeperTree] = Deferred(lambda _: self._stop_opening())
        self._opening = opening
        self._cancel_timer = self._threads.call_later(timeout_s, self._cannot_connect)
        self._session.start()
        return opening

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
        self._expired_callbacks.append(callback)

    def close(self) -> Deferred[None]:
        """See `Tree`. Operations that were called before it are performed."""
        if self._over:
            return fail(SessionExpired("/"))
        self._over = True
        self._watches.clear()
        self._stop_timer()
        return self._threads.worker(self._session.stop).addBoth(self._closed)

    def _closed(self, result: T) -> T:
        self._fail_waiting()
        return result

    def _cannot_connect(self) -> None:
        opening, self._cancel_timer = self._opening, None
        self._stop_opening()
        if opening is not None:
            opening.errback(_no_answer(self._servers, self._session.problem))

    def _stop_opening(self) -> None:
        self._opening = None
        self._over = True
        self._stop_timer()
        self._threads.worker(self._session.stop)

    def _state_changed(self, state: SessionState) -> None:
        if self._over or (state is SessionState.SUSPENDED and self._opening is not None):
            return
        if state is SessionState.OVER:
            self._end("ZooKeeper has ended it")
        elif state is SessionState.SUSPENDED:
            self._counts.connected = False
            self._counts.disconnects += 1
            timeout_s = self._session.negotiated_ms / 1000
            log.warning("the connection to ZooKeeper at %s is lost; the session ends in %.1f s unless it returns", self._servers, timeout_s)
            self._stop_timer()
            self._cancel_timer = self._threads.call_later(timeout_s, self._timed_out)
        else:
            self._counts.connected = True
            self._counts.connects += 1
            self._stop_timer()
            timeout_ms = self._session.negotiated_ms
            log.info("connected to ZooKeeper at %s: session %#x, timeout %d ms", self._servers, self.session_id, timeout_ms)
            if self._opening is not None:
                self._make_chroot()
            else:
                for kind, path in self._watches.watched():
                    self._read_again(kind, path)

    def _timed_out(self) -> None:
        self._cancel_timer = None
        self._end("there was no connection for its timeout")

    def _stop_timer(self) -> None:
        if self._cancel_timer is not None:
            self._cancel_timer()
            self._cancel_timer = None

    def _end(self, reason: str) -> None:
        """The session is over without having been closed."""
        log.warning("the ZooKeeper session %#x is over: %s", self.session_id, reason)
        self._over = True
        self._counts.connected = False
        self._counts.expirations += 1
        self._watches.clear()
        self._stop_timer()
        self._threads.worker(self._session.stop)
        opening, self._opening = self._opening, None
        self._fail_waiting()
        if opening is not None:
            opening.errback(StartError(f"ZooKeeper at {self._servers} refuses the session: {reason}; see its log."))
        for callback in self._expired_callbacks:
            callback()

    def _fail_waiting(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for deferred, path in waiting.items():
            deferred.errback(SessionExpired(path))

    def _make_chroot(self) -> None:
        parts = self._chroot.split("/")[1:] if self._chroot else []
        paths = ["/" + "/".join(parts[: count + 1]) for count in range(len(parts))]
        made = [self._submit(path, self._create(path, None, 0), lambda _: None) for path in paths]
        if not made:
            self._opened(None)
            return
        for deferred in made[:-1]:
            deferred.addErrback(_ignore(NodeExists))
        made[-1].addBoth(self._opened)

    def _opened(self, result: object) -> None:
        opening, self._opening = self._opening, None
        if opening is None:
            return
        if isinstance(result, Failure) and not result.check(NodeExists):
            problem = f"The chroot {self._chroot} cannot be created in ZooKeeper ({result.value!r})"
            opening.errback(StartError(f"{problem}: create it, or correct zookeeper.connect."))
        else:
            opening.callback(self)

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
                    raise _error(one, path)
            return [None if one is None else (one[0], _stat(one[1])) for one in results]

        def one_by_one(failure: Failure) -> Deferred[list[tuple[bytes | None, Stat] | None]]:
            failure.trap(Refused)  # by a server older than 3.6, which also closes the connection
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
        """See `Tree`. ValueError if the request exceeds ZooKeeper's jute.maxbuffer."""
        performed = tuple(ops)
        request = serialization.Transaction([self._request(op) for op in performed])

        def results(found: list[Any]) -> list[OpResult]:
            for index, (op, one) in enumerate(zip(performed, found, strict=False)):
                if isinstance(one, Exception) and not isinstance(one, _INNOCENT):
                    raise _error(one, op.path, index)
            if len(found) != len(performed) or any(isinstance(one, Exception) for one in found):
                raise ConnectionLost("/")  # no answer that ZooKeeper gives: whether it took effect is unknown
            return [self._result(op, one) for op, one in zip(performed, found, strict=True)]

        size = len(request.serialize())
        if size > _REQUEST_SIZE_MAX - 8:
            raise ValueError(f"a multi of {len(performed)} operations has {size} bytes, more than ZooKeeper's jute.maxbuffer; split it")
        return self._submit("/", request, results)

    def sync(self) -> Deferred[None]:
        """See `Tree`: a server of ZooKeeper may be behind others."""
        return self._submit("/", serialization.Sync(self._full("/")), lambda _: None, repeat=True)

    def _write(self, op: Op) -> Deferred[Any]:
        return self._submit(op.path, self._request(op), lambda result: self._result(op, result))

    def _result(self, op: Op, result: Any) -> OpResult:
        if isinstance(op, Create):
            made: str = result
            return made[len(self._chroot) :]
        return _stat(result) if isinstance(op, Set) else None

    def _request(self, op: Op) -> Any:
        check_path(op.path)
        match op:
            case Create(path, data, ephemeral, sequential):
                check_size(data)
                return self._create(self._full(path), data, _EPHEMERAL * ephemeral | _SEQUENTIAL * sequential)
            case Set(path, data, version):
                check_size(data)
                return serialization.SetData(self._full(path), data, version)
            case Delete(path, version):
                return serialization.Delete(self._full(path), version)
            case Check(path, version):
                return serialization.CheckVersion(self._full(path), version)

    def _create(self, full_path: str, data: bytes | None, flags: int) -> Any:
        return serialization.Create(full_path, data, OPEN_ACL_UNSAFE, flags)

    def _full(self, path: str) -> str:
        check_path(path)
        return (self._chroot + path).rstrip("/") or "/"

    def _submit(self, path: str, request: Any, convert: Callable[[Any], T], *, repeat: bool = False) -> Deferred[T]:
        """Send a request, if `repeat` again when its answer is lost. `convert` makes the result, or raises a TreeError."""
        if self._over:
            return fail(SessionExpired(path))
        deferred: Deferred[T] = Deferred()
        self._waiting[deferred] = path
        begun_s = self._threads.seconds()

        def done(result: Any) -> None:
            if deferred not in self._waiting:
                return  # the session ended
            if repeat and isinstance(result.exception, exceptions.ConnectionLoss):
                self._session.submit(request, done)
                return
            del self._waiting[deferred]
            self._counts.requests += 1
            self._counts.latencies.append(self._threads.seconds() - begun_s)
            if not result.successful():
                deferred.errback(_error(result.exception, path))
                return
            try:
                value = convert(result.value)
            except TreeError as error:
                deferred.errback(error)
            else:
                deferred.callback(value)

        self._session.submit(request, done)
        return deferred

    # Watches

    def _watcher(self, watch: Watcher | None) -> Callable[[WatchedEvent], None] | None:
        """One watcher for all, so that kazoo calls it once for a node."""
        return None if watch is None else self._event

    def _watch(self, kind: WatchKind, path: str, watch: Watcher | None, state: object) -> None:
        if watch is not None and not self._over:
            self._watches.add(kind, path, watch)
            self._watched[kind, path] = state

    def _event(self, event: WatchedEvent) -> None:
        if event.type in _EVENTS:  # not NONE, with which kazoo reports that it has forgotten the watch
            path: str = event.path[len(self._chroot) :] or "/"
            self._trigger(WatchEvent(_EVENTS[event.type], path))

    def _trigger(self, event: WatchEvent) -> None:
        if self._over:
            return
        for watcher in self._watches.trigger(event):
            try:
                watcher(event)
            except Exception:
                log.exception("the watcher of %s failed for event %s", event.path, event.type.name)

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


def end_session(
    connect: str, credentials: Credentials, *, timeout_ms: int, threads: Threads, open_session: OpenSession = KazooSession
) -> Deferred[bool]:
    """End the session of a process that is gone, so that its ephemeral nodes do not stay for its timeout; whether it still existed.

    StartError if no server answers in time. Do not end the session of a process that runs: it loses its nodes.
    """
    servers = connect.partition("/")[0]
    ended: Deferred[bool] = Deferred()

    def on_state(state: SessionState) -> None:
        if state is not SessionState.SUSPENDED and not ended.called:
            ended.callback(state is SessionState.CONNECTED)

    session = open_session(servers, timeout_ms, call_from_thread=threads.call_from_thread, on_state=on_state, credentials=credentials)
    cancel = threads.call_later(timeout_ms / 1000, lambda: ended.errback(_no_answer(servers, session.problem)))
    session.start()

    async def end() -> bool:
        try:
            return await ended
        finally:
            cancel()
            await threads.worker(session.stop)

    return Deferred.fromCoroutine(end())


def _no_answer(servers: str, problem: str) -> StartError:
    details = f" ({problem})" if problem else ""
    return StartError(f"No ZooKeeper answers at {servers}: start it, or correct zookeeper.connect{details}.")


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


def _error(error: Exception, path: str, index: int | None = None) -> TreeError:
    """The error of the interface. What kazoo raises otherwise leaves open whether the operation took effect."""
    return _ERRORS.get(type(error), ConnectionLost)(path, index)


def _ignore(*errors: type[Exception]) -> Callable[[Failure], None]:
    def ignore(failure: Failure) -> None:
        failure.trap(*errors)

    return ignore
