"""Which request of a connection may be handled now: what may overlap (Kafka serves one at a time), and the pauses of client quotas."""

from __future__ import annotations

from txbroker.api.registry import Route
from txbroker.api.throttling import Throttle
from txbroker.client_quotas.quotas import ClientQuotas
from txbroker.connection.response_order import ResponseOrder
from txbroker.wire.schema import Request


class Admission(ResponseOrder):
    """A request that may not be handled yet stays with the transport, which offers it again when the connection is no longer full."""

    __slots__ = ("_deferred_frame", "_exclusive", "_quotas", "_throttle")

    def __init__(self, quotas: ClientQuotas | None, in_flight_max: int, output_bytes_max: int) -> None:
        super().__init__(in_flight_max, output_bytes_max)
        self._quotas = quotas
        self._throttle: Throttle | None = None  # from the first request on for which there are quotas
        self._exclusive = False  # the request in flight does not overlap with others
        self._deferred_frame = False  # the transport keeps a frame that must wait until nothing is in flight, or until a pause is over

    def _defer(self) -> bool:
        """Have the transport keep this frame; returns that it was not taken."""
        self._deferred_frame = self.full = True
        return False

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
        return self._deferred_frame or (self._throttle is not None and self._throttle.muted)
