"""Client quotas at the requests of one connection: the throttle time in the response, and the pause after it (KIP-219)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred

from txbroker.api.encoded.response_frame import with_throttle_time
from txbroker.api.parking import ParkedRequest
from txbroker.api.registry import Route
from txbroker.api.request_context import RequestContext
from txbroker.client_quotas.quotas import ClientQuotas
from txbroker.clock import DelayedCall


class Throttle:
    """One connection's. `muted`: the client has exceeded a quota; no more requests are to be taken until `resume` is called."""

    __slots__ = ("_call", "_quotas", "_resume", "_until_s", "muted")

    def __init__(self, quotas: ClientQuotas, resume: Callable[[], None]) -> None:
        self._quotas = quotas
        self._resume = resume
        self._call: DelayedCall | None = None
        self._until_s = 0.0
        self.muted = False

    def begin(self) -> float:
        """The time for `limited`, when the request is about to be handled."""
        return self._quotas.clock.seconds()

    def limited(self, response: Any, route: Route, request: Any, context: RequestContext, size: int, begun_s: float) -> Any:
        """The response, or a Deferred of it, with the throttle time that the client's quotas require. `size`: of the request."""
        if route.is_exempt(request):
            return response
        spent_s = self._quotas.clock.seconds() - begun_s
        if isinstance(response, ParkedRequest):
            response = response.deferred()
        if isinstance(response, Deferred):
            return response.addCallback(self._limited, route, context, size, spent_s)
        return self._limited(response, route, context, size, spent_s)

    def _limited(self, response: Any, route: Route, context: RequestContext, size: int, spent_s: float) -> Any:
        fetched_ms = getattr(response, "throttle_time_ms", 0)
        pause_ms = max(fetched_ms, self._quotas.served(context.principal, context.client_id, route.api_key, size, spent_s))
        if not pause_ms:
            return response
        self._mute(pause_ms / 1000)
        return with_throttle_time(response, pause_ms, route.api_key, flexible=route.flexible)

    def _mute(self, pause_s: float) -> None:
        clock = self._quotas.clock
        until_s = clock.seconds() + pause_s
        if self._call is not None:
            if until_s <= self._until_s:
                return
            self._call.cancel()
        self._call = clock.callLater(pause_s, self._unmute)
        self._until_s = until_s
        self.muted = True

    def _unmute(self) -> None:
        self.stop()
        self._resume()

    def stop(self) -> None:
        """End a pause without `resume`: the connection is closed."""
        self.muted = False
        if self._call is not None and self._call.active():
            self._call.cancel()
        self._call = None
