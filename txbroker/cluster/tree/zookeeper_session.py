"""One session with ZooKeeper: its states, its end, and the requests that wait for an answer.

- A write that was under way when the connection was lost fails with ConnectionLost: it may have taken effect. A read is repeated.
- A session is over when ZooKeeper says so, or when there was no connection for the session's timeout: ZooKeeper, if it is there, has
  then ended it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from kazoo import exceptions
from twisted.internet.defer import Deferred, fail

from txbroker.cluster.tree.interface import (
    BadVersion,
    ConnectionLost,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    Refused,
    SessionExpired,
    TreeError,
)
from txbroker.cluster.tree.kazoo_session import Credentials, KazooSession, SessionState
from txbroker.cluster.tree.session_tree import SessionCounts
from txbroker.cluster.tree.watches import report_expiry
from txbroker.errors import StartError

T = TypeVar("T")
log = logging.getLogger("txbroker.zookeeper")


class Unsupported(Refused):
    """The server does not know this kind of request."""


_ERRORS: dict[type[Exception], type[TreeError]] = {
    exceptions.NoNodeError: NoNode,
    exceptions.NodeExistsError: NodeExists,
    exceptions.BadVersionError: BadVersion,
    exceptions.NotEmptyError: NotEmpty,
    exceptions.NoChildrenForEphemeralsError: NoChildrenForEphemerals,
    exceptions.SessionExpiredError: SessionExpired,
    exceptions.ConnectionClosedError: SessionExpired,
}
_REFUSALS: dict[type[Exception], str] = {
    exceptions.NoAuthError: "(NoAuth): authenticate to ZooKeeper as the brokers that have created it, or correct its "
    "access control list, or, for its creation or deletion, that of its parent",
    exceptions.SessionClosedRequireSaslError: "because it requires a login: set txbroker.zookeeper.jaas.config",
    exceptions.InvalidACLError: "(InvalidACL): check the access control lists there",
    exceptions.BadArgumentsError: "(BadArguments): see the log of ZooKeeper",
    exceptions.QuotaExceededError: "(QuotaExceeded): raise the quota of the nodes there",
}


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


class ZooKeeperSession:
    """For the reactor's thread. `over`: operations fail; `reconnected` is called after a connection that was lost has returned."""

    def __init__(self, servers: str, timeout_ms: int, threads: Threads, counts: SessionCounts, open_session: OpenSession) -> None:
        self.over = False
        self.chroot = ""  # above the paths of operations, for the texts of errors
        self.reconnected: Callable[[], None] = lambda: None
        self.end_reason = ""  # of a session that was not closed
        self._servers = servers
        self._threads = threads
        self._counts = counts
        self._client = open_session(servers, timeout_ms, call_from_thread=threads.call_from_thread, on_state=self._state_changed)
        self._opening: Deferred[None] | None = None
        self._cancel_timer: Callable[[], object] | None = None
        self._waiting: dict[Deferred[Any], str] = {}  # with their paths, in the order of the calls
        self._expired_callbacks: list[Callable[[], None]] = []

    def open(self, timeout_s: float) -> Deferred[None]:
        """Connect; StartError if no server answers in this time."""
        self._opening = Deferred(lambda _: self.abort())
        self._cancel_timer = self._threads.call_later(timeout_s, self._cannot_connect)
        self._client.start()
        return self._opening

    @property
    def credentials(self) -> Credentials:
        """The session's id and password."""
        return self._client.credentials

    def on_expired(self, callback: Callable[[], None]) -> None:
        """See `Tree`."""
        self._expired_callbacks.append(callback)

    def close(self) -> Deferred[None]:
        """See `Tree`. Operations that were called before it are performed."""
        if self.over:
            return fail(SessionExpired("/"))
        self._set_over()
        return self._threads.worker(self._client.stop).addBoth(self._closed)

    def abort(self) -> None:
        """End a session that is not in use yet."""
        self._opening = None
        if not self.over:
            self._set_over()
            self._threads.worker(self._client.stop)

    def submit(self, path: str, request: Any, convert: Callable[[Any], T], *, repeat: bool = False) -> Deferred[T]:
        """Send a request, if `repeat` again when its answer is lost. `convert` makes the result, or raises a TreeError."""
        if self.over:
            return fail(SessionExpired(path))
        deferred: Deferred[T] = Deferred()
        self._waiting[deferred] = path
        begun_s = self._threads.seconds()

        def done(result: Any) -> None:
            if deferred not in self._waiting:
                return  # the session ended
            if repeat and isinstance(result.exception, exceptions.ConnectionLoss):
                self._client.submit(request, done)
                return
            del self._waiting[deferred]
            self._counts.requests += 1
            self._counts.latencies.append(self._threads.seconds() - begun_s)
            if not result.successful():
                deferred.errback(tree_error(result.exception, path, chroot=self.chroot))
                return
            try:
                value = convert(result.value)
            except TreeError as error:
                deferred.errback(error)
            else:
                deferred.callback(value)

        self._client.submit(request, done)
        return deferred

    def _closed(self, result: T) -> T:
        self._fail_waiting()
        return result

    def _cannot_connect(self) -> None:
        opening, self._cancel_timer = self._opening, None
        self.abort()
        if opening is not None:
            opening.errback(_no_answer(self._servers, self._client.problem))

    def _state_changed(self, state: SessionState) -> None:
        if self.over or (state is SessionState.SUSPENDED and self._opening is not None):
            return
        if state is SessionState.OVER:
            self._end(self._client.problem or "ZooKeeper has ended it")
        elif state is SessionState.SUSPENDED:
            self._counts.connected = False
            self._counts.disconnects += 1
            timeout_s = self._client.negotiated_ms / 1000
            log.warning("the connection to ZooKeeper at %s is lost; the session ends in %.1f s unless it returns", self._servers, timeout_s)
            self._stop_timer()
            self._cancel_timer = self._threads.call_later(timeout_s, self._timed_out)
        else:
            self._counts.connected = True
            self._counts.connects += 1
            self._stop_timer()
            session, timeout_ms = self.credentials[0], self._client.negotiated_ms
            log.info("connected to ZooKeeper at %s: session %#x, timeout %d ms", self._servers, session, timeout_ms)
            opening, self._opening = self._opening, None
            if opening is not None:
                opening.callback(None)
            else:
                self.reconnected()

    def _timed_out(self) -> None:
        self._cancel_timer = None
        self._end("there was no connection for its timeout")

    def _end(self, reason: str) -> None:
        """The session is over without having been closed."""
        log.warning("the session expired: ZooKeeper session %#x, %s", self.credentials[0], reason)
        self.end_reason = reason
        self._set_over()
        self._counts.connected = False
        self._counts.expirations += 1
        self._threads.worker(self._client.stop)
        opening, self._opening = self._opening, None
        self._fail_waiting()
        if opening is not None:
            opening.errback(self.refusal())
        report_expiry(self._expired_callbacks)

    def refusal(self) -> StartError:
        """The error of a session that ended while it was opened."""
        return StartError(f"ZooKeeper at {self._servers} refuses the session: {self.end_reason}; see its log.")

    def _set_over(self) -> None:
        self.over = True
        self._stop_timer()

    def _stop_timer(self) -> None:
        if self._cancel_timer is not None:
            self._cancel_timer()
            self._cancel_timer = None

    def _fail_waiting(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for deferred, path in waiting.items():
            deferred.errback(SessionExpired(path))


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


def tree_error(error: Exception, path: str, index: int | None = None, chroot: str = "") -> TreeError:
    """The error of the interface. What kazoo raises otherwise leaves open whether the operation took effect.

    `path` is that of a node below `chroot`; an operator reads the whole path.
    """
    if isinstance(error, exceptions.UnimplementedError):
        return Unsupported(path, index, f"ZooKeeper does not implement the request for {chroot}{path}; upgrade it")
    if type(error) in _REFUSALS:
        return Refused(path, index, f"ZooKeeper refuses the operation on node {chroot}{path} {_REFUSALS[type(error)]}")
    return _ERRORS.get(type(error), ConnectionLost)(path, index)


def _no_answer(servers: str, problem: str) -> StartError:
    details = f" ({problem})" if problem else ""
    return StartError(f"No ZooKeeper answers at {servers}: start it, or correct zookeeper.connect{details}.")
