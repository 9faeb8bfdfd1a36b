"""A client's session with the simulated ZooKeeper: takes the place of `KazooSession`, and has its properties.

Requests that are submitted while there is no connection wait for the next one of this session. When a connection is lost, those without a
result fail, also those that were not sent. Watches are forgotten with the connection.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from kazoo import exceptions
from kazoo.protocol.states import WatchedEvent

from simulation.ensemble import Connection, Ensemble, Outcome, Server, Session
from simulation.network import End
from simulation.process import Process
from txbroker.cluster.tree.kazoo_session import Credentials, SessionState

RETRY_S = 0.1
RETRY_MAX_S = 1.0


class SimulatedSession:
    """See `ClientSession` of `cluster/tree/zookeeper.py`."""

    def __init__(
        self,
        process: Process,
        ensemble: Ensemble,
        servers: str,
        timeout_ms: int,
        *,
        call_from_thread: Callable[..., object],
        on_state: Callable[[SessionState], None],
        credentials: Credentials | None = None,
    ) -> None:
        self.credentials: Credentials = credentials or (0, b"")
        self.negotiated_ms = timeout_ms
        self.problem = ""
        self._process = process
        self._ensemble = ensemble
        self._servers = [server.partition(":")[0] for server in servers.split(",")]
        self._call = call_from_thread
        self._on_state = on_state
        self._attempts = 0
        self._number = 0
        self._queue: list[tuple[Any, Callable[[Any], None]]] = []
        self._pending: deque[tuple[int, Callable[[Any], None]]] = deque()
        self._connection: _ToServer | None = None
        self._connected = False
        self._over = False
        self.seen_zxid = 0  # of the newest result
        self.began_s: float | None = None  # when the client has had the session
        self.connected_s: float | None = None  # since when it is connected

    def start(self) -> None:
        """See `KazooSession`."""
        self._connect()

    def submit(self, request: Any, done: Callable[[Any], None]) -> None:
        """See `KazooSession`."""
        if self._over:
            self._call(done, Outcome(None, exceptions.ConnectionClosedError()))
        elif self._connected:
            self._send(request, done)
        else:
            self._queue.append((request, done))

    def stop(self) -> None:
        """See `KazooSession`."""
        if not self._over:
            self._over = True
            if self._connection is not None:
                self._connection.end_session(close=self._connected)
            self._report(SessionState.OVER)
            self._fail(exceptions.ConnectionLoss)

    @property
    def server(self) -> Server | None:
        """The server to which it is connected."""
        return None if self._connection is None else self._connection.server

    def drop(self) -> None:
        """A fault: the connection is lost."""
        if self._connection is not None:
            self._connection.drop()

    # Inside

    def _report(self, state: SessionState) -> None:
        self._call(self._on_state, state)

    def _connect(self) -> None:
        if self._over:
            return
        server = self._servers[self._attempts % len(self._servers)]
        self._attempts += 1
        self._connection = _ToServer(self, server)
        self._connection.dial(self.negotiated_ms / 1000 / len(self._servers))

    @property
    def process(self) -> Process:
        """Whose session it is."""
        return self._process

    @property
    def ensemble(self) -> Ensemble:
        """The servers."""
        return self._ensemble

    def opened(self, session: Session | None) -> None:
        """A server has answered. None: the session is over."""
        if self._over:
            return
        if session is None:
            self._over = True
            self.connected_s = None
            if self._connection is not None:
                self._connection.end_session(close=False)
            self._report(SessionState.OVER)
            self._fail(exceptions.SessionExpiredError)
            return
        self._attempts = 0
        self.credentials = session.id, session.password
        self._connected = True
        self.connected_s = self._process.seconds()
        if self.began_s is None:
            self.began_s = self.connected_s
        self._report(SessionState.CONNECTED)
        queue, self._queue = self._queue, []
        for request, done in queue:
            self._send(request, done)

    def lost(self) -> None:
        """The connection, or the attempt to connect, has ended."""
        self._connection = None
        self.connected_s = None
        if self._over:
            return
        if self._connected:
            self._connected = False
            self._report(SessionState.SUSPENDED)
            self._fail(exceptions.ConnectionLoss)
        pause_s = 0.0 if self._attempts % len(self._servers) else RETRY_S + self._ensemble.chance.random() * RETRY_MAX_S
        self._process.callLater(pause_s, self._connect)

    def _fail(self, error: type[Exception]) -> None:
        waiting = [done for _, done in self._pending] + [done for _, done in self._queue]
        self._pending.clear()
        self._queue.clear()
        for done in waiting:
            self._call(done, Outcome(None, error()))

    def _send(self, request: Any, done: Callable[[Any], None]) -> None:
        assert self._connection is not None
        self._number += 1
        self._pending.append((self._number, done))
        self._connection.request(self._number, request)

    def answered(self, number: int, outcome: Outcome, zxid: int) -> None:
        """The result of the oldest request."""
        self.seen_zxid = max(self.seen_zxid, zxid)
        expected, done = self._pending.popleft()
        assert expected == number, "results come in the order of the requests"
        self._call(done, outcome)

    def notified(self, watcher: Callable[[WatchedEvent], None], event: WatchedEvent) -> None:
        """A watch was triggered."""
        if not self._over:
            self._call(watcher, event)


class _ToServer:
    """One connection to a server, or the attempt."""

    def __init__(self, owner: SimulatedSession, server: str) -> None:
        self._owner: SimulatedSession | None = owner
        self.server = owner.ensemble.server(server)
        self._process = owner.process
        self._end: End | None = None
        self._remote: Connection | None = None
        self._timer: Any = None
        self._pinged = 0  # without an answer

    def dial(self, timeout_s: float) -> None:
        """Connect."""
        self._timer = self._process.callLater(timeout_s, self.drop)
        self._end = self.server.ensemble.network.dial(self._process, self.server.name, 2181, self._connected, self._lost)
        self._end.lost = lambda _: self._lost()

    def _connected(self, end: End) -> None:
        owner = self._owner
        if owner is None:
            return
        self._end = end
        credentials, timeout_s, seen_zxid = owner.credentials, owner.negotiated_ms / 1000, owner.seen_zxid

        def open_session() -> None:
            remote = self._find(end)
            if remote is not None:
                self._remote = remote
                remote.open(self, timeout_s, credentials, seen_zxid, self._opened)

        end.send(open_session)

    def _find(self, end: End) -> Connection | None:
        """The server's part of this connection."""
        return next((connection for connection in self.server.connections if connection._end.peer is end), None)

    def _opened(self, session: Session | None) -> None:
        if self._owner is not None:
            self._cancel_timer()
            if session is not None:
                self._ping()
            self._owner.opened(session)

    def _ping(self) -> None:
        owner = self._owner
        if owner is None:
            return
        if self._pinged:
            self.drop()
            return
        self._timer = self._process.callLater(owner.negotiated_ms / 3000, self._ping)
        self._pinged += 1
        self._send(lambda remote: remote.ping(0))

    def request(self, number: int, request: Any) -> None:
        """Send a request."""
        self._send(lambda remote: remote.request(number, request))

    def _send(self, message: Callable[[Connection], None]) -> None:
        remote, end = self._remote, self._end
        if end is not None and remote is not None:
            end.send(lambda: message(remote))

    def end_session(self, *, close: bool) -> None:
        """Stop; `close`: end the session at the server, too."""
        self._owner = None
        self._cancel_timer()
        if close:
            self._send(lambda remote: remote.end())
        elif self._end is not None:
            self._end.close()

    def drop(self) -> None:
        """The connection is lost."""
        if self._end is not None:
            self._end.close(reset=True)
        self._lost()

    def _lost(self) -> None:
        owner, self._owner = self._owner, None
        self._cancel_timer()
        if owner is not None:
            owner.lost()

    def _cancel_timer(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None and timer.active():
            timer.cancel()

    # Messages of the server

    def answered(self, number: int, outcome: Outcome, zxid: int) -> None:
        """See `Client`."""
        if self._owner is not None:
            if number:
                self._owner.answered(number, outcome, zxid)
            else:
                self._pinged = 0

    def notified(self, watcher: Callable[[WatchedEvent], None], event: WatchedEvent) -> None:
        """See `Client`."""
        if self._owner is not None:
            self._owner.notified(watcher, event)
