"""ZooKeeper in the simulation: servers that apply the same transactions, each with its own delay, and sessions that expire.

A write takes effect at once, and is answered when the server of the session has applied it. A read returns what that server has applied so
far, which may be old. A server that is behind what a client has seen refuses its connection, so that a client never reads older states
than before. Watches belong to a connection: the server forgets them when it is lost. What a request carries, and the results, are those of
kazoo (`cluster/tree/kazoo_session.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, NamedTuple, Protocol

from kazoo import exceptions
from kazoo.protocol import serialization
from kazoo.protocol.states import EventType as KazooEvent
from kazoo.protocol.states import WatchedEvent, ZnodeStat

from simulation.network import Accepting, End, Network
from simulation.process import Process
from simulation.scheduler import Scheduler
from txbroker.cluster.tree import interface
from txbroker.cluster.tree.interface import Check, Create, Delete, EventType, Op, Set, Stat, TreeError, WatchEvent
from txbroker.cluster.tree.memory import MemoryNodes
from txbroker.cluster.tree.multi_read import MultiRead
from txbroker.cluster.tree.watches import Watches, WatchKind
from txbroker.cluster.tree.znodes import Node, Overlay

PORT = 2181
LAG_S = 0.004  # of a server, at most, unless it is slow
TICK_S = 0.5  # sessions expire up to so much late

_EPHEMERAL, _SEQUENTIAL = 1, 2
_EVENTS = {
    EventType.CREATED: KazooEvent.CREATED,
    EventType.DELETED: KazooEvent.DELETED,
    EventType.DATA_CHANGED: KazooEvent.CHANGED,
    EventType.CHILDREN_CHANGED: KazooEvent.CHILD,
}
_ERRORS: Mapping[type[Exception], type[Exception]] = {
    interface.NoNode: exceptions.NoNodeError,
    interface.NodeExists: exceptions.NodeExistsError,
    interface.BadVersion: exceptions.BadVersionError,
    interface.NotEmpty: exceptions.NotEmptyError,
    interface.NoChildrenForEphemerals: exceptions.NoChildrenForEphemeralsError,
    ValueError: exceptions.BadArgumentsError,
}


class Transaction(NamedTuple):
    """What one write has changed. `session`: whose it was."""

    zxid: int
    changes: Mapping[str, Node | None]
    events: Sequence[WatchEvent]
    session: int


class Outcome(NamedTuple):
    """The result of a request: what kazoo's AsyncResult holds."""

    value: Any
    exception: Exception | None

    def successful(self) -> bool:
        """Whether there is a value."""
        return self.exception is None


class Client(Protocol):
    """A client's end of a connection: what the server calls, as messages."""

    def answered(self, number: int, outcome: Outcome, zxid: int) -> None:
        """The result of a request. `zxid`: of the last transaction that the server had applied."""

    def notified(self, watcher: Callable[[WatchedEvent], None], event: WatchedEvent) -> None:
        """A watch was triggered."""


class Session:
    """A session. `heard_s`: when its client was last there; `connection`: of the moment."""

    def __init__(self, session_id: int, password: bytes, timeout_s: float) -> None:
        self.id = session_id
        self.password = password
        self.timeout_s = timeout_s
        self.heard_s = 0.0
        self.connection: Connection | None = None


class Ensemble:
    """The servers together. `committed` is called with each transaction, before any server has applied it."""

    def __init__(self, scheduler: Scheduler, network: Network, chance: Random, *, servers: int = 3) -> None:
        self.scheduler = scheduler
        self.network = network
        self.chance = chance
        self.nodes = MemoryNodes()
        self.sessions: dict[int, Session] = {}
        self.committed: Callable[[Transaction], None] = lambda transaction: None
        self.electing = False  # it has no leader, and serves nothing
        self.servers = [Server(self, f"zk{number + 1}") for number in range(servers)]
        self._last_session = 0x1000

    @property
    def connect(self) -> str:
        """The value of zookeeper.connect."""
        return ",".join(f"{server.name}:{PORT}" for server in self.servers)

    def begin_session(self, timeout_s: float) -> Session:
        """A new session."""
        self._last_session += 1
        session = Session(self._last_session, self.chance.randbytes(16), timeout_s)
        self.sessions[session.id] = session
        self.hear(session)
        self._watch(session)
        return session

    def hear(self, session: Session) -> None:
        """The client is there."""
        session.heard_s = self.scheduler.now_s

    def _watch(self, session: Session) -> None:
        due_s = session.heard_s + session.timeout_s + self.chance.random() * TICK_S
        self.scheduler.at(due_s, lambda: self._expire_if_silent(session))

    def _expire_if_silent(self, session: Session) -> None:
        if self.sessions.get(session.id) is session:
            if not self.electing and self.scheduler.now_s >= session.heard_s + session.timeout_s:
                self.end_session(session)
            else:
                session.heard_s = self.scheduler.now_s if self.electing else session.heard_s
                self._watch(session)

    def end_session(self, session: Session) -> None:
        """Expire or close a session: its ephemeral nodes are deleted."""
        del self.sessions[session.id]
        overlay = Overlay(self.nodes)
        overlay.end_session(session.id)
        self._commit(overlay, session.id)
        if session.connection is not None:
            session.connection.close()

    def write(self, session: Session, ops: Sequence[Op]) -> tuple[Sequence[Any], TreeError | ValueError | None]:
        """Perform operations together: their results, or why none was performed."""
        overlay = Overlay(self.nodes)
        try:
            results = overlay.perform(ops, session.id)
        except (TreeError, ValueError) as error:
            return (), error
        self._commit(overlay, session.id)
        return results, None

    def _commit(self, overlay: Overlay, session_id: int) -> None:
        if overlay.changes:
            self.nodes.write(overlay.changes, overlay.zxid)
            transaction = Transaction(overlay.zxid, overlay.changes, overlay.events, session_id)
            self.committed(transaction)
            for server in self.servers:
                server.follow(transaction)

    def clear(self) -> None:
        """The end of the run: no sessions, and no connections."""
        self.sessions.clear()
        for server in self.servers:
            server.connections.clear()

    # Faults

    def delete(self, path: str) -> None:
        """An operator deletes a node."""
        overlay = Overlay(self.nodes)
        if self.nodes.get(path) is not None:
            overlay.perform([Delete(path)], 0)
            self._commit(overlay, 0)

    def elect(self, duration_s: float) -> None:
        """The leader is lost: all connections end, and none is accepted until another one is elected."""
        self.electing = True
        for server in self.servers:
            server.drop_connections()
        self.scheduler.after(duration_s, self._elected)

    def _elected(self) -> None:
        self.electing = False
        for session in self.sessions.values():
            self.hear(session)

    def server(self, name: str) -> Server:
        """A server by its name."""
        return next(server for server in self.servers if server.name == name)


