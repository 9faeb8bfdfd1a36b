"""Decodes the requests of a connection, calls their handlers, and makes responses, or the end of the connection, of their errors."""

from __future__ import annotations

import logging
import struct
from typing import Any

from twisted.internet.defer import Deferred, fail
from twisted.python.failure import Failure

from txbroker.api.encoded.cached_response import CachedResponse
from txbroker.api.encoded.response_frame import Frame, response_frame
from txbroker.api.parking import ParkedRequest
from txbroker.api.registry import Answer, NotLoaded, Registry, Route, UnsupportedVersion
from txbroker.api.request_context import RequestContext, Session
from txbroker.api.unanswered_appends import Unanswered
from txbroker.api.unsupported_features import UnsupportedFeature
from txbroker.connection.admission import Admission, Begun
from txbroker.connection.response_order import Slot
from txbroker.connection.states import ANONYMOUS_STATES, OutOfTurn, RequestKind, State, States, expected, request_kind
from txbroker.errors import BrokerError, ErrorCode, ProtocolError
from txbroker.names import amount
from txbroker.security.principals import ANONYMOUS
from txbroker.transport import other_protocols
from txbroker.transport.interfaces import FrameTransport
from txbroker.wire.codec import encoder
from txbroker.wire.headers import API_VERSIONS_KEY, read_client_id
from txbroker.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from txbroker.wire.schema import Request, Response

log = logging.getLogger("txbroker.connection")

# API key and version as one number (registry.route_key), and the correlation id.
START = struct.Struct(">Ii")

# At most this much of a client id is logged.
LOGGED_CLIENT_ID_MAX = 100

NO_FRAME: Frame = ([], 0)
_UNSERVED: dict[type[Exception], str] = {UnsupportedVersion: "unsupported_version", NotLoaded: "handler_not_loaded"}
_READY = State.READY


