"""Decodes the requests of a connection, calls their handlers, and makes responses, or the end of the connection, of their errors."""

from __future__ import annotations

import logging
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from twisted.internet.defer import Deferred, fail
from twisted.python.failure import Failure

from txbroker.api.encoded.cached_response import CachedResponse
from txbroker.api.encoded.encoded_response import EncodedResponse
from txbroker.api.encoded.response_frame import Frame, response_frame
from txbroker.api.first_routes import FirstRoutes
from txbroker.api.parking import ParkedRequest
from txbroker.api.registry import Answer, HandlerResult, Registry, Route, UnsupportedVersion
from txbroker.api.request_context import RequestContext, Session
from txbroker.api.throttling import Throttle
from txbroker.api.unanswered_appends import Unanswered
from txbroker.api.unsupported_features import Feature, UnsupportedFeature
from txbroker.connection.admission import Admission
from txbroker.connection.recognition import Recognition
from txbroker.connection.response_order import IN_FLIGHT_MAX, OUTPUT_BYTES_MAX, Slot
from txbroker.errors import BrokerError, ErrorCode, ProtocolError
from txbroker.transport import other_protocols
from txbroker.transport.interfaces import FrameTransport
from txbroker.wire.codec import encode_bytes
from txbroker.wire.headers import API_VERSIONS_KEY, response_prefix
from txbroker.wire.known_requests import Holder
from txbroker.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from txbroker.wire.schema import Request, Response

log = logging.getLogger("txbroker.connection")

# API key and version as one number (registry.route_key), and the correlation id.
_START = struct.Struct(">Ii")

# At most this much of a client id is logged.
LOGGED_CLIENT_ID_MAX = 100

_NO_FRAME: Frame = ([], 0)


