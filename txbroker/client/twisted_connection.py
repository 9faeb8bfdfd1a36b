"""A client of one broker for Twisted: for the brokers' own connections, which may have TLS.

Requests go out in the order of `send`, at most in_flight_max of them without a response; the others wait. A response fires the request's
Deferred. When the connection is lost or a response is late, every Deferred without a response fails with the same ConnectionFailed, and
`lost` is called; whether to connect again is the caller's decision.
"""

from __future__ import annotations

import ssl
from builtins import TimeoutError as OSTimeoutError
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from twisted.internet import task
from twisted.internet.defer import Deferred, fail
from twisted.internet.endpoints import HostnameEndpoint
from twisted.internet.error import ConnectError, ConnectionDone, DNSLookupError, TimeoutError
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure

from txbroker.client.client_errors import (
    ClientError,
    Closed,
    ConnectionFailed,
    NameUnknown,
    NotKafka,
    TooManyRequests,
    Unreachable,
    address_text,
    reason_text,
)
from txbroker.client.client_machine import ClientMachine, ClientSettings, Completed, State
from txbroker.client.tls_failures import tls_failed
from txbroker.tls.client_pipe import ClientPipe
from txbroker.wire.schema import Request

DEFAULT_SETTINGS = ClientSettings()
# Requests that wait for their turn. A caller with more of them does not wait for responses.
WAITING_MAX = 1000


class _Waiting(NamedTuple):
    """A request that waits until fewer than in_flight_max are in flight."""

    request: Request
    timeout_s: float | None
    version_max: int | None
    response: Deferred[Any]