class Server:
    """One server, a process on a host of its own. `lags`: how far faults have it be behind; the longest one counts."""

    def __init__(self, ensemble: Ensemble, name: str) -> None:
        self.name = name
        self.ensemble = ensemble
        self.nodes = MemoryNodes()
        self.children_zxid: dict[str, int] = {}
        self.lags: list[float] = []
        self.connections: dict[Connection, None] = {}
        self._transactions: deque[Transaction] = deque()
        self._last_s = 0.0
        self.process = Process(name, name, ensemble.scheduler, ensemble.network, ensemble.chance, on_step=lambda: None, on_crash=_raise)
        ensemble.network.listen(name, PORT, Accepting(self.process, self._connected))

    def _connected(self, end: End) -> None:
        if self.ensemble.electing:
            end.close(reset=True)
            return
        self.connections[Connection(self, end)] = None

    def drop_connections(self) -> None:
        """End all connections."""
        for connection in list(self.connections):
            connection.close()

    def follow(self, transaction: Transaction) -> None:
        """A transaction is committed: apply it soon."""
        scheduler = self.ensemble.scheduler
        self._transactions.append(transaction)
        lag_s = max(self.lags, default=LAG_S)
        self._last_s = max(self._last_s, scheduler.now_s + self.ensemble.chance.random() * lag_s)
        scheduler.at(self._last_s, self._apply)

    def _apply(self) -> None:
        transaction = self._transactions.popleft()
        self.nodes.write(transaction.changes, transaction.zxid)
        for event in transaction.events:
            if event.type is EventType.CHILDREN_CHANGED:
                self.children_zxid[event.path] = transaction.zxid
        connections = list(self.connections)
        for event in transaction.events:
            for connection in connections:
                connection.trigger(event)
        for connection in connections:
            connection.serve()


