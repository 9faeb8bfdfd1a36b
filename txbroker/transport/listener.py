"""A listening socket, which makes a `ServerTransport` for each connection that it accepts."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

from twisted.internet import tcp
from twisted.internet.error import CannotListenError
from twisted.internet.protocol import Factory

from txbroker.client_quotas.connection_rates import ConnectionRates
from txbroker.transport.congestion import avoid_pacing, set_algorithm
from txbroker.transport.handshake import Handshake
from txbroker.transport.hub import Hub
from txbroker.transport.interfaces import FrameProtocol, ListenerTls
from txbroker.transport.quotas import ConnectionQuotas
from txbroker.transport.server import ServerTransport, plain_host, session_of
from txbroker.transport.stream import Stream, stream_of

# Connections that are accepted before the reactor serves others.
ACCEPTS_PER_TURN = 100


class _Protocols(Factory):
    """Builds the protocol of a new connection, or refuses the connection (Twisted's Factory)."""

    noisy = False

    def __init__(self, name: str, build: Callable[[], Any], quotas: ConnectionQuotas) -> None:
        self._name = name
        self._build = build
        self._quotas = quotas
        self.accepted = 0

    def logPrefix(self) -> str:
        return f"listener {self._name}"

    def buildProtocol(self, addr: Any) -> Any:
        self.accepted += 1
        host, rates = plain_host(addr.host), self._quotas.rates
        delay_s = 0.0 if rates is None else rates.accepted(host)
        if delay_s:
            return _Throttled(delay_s)
        return self._build() if self._quotas.allows(host) else None


class _Later:
    """The protocol of a connection during its handshake: there is none yet."""

    def makeConnection(self, transport: object) -> None:
        pass


class _Throttled(_Later):
    """In place of the protocol of a connection that is closed after a delay, as its address connects too fast."""

    def __init__(self, delay_s: float) -> None:
        self.delay_s = delay_s


class Listener(tcp.Port):
    """One listener of the broker: `startListening` binds (CannotListenError), `stopListening` closes and returns a Deferred.

    `host` is an address; "" is the wildcard of IPv4 and IPv6, if the system has both. Port 0 is any free port; `getHost().port` returns it.
    """

    def __init__(
        self, hub: Hub, name: str, host: str, port: int, build: Callable[[], FrameProtocol], *, backlog: int = 50,
        tls: ListenerTls | None = None,
    ) -> None:  # fmt: skip
        self.hub = hub
        self.name = name
        self.stream: Callable[[socket.socket], Stream] = stream_of
        """Makes the stream of an accepted socket, if it has no TLS."""
        self._build = build
        self._tls = tls
        self._remote_algorithm: bytes | None = None  # the congestion control of connections from other machines; None: they inherit it
        self._has_waited = False  # for the next connection
        self._both = host == "" and socket.has_dualstack_ipv6()
        factory = self._protocols = _Protocols(name, build if tls is None else _Later, hub.quotas)
        super().__init__(port, factory, backlog, "::" if self._both else host, hub.reactor)  # type: ignore[arg-type]

    def transport(  # type: ignore[override]
        self, sock: socket.socket, protocol: Any, client: Any, server: object, number: int, reactor: object
    ) -> ServerTransport | Handshake | _Throttled:
        """Make the transport of an accepted socket (called by `tcp.Port.doRead`)."""
        if isinstance(protocol, _Throttled):
            self.hub.throttled.add(sock, protocol.delay_s)
            return protocol
        session = session_of(sock, client, self.name, number)
        if self._remote_algorithm is not None and session.peer_host != session.local_host:
            set_algorithm(sock, self._remote_algorithm)
        if self._tls is not None:
            return Handshake(sock, session, self.hub, self._tls, self._build)
        return ServerTransport(self.stream(sock), protocol, session, self.hub)

    def createInternetSocket(self) -> socket.socket:
        """A socket with the options that accepted ones inherit."""
        made: socket.socket = super().createInternetSocket()
        if self._both:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._remote_algorithm = avoid_pacing(made)
        limits = self.hub.limits
        if limits.send_buffer_bytes > 0:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, limits.send_buffer_bytes)
        if limits.receive_buffer_bytes > 0:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, limits.receive_buffer_bytes)
        return made

    def check(self) -> None:
        """Bind the address and release it: CannotListenError if that fails. Without `listen` no client can connect meanwhile."""
        try:
            with self.createInternetSocket() as made:
                # The interface is an address, or a name that has one of this family.
                made.bind(socket.getaddrinfo(self.interface or None, self.port, made.family, made.type, flags=socket.AI_PASSIVE)[0][4])
        except OSError as error:
            raise CannotListenError(self.interface, self.port, error) from error

    def doRead(self) -> None:
        """Accept connections, as far as max.connections, max.connection.creation.rate and the limit of open files allow."""
        room = self.hub.quotas.room
        if not room:
            self.stopReading()
            self.hub.quotas.when_room(self._accept_again)
            return
        rates = self.hub.quotas.rates
        if rates is not None and rates.is_limited(self.name):
            self._accept_slowly(rates)
            return
        self.numberAccepts = min(ACCEPTS_PER_TURN, room)
        super().doRead()

    def _accept_slowly(self, rates: ConnectionRates) -> None:
        """Accept one connection, now or when its time has come."""
        delay_s = 0.0 if self._has_waited else rates.accepting(self.name)
        self._has_waited = delay_s > 0
        if delay_s:
            self.stopReading()
            self.hub.reactor.callLater(delay_s, self._accept_again)
            return
        self.numberAccepts = 1
        accepted = self._protocols.accepted - rates.throttled
        super().doRead()
        if self._protocols.accepted - rates.throttled == accepted:
            rates.not_accepted(self.name)

    def _accept_again(self) -> None:
        if self.connected and not self.disconnecting:
            self.startReading()