class TwistedConnection:
    """Connects when `connect` is called. `reactor.seconds` is monotonic; `chance` returns numbers from 0 to 1.

    `lost` is called after the loss of a connection that was ready, except by `close`.
    """

    def __init__(
        self, host: str, port: int, reactor: Any, chance: Callable[[], float], settings: ClientSettings = DEFAULT_SETTINGS,
        lost: Callable[[ConnectionFailed], None] | None = None, nonce: Callable[[], str] | None = None,
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:  # fmt: skip
        """`nonce` returns new random text for each login. `tls`: returns the context of a new connection; None: connect without TLS."""
        self.address = address_text(host, port)
        self.machine: ClientMachine[Deferred[Any]] = ClientMachine(self.address, settings, chance, nonce)
        self._host = host
        self._port = port
        self._reactor = reactor
        self._lost = lost
        self._tls = tls
        self._waiting: deque[_Waiting] = deque()
        self._connecting: Deferred[None] | None = None
        self._attempt: _Attempt | None = None
        self._timer: Any = None
        self._timer_s = 0.0

    @property
    def ready(self) -> bool:
        """Whether requests can be sent."""
        return self.machine.state in (State.READY, State.RENEWING)

    def version_of(self, request: type[Request]) -> int | None:
        """The newest version of a request that both sides support; None if there is none."""
        return self.machine.version_of(request)

    def connect(self) -> Deferred[None]:
        """Connect, after the back-off that earlier failures require; fires when versions are negotiated and the login is complete,
        fails with ConnectionFailed.

        Only while there is no connection and no other attempt.
        """
        assert self._attempt is None, "connect was called twice"
        connecting: Deferred[None] = Deferred()
        self._connecting = connecting
        self._attempt = attempt = _Attempt(self, None if self._tls is None else ClientPipe(self._tls(), self._host))
        wait_s = self.machine.backoff.wait_s(self._reactor.seconds())
        attempt.outcome = task.deferLater(self._reactor, wait_s, self._start, attempt)
        attempt.outcome.addErrback(attempt.failed)
        return connecting

    def send(self, request: Request, *, timeout_s: float | None = None, version_max: int | None = None) -> Deferred[Any]:
        """Send a request, in the newest version that both sides support, at most `version_max`; fires with the response, decoded.

        Fails with ClientError. The timeout counts from when the request is sent, not while it waits for its turn. The caller may
        cancel the Deferred: a request that was sent is served all the same, and its response is ignored.
        """
        if not self.ready:
            return fail(Closed(f"there is no connection to {self.address}"))
        if len(self._waiting) >= WAITING_MAX:
            return fail(TooManyRequests(f"{WAITING_MAX} requests to {self.address} are waiting; wait for their responses"))
        response: Deferred[Any] = Deferred()
        self._waiting.append(_Waiting(request, timeout_s, version_max, response))
        self._send_waiting()
        return response

    def close(self) -> None:
        """End the connection, or the attempt to connect. Requests without a response fail with Closed."""
        self._end(Closed(f"the connection to {self.address} was closed by this side"), report=False)

    # --- called by the attempt to connect, which becomes the connection ---

    def connected(self, attempt: _Attempt) -> None:
        """TCP is connected."""
        self.machine.connected(self._reactor.seconds())
        self._write()

    def received(self, data: bytes) -> None:
        """Bytes came."""
        machine, attempt = self.machine, self._attempt
        completed = machine.feed(data)
        if self._connecting is not None and machine.state is State.READY:
            connecting, self._connecting = self._connecting, None
            connecting.callback(None)
        for each in completed:
            self._complete(each)
        if attempt is not self._attempt:
            return  # what was called has closed the connection
        if machine.failure is not None:
            self._end(machine.failure)
        else:
            self._send_waiting()

    def ended(self, reason: str) -> None:
        """The peer or the system has closed the connection."""
        self._end(self.machine.closed_by_peer(reason))

    def unreachable(self, error: Exception) -> None:
        """There will be no connection."""
        cause = getattr(error, "osError", None)
        if isinstance(cause, int):  # an errno
            cause = OSError(cause, str(error))
        elif isinstance(error, DNSLookupError):
            cause = NameUnknown("the name does not resolve")
        elif isinstance(error, TimeoutError):
            cause = OSTimeoutError()
        reason = reason_text(cause) if isinstance(cause, OSError) else str(error).rstrip(".")
        self._end(Unreachable(self.address, reason, cause if isinstance(cause, OSError) else error))

    def tls_failed(self, error: ssl.SSLError) -> None:
        """TLS with the peer failed."""
        self._end(tls_failed(self.address, error))

    # --- inside ---

    def _start(self, attempt: _Attempt) -> Deferred[Any]:
        self.machine.connect_started(self._reactor.seconds())
        self._set_timer()
        endpoint: Any = HostnameEndpoint(self._reactor, self._host, self._port, timeout=self.machine.settings.connect_timeout_s)
        outcome: Deferred[Any] = endpoint.connect(Factory.forProtocol(lambda: attempt))
        return outcome

    def _complete(self, completed: Completed[Deferred[Any]]) -> None:
        if completed.context.called:
            return  # cancelled
        try:
            response = completed.response()
        except NotKafka as malformed:
            completed.context.errback(malformed)
            self._end(malformed)
        else:
            completed.context.callback(response)

    def _send_waiting(self) -> None:
        self.machine.check_session(self._reactor.seconds())
        while self._waiting and self.machine.ready:
            request, timeout_s, version_max, response = self._waiting.popleft()
            if response.called:
                continue  # cancelled
            try:
                self.machine.send(request, response, self._reactor.seconds(), timeout_s=timeout_s, version_max=version_max)
            except ClientError as error:
                response.errback(error)
        self._write()

    def _write(self) -> None:
        machine = self.machine
        while machine.unsent and self._attempt is not None:
            data = b"".join(machine.outgoing())
            machine.sent(len(data))
            self._attempt.write(data)
        self._set_timer()

    def _end(self, error: ConnectionFailed, *, report: bool = True) -> None:
        """Close the connection; everything without a response fails with the error."""
        was_ready = self.ready
        attempt, self._attempt = self._attempt, None
        connecting, self._connecting = self._connecting, None
        unanswered: list[Deferred[Any]] = []
        if self.machine.state is not State.DISCONNECTED:
            unanswered += [request.context for request in self.machine.disconnected(self._reactor.seconds())]
        unanswered += [each.response for each in self._waiting]
        self._waiting.clear()
        self._set_timer()
        if attempt is not None:
            attempt.end()
        for response in unanswered:
            if not response.called:
                response.errback(error)
        if connecting is not None:
            connecting.errback(error)
        elif was_ready and report and self._lost is not None:
            self._lost(error)

    def _set_timer(self) -> None:
        """Have `_check_deadline` called no later than at the machine's deadline: a timer that is too early is cheaper than a moved one."""
        deadline_s = self.machine.deadline_s
        if self._timer is not None and (deadline_s is None or deadline_s < self._timer_s):
            self._timer.cancel()
            self._timer = None
        if self._timer is None and deadline_s is not None:
            self._timer_s = deadline_s
            self._timer = self._reactor.callLater(max(deadline_s - self._reactor.seconds(), 0), self._check_deadline)

    def _check_deadline(self) -> None:
        self._timer = None
        late = self.machine.expired(self._reactor.seconds())
        if late is not None:
            self._end(late)
        else:
            self._set_timer()


class _Attempt(Protocol):
    """An attempt to connect, and the connection that comes of it. After `end` it reports nothing."""

    def __init__(self, owner: TwistedConnection, tls: ClientPipe | None) -> None:
        self._owner: TwistedConnection | None = owner
        self._tls = tls
        self._tcp: Any = None
        self.outcome: Deferred[Any] | None = None

    def write(self, data: bytes) -> None:
        """Send these bytes."""
        self._tcp.write(data if self._tls is None else self._tls.encrypt(data))

    def end(self) -> None:
        """Close the connection, or stop connecting."""
        self._owner = None
        if self._tcp is not None:
            self._tcp.abortConnection()
        elif self.outcome is not None:
            self.outcome.cancel()

    def failed(self, failure: Failure) -> None:
        """There is no connection."""
        if self._owner is not None:
            self._owner.unreachable(failure.value if isinstance(failure.value, Exception) else ConnectError(str(failure.value)))

    def connectionMade(self) -> None:
        self._tcp = self.transport
        if self._owner is None:
            self._tcp.abortConnection()
            return
        self._tcp.setTcpNoDelay(True)
        if self._tls is None:
            self._owner.connected(self)
        else:
            self._tcp.write(self._tls.begin())

    def dataReceived(self, data: bytes) -> None:
        if self._owner is not None and self._tls is not None:
            self._decrypt(data, self._owner, self._tls)
        elif self._owner is not None:
            self._owner.received(data)

    def _decrypt(self, data: bytes, owner: TwistedConnection, tls: ClientPipe) -> None:
        was_complete, failure, plain = tls.complete, None, b""
        try:
            plain = tls.feed(data)
        except ssl.SSLError as error:
            failure = error
        unsent = tls.unsent()
        if unsent:
            self._tcp.write(unsent)
        if failure is not None:
            owner.tls_failed(failure)
            return
        if tls.complete and not was_complete:
            owner.connected(self)
        if plain and self._owner is not None:
            owner.received(plain)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if self._owner is not None:
            self._owner.ended("" if reason.check(ConnectionDone) else str(reason.value).rstrip("."))
