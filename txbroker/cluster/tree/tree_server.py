"""Serves a metadata tree to the other processes of the machine. A connection is a session: its end deletes the session's ephemeral nodes.

The socket is in a directory that only the owner of the processes can enter. What arrives is checked nevertheless: a connection that sends
a malformed request is closed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Protocol

from twisted.internet.defer import Deferred
from twisted.internet.protocol import Factory, connectionDone
from twisted.internet.task import deferLater
from twisted.protocols.basic import Int32StringReceiver
from twisted.python.failure import Failure

from txbroker.backoff import Backoff
from txbroker.clock import Clock
from txbroker.cluster.tree.interface import NoSpaceInStore, Stat, TreeError, WatchEvent
from txbroker.cluster.tree.local_session import Session
from txbroker.cluster.tree.served_messages import (
    FRAME_BYTES_MAX,
    MessageKind,
    RequestKind,
    TreeRequest,
    TreeResult,
    decode_request,
    error_frame,
    event_frame,
    frame,
    to_op,
    to_result,
)
from txbroker.errors import ProtocolError
from txbroker.names import amount
from txbroker.retrying import retrying, warning

RETRY_S, RETRY_S_MAX = 1.0, 10.0  # after the end of a session could not be written
LOOK_S = 0.05  # how often the sessions are looked at while their end is waited for

log = logging.getLogger("txbroker.cluster")


class Trees(Protocol):
    """A store with any number of sessions."""

    def session(self) -> Session:
        """A new session."""

    def end(self, session: Session) -> Deferred[None]:
        """Delete the session's ephemeral nodes."""


class TreeServer(Factory):
    """Accepts connections, each of them a session."""

    noisy = False

    def __init__(self, trees: Trees, clock: Clock, chance: Callable[[], float]) -> None:
        """`chance` returns numbers from 0 to 1."""
        self._trees = trees
        self._clock = clock
        self._chance = chance
        self._sessions: set[Session] = set()  # from their connections on, until the file has their end
        self._unwritten: set[Session] = set()  # those of them whose ends found a full disk
        self._connections: dict[int, _Connection] = {}  # by the id of the session

    def buildProtocol(self, addr: Any) -> _Connection:
        """A connection of one process."""
        session = self._trees.session()
        self._sessions.add(session)
        connection = self._connections[session.session_id] = _Connection(session, self._end)
        return connection

    def expire(self, session_id: int) -> bool:
        """End a session, as if its process had sent nothing for too long; False if there is none with this id."""
        connection = self._connections.get(session_id)
        if connection is None:
            return False
        connection.transport.abortConnection()
        return True

    async def sessions_ended(self, timeout_s: float) -> None:
        """Wait until all processes have ended their sessions, at most for this time.

        Not for ends that find a full disk: what is left of these sessions is deleted when the file is opened again.
        """
        end_s = self._clock.seconds() + timeout_s
        while self._sessions > self._unwritten and self._clock.seconds() < end_s:
            await deferLater(self._clock, LOOK_S)  # type: ignore[arg-type]
        left = self._sessions - self._unwritten
        if left:
            count = amount(len(left), "broker")
            log.error("%s not stopped after %.0f s: their metadata is not served any more; kill them if they do not end", count, timeout_s)

    def _end(self, session: Session) -> None:
        self._connections.pop(session.session_id, None)
        session.forget()
        say = warning(log, "the end of the session of a process cannot be written, retrying: %s", TreeError)
        ended = retrying(lambda: self._try_to_end(session), self._clock, Backoff(self._chance, RETRY_S, RETRY_S_MAX), say)
        Deferred.fromCoroutine(ended).addCallback(lambda _: self._forget(session))

    async def _try_to_end(self, session: Session) -> None:
        try:
            await self._trees.end(session)
        except NoSpaceInStore:
            self._unwritten.add(session)
            raise

    def _forget(self, session: Session) -> None:
        self._sessions.discard(session)
        self._unwritten.discard(session)


class _Connection(Int32StringReceiver):
    """One process. Its requests are performed in order, and answered in order."""

    MAX_LENGTH = FRAME_BYTES_MAX
    transport: Any = None

    def __init__(self, session: Session, ended: Callable[[Session], None]) -> None:
        self._session = session
        self._ended = ended
        self._over = False

    def connectionMade(self) -> None:
        """Send the session's id."""
        self.transport.write(frame(MessageKind.SESSION, self._session.session_id))

    def stringReceived(self, string: bytes) -> None:
        """One request."""
        try:
            result = self._perform(decode_request(memoryview(string)))
        except (ProtocolError, ValueError) as error:
            log.error("malformed request from a broker process; closing its connection: %s", error)
            self.transport.abortConnection()
            return
        result.addCallbacks(self._send, self._failed)

    def lengthLimitExceeded(self, length: int) -> None:
        """Close: nothing is received."""
        log.error("a process announced %d bytes to the server of the metadata, and is disconnected", length)
        self.transport.abortConnection()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """The process has ended, or has closed its session."""
        self._over = True
        self._ended(self._session)

    def _perform(self, request: TreeRequest) -> Deferred[bytes]:
        session, path, watch = self._session, request.path, self._changed if request.watch else None
        kind = RequestKind(request.kind)
        if kind is RequestKind.GET:
            return session.get(path, watch=watch).addCallback(_read)
        if kind is RequestKind.EXISTS:
            return session.exists(path, watch=watch).addCallback(lambda stat: frame(MessageKind.RESULT, results=[to_result(stat)]))
        if kind is RequestKind.CHILDREN:
            return session.children(path, watch=watch).addCallback(lambda names: frame(MessageKind.RESULT, names=names))
        if kind is RequestKind.CLOSE:
            return session.close().addCallback(lambda _: frame(MessageKind.RESULT))
        ops = [to_op(op) for op in request.ops]
        if kind is RequestKind.MULTI:
            return session.multi(ops).addCallback(_performed)
        if len(ops) != 1:
            raise ValueError(f"{len(ops)} operations instead of one")
        return session.one(ops[0]).addCallback(lambda result: _performed([result]))

    def _send(self, data: bytes) -> None:
        if not self._over:
            self.transport.write(data)

    def _failed(self, failure: Failure) -> None:
        if isinstance(failure.value, TreeError):
            self._send(error_frame(failure.value))
        elif failure.check(ValueError):  # the path or the size of data, which the sessions of the processes check, too
            log.error("invalid path or data of a node from a broker process; closing its connection: %s", failure.getErrorMessage())
            self.transport.abortConnection()
        else:
            log.error("internal error of the server of the metadata: %s", failure.getTraceback())
            self.transport.abortConnection()

    def _changed(self, event: WatchEvent) -> None:
        self._send(event_frame(event.type, event.path))


def _read(read: tuple[bytes | None, Stat]) -> bytes:
    return frame(MessageKind.RESULT, data=read[0], results=[to_result(read[1])])


def _performed(results: list[Any]) -> bytes:
    made: list[TreeResult] = [to_result(result) for result in results]
    return frame(MessageKind.RESULT, results=made)
