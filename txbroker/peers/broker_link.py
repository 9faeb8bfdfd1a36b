"""Requests to one address of a broker, one at a time: the connection is made when a request needs it, and again after its loss."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from twisted.internet.defer import Deferred, DeferredLock

from txbroker.client.client_errors import Closed
from txbroker.wire.schema import Request

if TYPE_CHECKING:
    from txbroker.client.twisted_connection import TwistedConnection


class Link(Protocol):
    """A way to one broker."""

    @property
    def address(self) -> str:
        """For the log."""

    def send(self, request: Any) -> Deferred[Any]:
        """Fires with the response. ConnectionFailed: whether the request was served is not known."""

    def disconnect(self) -> None:
        """End the connection, and the request without a response; the next request makes another one."""

    def close(self) -> None:
        """End the request without a response, and take no more."""


class BrokerLink:
    """`connection` is not connected yet. After a failure its back-off delays the next attempt."""

    def __init__(self, connection: TwistedConnection, timeout_s: float) -> None:
        """`timeout_s`: for a response, counted from when its request is sent."""
        self.address = connection.address
        self._connection = connection
        self._timeout_s = timeout_s
        self._turn = DeferredLock()
        self._is_closed = False

    def send(self, request: Request) -> Deferred[Any]:
        """Fires with the response. ConnectionFailed: the connection failed, and whether the request was served is not known."""
        return self._turn.run(lambda: Deferred.fromCoroutine(self._send(request)))

    def disconnect(self) -> None:
        """End the connection or the attempt to connect; the request without a response fails with ConnectionFailed."""
        self._connection.close()

    def close(self) -> None:
        """The same for good: requests that wait for their turn, and later ones, fail without another connection."""
        self._is_closed = True
        self.disconnect()

    async def _send(self, request: Request) -> Any:
        if self._is_closed:
            raise Closed(f"the connection to {self.address} was closed by this side")
        if not self._connection.ready:
            await self._connection.connect()
        return await self._connection.send(request, timeout_s=self._timeout_s)