class Connection:
    """A client's connection to one server: a session once it is opened."""

    def __init__(self, server: Server, end: End) -> None:
        self.session: Session | None = None
        self._server = server
        self._end = end
        self._watches = Watches()
        self._requests: deque[tuple[int, Callable[[], None]]] = deque()  # the zxid that must be applied first
        self.client: Client | None = None
        end.lost = self._lost

    def _lost(self, _: Exception) -> None:
        self._server.connections.pop(self, None)
        if self.session is not None and self.session.connection is self:
            self.session.connection = None

    def close(self) -> None:
        """End it."""
        self._end.close(reset=True)
        self._lost(ConnectionError())

    # Messages of the client

    def open(
        self,
        client: Client,
        timeout_s: float,
        credentials: tuple[int, bytes] | None,
        seen_zxid: int,
        opened: Callable[[Session | None], None],
    ) -> None:
        """Begin a session, or continue one; `opened` receives None if it is over. `seen_zxid`: of the newest result that the client has."""
        ensemble = self._server.ensemble
        if seen_zxid > self._server.nodes.zxid:
            self.close()  # the client tries another server
            return
        self.client = client
        if credentials is None or credentials[0] == 0:
            session: Session | None = ensemble.begin_session(timeout_s)
        else:
            session = ensemble.sessions.get(credentials[0])
            if session is not None and session.password != credentials[1]:
                session = None
        if session is None:
            self._end.send(lambda: opened(None))
            return
        before, session.connection = session.connection, self
        if before is not None:
            before.close()
        self.session = session
        ensemble.hear(session)
        found = session
        self._end.send(lambda: opened(found))

    def ping(self, number: int) -> None:
        """The client is there."""
        self._request(lambda: self._answer(number, Outcome(None, None)), 0)

    def end(self) -> None:
        """Close the session."""
        session = self.session
        if session is not None and self._server.ensemble.sessions.get(session.id) is session:
            self._server.ensemble.end_session(session)

    def request(self, number: int, request: Any) -> None:
        """A request of kazoo.protocol.serialization."""
        session, ensemble = self.session, self._server.ensemble
        if session is None or ensemble.sessions.get(session.id) is not session:
            return
        match request:
            case serialization.GetData() | serialization.Exists() | serialization.GetChildren2():
                self._request(lambda: self._answer(number, self._read(request)), 0)
            case MultiRead():
                self._request(lambda: self._answer(number, Outcome(list(map(self._node, request.paths)), None)), 0)
            case serialization.Sync():
                self._request(lambda: self._answer(number, Outcome(request.path, None)), ensemble.nodes.zxid)
            case serialization.Transaction():
                outcome = _multi(request, *ensemble.write(session, [_op(one) for one in request.operations]))
                self._request(lambda: self._answer(number, outcome), ensemble.nodes.zxid)
            case _:
                results, error = ensemble.write(session, [_op(request)])
                one = Outcome(None, _failure(error)) if error is not None else Outcome(_value(results[0]), None)
                self._request(lambda: self._answer(number, one), ensemble.nodes.zxid)

    def _request(self, perform: Callable[[], None], zxid: int) -> None:
        if self.session is not None:
            self._server.ensemble.hear(self.session)
        self._requests.append((zxid, perform))
        self.serve()

    def serve(self) -> None:
        """Perform the requests, in order, whose transactions this server has applied."""
        while self._requests and self._requests[0][0] <= self._server.nodes.zxid:
            self._requests.popleft()[1]()

    def _answer(self, number: int, outcome: Outcome) -> None:
        client, zxid = self.client, self._server.nodes.zxid
        if client is not None:
            self._end.send(lambda: client.answered(number, outcome, zxid))

    # Reads and watches

    def _read(self, request: Any) -> Outcome:
        nodes, path = self._server.nodes, request.path
        node = nodes.get(path)
        kind = WatchKind.CHILDREN if isinstance(request, serialization.GetChildren2) else WatchKind.NODE
        if request.watcher is not None and (node is not None or isinstance(request, serialization.Exists)):
            self._watches.add(kind, path, request.watcher)
        if node is None:
            return Outcome(None, None) if isinstance(request, serialization.Exists) else Outcome(None, exceptions.NoNodeError())
        stat = self._stat(path, node)
        if isinstance(request, serialization.GetData):
            return Outcome((node.data, stat), None)
        if isinstance(request, serialization.Exists):
            return Outcome(stat, None)
        return Outcome((sorted(nodes.names_under(path)), stat), None)

    def _node(self, path: str) -> tuple[bytes | None, ZnodeStat] | None:
        node = self._server.nodes.get(path)
        return None if node is None else (node.data, self._stat(path, node))

    def _stat(self, path: str, node: Node) -> ZnodeStat:
        return _znode_stat(node.stat, self._server.children_zxid.get(path, node.czxid))

    def trigger(self, event: WatchEvent) -> None:
        """Notify the watchers of an event."""
        client = self.client
        if client is not None:
            for watcher in self._watches.trigger(event):
                found: Any = watcher
                notified = WatchedEvent(_EVENTS[event.type], None, event.path)
                self._end.send(lambda found=found, notified=notified: client.notified(found, notified))  # type: ignore[misc]


def _op(request: Any) -> Op:
    match request:
        case serialization.Create():
            return Create(request.path, request.data, bool(request.flags & _EPHEMERAL), bool(request.flags & _SEQUENTIAL))
        case serialization.SetData():
            return Set(request.path, request.data, request.version)
        case serialization.Delete():
            return Delete(request.path, request.version)
        case serialization.CheckVersion():
            return Check(request.path, request.version)
    raise TypeError(f"{type(request).__name__} is not a request that brokers send")


def _value(result: Any) -> Any:
    if isinstance(result, Stat):
        return _znode_stat(result, result.czxid)
    return True if result is None else result


def _multi(request: Any, results: Sequence[Any], error: TreeError | ValueError | None) -> Outcome:
    if error is None:
        return Outcome([_value(result) for result in results], None)
    failed = error.index if isinstance(error, TreeError) and error.index is not None else 0
    count = len(request.operations)
    results = [exceptions.RolledBackError() if index < failed else exceptions.RuntimeInconsistency() for index in range(count)]
    results[failed] = _failure(error)
    return Outcome(results, None)


def _failure(error: TreeError | ValueError) -> Exception:
    return _ERRORS[type(error)]()


def _znode_stat(stat: Stat, children_zxid: int) -> ZnodeStat:
    return ZnodeStat(stat.czxid, stat.mzxid, 0, 0, stat.version, 0, 0, stat.ephemeral_owner, 0, stat.children_count, children_zxid)


def _raise(error: Exception) -> None:
    raise error
