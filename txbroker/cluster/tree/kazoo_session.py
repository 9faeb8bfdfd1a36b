"""One ZooKeeper session on kazoo, whose results, watch events and states arrive in one queue, in the order of the connection.

kazoo 2.10 and 2.11 have properties that a broker cannot live with; all of them are handled here:

- Results and watch events go through two threads, and states through a third, so that a result can overtake the event that caused it.
  Here both queues and the state listener put into one: `call_from_thread`, the reactor's. The connection's thread feeds it in order.
- `create_async` delivers its result one step later than other operations. Requests are submitted as such, with one step each.
- After an expiry kazoo opens another session by itself, and performs in it what was submitted for the old one. Here the client stops.
- A session that ZooKeeper does not answer is lost only when ZooKeeper says so, after a reconnection. `negotiated_ms`, which kazoo does
  not keep, lets the owner end it earlier.
- The pause between attempts to connect grows to an hour by default. Here it ends at a second. A server that does not answer may use up
  a session's whole timeout, and be chosen again at once. Here the time is divided among the servers, and they have an order.
- Its thread keeps a session alive while the reactor hangs. Here it stops to do so: a broker that serves nothing must not stay leader.
- It logs two warnings for each attempt to connect, and makes its own context for TLS. Here an outage is logged with growing pauses, and
  the context is the caller's.
- It reports a connection before it logs in by SASL. Here it counts once ZooKeeper has accepted the login; requests wait for that anyway.
- An unexpected error ends kazoo's thread; it never reconnects. That is reported as the end of the session, as an expiry is.
"""

from __future__ import annotations

import logging
import ssl
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import Enum
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import AuthFailedError, SessionClosedRequireSaslError, SessionExpiredError
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import ConnectionDropped
from kazoo.protocol.serialization import Exists
from kazoo.protocol.states import KeeperState
from kazoo.retry import KazooRetry

STOP_S = 10.0

log = logging.getLogger("txbroker.zookeeper")
kazoo_log = logging.getLogger("txbroker.zookeeper.kazoo")


class SessionState(Enum):
    """SUSPENDED: not connected, at first and after a loss of the connection. OVER is the last state."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    OVER = "over"


_REPORTED = {
    KeeperState.CONNECTED: SessionState.CONNECTED,
    KeeperState.CONNECTING: SessionState.SUSPENDED,
    KeeperState.EXPIRED_SESSION: SessionState.OVER,
    KeeperState.AUTH_FAILED: SessionState.OVER,
    KeeperState.CLOSED: SessionState.OVER,
}
_RETRY = {"max_tries": -1, "delay": 0.1, "backoff": 2, "max_delay": 1.0}

Credentials = tuple[int, bytes]
"""A session's id and password, with which another process can end it."""


class Outage:
    """The attempts to connect that have failed since the last one that succeeded, over all sessions of one broker."""

    def __init__(self) -> None:
        self.failures = 0


class KazooSession:
    """A session. `on_state` gets its states, and `done` of `submit` an AsyncResult that is ready; both by `call_from_thread`.

    OVER comes before the failures of what was submitted. `servers` are tried in this order, and have no chroot. With `credentials` an
    existing session is taken over. `sasl`: kazoo's options of a login.
    """

    def __init__(
        self,
        servers: str,
        timeout_ms: int,
        *,
        call_from_thread: Callable[..., object],
        on_state: Callable[[SessionState], None],
        credentials: Credentials | None = None,
        tls: ssl.SSLContext | None = None,
        sasl: Mapping[str, str] | None = None,
        outage: Outage | None = None,
    ) -> None:
        if kazoo_log.level == logging.NOTSET:
            kazoo_log.setLevel(logging.ERROR)  # what it reports of a connection is reported here
        handler = _Handler(call_from_thread, timeout_ms / 1000 / (1 + servers.count(",")), tls)
        retry = KazooRetry(sleep_func=handler.sleep_func, **_RETRY)
        self._client = _Client(
            lambda state: call_from_thread(on_state, state),
            call_from_thread,
            Outage() if outage is None else outage,
            logging.DEBUG if credentials is not None else logging.WARNING,
            servers,
            timeout_ms / 1000,
            client_id=credentials,
            handler=handler,
            connection_retry=retry,
            randomize_hosts=False,
            sasl_options=None if sasl is None else dict(sasl),
            logger=kazoo_log,
        )

    def start(self) -> None:
        """Begin to connect; `on_state` reports CONNECTED."""
        self._client.start_async()

    def submit(self, request: Any, done: Callable[[Any], None]) -> None:
        """Send a request of `kazoo.protocol.serialization`. While the connection is lost it waits for the next one of this session."""
        result = self._client.handler.async_result()
        result.rawlink(done)
        self._client._call(request, result)

    @property
    def credentials(self) -> Credentials:
        """Of the session, once it is connected."""
        return self._client.credentials

    @property
    def negotiated_ms(self) -> int:
        """The session's timeout as ZooKeeper set it, once it is connected."""
        return self._client.negotiated_ms

    @property
    def problem(self) -> str:
        """Why the last attempt to connect has failed; empty if there was none, or it has not."""
        return self._client.problem

    def stop(self) -> None:
        """End the session if it is connected, and release everything. Blocks: for a worker."""
        self._client.stop()
        if self._client._connection.stop(STOP_S):
            self._client.close()


class _Queue:
    """Takes the place of both of kazoo's queues; it needs no thread."""

    def __init__(self, call_from_thread: Callable[..., object]) -> None:
        self.put = call_from_thread


class TlsHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """Connects with a context of the caller's: kazoo's own takes its stores from files in PEM only."""

    def __init__(self, tls: ssl.SSLContext | None, connect_s: float) -> None:
        super().__init__()
        self._tls = tls
        self._connect_s = connect_s

    def create_connection(self, *args: Any, timeout: float, hostname: str | None = None, **kwargs: Any) -> Any:
        """Connect to one server."""
        connect_s = min(timeout, self._connect_s)
        sock = super().create_connection(*args, timeout=connect_s, hostname=hostname, **kwargs)
        if self._tls is None:
            return sock
        try:
            sock.settimeout(connect_s)
            return self._tls.wrap_socket(sock, server_hostname=hostname)
        except BaseException:
            sock.close()
            raise


class _Handler(TlsHandler):
    """Runs callbacks where `call_from_thread` does. It counts as running for ever, so that kazoo never calls one in its own thread."""

    def __init__(self, call_from_thread: Callable[..., object], connect_s: float, tls: ssl.SSLContext | None) -> None:
        super().__init__(tls, connect_s)
        self.completion_queue = self.callback_queue = _Queue(call_from_thread)
        self._running = True

    def start(self) -> None:
        """No workers."""

    def stop(self) -> None:
        """No workers."""

    def spawn(self, func: Callable[..., object], *args: Any, **kwargs: Any) -> threading.Thread:
        """Run the connection's thread. kazoo logs an exception that ends it and reports the end of the session."""

        def run() -> None:
            with suppress(Exception):
                func(*args, **kwargs)

        thread = threading.Thread(target=run, name="zookeeper", daemon=True)
        thread.start()
        return thread


def report_refused_logins(client: Any) -> None:
    """Let a client of kazoo's report AuthFailedError also at a ZooKeeper that requires logins: its error there ends kazoo's thread."""
    connection = client._connection
    log_in = connection._authenticate_with_sasl

    def checked(*arguments: Any) -> None:
        try:
            log_in(*arguments)
        except SessionClosedRequireSaslError:
            raise AuthFailedError from None

    connection._authenticate_with_sasl = checked


class _Client(KazooClient):  # type: ignore[misc]
    """A client of one session, which stops when the session ends."""

    def __init__(
        self,
        report: Callable[[SessionState], object],
        call_from_thread: Callable[..., object],
        outage: Outage,
        level: int,
        *arguments: Any,
        **options: Any,
    ) -> None:
        """`level`: of the log lines about attempts to connect that fail."""
        super().__init__(*arguments, **options)
        self.problem = ""
        self._user = (options["sasl_options"] or {}).get("username")
        self._reported: SessionState | None = None
        self._level = level
        self._outage = outage
        report_refused_logins(self)
        self._connect_once = self._connection._connect
        self._connection._connect = self._connect
        self._report = report
        self._call_from_thread = call_from_thread
        self._is_reached = True
        self._has_skipped = False
        self._ping = self._connection._send_ping
        self._connection._send_ping = self._ping_if_reached
        self.negotiated_ms: int = self._session_timeout
        self.credentials: Credentials = (0, b"")
        invoke = self._connection._invoke

        def invoke_and_keep(*invoked: Any, **named: Any) -> Any:
            answer = invoke(*invoked, **named)
            if isinstance(answer, tuple) and getattr(answer[0], "time_out", 0) > 0:
                self.negotiated_ms = answer[0].time_out
                self.credentials = answer[0].session_id, answer[0].passwd
            return answer

        self._connection._invoke = invoke_and_keep

    def _session_callback(self, state: str) -> None:
        reported = _REPORTED[state]
        if reported is not SessionState.CONNECTED or self._user is None:
            self._report_once(reported)
        super()._session_callback(state)
        if reported is SessionState.OVER:
            self._stopped.set()

    def _report_once(self, state: SessionState) -> None:
        if state is not self._reported:
            self._reported = state
            self._report(state)

    def _connect(self, host: str, address: str, port: int) -> Any:
        """In the connection's thread: one attempt to connect."""
        try:
            connected = self._connect_once(host, address, port)
        except SessionExpiredError:
            raise
        except AuthFailedError as error:
            self.problem = f"{host}:{port}: it refuses the login of {self._user!r}; correct the user or the password"
            if not isinstance(error.__cause__, ConnectionDropped):
                raise AuthFailedError(self.problem) from None
            self._has_failed()
            raise error.__cause__ from None  # as at its restart
        except Exception as error:
            self.problem = f"{host}:{port}: {error}"
            self._has_failed()
            raise
        self._outage.failures, self.problem = 0, ""
        self._report_once(SessionState.CONNECTED)
        return connected

    def _has_failed(self) -> None:
        self._outage.failures += 1
        failures = self._outage.failures
        if failures.bit_count() == 1:  # the first, the second, the fourth and so on
            log.log(self._level, "cannot connect to ZooKeeper at %s (attempt %d); retrying", self.problem, failures)

    def _ping_if_reached(self, connect_timeout: float) -> None:
        """In the connection's thread: keep the session alive if a call of the ping before has been performed."""
        if not self._is_reached:
            self._has_skipped = True
            return
        self._is_reached = False
        self._call_from_thread(self._reached)
        self._ping(connect_timeout)

    def _reached(self) -> None:
        self._is_reached = True
        if self._has_skipped:
            self._has_skipped = False
            kazoo_log.warning("this process has not run for a third of the timeout of its ZooKeeper session, or longer")
            self._call(Exists("/", None), self.handler.async_result())  # a request is as good as a ping