class Connection(Admission):
    """The highest layer of a connection. Satisfies `FrameProtocol`."""

    __slots__ = ("_body_at", "_client_id", "_header", "_header_version", "_registry", "_routes", "_session", "_states")

    _session: Session

    def __init__(self, registry: Registry, states: States = ANONYMOUS_STATES) -> None:
        super().__init__(registry.quotas)
        self._client_id: str | None = None  # of the last request, nearly always also of the next one
        self._header, self._body_at, self._header_version = b"", 0, -1  # of that request: its bytes after the first eight
        self._registry = registry
        self._routes = registry.routes
        self._states = states

    def makeConnection(self, transport: FrameTransport) -> None:
        self._transport = transport
        session = self._session = transport.session
        session.audit = audit = self._registry.audit
        if audit is not None and self._states is ANONYMOUS_STATES and session.principal != ANONYMOUS:
            audit.logged_in(session, None, "TLS certificate")

    def connectionLost(self, reason: Failure) -> None:
        """Cancel the requests in flight."""
        if self._state is State.HANDSHAKE and not self._transport.disconnecting and self._session.login is None:
            self._registry.unsupported.closed_unused(self._session, self._client_id)
        if self._throttle is not None:
            self._throttle.stop()
        for later in self._abandon():
            try:
                later.cancel()
            except Exception:
                log.exception("internal error cancelling a request from %s", self._who())

    def route(self, key: int) -> Route:
        """The route of a request by its first four bytes (`registry.route_key`); ProtocolError if there is none."""
        return self._routes[key]

    @property
    def takes_messages(self) -> bool:
        """Whether the next frame is a message of a login, without a header."""
        return False

    def _enter(self, route: Route) -> bool:
        """Go to the state that a request leads to; False if no more are taken. OutOfTurn if it may not be sent in this state."""
        if self._is_ending:
            return False
        state = self._states[self._state].get(request_kind(route.api_key))
        if state is None:
            raise OutOfTurn(f"the client is not authenticated, {expected(self._states, self._state)} is expected")
        if self._state is State.HANDSHAKE and state is not State.HANDSHAKE:
            self._registry.unsupported.used(self._session, self._client_id)
        self._state = state
        return True

    def bad_size(self, size: int, size_max: int) -> None:
        feature = other_protocols.feature(size)
        if feature is None:
            reason = "request_too_large" if size > size_max else "request_too_small"
            self._close(reason, f"a request of {size} bytes ({self._size_key()} is {size_max})")
        elif not self._is_ending:
            self._registry.unsupported.required(feature, self._session, self._client_id)
            self._put([other_protocols.ANSWER], len(other_protocols.ANSWER))
            self._end()

    def _size_key(self) -> str:
        """The key of the maximum size of a request now."""
        return "socket.request.max.bytes"

    def input_ended(self) -> None:
        self._end()

    def frame_received(self, frame: memoryview, /) -> bool:
        begun = None
        key, correlation_id = START.unpack_from(frame)
        try:
            route = self._routes[key]
            if (self._slots or self._throttle is not None) and self._must_wait(route):
                return False
            if self._state is not _READY and not self._enter(route):
                return True
            left = route.requests_until_sample = route.requests_until_sample - 1
            if not left or (self._quotas is not None and self._quotas.active):
                begun = self._begin(route, len(frame), timed=not left)
            request = route.decode(frame[self._body_position(frame, route.request_header) :])
        except ProtocolError as error:
            self._refuse(frame, error)
            return True
        context = RequestContext(route.api_key, route.api_version, correlation_id, self._client_id, self._session)
        try:
            response: Any = route.call(request, context)
        except Exception as error:
            response = self._failed(error, route, request, context)
        held = len(frame)
        if route.release_records is not None:
            held -= route.release_records(request)  # the views of the frame end here
        if begun is None and response.__class__ is tuple:
            self._put(*response)
        else:
            self._respond(response, route, request, context, held, begun)
        return True

    def _body_position(self, frame: memoryview, version: int) -> int:
        """Where the body begins, after a header of this version; sets the client id. ProtocolError."""
        if version != self._header_version or frame[8 : self._body_at] != self._header:
            self._client_id, self._body_at = read_client_id(frame, version)
            self._header, self._header_version = bytes(frame[8 : self._body_at]), version
        return self._body_at

    def _respond(self, response: Any, route: Route, request: Request, context: RequestContext, held: int, begun: Begun | None) -> None:
        """Put what a handler has returned. `held`: the bytes of the request that stay in memory if the response comes later."""
        if begun is not None:
            response = self._limited(response, route, request, context, begun)
        if response.__class__ is tuple:
            self._put(*response)
        elif response.__class__ is route.response or response.__class__ is CachedResponse:
            self._put(*self._encode(response, route, request, context))
        elif response is not None:
            self._wait(response, held, route, request, context)
        if begun is not None:
            self._record_duration(begun, route, response)

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
        if self._state is State.CLOSED:
            return
        slot.later = None
        self._waiting_bytes -= slot.request_size
        slots = self._slots
        if self._is_muted():
            self.full = True
        if response.__class__ is tuple and len(slots) == 1 and not self.full:
            # As `_fill` and `_drain`, in few steps: one produce may complete thousands of fetches.
            slots.popleft()
            self._exclusive = False
            self._put(*response)
            self._transport.flush()
            return
        self._fill(slot, *(NO_FRAME if response is None else self._encode(response, route, request, context, slot)))
        if slot is slots[0]:
            self._drain()

    def _broken(self, failure: Failure, slot: Slot, route: Route, request: Request, context: RequestContext) -> None:
        if self._state is State.CLOSED:
            return
        error = failure.value
        assert error is not None
        error.__traceback__ = failure.getTracebackObject()
        self._answered(self._failed(error, route, request, context, slot), slot, route, request, context)

    def _encode(self, response: Answer, route: Route, request: Request, context: RequestContext, slot: Slot | None = None) -> Frame:
        """The response frame; nothing after an error that closes the connection. `slot`: of the request, if it has one."""
        try:
            return response_frame(response, route.encode, route.response_header, context.correlation_id)
        except Exception as error:
            failed = self._failed(error, route, request, context, slot)
        if failed is not None:
            try:
                return response_frame(failed, route.encode, route.response_header, context.correlation_id)
            except Exception:
                log.exception("internal error: the error response to %s from %s cannot be encoded", route.name, self._who())
                self._close("failed_without_answer", f"{route.name} failed", slot)
        return NO_FRAME

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
        if self._is_ending:
            return
        key, correlation_id = START.unpack_from(frame)
        is_greeting = key >> 16 == API_VERSIONS_KEY and RequestKind.API_VERSIONS in self._states[self._state]
        if not (isinstance(error, UnsupportedVersion) and is_greeting):
            route = self._registry.routes.get(key)
            unserved = _UNSERVED.get(type(error), "unknown_api")
            self._close("unparsable_request" if route else unserved, f"{route.name}: {error}" if route else str(error))
            return
        low, high = self._registry.ranges()[API_VERSIONS_KEY]
        served = ApiVersion(api_key=API_VERSIONS_KEY, min_version=low, max_version=high)
        response = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[served])
        self._put(*response_frame(response, encoder(ApiVersionsResponse, 0), 0, correlation_id))

    def _close(self, reason: str, why: str, slot: Slot | None = None, *, is_logged: bool = False) -> None:
        """Close the connection. `reason` is counted, `why` is logged, unless the log has it already."""
        if not self._is_ending:
            left_out = self._registry.connection_closed(self._session.peer_host, reason, is_logged)
            level = logging.DEBUG if left_out is None else logging.WARNING
            more = f" ({amount(left_out, 'connection')} more since the last such line)" if left_out else ""
            log.log(level, "closing the connection of %s: %s%s", self._who(), why, more)
        self._end(slot)

    def _who(self) -> str:
        session, client_id = self._session, self._client_id
        client = "" if client_id is None else f" (client id {client_id[:LOGGED_CLIENT_ID_MAX]!r})"
        return f"{session.peer_host}:{session.peer_port}{client}"
