"""The controller's request queues: one request in flight per broker. Those that wait are merged (`waiting_requests.py`)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.python.failure import Failure

from txbroker.cluster.controller.controller_context import LiveBroker
from txbroker.cluster.controller.request_batch import ControllerRequest
from txbroker.cluster.controller.waiting_requests import WaitingRequests
from txbroker.errors import BrokerError, ErrorCode
from txbroker.wire.schema import Response

log = logging.getLogger("txbroker.controller")

Answered = Callable[[int, ControllerRequest, Response], None]


class Channel(Protocol):
    """A way to one registered broker, in one controller term. One request at a time is sent."""

    def send(self, request: ControllerRequest) -> Deferred[Response]:
        """Fires with the response, however often the request has to be sent; when it fails, the request is dropped."""

    def close(self) -> None:
        """The broker is gone or has restarted, or the term has ended: send no more."""


OpenChannel = Callable[[int, LiveBroker], Channel]


class Channels:
    """One queue per broker, with a channel of its own."""

    def __init__(self, open_channel: OpenChannel, answered: Answered) -> None:
        self._open_channel = open_channel
        self._answered = answered
        self._queues: dict[int, _Queue] = {}

    def put(self, broker_id: int, broker: LiveBroker, request: ControllerRequest) -> None:
        """Queue a request for a registered broker."""
        queue = self._queues.get(broker_id)
        if queue is None:
            queue = self._queues[broker_id] = _Queue(broker_id, self._open_channel(broker_id, broker), self._answered)
        queue.put(request)

    def drop(self, broker_id: int) -> None:
        """The broker is gone or has restarted: drop its queued requests and ignore late responses."""
        queue = self._queues.pop(broker_id, None)
        if queue is not None:
            queue.close()

    def close(self) -> None:
        """Drop all queues."""
        for broker_id in list(self._queues):
            self.drop(broker_id)


class _Queue:
    def __init__(self, broker_id: int, channel: Channel, answered: Answered) -> None:
        self._closed = False
        self._broker_id = broker_id
        self._channel = channel
        self._answered = answered
        self._waiting = WaitingRequests()
        self._in_flight = False

    def put(self, request: ControllerRequest) -> None:
        self._waiting.put(request)
        self._next()

    def close(self) -> None:
        self._closed = True
        self._waiting.clear()
        self._channel.close()

    def _next(self) -> None:
        if self._in_flight or self._closed or not len(self._waiting):
            return
        request = self._waiting.take()
        self._in_flight = True
        answer = maybeDeferred(self._channel.send, request)
        answer.addCallbacks(lambda response: self._answer(request, response), lambda failure: self._lost(request, failure))

    def _answer(self, request: ControllerRequest, response: Response) -> None:
        self._in_flight = False
        if not self._closed:
            self._answered(self._broker_id, request, response)
        self._next()

    def _lost(self, request: ControllerRequest, failure: Failure) -> None:
        self._in_flight = False
        if not self._closed:
            replaced = failure.check(BrokerError) and failure.value.code == ErrorCode.STALE_CONTROLLER_EPOCH  # type: ignore[union-attr]
            # This broker can know of the next controller from its requests, before ZooKeeper has reported the election.
            level, name = logging.WARNING if replaced else logging.ERROR, type(request).__name__
            log.log(level, "failed to send %s to broker %d: %s", name, self._broker_id, failure.getErrorMessage())
        self._next()
