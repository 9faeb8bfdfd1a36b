"""A connection to another broker on which nothing is sent: its end shows at once that the broker's process may have ended.

The system resets the connections of a process that has ended, and refuses new ones at its port. A broker that hangs or is paused keeps
its connections, and the system accepts new ones for it. After the loss of a connection the sentinel connects again; it reports the broker
when it is refused twice. Any other failure, such as no answer, proves nothing: it tries again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.endpoints import HostnameEndpoint
from twisted.internet.error import ConnectionRefusedError
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure

from txbroker.clock import DelayedCall

REFUSALS_MIN = 2
AGAIN_S = 0.05  # after the first refusal
RETRY_S = 1.0  # after every other failure, and after two connections in succession that were shorter than this
CONNECT_TIMEOUT_S = 10.0
ADDRESS_S = 0.01  # until the next address of a name is tried, and, in Twisted, until the failure of the last one is reported


class Sentinel:
    """Connects from the beginning until `stop`. `refused` and `reached` are called in turn."""

    def __init__(self, host: str, port: int, reactor: Any, refused: Callable[[], None], reached: Callable[[], None]) -> None:
        """`refused`: the broker had a connection, and refuses two new ones. `reached`: after that there is a connection again."""
        self._host = host
        self._port = port
        self._reactor = reactor
        self._refused = refused
        self._reached = reached
        self._attempt: Deferred[Any] | None = None
        self._connection: _Silent | None = None
        self._timer: DelayedCall | None = None
        self._connected_s = 0.0
        self._was_short = False  # the last connection
        self._lost = False  # there was a connection before
        self._refusals = 0  # one after the other, since then
        self._reported = False
        self._stopped = False
        self._connect()

    def stop(self) -> None:
        """End the connection, or the attempt to connect; nothing is reported any more."""
        self._stopped = True
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        if self._attempt is not None:
            self._attempt.cancel()
        if self._connection is not None:
            self._connection.end()

    def _connect(self) -> None:
        endpoint = HostnameEndpoint(self._reactor, self._host, self._port, timeout=CONNECT_TIMEOUT_S, attemptDelay=ADDRESS_S)
        self._attempt = attempt = endpoint.connect(Factory.forProtocol(partial(_Silent, self._ended)))  # type: ignore[arg-type]
        attempt.addCallbacks(self._connected, self._failed)

    def _later(self, delay_s: float) -> None:
        self._timer = self._reactor.callLater(delay_s, self._connect)

    def _connected(self, connection: Any) -> None:
        self._attempt = None
        if self._stopped:
            connection.end()
            return
        self._connection = connection
        self._connected_s = self._reactor.seconds()
        self._refusals = 0
        if self._reported:
            self._reported = False
            self._reached()
        if connection.lost:
            self._ended()

    def _ended(self) -> None:
        """The connection was lost."""
        if self._stopped or self._connection is None:
            return
        self._connection = None
        self._lost = True
        short, was_short = self._reactor.seconds() - self._connected_s < RETRY_S, self._was_short
        self._was_short = short
        self._later(RETRY_S if short and was_short else 0.0)

    def _failed(self, failure: Failure) -> None:
        self._attempt = None
        if self._stopped:
            return
        is_refusal = failure.check(ConnectionRefusedError) is not None
        self._refusals = self._refusals + 1 if is_refusal and self._lost else 0
        if self._refusals == REFUSALS_MIN and not self._reported:
            self._reported = True
            self._refused()
        if not self._stopped:
            self._later(AGAIN_S if 0 < self._refusals < REFUSALS_MIN else RETRY_S)


class _Silent(Protocol):
    def __init__(self, ended: Callable[[], None]) -> None:
        self._ended = ended
        self.lost = False

    def end(self) -> None:
        """Close it."""
        if self.transport is not None:
            self.transport.abortConnection()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.lost = True
        self._ended()
