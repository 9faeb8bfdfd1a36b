"""The way of a controller or a transaction coordinator to a broker: a connection, or a call if the broker is in this process.

Kafka's `RequestSendThread`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, fail
from twisted.python.failure import Failure

from txbroker.backoff import Backoff
from txbroker.client.client_errors import Closed, ConnectionFailed
from txbroker.clock import Clock, DelayedCall
from txbroker.cluster.controller.request_batch import ControllerRequest
from txbroker.cluster.own_broker import OwnBroker
from txbroker.errors import BrokerError, ErrorCode
from txbroker.peers.broker_link import Link
from txbroker.wire.schema import Request, Response

log = logging.getLogger("txbroker.controller")

_NOT_PERMITTED = (
    "its ACLs do not permit ClusterAction on the cluster to this broker: name the principal of the brokers in super.users, or create an ACL"
)


class PeerChannel:
    """Sends each request again until it is answered, or the channel is closed. One that the broker denies is also sent again: no other
    request would take its place.

    Satisfies `broker_channels.Channel` and `marker_queues.Channel`. A request may be served twice: the epochs of controller, broker, leader
    and producer make the second time harmless.
    """

    def __init__(self, broker_id: int, link: Link, clock: Clock, chance: Callable[[], float]) -> None:
        """`chance` returns numbers from 0 to 1."""
        self._broker_id = broker_id
        self._link = link
        self._clock = clock
        self._backoff = Backoff(chance)
        self._closed = False
        self._unreachable = False
        self._pause: Deferred[None] | None = None
        self._timer: DelayedCall | None = None

    def send(self, request: Request) -> Deferred[Any]:
        """Fires with the response. Fails with ConnectionFailed once the channel is closed."""
        return Deferred.fromCoroutine(self._send(request))

    def close(self) -> None:
        """The broker is gone, or this broker is no longer the controller: end the connection and stop sending."""
        self._closed = True
        self._link.close()
        if self._pause is not None and self._timer is not None:
            self._timer.cancel()
            self._resume()

    async def _send(self, request: Request) -> Any:
        while not self._closed:
            try:
                response = await self._link.send(request)
            except ConnectionFailed as error:
                if not self._closed:
                    await self._wait(error)
            else:
                if getattr(response, "error_code", ErrorCode.NONE) != ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                    self._answered()
                    return response
                await self._wait(ConnectionFailed(_NOT_PERMITTED))
        raise Closed(f"the channel to broker {self._broker_id} is closed")

    async def _wait(self, error: ConnectionFailed) -> None:
        if not self._unreachable:
            self._unreachable = True
            log.warning("cannot send requests to broker %d, they are repeated while it is registered: %s", self._broker_id, error)
        self._link.disconnect()  # after an answer that no other request can change, such as too old versions
        now_s = self._clock.seconds()
        self._backoff.failed(now_s)
        pause: Deferred[None] = Deferred()
        self._pause = pause
        self._timer = self._clock.callLater(self._backoff.wait_s(now_s), self._resume)
        await pause

    def _resume(self) -> None:
        pause, self._pause, self._timer = self._pause, None, None
        if pause is not None:
            pause.callback(None)

    def _answered(self) -> None:
        self._backoff.succeeded()
        if self._unreachable:
            self._unreachable = False
            log.info("broker %d at %s answers again", self._broker_id, self._link.address)


class OwnLink:
    """The broker in this process. A request that it cannot carry out now fails as if the connection were lost."""

    address = "this process"

    def __init__(self, own: OwnBroker) -> None:
        self._own = own

    def send(self, request: ControllerRequest) -> Deferred[Response]:
        """Fires with the response; BrokerError if the request is refused as a whole."""
        return self._own.send(request).addErrback(_not_now)

    def disconnect(self) -> None:
        """There is nothing to end: what has begun is carried out."""

    close = disconnect


def _not_now(failure: Failure) -> Failure:
    if failure.check(BrokerError) and failure.value.code == ErrorCode.BROKER_NOT_AVAILABLE:  # type: ignore[union-attr]
        return Failure(Closed(failure.getErrorMessage()))
    return failure


class Unaddressed:
    """The channel to a broker that has not registered an endpoint of the inter-broker listener."""

    def __init__(self, broker_id: int, listener: str) -> None:
        self._problem = (
            f"broker {broker_id} has registered no listener {listener}: inter.broker.listener.name must be the same on all brokers"
        )

    def send(self, request: ControllerRequest) -> Deferred[Response]:
        """Fails: the broker has to register again with such a listener."""
        return fail(BrokerError(ErrorCode.BROKER_NOT_AVAILABLE, self._problem))

    def close(self) -> None:
        """There is nothing to end."""
