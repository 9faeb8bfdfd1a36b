"""A small HTTP server: one request per connection, with limits on size, time and connections."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred, succeed
from twisted.protocols.policies import ProtocolWrapper, WrappingFactory
from twisted.python.failure import Failure
from twisted.web import http

from txbroker.metrics.host_names import HostNames

log = logging.getLogger("txbroker.metrics")

# The maximum duration of a connection.
CONNECTION_S_MAX = 30.0
# With more connections the oldest is closed, so that clients that hold theirs do not block others.
CONNECTIONS_MAX = 32

TEXT = "text/plain; charset=utf-8"
MISDIRECTED = 421  # RFC 9110, 15.5.20
HOST_NAMES_KEY = "txbroker.metrics.host.names"


class Answer(NamedTuple):
    """A response: status, content type and the body in parts."""

    status: int
    content_type: str
    parts: list[bytes]


Page = Callable[[str], "Deferred[Answer]"]  # the argument is the Accept header


def text(status: int, line: str) -> Deferred[Answer]:
    """A response of one line."""
    return succeed(Answer(status, TEXT, [line.encode() + b"\n"]))


class _Request(http.Request):
    """One request. A request with a body is refused at once."""

    _refused = False

    def gotLength(self, length: int | None) -> None:
        super().gotLength(0)
        if length != 0:
            self._refused = True
            transport: Any = self.channel.transport
            transport.write(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            self.channel.loseConnection()

    def handleContentChunk(self, data: bytes) -> None:
        """Ignore it, as the request has been refused."""

    def process(self) -> None:
        if self._refused:
            return
        self.channel.persistent = False
        pages: Mapping[bytes, Page] = self.channel.factory.pages
        names: HostNames = self.channel.factory.names
        page = pages.get(self.path)
        hosts = [host.decode("latin-1") for host in self.requestHeaders.getRawHeaders(b"host", [])]
        if not names.allow(hosts):
            answered = text(MISDIRECTED, "the Host header has no name of this port: use its address, or add the name to " + HOST_NAMES_KEY)
        elif page is None:
            known = ", ".join(sorted(path.decode() for path in pages))
            answered = text(http.NOT_FOUND, f"this port serves {known}")
        elif self.method not in (b"GET", b"HEAD"):
            self.setHeader(b"allow", b"GET, HEAD")
            answered = text(http.NOT_ALLOWED, "only GET and HEAD are served")
        else:
            answered = page(b",".join(self.requestHeaders.getRawHeaders(b"accept", [])).decode("latin-1"))
        answered.addCallbacks(self._answer, self._failed).addErrback(lambda failure: log.error("%s", failure.getTraceback()))

    def _answer(self, answer: Answer) -> None:
        if self._disconnected:
            return
        self.setResponseCode(answer.status)
        self.setHeader(b"content-type", answer.content_type.encode())
        self.setHeader(b"content-length", str(sum(map(len, answer.parts))).encode())
        self.setHeader(b"cache-control", b"no-store")
        self.setHeader(b"connection", b"close")
        self.write(b"".join(answer.parts))
        self.finish()

    def _failed(self, _: Failure) -> None:
        self._answer(Answer(http.INTERNAL_SERVER_ERROR, TEXT, [b"internal error; see the broker's log\n"]))


class _Factory(http.HTTPFactory):
    """Without Twisted's access log and its timer."""

    noisy = False

    def __init__(self, reactor: Any, pages: Mapping[bytes, Page], names: HostNames) -> None:
        super().__init__(timeout=CONNECTION_S_MAX, reactor=reactor)
        self.pages = pages
        self.names = names

    def startFactory(self) -> None:
        """No access log."""

    def stopFactory(self) -> None:
        """No access log."""

    def log(self, request: http.Request) -> None:
        """No access log."""

    def buildProtocol(self, addr: Any) -> Any:
        channel: Any = super().buildProtocol(addr)
        channel.requestFactory = _Request
        return channel


class _Connection(ProtocolWrapper):
    """A connection with a limited duration."""

    factory: Any
    transport: Any

    def makeConnection(self, transport: Any) -> None:
        super().makeConnection(transport)
        self._end = self.factory.reactor.callLater(CONNECTION_S_MAX, self.abort)
        self.factory.opened(self)

    def abort(self) -> None:
        """Close it at once."""
        self.transport.abortConnection()

    def connectionLost(self, reason: Failure) -> None:  # type: ignore[override]
        if self._end.active():
            self._end.cancel()
        super().connectionLost(reason)


class Pages(WrappingFactory):
    """The factory of a port that serves these pages by path, to requests that use one of its names."""

    noisy = False
    protocol = _Connection

    def __init__(self, reactor: Any, pages: Mapping[bytes, Page], names: HostNames) -> None:
        super().__init__(_Factory(reactor, pages, names))
        self.reactor = reactor
        self._open: deque[_Connection] = deque()

    def opened(self, connection: _Connection) -> None:
        """Count a connection, and close the oldest if there are too many."""
        self._open.append(connection)
        if len(self._open) > CONNECTIONS_MAX:
            self._open.popleft().abort()

    def unregisterProtocol(self, p: Any) -> None:
        super().unregisterProtocol(p)
        if p in self._open:
            self._open.remove(p)

    def abort_all(self) -> None:
        """Close all connections."""
        for connection in tuple(self._open):
            connection.abort()
