"""A session with the metadata tree that another process of this machine serves (`tree_server.py`). It ends with the connection."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from twisted.internet.defer import CancelledError, Deferred, fail, succeed
from twisted.internet.endpoints import UNIXClientEndpoint
from twisted.internet.error import ConnectError, ConnectingCancelledError
from twisted.internet.protocol import Factory, connectionDone
from twisted.protocols.basic import Int32StringReceiver
from twisted.python.failure import Failure

from txbroker.backoff import Backoff
from txbroker.cluster.tree.interface import (
    ANY_VERSION,
    ConnectionLost,
    Create,
    Delete,
    Op,
    OpResult,
    SessionExpired,
    Set,
    Stat,
    TooLarge,
    Watcher,
    WatchEvent,
    check_path,
    check_size,
)
from txbroker.cluster.tree.operations import found
from txbroker.cluster.tree.served_messages import (
    FRAME_BYTES_MAX,
    MessageKind,
    RequestKind,
    TreeFrame,
    TreeRequest,
    decode_frame,
    framed,
    from_error,
    from_event,
    from_result,
    to_struct,
)
from txbroker.cluster.tree.watches import Watches, WatchKind, call_watcher, report_expiry
from txbroker.errors import ProtocolError, StartError
from txbroker.retrying import retrying

T = TypeVar("T")

RETRY_S, RETRY_S_MAX = 0.2, 1.0  # after a connection that was refused

log = logging.getLogger("txbroker.cluster")


def open_served_tree(path: str, reactor: Any, chance: Callable[[], float], *, timeout_s: float) -> Deferred[ServedTree]:
    """A session with the server at this socket; StartError if none answers in this time. A server that has ended is started again.

    `chance` returns numbers from 0 to 1.
    """
    end_s = reactor.seconds() + timeout_s
    backoff = Backoff(chance, RETRY_S, RETRY_S_MAX)
    say = partial(log.debug, "cannot open a session with the server of the metadata, retrying: %s")  # the caller reports the last failure
    return Deferred.fromCoroutine(
        retrying(lambda: _connect(path, reactor, end_s - reactor.seconds()), reactor, backoff, say, until_s=end_s)
    )


async def _connect(path: str, reactor: Any, timeout_s: float) -> ServedTree:
    """One attempt; StartError."""
    endpoint = UNIXClientEndpoint(reactor, path, timeout=timeout_s, checkPID=False)
    try:
        tree: ServedTree = await endpoint.connect(Factory.forProtocol(ServedTree))
    except ConnectingCancelledError as error:
        raise CancelledError from error
    except ConnectError as error:
        problem = f"The server of the metadata does not answer at {path}: {str(error).rstrip('.')}"
        raise StartError(f"{problem}; its lines in the log say why.") from error
    timer = reactor.callLater(timeout_s, tree.abort)
    try:
        await tree.begun
    except ConnectionLost as error:
        raise StartError(f"The server of the metadata at {path} has closed the connection; its lines in the log say why.") from error
    finally:
        if timer.active():
            timer.cancel()
    return tree


class _Waiting(NamedTuple):
    """A request without an answer."""

    path: str
    result: Deferred[Any]
    read: Callable[[TreeFrame], Any]
    watch: tuple[WatchKind, str, Watcher] | None


class ServedTree(Int32StringReceiver):
    """See `Tree`. `begun` fires when the session exists."""

    MAX_LENGTH = FRAME_BYTES_MAX
    transport: Any = None

    def __init__(self) -> None:
        self.begun: Deferred[None] = Deferred()
        self.session_id = 0
        self._over = False
        self._waiting: deque[_Waiting] = deque()
        self._watches = Watches()
        self._expired_callbacks: list[Callable[[], None]] = []

    # Operations

    def create(self, path: str, data: bytes | None = None, *, ephemeral: bool = False, sequential: bool = False) -> Deferred[str]:
        """See `Tree`."""
        return self._one(Create(path, data, ephemeral, sequential))

    def get(self, path: str, *, watch: Watcher | None = None) -> Deferred[tuple[bytes | None, Stat]]:
        """See `Tree`."""

        def read(received: TreeFrame) -> tuple[bytes | None, Stat]:
            return None if received.data is None else bytes(received.data), _stat(received)

        return self._ask(RequestKind.GET, path, read, WatchKind.NODE, watch)

    def get_all(self, paths: Sequence[str]) -> Deferred[list[tuple[bytes | None, Stat] | None]]:
        """See `Tree`."""
        return found([self.get(path) for path in paths])

    def set(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> Deferred[Stat]:
        """See `Tree`."""
        return self._one(Set(path, data, version))

    def delete(self, path: str, version: int = ANY_VERSION) -> Deferred[None]:
        """See `Tree`."""
        return self._one(Delete(path, version))

    def children(self, path: str, *, watch: Watcher | None = None) -> Deferred[list[str]]:
        """See `Tree`."""
        return self._ask(RequestKind.CHILDREN, path, lambda received: received.names, WatchKind.CHILDREN, watch)

    def exists(self, path: str, *, watch: Watcher | None = None) -> Deferred[Stat | None]:
        """See `Tree`."""

        def read(received: TreeFrame) -> Stat | None:
            found = from_result(received.results[0])
            return found if isinstance(found, Stat) else None

        return self._ask(RequestKind.EXISTS, path, read, WatchKind.NODE, watch)

    def multi(self, ops: Sequence[Op]) -> Deferred[list[OpResult]]:
        """See `Tree`."""
        return self._perform(RequestKind.MULTI, ops).addCallback(_results)

    def sync(self) -> Deferred[None]:
        """See `Tree`: all sessions read the same nodes."""
        return fail(SessionExpired("/")) if self._over else succeed(None)

    def on_expired(self, callback: Callable[[], None]) -> None:
        """See `Tree`."""
        self._expired_callbacks.append(callback)

    def close(self) -> Deferred[None]:
        """See `Tree`."""
        if self._over:
            return fail(SessionExpired("/"))
        ended = self._ask(RequestKind.CLOSE, "/", lambda _: None)
        self._over = True
        self._watches.clear()
        return ended.addErrback(_lost_is_closed).addCallback(lambda _: self.transport.loseConnection())

    def abort(self) -> None:
        """Close the connection without the server."""
        self.transport.abortConnection()

    def _one(self, op: Op) -> Deferred[Any]:
        return self._perform(RequestKind.ONE, [op]).addCallback(lambda received: _results(received)[0])

    def _perform(self, kind: RequestKind, ops: Sequence[Op]) -> Deferred[TreeFrame]:
        try:
            for op in ops:
                check_path(op.path)
                check_size(op.path, op.data if isinstance(op, Create | Set) else None)
        except (ValueError, TooLarge):
            return fail(Failure())
        return self._send(TreeRequest(kind=kind, path="", watch=False, ops=[to_struct(op) for op in ops]), "/", lambda received: received)

    def _ask(
        self,
        request: RequestKind,
        path: str,
        read: Callable[[TreeFrame], T],
        kind: WatchKind = WatchKind.NODE,
        watcher: Watcher | None = None,
    ) -> Deferred[T]:
        try:
            check_path(path)
        except ValueError:
            return fail(Failure())
        watch = None if watcher is None else (kind, path, watcher)
        return self._send(TreeRequest(kind=request, path=path, watch=watch is not None, ops=[]), path, read, watch)

    def _send(
        self,
        request: TreeRequest,
        path: str,
        read: Callable[[TreeFrame], T],
        watch: tuple[WatchKind, str, Watcher] | None = None,
    ) -> Deferred[T]:
        if self._over:
            return fail(SessionExpired(path))
        waiting = _Waiting(path, Deferred(), read, watch)
        self._waiting.append(waiting)
        self.transport.write(framed(request))
        return waiting.result

    # The connection

    def stringReceived(self, string: bytes) -> None:
        """One frame."""
        try:
            received = decode_frame(memoryview(string))
            kind = MessageKind(received.kind)
            if kind is MessageKind.SESSION:
                self.session_id = received.number
                self.begun.callback(None)
            elif kind is MessageKind.EVENT:
                self._changed(WatchEvent(from_event(received), received.path))
            else:
                self._answered(received)
        except (ProtocolError, ValueError, LookupError) as error:
            log.error("malformed response from the metadata server: %s", error)
            self.transport.abortConnection()

    def lengthLimitExceeded(self, length: int) -> None:
        """Close: nothing is received."""
        log.error("the server of the metadata announced %d bytes", length)
        self.transport.abortConnection()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """The session has ended."""
        closed, self._over = self._over, True
        self._watches.clear()
        if not self.session_id:
            self.begun.errback(ConnectionLost("/"))
            return
        waiting, self._waiting = self._waiting, deque()
        if not closed:
            log.warning("the connection to the server of the metadata is lost: %s", reason.getErrorMessage())
            report_expiry(self._expired_callbacks)
        for one in waiting:
            one.result.errback(ConnectionLost(one.path))

    def _answered(self, received: TreeFrame) -> None:
        waiting = self._waiting.popleft()
        if received.kind == MessageKind.ERROR:
            waiting.result.errback(from_error(received))
            return
        value = waiting.read(received)
        if waiting.watch is not None and not self._over:
            self._watches.add(*waiting.watch)
        waiting.result.callback(value)

    def _changed(self, event: WatchEvent) -> None:
        for watcher in self._watches.trigger(event):
            if self._over:
                return
            call_watcher(watcher, event)


def _results(received: TreeFrame) -> list[OpResult]:
    return [from_result(result) for result in received.results]


def _stat(received: TreeFrame) -> Stat:
    found = from_result(received.results[0])
    if not isinstance(found, Stat):
        raise ValueError("a result without a stat")
    return found


def _lost_is_closed(failure: Failure) -> None:
    failure.trap(ConnectionLost)
