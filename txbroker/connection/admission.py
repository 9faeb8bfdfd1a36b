"""Which request of a connection may be handled now: what may overlap (Kafka serves one at a time), and the pauses of client quotas."""

from __future__ import annotations

from typing import Any, NamedTuple

from twisted.internet.defer import Deferred

from txbroker.api.parking import ParkedRequest
from txbroker.api.registry import Route
from txbroker.api.request_context import RequestContext
from txbroker.api.throttling import Throttle
from txbroker.client_quotas.quotas import ClientQuotas
from txbroker.connection.response_order import ResponseOrder
from txbroker.connection.states import State
from txbroker.wire.schema import Request


class Begun(NamedTuple):
    """When a request of `size` bytes was received: `timed_s` if its duration is recorded, otherwise 0; `limited_s` if there are quotas."""

    size: int
    timed_s: float
    limited_s: float | None


class Admission(ResponseOrder):
    """A request that may not be handled yet stays with the transport, which offers it again when the connection is no longer full."""

    __slots__ = ("_deferred_frame", "_exclusive", "_quotas", "_throttle")

    def __init__(self, quotas: ClientQuotas | None) -> None:
        super().__init__()
        self._quotas = quotas
        self._throttle: Throttle | None = None  # from the first request on for which there are quotas
        self._exclusive = False  # the request in flight does not overlap with others
        self._deferred_frame = False  # the transport keeps a frame that must wait until nothing is in flight, or until a pause is over

    def _must_wait(self, route: Route) -> bool:
        """Whether the next request must wait. Then the transport keeps its frame, and offers it again: nothing may have changed by it."""
        waits = not self._is_ending and (bool(self._slots and (self._exclusive or not route.overlaps)) or self._is_muted())
        if waits:
            self._deferred_frame = self.full = True
        return waits

    def _is_muted(self) -> bool:
        return self._throttle is not None and self._throttle.muted

    def _begin(self, route: Route, size: int, *, timed: bool) -> Begun:
        """A request is about to be handled that is timed, or for which there are quotas."""
        limited_s = None
        if self._quotas is not None and self._quotas.active:
            self._throttle = self._throttle or Throttle(self._quotas, self._resume)
            limited_s = self._throttle.begin()
        return Begun(size, route.begin_timed() if timed else 0.0, limited_s)

    def _limited(self, response: Any, route: Route, request: Request, context: RequestContext, begun: Begun) -> Any:
        """What a handler has returned, with the throttle time that the client's quotas require."""
        if begun.limited_s is not None and self._throttle is not None:
            response = self._throttle.limited(response, route, request, context, begun.size, begun.limited_s)
            if self._throttle.muted:
                self.full = True
        return response.deferred() if begun.timed_s and isinstance(response, ParkedRequest) else response

    def _record_duration(self, begun: Begun, route: Route, response: object) -> None:
        """Record how long this request took, from its last byte until its response was made; not if its connection is gone by then."""
        if begun.timed_s:
            if isinstance(response, Deferred):
                response.addBoth(self._timed, begun.timed_s, route)
            else:
                route.times.end(begun.timed_s)

    def _timed(self, result: object, begun_s: float, route: Route) -> object:
        if self._state is not State.CLOSED:
            route.times.end(begun_s)
        return result

    def _exclude(self, route: Route, request: Request) -> None:
        """This request is in flight: which ones may be handled beside it? None beside one without a response, whose failure ends the
        connection."""
        self._exclusive = not route.overlaps or not route.is_answered(request)

    def _resume(self) -> None:
        """The pause of a client that has exceeded a quota is over."""
        self._deferred_frame = False
        self._measure()
        self._transport.flush()

    def _drained(self) -> None:
        self._exclusive = self._deferred_frame = False

    def _is_held(self) -> bool:
        return self._deferred_frame or self._is_muted()
