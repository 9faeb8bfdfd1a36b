"""A connection during its TLS handshake. When that is complete, a `ServerTransport` takes its place."""

from __future__ import annotations

import contextlib
import socket
import ssl
from typing import TYPE_CHECKING

from twisted.internet.main import CONNECTION_DONE, CONNECTION_LOST
from twisted.python.failure import Failure

from txbroker.api.request_context import Session
from txbroker.transport.handshakes import failure_text
from txbroker.transport.server import ServerTransport
from txbroker.transport.tls_stream import Channel, TlsStream, server_channel

if TYPE_CHECKING:
    from collections.abc import Callable

    from txbroker.transport.hub import Hub
    from txbroker.transport.interfaces import FrameProtocol, ListenerTls

# All bytes of a handshake, with the client's certificates.
HANDSHAKE_BYTES_MAX = 64 * 1024
_CHUNK = 16 * 1024
_HANDSHAKE_RECORD = 0x16


class Handshake:
    """A member of the poller and the hub. `build` makes the protocol of the connection."""

    __slots__ = ("_build", "_channel", "_computing", "_error", "_has_stepped", "_hub", "_is_complete", "_login", "_socket",
                 "_tls", "_unsent", "active", "session")  # fmt: skip

    def __init__(self, sock: socket.socket, session: Session, hub: Hub, tls: ListenerTls, build: Callable[[], FrameProtocol]) -> None:
        sock.setblocking(False)
        self._socket = sock
        self._hub = hub
        self._tls = tls
        self._build = build
        self._channel: Channel | None = None  # until there are bytes for it
        self._unsent = b""
        self._has_stepped = False
        self._computing = False
        self._is_complete = False
        self._error: Exception | None = None
        self.session = session
        session.has_tls = True
        self.active = hub.tick
        self._login = hub.logins.begin(session.peer_host, self._expired)
        hub.quotas.add(session.peer_host)
        hub.opened(self)
        why = hub.logins.too_many(session.peer_host)
        if why is not None:
            self._refuse("login_connections", why)
            self.loseConnection()
            return
        hub.poller.set_interest(self, read=True)

    def fileno(self) -> int:
        return self._socket.fileno()

    def doRead(self) -> Exception | None:
        try:
            data = self._socket.recv(_CHUNK)
        except BlockingIOError:
            return None
        except OSError:
            return CONNECTION_LOST
        if not data:
            return CONNECTION_DONE
        login, channel = self._login, self._channel
        if not login.received and data[0] != _HANDSHAKE_RECORD:
            return self._refuse("plain_client", "the client does not speak TLS: set security.protocol=SSL or SASL_SSL in the client")
        login.received += len(data)
        if login.received > HANDSHAKE_BYTES_MAX:
            return self._refuse("tls_handshake_failed", f"its TLS handshake is longer than {HANDSHAKE_BYTES_MAX} bytes")
        if channel is None:
            channel = self._channel = server_channel(self._tls.context)
        channel.incoming.write(data)
        if self._has_stepped and channel.tls.context.verify_mode == ssl.CERT_NONE:
            self.step()  # what is left to compute is less than passing it to a worker
            self.stepped()
            return None
        self._has_stepped = True
        self._computing = True
        self._hub.poller.set_interest(self, read=False)
        self._hub.handshakes.compute(self)
        return None

    def step(self) -> None:
        """In a worker: nothing else uses the channel meanwhile."""
        assert self._channel is not None, "bytes were received"
        try:
            self._channel.tls.do_handshake()
            self._is_complete = True
        except ssl.SSLWantReadError:
            pass
        except Exception as error:
            self._error = error

    def stepped(self) -> None:
        """Send what the step has made, and go on."""
        self._computing = False
        if self._socket.fileno() < 0:
            return
        why = self._send()
        if why is None and self._error is not None:
            why = self._refuse("tls_handshake_failed", failure_text(self._error))
        if why is not None:
            self._close(why)
        elif self._is_complete:
            self._hand_over()
        else:
            self._hub.poller.set_interest(self, read=True)

    def _send(self) -> Exception | None:
        if not self._computing and self._channel is not None:
            self._unsent += self._channel.outgoing.read()
        try:
            if self._unsent:
                self._unsent = self._unsent[self._socket.send(self._unsent) :]
        except BlockingIOError:
            pass
        except OSError:
            return CONNECTION_LOST
        self._hub.poller.set_interest(self, write=bool(self._unsent))
        return None

    def doWrite(self) -> Exception | None:
        return None if self._is_complete else self._send()

    def _hand_over(self) -> None:
        assert self._channel is not None, "the handshake is complete"
        try:
            principal = self._tls.principal(self._channel.tls.getpeercert(binary_form=True))
        except ValueError as error:
            self._close(self._refuse("tls_principal", str(error)))
            return
        if principal is not None:
            self.session.principal = principal
        hub, sock = self._hub, self._socket
        self._hub.poller.set_interest(self, read=False, write=False)
        hub.handshakes.count += 1
        protocol = self._build()
        transport = ServerTransport(TlsStream(sock, self._channel, self._unsent), protocol, self.session, hub, self._login)
        protocol.makeConnection(transport)
        if self.session.login is None:
            transport.logged_in()
        hub.quotas.replaced(self.session.peer_host)
        hub.closed(self)

    def _refuse(self, reason: str, text: str) -> Exception:
        """Count and log a failure; the reason to close."""
        self._hub.closed_for[reason] += 1
        self._hub.handshakes.failed(self.session, text)
        self._tls.refused(self.session, text)
        return CONNECTION_LOST

    def _expired(self) -> None:
        if self._login.received:
            text = f"its TLS handshake took longer than {self._hub.logins.limits.login_ms_max} ms"
            self._close(self._refuse("tls_handshake_timeout", text))
        else:
            self._hub.closed_for["idle"] += 1
            self._close(CONNECTION_DONE)

    def _close(self, why: Exception) -> None:
        self._hub.poller.set_interest(self, read=False, write=False)
        self.connectionLost(Failure(why))

    def connectionLost(self, reason: Failure) -> None:
        if self._socket.fileno() < 0:
            return
        self._login.end()
        self._hub.poller.set_interest(self, read=False, write=False)
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._hub.quotas.remove(self.session.peer_host)
        self._hub.closed(self)

    def reap(self) -> None:
        """It has a deadline."""

    def check_progress(self) -> None:
        """It has nothing of the receive budget."""

    def flush_now(self) -> None:
        """It has no responses."""

    def loseConnection(self) -> None:
        self._hub.reactor.callLater(0, self._close, CONNECTION_DONE)

    abortConnection = loseConnection