class Connection(Admission):
    """The highest layer of a connection. Satisfies `FrameProtocol`."""

    __slots__ = ("_recognition", "_registry", "_routes", "_session")

    _session: Session
    _routes: Mapping[int, Route] | FirstRoutes

    def __init__(self, registry: Registry, *, in_flight_max: int = IN_FLIGHT_MAX, output_bytes_max: int = OUTPUT_BYTES_MAX) -> None:
        super().__init__(registry.quotas, in_flight_max, output_bytes_max)
        self._registry = registry
        self._routes = FirstRoutes(registry.routes, self._is_used)
        self._recognition = Recognition()

    def makeConnection(self, transport: FrameTransport) -> None:
        self._transport = transport
        self._session = transport.session

    def connectionLost(self, reason: Failure) -> None:
        """Cancel the requests in flight."""
        if isinstance(self._routes, FirstRoutes):
            if self._routes.greeted and not self._closing and not self._transport.disconnecting:
                self._registry.unsupported.closed_unused(self._session, self._recognition.client_id)
            self._routes = self._registry.routes
        if self._throttle is not None:
            self._throttle.stop()
        for later in self._abandon():
            self._cancel(later)

    def _cancel(self, later: Deferred[Any] | ParkedRequest[Any]) -> None:
        try:
            later.cancel()
        except Exception:
            log.exception("internal error cancelling a request from %s", self._who())

    def _is_used(self) -> None:
        """The client has sent its first request that is not ApiVersions."""
        if isinstance(self._routes, FirstRoutes) and self._routes.greeted:
            self._registry.unsupported.used(self._session, self._recognition.client_id)
        self._routes = self._registry.routes

    def bad_size(self, size: int, size_max: int) -> None:
        feature = other_protocols.feature(size)
        if feature is not None:
            self._refuse_protocol(feature)
            return
        reason = "request_too_large" if size > size_max else "request_too_small"
        self._close(reason, f"a request of {size} bytes (socket.request.max.bytes is {size_max})")

    def input_ended(self) -> None:
        self._end()

    def _refuse_protocol(self, feature: Feature) -> None:
        if not self._ending:
            self._registry.unsupported.required(feature, self._session, self._recognition.client_id)
            self._put([other_protocols.ANSWER], len(other_protocols.ANSWER))
            self._end()

    def frame_received(self, frame: memoryview, /) -> bool:
        if self._ending:
            return True
        recognition = self._recognition
        try:
            key, correlation_id = _START.unpack_from(frame)
            route = self._routes[key]
            if self._slots and (self._exclusive or not route.overlaps):
                return self._defer()
            throttle = None
            quotas = self._quotas
            if quotas is not None and quotas.active:
                throttle = self._throttle = self._throttle or Throttle(quotas, self._resume)
                if throttle.muted:
                    return self._defer()
                throttle_begun_s = throttle.begin()
            route.requests_until_sample = left = route.requests_until_sample - 1
            begun = 0.0 if left else route.begin_timed()
            holders: Sequence[Holder] = ()
            if route.known is None:
                request = route.decode(frame[recognition.read_header(frame, route.request_header) :])
            else:
                known = recognition.find(frame, route.known)
                if known is None:
                    request, holders = recognition.decode(frame, route)
                else:
                    request, holders = known.message, known.holders
        except ProtocolError as error:
            self._refuse(frame, error)
            return True
        context = RequestContext(route.api_key, route.api_version, correlation_id, recognition.client_id, self._session)
        response: Any  # HandlerResult; the checks below are by class, which is faster
        try:
            response = route.call(request, context)
        except Exception as error:
            response = self._failed(error, route, request, context)
        records_bytes = 0
        for holder in holders:
            records_bytes += len(holder.records or b"")
            holder.records = b""  # the view of the frame ends here
        if throttle is not None:
            response = throttle.limited(response, route, request, context, len(frame), throttle_begun_s)
            if throttle.muted:
                self.full = True
        kind = response.__class__
        if kind is EncodedResponse:
            if self._slots:
                self._put(response.parts, response.size)
            else:  # as `_put`, in place: this is for each small Produce and Fetch
                self._output += response.parts
                self.output_bytes += response.size
                if self.output_bytes > self._output_bytes_max:
                    self.full = True
        elif kind is route.response or kind is CachedResponse:
            self._put(*self._encode(response, route, request, context))
        elif response is not None:
            if begun and isinstance(response, ParkedRequest):
                response = response.deferred()  # `_record_duration` waits for it, too
            self._wait(response, len(frame) - records_bytes, route, request, context)
        if begun:
            self._record_duration(begun, route, response)
        return True

    def _record_duration(self, begun: float, route: Route, response: HandlerResult) -> None:
        """Record how long this request took, from its last byte until its response was made; not if its connection is gone by then."""
        if not isinstance(response, Deferred):
            route.times.end(begun)
            return

        def answered(result: object) -> object:
            if not self._closing:
                route.times.end(begun)
            return result

        response.addBoth(answered)

    def _wait(self, response: object, request_size: int, route: Route, request: Request, context: RequestContext) -> None:
        later: Deferred[Any] | ParkedRequest[Any]
        if isinstance(response, Deferred | ParkedRequest):
            later = response
        else:
            later = fail(TypeError(f"a handler of {route.name} returned {type(response).__name__}"))
        slot = self._reserve(later, request_size)
        self._exclude(route, request)
        arguments = (slot, route, request, context)
        if isinstance(later, Deferred):
            later.addCallbacks(self._answered, self._broken, callbackArgs=arguments, errbackArgs=arguments)
        else:
            later.when_answered(self._answered, *arguments)

    def _answered(self, response: Answer | None, slot: Slot, route: Route, request: Request, context: RequestContext) -> None:
        if self._closing:
            return
        slot.later = None
        self._waiting_bytes -= slot.request_size
        slots = self._slots
        if self._throttle is not None and self._throttle.muted:
            self.full = True
        if response.__class__ is EncodedResponse and len(slots) == 1 and not self.full:
            # As `_fill` and `_drain`, in place: one produce may complete thousands of fetches.
            slots.popleft()
            self._output += response.parts
            self.output_bytes += response.size
            self._exclusive = False
            if self.output_bytes > self._output_bytes_max:
                self.full = True
            self._transport.flush()
            return
        self._fill(slot, *(_NO_FRAME if response is None else self._encode(response, route, request, context, slot)))
        if slot is slots[0]:
            self._drain()

    def _broken(self, failure: Failure, slot: Slot, route: Route, request: Request, context: RequestContext) -> None:
        if self._closing:
            return
        error = failure.value
        assert error is not None
        error.__traceback__ = failure.getTracebackObject()
        self._answered(self._failed(error, route, request, context, slot), slot, route, request, context)

    def _encode(self, response: Answer, route: Route, request: Request, context: RequestContext, slot: Slot | None = None) -> Frame:
        """The response frame; nothing after an error that closes the connection. `slot`: of the request, if it has one."""
        try:
            return response_frame(response, route, context)
        except Exception as error:
            failed = self._failed(error, route, request, context, slot)
        if failed is not None:
            try:
                return response_frame(failed, route, context)
            except Exception:
                log.exception("internal error: the error response to %s from %s cannot be encoded", route.name, self._who())
                self._close("failed_without_answer", f"{route.name} failed", slot)
        return _NO_FRAME

    def _failed(
        self, error: BaseException, route: Route, request: Request, context: RequestContext, slot: Slot | None = None
    ) -> Response | None:
        """The response to a request that failed as a whole; None when there can be none, and the connection is closed."""
        if isinstance(error, ProtocolError):
            self._close("unparsable_request", f"{route.name}: {error}", slot)
            return None
        if isinstance(error, UnsupportedFeature):
            self._registry.unsupported.required(error.feature, self._session, context.client_id)
        elif not isinstance(error, BrokerError):
            log.error("internal error handling %s from %s", route.name, self._who(), exc_info=error)
            error = BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR)
        response = None
        if route.failed is not None:
            try:
                response = route.failed(request, context, error)
            except Exception:
                log.exception("internal error: there is no error response to %s from %s", route.name, self._who())
        if response is None:
            details = "" if error.message is None else f" ({error.message})"
            why = f"{route.name} failed with {error.code.name}{details}; the response cannot carry this error"
            self._close("failed_without_answer", why, slot, is_logged=isinstance(error, Unanswered) and error.is_logged)
        return response

    def _refuse(self, frame: memoryview, error: ProtocolError) -> None:
        """Close, except for an ApiVersions request of an unknown version: clients learn the known ones from the response (KIP-511)."""
        key, correlation_id = _START.unpack_from(frame)
        if not (isinstance(error, UnsupportedVersion) and key >> 16 == API_VERSIONS_KEY):
            route = self._registry.routes.get(key)
            unserved = "unsupported_version" if isinstance(error, UnsupportedVersion) else "unknown_api"
            self._close("unparsable_request" if route else unserved, f"{route.name}: {error}" if route else str(error))
            return
        low, high = self._registry.ranges()[API_VERSIONS_KEY]
        served = ApiVersion(api_key=API_VERSIONS_KEY, min_version=low, max_version=high)
        body = encode_bytes(ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[served]), 0)
        prefix = response_prefix(0, len(body), correlation_id)
        self._put([prefix, body], len(prefix) + len(body))

    def _close(self, reason: str, why: str, slot: Slot | None = None, *, is_logged: bool = False) -> None:
        """Close the connection. `reason` is counted, `why` is logged, unless the log has it already."""
        if not self._ending:
            self._registry.closed[reason] += 1
            log.log(logging.DEBUG if is_logged else logging.WARNING, "closing the connection of %s: %s", self._who(), why)
        self._end(slot)

    def _who(self) -> str:
        session, client_id = self._session, self._recognition.client_id
        client = "" if client_id is None else f" (client id {client_id[:LOGGED_CLIENT_ID_MAX]!r})"
        return f"{session.peer_host}:{session.peer_port}{client}"
